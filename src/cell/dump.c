#include "cell/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/cell_dump.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "cell/session.h"

/*
 * The maker runs in the cgroup of the daemon, so its memory is limited: the files that it reads and
 * what the jail may map are 512 MiB together.
 */
enum {
    BUILD_ID_SIZE = 20,
    WASI_MAX = 1 << 20,
    FILE_MAX = 64 << 20,
    MAKER_MEMORY = 384 << 20,
    DUMP_MAX = 256 << 20,
};

/*
 * What identifies a file of an image that the machine has not changed. A machine can set the time
 * of modification, but not the time of change: any change is later than the image. The image may be
 * stored in another form later, as a filesystem whose files have earlier times of change.
 */
struct file_mark {
    uint64_t size;
    int64_t modified_s, modified_ns, changed_s, changed_ns;
};

/* The first bytes of the file. Numbers are those of the host. */
struct file_head {
    char magic[8];
    uint8_t build_id[BUILD_ID_SIZE];
    uint32_t wasi_size; /* bytes of the state of WASI, which follow the head */
    uint64_t anchor;    /* address of a function: it is not at a random place */
    char warm_head[WARM_HEAD_SIZE];
    struct file_mark program, image;
    struct dump_sizes sizes;
    uint64_t file_size;
};

static const char file_magic[8] = "CRLDUMP1";

static struct file_mark mark_of(const struct stat *st) {
    return (struct file_mark){.size = (uint64_t)st->st_size,
                              .modified_s = st->st_mtim.tv_sec,
                              .modified_ns = st->st_mtim.tv_nsec,
                              .changed_s = st->st_ctim.tv_sec,
                              .changed_ns = st->st_ctim.tv_nsec};
}

/* True if `now` is the file that had the mark `then`. */
static bool is_unchanged(const struct file_mark *now, const struct file_mark *then) {
    bool is_later = now->changed_s != then->changed_s ? now->changed_s > then->changed_s
                                                      : now->changed_ns > then->changed_ns;
    return now->size == then->size && now->modified_s == then->modified_s &&
           now->modified_ns == then->modified_ns && !is_later;
}

/* --- the build of this program --- */

static int find_build_id(struct dl_phdr_info *info, size_t size, void *arg) {
    uint8_t *id = arg;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const uint8_t *at = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
        for (size_t left = p->p_type == PT_NOTE ? p->p_memsz : 0; left > sizeof(ElfW(Nhdr));) {
            const ElfW(Nhdr) *n = (const void *)at;
            size_t name = (n->n_namesz + 3u) & ~3u, whole = sizeof(*n) + name;
            if (n->n_type == NT_GNU_BUILD_ID && n->n_descsz == BUILD_ID_SIZE && name == 4 &&
                memcmp(n + 1, "GNU", 4) == 0) {
                memcpy(id, at + whole, BUILD_ID_SIZE);
                return 1;
            }
            whole += (n->n_descsz + 3u) & ~3u;
            if (whole > left)
                break;
            at += whole;
            left -= whole;
        }
    }
    return -1; /* the first object is this program: look no further */
}

static bool build_id(uint8_t ret[BUILD_ID_SIZE]) {
    return dl_iterate_phdr(find_build_id, ret) == 1;
}

/* --- reading --- */

static uint64_t part_at(uint64_t size) {
    return (size + WASM_DUMP_UNIT - 1) & ~(uint64_t)(WASM_DUMP_UNIT - 1);
}

/* Writes the head of a file for these two files, without what the jail adds. */
static bool head_for(const struct dump_for *f, struct file_head *ret) {
    *ret = (struct file_head){.anchor = (uint64_t)(uintptr_t)head_for,
                              .program = mark_of(f->program),
                              .image = mark_of(f->image)};
    memcpy(ret->magic, file_magic, sizeof(file_magic));
    memcpy(ret->warm_head, f->warm_head, WARM_HEAD_SIZE);
    return build_id(ret->build_id);
}

static uint64_t size_of_file(const struct file_head *h) {
    return part_at(sizeof(*h) + h->wasi_size) + part_at(h->sizes.arena) + h->sizes.memory;
}

static bool head_fits(int fd, const struct dump_for *f, struct file_head *ret) {
    struct file_head want;
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        pread(fd, ret, sizeof(*ret), 0) != sizeof(*ret) || !head_for(f, &want))
        return false;
    if (!is_unchanged(&want.program, &ret->program) || !is_unchanged(&want.image, &ret->image))
        return false;
    want.program = ret->program;
    want.image = ret->image;
    want.wasi_size = ret->wasi_size;
    want.sizes = ret->sizes;
    want.file_size = size_of_file(&want);
    return memcmp(&want, ret, sizeof(want)) == 0 && (uint64_t)st.st_size == want.file_size &&
           want.wasi_size <= WASI_MAX && want.sizes.memory >> 16 <= f->pages &&
           want.sizes.store <= cell_budget(f->pages);
}

bool dump_open(int fd, const struct dump_for *f, struct dump *ret) {
    struct file_head h;
    *ret = (struct dump){0};
    if (!head_fits(fd, f, &h) || !(ret->wasi = malloc(h.wasi_size + 1)))
        return false;
    ret->wasi_size = h.wasi_size;
    uint64_t arena = part_at(sizeof(h) + h.wasi_size);
    const struct wasm_dump parts = {
        .arena_size = h.sizes.arena, .memory_size = h.sizes.memory, .root = h.sizes.root};
    if (pread(fd, ret->wasi, h.wasi_size, sizeof(h)) == (ssize_t)h.wasi_size &&
        wasm_dump_map(fd, arena, arena + part_at(h.sizes.arena), &parts, &ret->mapped))
        return true;
    dump_done(ret);
    return false;
}

void dump_done(struct dump *f) {
    free(f->wasi);
    f->wasi = NULL;
}

/* --- making --- */

static int dump_read(int fd, struct buf *ret, struct stat *st, struct err *err) {
    static char chunk[65536];
    if (fstat(fd, st) < 0)
        return err_sys(err, "cannot read a file to dump");
    if (!S_ISREG(st->st_mode))
        return err_set(err, ERR_INVALID, "cannot make a dump: a program or image is not a file");
    /* A later change of the file would look earlier (struct file_mark). */
    if (st->st_ctim.tv_sec > time(NULL))
        return err_set(err, ERR_INVALID, "cannot make a dump: a file was changed in the future");
    for (ssize_t n; (n = pread(fd, chunk, sizeof(chunk), (off_t)ret->len)) != 0;) {
        if (n < 0)
            return err_sys(err, "cannot read a file to dump");
        if (!buf_add(ret, chunk, (size_t)n))
            return err_set(err, ERR_LIMIT, "cannot dump a file larger than %d MiB", FILE_MAX >> 20);
    }
    return 0;
}

static int write_at(int fd, uint64_t at, const void *bytes, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, len - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* The file that is being written while the jail sends its parts. */
struct dump_writer {
    int out;
    struct file_head *head;
    uint64_t got;    /* bytes that the jail sent */
    int write_error; /* errno of a write that failed, or 0 */
};

static bool sizes_are_sane(const struct dump_sizes *s) {
    return s->wasi <= WASI_MAX && s->arena <= DUMP_MAX && s->memory <= DUMP_MAX;
}

/* Returns where the byte `at` of the data behind the sizes goes, and how many follow it there. */
static uint64_t place_of(const struct file_head *h, uint64_t at, uint64_t *ret_left) {
    uint64_t sizes[] = {h->sizes.wasi, h->sizes.arena, h->sizes.memory};
    uint64_t place = sizeof(*h);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        *ret_left = at < sizes[i] ? sizes[i] - at : 0;
        if (*ret_left)
            return place + at;
        at -= sizes[i];
        place = part_at(place + sizes[i]);
    }
    return place;
}

/* The jail sends sizes, state of WASI, arena, memory. It is not trusted. */
static int take_part(void *ctx, const void *bytes, size_t len) {
    struct dump_writer *w = ctx;
    const uint8_t *p = bytes;
    if (w->got == 0) {
        if (len != sizeof(w->head->sizes))
            return -1;
        memcpy(&w->head->sizes, bytes, len);
        w->got = len;
        return sizes_are_sane(&w->head->sizes) ? 0 : -1;
    }
    while (len) {
        uint64_t left, place = place_of(w->head, w->got - sizeof(w->head->sizes), &left);
        size_t n = len < left ? len : (size_t)left;
        if (n == 0)
            return -1; /* more than the sizes said */
        if (write_at(w->out, place, p, n) < 0) {
            w->write_error = errno;
            return -1;
        }
        w->got += n;
        p += n;
        len -= n;
    }
    return 0;
}

/* The head comes last: without it nothing of the file is used. */
static int end_dump(const struct dump_writer *w, struct err *err) {
    struct file_head *h = w->head;
    const struct dump_sizes *s = &h->sizes;
    if (w->got != sizeof(*s) + s->wasi + s->arena + s->memory)
        return err_set(err, ERR_INTERNAL, "the worker process sent a wrong dump");
    h->wasi_size = (uint32_t)s->wasi;
    h->file_size = size_of_file(h);
    if (ftruncate(w->out, (off_t)h->file_size) < 0 || write_at(w->out, 0, h, sizeof(*h)) < 0)
        return err_sys(err, "cannot write the dump");
    return 0;
}

static int run_dump(const struct buf *program, const struct buf *image, struct dump_writer *w,
                    struct err *err) {
    const struct cell_options o = {.verb = "run", .spec = 30, .memory = MAKER_MEMORY >> 16};
    const struct job job = {
        .options = &o,
        .file = "program",
        .bytes = {(const uint8_t *)program->data, program->len},
        .warm = {(const uint8_t *)image->data + WARM_HEAD_SIZE, image->len - WARM_HEAD_SIZE}};
    struct jail j = {.out_fd = STDERR_FILENO,
                     .err_fd = STDERR_FILENO,
                     .memory_bytes = MAKER_MEMORY,
                     .cpu_seconds = 60 + program->len / 100000,
                     .state = BUF(0),
                     .log = BUF(0),
                     .take_state = take_part,
                     .take_ctx = w};
    int code = jail_run(&j, verb_dump, &job, err);
    if (w->write_error) {
        errno = w->write_error;
        return err_sys(err, "cannot write the dump");
    }
    if (code > 0)
        return err_set(err, ERR_INVALID, "cannot make a dump: the image does not fit the program");
    return code;
}

int dump_make(int program, int image, int out, const char head[WARM_HEAD_SIZE], struct err *err) {
    struct buf files[2] = {BUF(FILE_MAX), BUF(FILE_MAX)};
    struct stat st[2];
    struct file_head h;
    const struct dump_for f = {.warm_head = head, .program = &st[0], .image = &st[1]};
    struct dump_writer w = {.out = out, .head = &h};
    int r = dump_read(program, &files[0], &st[0], err);
    if (r == 0)
        r = dump_read(image, &files[1], &st[1], err);
    if (r == 0 &&
        (files[1].len <= WARM_HEAD_SIZE || memcmp(files[1].data, head, WARM_HEAD_SIZE) != 0))
        r = err_set(err, ERR_INVALID,
                    "cannot make a dump: the image is of another version or seed");
    if (r == 0 && !head_for(&f, &h))
        r = err_set(err, ERR_UNSUPPORTED, "cannot make a dump: this program has no build id");
    if (r == 0)
        r = run_dump(&files[0], &files[1], &w, err);
    if (r == 0)
        r = end_dump(&w, err);
    buf_done(&files[0]);
    buf_done(&files[1]);
    return r;
}

int dump_make_path(const char *path, const char *program, const char *image,
                   const char head[WARM_HEAD_SIZE], struct err *err) {
    char part[PATH_MAX];
    if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
        return err_set(err, ERR_INVALID, "cannot write '%s': the file name is too long", path);
    int files[] = {open(program, O_RDONLY | O_CLOEXEC), open(image, O_RDONLY | O_CLOEXEC)};
    unlink(part);
    int out DEFER_CLOSE = open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int r = files[0] < 0 || files[1] < 0 || out < 0 ? err_sys(err, "cannot make '%s'", path)
                                                    : dump_make(files[0], files[1], out, head, err);
    if (r == 0 && (fsync(out) < 0 || rename(part, path) < 0))
        r = err_sys(err, "cannot write '%s'", path);
    if (r < 0)
        unlink(part);
    close_fd(&files[0]);
    close_fd(&files[1]);
    return r;
}

bool dump_open_path(const char *path, const char *program, const char *image,
                    const char head[WARM_HEAD_SIZE], uint64_t pages, struct dump *ret) {
    struct stat st[2], own;
    const struct dump_for f = {
        .warm_head = head, .program = &st[0], .image = &st[1], .pages = pages};
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &own) < 0 || (own.st_uid != 0 && own.st_uid != geteuid()) ||
        own.st_mode & (S_IWGRP | S_IWOTH))
        return false;
    return stat(program, &st[0]) == 0 && stat(image, &st[1]) == 0 && dump_open(fd, &f, ret);
}

int dump_main(int argc, char **argv) {
    char head[WARM_HEAD_SIZE];
    struct err err;
    const struct warm_program *p = argc == 3 ? warm_program(argv[1]) : NULL;
    uint64_t daemon = 0;
    if (!p || parse_u64(argv[2], 1, INT_MAX, &daemon, &err) < 0)
        return CELL_USAGE;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != (pid_t)daemon)
        return CELL_INTERNAL; /* the daemon ended before the line above */
    warm_head(p, 0, head);
    if (dump_make(DUMP_PROGRAM_FD, DUMP_IMAGE_FD, DUMP_OUT_FD, head, &err) == 0)
        return 0;
    fprintf(stderr, "carrel: %s\n", err.text);
    return err.code == ERR_LIMIT ? CELL_LIMIT : CELL_INVALID;
}
