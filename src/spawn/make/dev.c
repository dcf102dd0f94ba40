#include "spawn/make/dev.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/make/mounts.h"

static const struct {
    const char *name;
    unsigned major, minor;
} nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
             {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

static const char *const links[][2] = {
    {"fd", "/proc/self/fd"},       {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
    {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},         {"core", "/proc/kcore"},
};

bool dev_can_make(int dir) {
    return mknodat(dir, "node", S_IFCHR | 0600, makedev(1, 3)) == 0 &&
           unlinkat(dir, "node", 0) == 0;
}

static int bind_node(int dir, int host, const char *name) {
    char path[32];
    snprintf(path, sizeof(path), "dev/%s", name);
    int fd DEFER_CLOSE = openat(dir, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
    int node DEFER_CLOSE = mount_clone(host, path);
    if (fd < 0 || node < 0)
        return fd < 0 ? -errno : node;
    return mount_attach(node, dir, name);
}

static int make_node(int dir, int host, size_t i) {
    dev_t number = makedev(nodes[i].major, nodes[i].minor);
    if (mknodat(dir, nodes[i].name, S_IFCHR | 0666, number) == 0)
        return 0;
    return errno == EPERM ? bind_node(dir, host, nodes[i].name) : -errno;
}

static int dev_make_nodes(int dir, int host) {
    for (size_t i = 0; i < sizeof(nodes) / sizeof(*nodes); i++) {
        int r = make_node(dir, host, i);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (symlinkat(links[i][1], dir, links[i][0]) < 0)
            return -errno;
    return mkdirat(dir, "pts", 0755) < 0 || mkdirat(dir, "shm", 01777) < 0 ? -errno : 0;
}

int dev_fill(int dir, int host) {
    mode_t was = umask(0);
    int r = dev_make_nodes(dir, host);
    umask(was);
    return r;
}
