# Keeps a machine in order. Argument: the task (upkeep.c). What it changes is on its output.
updates() {
    command -v apt-get >/dev/null || { echo "the task needs apt-get, as Debian and Ubuntu have it" >&2; exit 69; }
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o APT::Update::Error-Mode=any -o DPkg::Lock::Timeout=300 update || exit
    # A line is: Inst NAME [OLD] (NEW LABEL:VERSION/SUITE [ARCHITECTURE])
    packages=$(apt-get -s -o Debug::NoLocking=1 upgrade | sed -n 's/^Inst \([^ ]*\) .*(\S* .*[Ss]ecurity.*/\1/p') || exit
    [ "$packages" ] || { echo "there are no security updates"; exit 0; }
    # Files of settings that the user changed stay as they are.
    apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
        install --only-upgrade $packages
}
cleanup() {
    ! command -v apt-get >/dev/null || apt-get -o DPkg::Lock::Timeout=300 clean
    ! command -v journalctl >/dev/null || journalctl -q --vacuum-size=100M 2>/dev/null
    for directory in /tmp /var/tmp; do
        find "$directory" -xdev -mindepth 1 -type f -atime +10 -mtime +10 -print -delete
    done
}
units() {
    [ -d /run/systemd/system ] || { echo "systemd does not run in this machine" >&2; exit 69; }
    for unit in $(systemctl list-units --failed --plain --no-legend --no-pager | sed 's/ .*//'); do
        case $unit in *.service | *.socket | *.timer | *.mount) ;; *) continue ;; esac
        echo "restarting $unit"
        systemctl reset-failed "$unit" && systemctl restart --no-block "$unit"
    done
}
"$1"
