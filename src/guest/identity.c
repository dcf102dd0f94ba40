#include "guest/identity.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "base/wire/vm_memory.h"
#include "guest/cmd.h"
#include "guest/conn.h"
#include "guest/sys.h"

static int deadline_clock = -1;

int identity_clock(void) {
    deadline_clock = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return deadline_clock;
}

int identity_set_deadline(uint64_t in_ms) {
    if (in_ms > INT32_MAX * 1000ull) {
        errno = EINVAL;
        return -1;
    }
    struct itimerspec in = {.it_value = {(time_t)(in_ms / 1000), (long)(in_ms % 1000) * 1000000}};
    return timerfd_settime(deadline_clock, 0, &in, NULL);
}

/*
 * Replaces the file `path`: writes a new file and renames it. If `path` is a link, writing to it
 * would change another file.
 */
static bool identity_put_file(const char *path, const char *fresh, const struct msg_str *text) {
    unlink(fresh);
    int fd = sys_open(AT_FDCWD, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (fd < 0)
        return false;
    bool ok = fchmod(fd, 0644) == 0 && write(fd, text->s, text->n) == (ssize_t)text->n &&
              write(fd, "\n", 1) == 1;
    close(fd);
    return ok && rename(fresh, path) == 0;
}

static bool stir(const struct msg_bytes *seed) {
    int fd = open("/dev/urandom", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool ok = write(fd, seed->p, seed->n) == (ssize_t)seed->n;
    close(fd);
    return ok;
}

/*
 * Renews the seed files that an init system feeds to the kernel's random number generator, so that
 * two machines differ.
 */
static void renew_seeds(void) {
    static const struct {
        const char *path, *fresh;
    } files[] = {
        {"/var/lib/systemd/random-seed", "/var/lib/systemd/.random-seed.carrel"},
        {"/var/lib/urandom/random-seed", "/var/lib/urandom/.random-seed.carrel"},
    };
    char bytes[512];
    struct stat st;
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (lstat(files[i].path, &st) == 0 &&
            getrandom(bytes, sizeof(bytes), GRND_NONBLOCK) == sizeof(bytes) &&
            identity_put_file(files[i].path, files[i].fresh,
                              &(struct msg_str){bytes, sizeof(bytes)}))
            (void)chmod(files[i].path, 0600);
}

static bool is_machine_id(const struct msg_str *id) {
    if (id->n != 32)
        return false;
    for (uint32_t i = 0; i < id->n; i++)
        if (!((id->s[i] >= '0' && id->s[i] <= '9') || (id->s[i] >= 'a' && id->s[i] <= 'f')))
            return false;
    return true;
}

enum serve_result identity_become(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_clone_id m;
    SERVE_GET(clone_id, f, &m);
    if (m.hostname.n > 64 || m.seed.n > 64 || (m.machine_id.n && !is_machine_id(&m.machine_id)))
        return SERVE_BROKEN;
    uint64_t done = 0;
    if (m.hostname.n && identity_put_file("/etc/hostname", "/etc/.hostname.carrel", &m.hostname) &&
        sethostname(m.hostname.s, m.hostname.n) == 0)
        done |= 1;
    if (m.machine_id.n &&
        identity_put_file("/etc/machine-id", "/etc/.machine-id.carrel", &m.machine_id))
        done |= 2;
    if (m.seed.n && stir(&m.seed))
        done |= 4;
    renew_seeds();
    conn_ok(c, f, done);
    return SERVE_DONE;
}

/* ---- a vm that goes on where its memory was saved ---- */

/* The kernel of the vm has the random numbers of the one that was saved. */
static void reseed(const struct msg_bytes *seed) {
    struct {
        int bits, size;
        uint8_t seed[32];
    } entropy = {sizeof(entropy.seed) * 8, sizeof(entropy.seed), {0}};
    memcpy(entropy.seed, seed->p, sizeof(entropy.seed));
    int fd = open("/dev/urandom", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (ioctl(fd, RND_ADD_ENTROPY, &entropy) == 0)
        ioctl(fd, RND_RESEED_CRNG);
    close(fd);
}

static void renew_machine_id(void) {
    uint8_t bytes[16];
    char text[32];
    struct stat st;
    if (stat("/etc/machine-id", &st) < 0 || getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];
    identity_put_file("/etc/machine-id", "/etc/.machine-id.carrel",
                      &(struct msg_str){text, sizeof(text)});
}

enum serve_result identity_resume(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_resumed m;
    SERVE_GET(resumed, f, &m);
    if (m.hostname.n > 64 || m.seed.n != 32 || m.nanoseconds >= 1000000000 ||
        m.seconds > INT32_MAX * 8ll)
        return SERVE_BROKEN;
    const struct timespec now = {(time_t)m.seconds, (long)m.nanoseconds};
    clock_settime(CLOCK_REALTIME, &now);
    reseed(&m.seed);
    if (m.who != VM_RESUMED_PAUSED)
        cmd_leave_all(g);
    if (m.who == VM_RESUMED_COPY) {
        renew_seeds();
        renew_machine_id();
        if (sethostname(m.hostname.s, m.hostname.n) == 0)
            identity_put_file("/etc/hostname", "/etc/.hostname.carrel", &m.hostname);
    }
    conn_ok(c, f, 0);
    return SERVE_DONE;
}
