#include "spawn/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"

static int loopback_up(void) {
    int s DEFER_CLOSE = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    return s < 0 || ioctl(s, SIOCSIFFLAGS, &req) < 0 ? -errno : 0;
}

int netns_new(int home) {
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    int r = loopback_up();
    /* The kernel's name for a socket's own namespace: no /proc is needed. */
    int s DEFER_CLOSE = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int ns = s < 0 ? -1 : ioctl(s, SIOCGSKNS, 0);
    int e = errno;
    if (setns(home, CLONE_NEWNET) < 0)
        return -errno;
    if (r < 0 || ns < 0) {
        if (ns >= 0)
            close(ns);
        return r < 0 ? r : -e;
    }
    fcntl(ns, F_SETFD, FD_CLOEXEC);
    return ns;
}
