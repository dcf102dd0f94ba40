/*
 * Preloaded into a daemon: a name server that changes its mind. NAME.turn.test is 127.0.0.2 when it
 * is asked for the first time, and 127.0.0.1 from then on. Each question is a line of $TURN_NAMES.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int look_up_fn(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret) {
    static atomic_int asked;
    look_up_fn *real = (look_up_fn *)dlsym(RTLD_NEXT, "getaddrinfo");
    const char *log = getenv("TURN_NAMES");
    if (!name || !log || !strstr(name, ".turn.test"))
        return real(name, service, hints, ret);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        dprintf(fd, "%s\n", name);
        close(fd);
    }
    return real(asked++ ? "127.0.0.1" : "127.0.0.2", service, hints, ret);
}
