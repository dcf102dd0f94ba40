# Runs the desktop in the machine until its X server ends. Arguments: WIDTHxHEIGHT, its directory.
for program in Xtigervnc openbox; do
    command -v $program >/dev/null || { echo "$program is not installed" >&2; exit 127; }
done
mkdir -p -m 700 "$2" || exit 1
# Process ids repeat: a lock of an earlier start may name another program by now.
if read -r pid </tmp/.X0-lock && read -r name <"/proc/$pid/comm"; then
    case $name in X*) echo "another X server uses the display :0" >&2; exit 1 ;; esac
fi 2>/dev/null
rm -f /tmp/.X0-lock /tmp/.X11-unix/X0 "$2/vnc" "$2/new"
# A client that leaves during its handshake must not lock out those after it.
Xtigervnc :0 -geometry "$1" -depth 24 -nolisten tcp -rfbport -1 -rfbunixpath "$2/new" -rfbunixmode 0600 \
    -SecurityTypes None -AlwaysShared -AcceptCutText=0 -SendCutText=0 -SetPrimary=0 -SendPrimary=0 \
    -AcceptSetDesktopSize=0 -UseBlacklist=0 -desktop carrel &
server=$!
until [ -S /tmp/.X11-unix/X0 ]; do
    kill -0 $server 2>/dev/null || { wait $server; exit; }
    sleep 0.05
done
# The socket gets its name when the window manager has started: a window of an earlier moment can stay
# without a frame and without focus.
DISPLAY=:0 openbox --startup "mv $2/new $2/vnc" &
wait $server
