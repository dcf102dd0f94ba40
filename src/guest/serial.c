#include "guest/serial.h"

#include <dirent.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <termios.h>

#include "guest/conn.h"
#include "guest/scratch.h"
#include "guest/sys.h"

enum { SERIALS_MAX = 4, SERIAL_BYTES = 64 << 10, PORT_NAME_MAX = 64 };

#define OPEN_AGAIN_NS 50000000
/* While a port takes no bytes, it is also tried without an event. */
#define LOOK_AGAIN_NS 1000000000

struct serial {
    struct port port;
    size_t start, end; /* packets in `out` that wait to be sent */
    bool is_readable;  /* there may be bytes to read: epoll reports only new ones */
    uint8_t *out;
};

/* One mapping: the struct, then from SCRATCH_ALIGN on `out`, the received bytes and the packet. */
#define BUFFER_BYTES (2 * SERIAL_BYTES + PORT_PACKET_MAX)
#define SERIAL_MAP (SCRATCH_ALIGN + BUFFER_BYTES)
_Static_assert(sizeof(struct serial) <= SCRATCH_ALIGN, "the buffers begin at a page");

/* Ports that are opened by path: of several, the first one is that of the daemon. */
static struct { const char *path; /* NULL: the port is open */ } awaited[SERIALS_MAX];
static int awaited_end;

/* Buffers. */

struct serial *serial_new(void) {
    struct serial *s = mmap(NULL, SERIAL_MAP, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED)
        return NULL;
    s->out = (uint8_t *)s + SCRATCH_ALIGN;
    uint8_t *in = s->out + SERIAL_BYTES;
    port_init(&s->port, false, in, SERIAL_BYTES, in + SERIAL_BYTES);
    s->is_readable = true;
    return s;
}

void serial_drop_pages(struct serial *s) {
    bool is_idle = s->start == s->end && s->port.in.start == s->port.in.end;
    if (is_idle && s->port.in.have == 0)
        madvise(s->out, BUFFER_BYTES, MADV_DONTNEED);
}

void serial_wake(struct serial *s) {
    s->is_readable = true;
}

bool serial_waits(const struct serial *s) {
    return s->start < s->end || port_owes(&s->port);
}

bool serial_receive(struct serial *s, int fd) {
    uint8_t *to;
    size_t room = s->is_readable ? port_space(&s->port, &to) : 0;
    if (room == 0)
        return false;
    ssize_t n = read(fd, to, room);
    if (n <= 0) {
        s->is_readable = n < 0 && errno == EINTR;
        return s->is_readable;
    }
    port_fed(&s->port, (size_t)n);
    return true;
}

enum port_got serial_next(struct serial *s, struct frame *ret) {
    return port_next(&s->port, ret);
}

void serial_forget(struct serial *s) {
    s->start = s->end = 0;
}

void serial_shut(struct serial *s) {
    port_shut(&s->port);
}

/* Writes packets that are ready. False: the port is full, or no host is connected. */
static bool serial_flush(struct serial *s, int fd) {
    while (s->start < s->end) {
        ssize_t n = write(fd, s->out + s->start, s->end - s->start);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        s->start += (size_t)n;
    }
    s->start = s->end = 0;
    return true;
}

size_t serial_send(struct serial *s, int fd, const uint8_t *frames, size_t n) {
    const uint8_t *at = frames;
    while (serial_flush(s, fd)) {
        s->end = port_send(&s->port, &at, &n, s->out, SERIAL_BYTES);
        if (s->end == 0)
            break;
    }
    return (size_t)(at - frames);
}

/* Opening. */

/* A terminal would change bytes and send them back. */
static void make_raw(int fd) {
    struct termios t;
    if (tcgetattr(fd, &t) < 0)
        return;
    cfmakeraw(&t);
    tcsetattr(fd, TCSANOW, &t);
}

struct conn *serial_open(struct guest *g, int fd) {
    make_raw(fd);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    return conn_open(g, fd, true);
}

static bool has_name(const char *port, const char *name) {
    char path[PORT_NAME_MAX + sizeof("/sys/class/virtio-ports//name")], text[PORT_NAME_MAX];
    static const char root[] = "/sys/class/virtio-ports/", file[] = "/name";
    size_t n = strlen(port);
    if (n > PORT_NAME_MAX)
        return false;
    memcpy(path, root, sizeof(root) - 1);
    memcpy(path + sizeof(root) - 1, port, n);
    memcpy(path + sizeof(root) - 1 + n, file, sizeof(file));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text));
    close_fd(&fd);
    size_t len = strlen(name);
    return got == (ssize_t)len + 1 && text[len] == '\n' && memcmp(text, name, len) == 0;
}

/* Without udev no path has the name of the port. */
int serial_find(const char *name) {
    int fd = -1;
    DIR *dir = opendir("/sys/class/virtio-ports");
    int dev = open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (struct dirent *e; dir && dev >= 0 && fd < 0 && (e = readdir(dir));)
        if (e->d_name[0] != '.' && has_name(e->d_name, name))
            fd = openat(dev, e->d_name, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (dir)
        closedir(dir);
    close_fd(&dev);
    return fd;
}

static bool serial_try(struct guest *g, int i) {
    const char *path = awaited[i].path;
    int fd = strchr(path, '/') ? open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
                               : serial_find(path);
    if (fd < 0)
        return false;
    struct conn *c = serial_open(g, fd);
    if (c)
        c->is_privileged = i > 0 || awaited_end == 1;
    return true;
}

bool serial_add(struct guest *g, const char *path) {
    if (awaited_end == SERIALS_MAX)
        return false;
    awaited[awaited_end++].path = path;
    g->has_timers = true;
    return true;
}

int64_t serial_tick(struct guest *g, int64_t now) {
    int64_t next = INT64_MAX;
    for (int i = 0; i < awaited_end; i++) {
        if (awaited[i].path && serial_try(g, i))
            awaited[i].path = NULL;
        if (awaited[i].path)
            next = now + OPEN_AGAIN_NS;
    }
    for (uint32_t i = 0; i < g->conn_end; i++) {
        struct serial *s = g->conns[i].src.fd >= 0 ? g->conns[i].serial : NULL;
        if (s && s->start < s->end)
            next = next < now + LOOK_AGAIN_NS ? next : now + LOOK_AGAIN_NS;
    }
    return next;
}
