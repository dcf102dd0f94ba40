# Runs Chromium in the machine without a screen, until its standard input ends. Argument: the directory of its profile.
# It speaks its DevTools protocol over two descriptors and listens on no port.
for name in chromium chromium-browser google-chrome; do
    program=$(command -v $name) && break
done
[ "$program" ] || { echo "chromium is not installed" >&2; exit 127; }
# The lock of an earlier browser names a process, and perhaps a machine, that are gone.
mkdir -p -m 700 "$1" && rm -f "$1"/Singleton* || exit 1
exec 3<&0 4>&1 </dev/null >&2
# The machine is the sandbox: Chromium's own one needs user namespaces, which a box does not have.
exec "$program" --headless=new --remote-debugging-pipe --user-data-dir="$1" --no-sandbox --disable-gpu \
    --disable-dev-shm-usage --window-size=1280,800 --hide-scrollbars --mute-audio --no-first-run \
    --no-default-browser-check --disable-background-networking --disable-component-update --disable-sync \
    --disable-extensions --disable-breakpad --password-store=basic about:blank
