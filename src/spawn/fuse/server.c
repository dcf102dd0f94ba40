#include "spawn/fuse/server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/fuse/table.h"

enum {
    EXIT_USAGE = 2,
    BACKGROUND = 64, /* requests that nobody in the vm waits for, at most */
    PAGES_MAX = FUSE_DATA_MAX / 4096,
    DRAIN_TRIES = 2000, /* of a millisecond each */
};

static int fuse_init(struct fuse_server *s, const struct fuse_request *r) {
    struct fuse_init_out *out = fuse_body(s);
    const struct fuse_init_in *in = &r->in.init;
    if (in->major != FUSE_KERNEL_VERSION || in->minor < 31)
        return -EPROTO;
    const uint32_t wanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
                            FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
                            FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
                            FUSE_CACHE_SYMLINKS;
    *out = (struct fuse_init_out){.major = FUSE_KERNEL_VERSION,
                                  .minor = 31,
                                  .max_readahead = FUSE_DATA_MAX,
                                  .flags = in->flags & wanted,
                                  .max_background = BACKGROUND,
                                  .congestion_threshold = BACKGROUND * 3 / 4,
                                  .max_write = FUSE_DATA_MAX,
                                  .time_gran = 1,
                                  .max_pages = PAGES_MAX};
    return sizeof(*out);
}

static int fuse_forget(struct fuse_server *s, const struct fuse_request *r) {
    nodes_forget(&s->nodes, r->head.nodeid, r->in.forget.nlookup);
    return 0;
}

static int fuse_forget_many(struct fuse_server *s, const struct fuse_request *r) {
    struct fuse_forget_one one;
    size_t count = r->size / sizeof(one);
    if (count > r->in.forgets.count)
        count = r->in.forgets.count;
    for (size_t i = 0; i < count; i++) {
        memcpy(&one, r->data + i * sizeof(one), sizeof(one));
        nodes_forget(&s->nodes, one.nodeid, one.nlookup);
    }
    return 0;
}

/* Nothing to do: requests are answered at once, one after another. */
static int fuse_nothing(struct fuse_server *s, const struct fuse_request *r) {
    (void)s, (void)r;
    return 0;
}

static const struct {
    fuse_op *run;
    bool is_silent; /* has no answer */
} ops[] = {
    [FUSE_LOOKUP] = {fuse_lookup, false},
    [FUSE_FORGET] = {fuse_forget, true},
    [FUSE_GETATTR] = {fuse_getattr, false},
    [FUSE_SETATTR] = {fuse_setattr, false},
    [FUSE_READLINK] = {fuse_readlink, false},
    [FUSE_SYMLINK] = {fuse_symlink, false},
    [FUSE_MKNOD] = {fuse_mknod, false},
    [FUSE_MKDIR] = {fuse_mkdir, false},
    [FUSE_UNLINK] = {fuse_unlink, false},
    [FUSE_RMDIR] = {fuse_rmdir, false},
    [FUSE_RENAME] = {fuse_rename, false},
    [FUSE_LINK] = {fuse_link, false},
    [FUSE_OPEN] = {fuse_open, false},
    [FUSE_READ] = {fuse_read, false},
    [FUSE_WRITE] = {fuse_write, false},
    [FUSE_STATFS] = {fuse_statfs, false},
    [FUSE_RELEASE] = {fuse_release, false},
    [FUSE_FSYNC] = {fuse_fsync, false},
    [FUSE_SETXATTR] = {fuse_setxattr, false},
    [FUSE_GETXATTR] = {fuse_getxattr, false},
    [FUSE_LISTXATTR] = {fuse_listxattr, false},
    [FUSE_REMOVEXATTR] = {fuse_removexattr, false},
    [FUSE_INIT] = {fuse_init, false},
    [FUSE_OPENDIR] = {fuse_opendir, false},
    [FUSE_READDIR] = {fuse_readdir, false},
    [FUSE_RELEASEDIR] = {fuse_releasedir, false},
    [FUSE_FSYNCDIR] = {fuse_fsyncdir, false},
    [FUSE_CREATE] = {fuse_create, false},
    [FUSE_INTERRUPT] = {fuse_nothing, true},
    [FUSE_DESTROY] = {fuse_nothing, false},
    [FUSE_BATCH_FORGET] = {fuse_forget_many, true},
    [FUSE_FALLOCATE] = {fuse_fallocate, false},
    [FUSE_READDIRPLUS] = {fuse_readdirplus, false},
    [FUSE_RENAME2] = {fuse_rename2, false},
    [FUSE_LSEEK] = {fuse_lseek, false},
    [FUSE_COPY_FILE_RANGE] = {fuse_copy, false},
};

/* Carries out one request and answers it. -errno: the vm is not there any more. */
static int fuse_handle(struct fuse_server *s, int sock, const uint8_t *bytes, size_t size) {
    struct fuse_request r;
    int done = fuse_request_read(bytes, size, &r);
    bool is_known = done == 0;
    if (is_known)
        done = ops[r.head.opcode].run(s, &r);
    if (is_known && ops[r.head.opcode].is_silent)
        return 0;
    struct fuse_out_header head = {
        .unique = r.head.unique, .error = done < 0 ? done : 0, .len = (uint32_t)sizeof(head)};
    head.len += done > 0 ? (uint32_t)done : 0;
    memcpy(s->answer, &head, sizeof(head));
    return write_all(sock, s->answer, head.len);
}

/* The connection to the vm. Bytes in [start, end) are requests that were not answered yet. */
struct files_stream {
    int sock, control; /* control -1: there is none */
    bool holds;
    size_t start, end;
};

static uint8_t in[4 * FUSE_REQUEST_MAX];

/* QEMU takes every answer that the vm has room for; 0 or -EBUSY. */
static int stream_drain(const struct files_stream *f) {
    const struct timespec look = {0, 1000000};
    int left = 0;
    for (int i = 0; i < DRAIN_TRIES; i++) {
        if (ioctl(f->sock, SIOCOUTQ, &left) < 0 || left == 0)
            return 0;
        nanosleep(&look, NULL);
    }
    return -EBUSY;
}

/*
 * Reads what QEMU has sent and no more: reading makes room, and what comes then belongs to the vm
 * that goes on, not to its copy.
 */
static int stream_collect(struct files_stream *f) {
    int there = 0;
    memmove(in, in + f->start, f->end - f->start);
    f->end -= f->start;
    f->start = 0;
    if (ioctl(f->sock, FIONREAD, &there) < 0)
        return -errno;
    if ((size_t)there > sizeof(in) - f->end)
        return -ENOBUFS;
    while (there > 0) {
        ssize_t n = read(f->sock, in + f->end, (size_t)there);
        if (n <= 0)
            return -EPIPE;
        f->end += (size_t)n;
        there -= (int)n;
    }
    return 0;
}

static void stream_serve(struct fuse_server *s, struct files_stream *f) {
    struct files_word w = {0};
    struct fd_message got;
    int n = recv_fds(f->control, &w, sizeof(w), &got);
    if (n < 0)
        return;
    w.result = -EINVAL;
    if (got.len == sizeof(w) && w.op == FILES_HOLD) {
        f->holds = true;
        w.result = stream_drain(f);
    } else if (got.len == sizeof(w) && w.op == FILES_SAVE && f->holds && got.nfds == 1) {
        w.result = stream_collect(f);
        if (w.result == 0)
            w.result = fuse_table_write(s, got.fds[0], in + f->start, f->end - f->start, &w.lost);
    } else if (got.len == sizeof(w) && w.op == FILES_GO_ON) {
        w.result = 0;
    }
    f->holds &= w.result == 0 && w.op != FILES_GO_ON;
    fd_message_close(&got);
    send(f->control, &w, sizeof(w), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Answers the requests that are there. False: the vm is not there any more, or broken. */
static bool stream_answer(struct fuse_server *s, struct files_stream *f, int *ret_status) {
    long size;
    while ((size = fuse_request_size(in + f->start, f->end - f->start)) > 0 &&
           (size_t)size <= f->end - f->start) {
        if (fuse_handle(s, f->sock, in + f->start, (size_t)size) < 0)
            return false;
        f->start += (size_t)size;
    }
    if (size < 0) {
        fprintf(stderr, "the vm sent what is not a request for files\n");
        *ret_status = 1;
        return false;
    }
    memmove(in, in + f->start, f->end - f->start);
    f->end -= f->start;
    f->start = 0;
    return true;
}

/* Answers requests until the vm ends. */
static int fuse_loop(struct fuse_server *s, struct files_stream *f) {
    int status = 0;
    while (f->holds || stream_answer(s, f, &status)) {
        struct pollfd p[] = {{f->holds ? -1 : f->sock, POLLIN, 0}, {f->control, POLLIN, 0}};
        int ready = poll(p, 2, f->holds ? FILES_HOLD_MS : -1);
        if (ready == 0)
            f->holds = false;
        if (p[1].revents & POLLIN)
            stream_serve(s, f);
        if (ready <= 0 || !p[0].revents || f->holds)
            continue;
        ssize_t n = read(f->sock, in + f->end, sizeof(in) - f->end);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        f->end += n > 0 ? (size_t)n : 0;
    }
    return status;
}

/*
 * The tree becomes the root, so that no link in it leads out of it. The working directory stays
 * /proc/self/fd of the jail: a descriptor is opened again by its number there.
 */
static int fuse_enter_tree(const char *tree) {
    int own = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (own < 0 || chroot(tree) < 0)
        return -1;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fchdir(own) < 0 ? -1 : root;
}

int fuse_server_main(int argc, char **argv) {
    static struct fuse_server s;
    struct files_stream f = {.control = -1};
    if (argc < 2 || argc > 4)
        return EXIT_USAGE;
    f.sock = (int)strtol(argv[1], NULL, 10);
    if (argc > 2)
        f.control = (int)strtol(argv[2], NULL, 10);
    int root = fuse_enter_tree(argv[0]), table = argc > 3 ? (int)strtol(argv[3], NULL, 10) : -1;
    umask(0);
    prctl(PR_SET_NAME, "carrel-files");
    s.answer =
        malloc(sizeof(struct fuse_out_header) + FUSE_DATA_MAX + sizeof(struct fuse_entry_out));
    if (root < 0 || !s.answer || nodes_init(&s.nodes, root) < 0) {
        fprintf(stderr, "cannot serve '%s': %s\n", argv[0], strerror(errno));
        return 1;
    }
    int r = table < 0 ? 0 : fuse_table_read(&s, table, in, sizeof(in), &f.end);
    if (r < 0) {
        fprintf(stderr, "cannot read the table of open files: %s\n", strerror(-r));
        return 1;
    }
    close_fd(&table);
    return fuse_loop(&s, &f);
}
