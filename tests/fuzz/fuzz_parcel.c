/*
 * Lines "KIND PATH[ TARGET]": f, d and l are a file, directory and link of an archive, D and L a
 * directory and link that its owner has; "m HEX" says which are wanted, instead of all. Properties:
 * whatever part of what is not refused is wanted, it can be delivered to the end, is there then, no
 * link of it leads out of the directory, and it can be taken back.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "review/deliver.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES_MAX = 40, ARCHIVE_MAX = (LINES_MAX + 1) * (TAR_HEAD_MAX + TAR_BLOCK) };
#define ID "c-aaaaaaaaaaaa"

struct tree {
    char path[32];
    int dir;
    char *archive;
    size_t size;
    uint32_t mask; /* what is wanted */
};

static void add(struct tree *t, char kind, const char *path, const char *target) {
    static struct tar_entry e;
    e = (struct tar_entry){.kind = kind == 'l'   ? TAR_SYMLINK
                                   : kind == 'd' ? TAR_DIR
                                                 : TAR_FILE,
                           .mode = 0644,
                           .size = kind == 'f'};
    snprintf(e.path, sizeof(e.path), "%s", path);
    snprintf(e.target, sizeof(e.target), "%s", kind == 'l' ? target : "");
    t->size += tar_put((uint8_t *)t->archive + t->size, &e);
    if (kind == 'f')
        t->archive[t->size] = 'x';
    t->size += kind == 'f' ? TAR_BLOCK : 0;
}

/* Below the directory and through no link, as its owner would not mind. */
static void make(struct tree *t, char kind, const char *path, const char *target) {
    const char *name;
    int parent = strlen(path) > 1000 ? -1 : parcel_parent(t->dir, path, &name);
    if (parent < 0)
        return;
    if (kind == 'D')
        (void)!mkdirat(parent, name, 0755);
    else
        (void)!symlinkat(target, parent, name);
    close(parent);
}

static void take_line(struct tree *t, const char *line, size_t n) {
    char path[TAR_NAME_MAX + 1], *space, kind = line[0];
    if (n < 3 || n - 2 > TAR_NAME_MAX || memchr(line, 0, n))
        return;
    snprintf(path, sizeof(path), "%.*s", (int)n - 2, line + 2);
    space = strchr(path, ' ');
    if (space)
        *space++ = '\0';
    if (kind == 'D' || kind == 'L')
        make(t, kind, path, space ? space : "");
    else if (kind == 'f' || kind == 'd' || kind == 'l')
        add(t, kind, path, space ? space : "");
    else if (kind == 'm')
        t->mask = (uint32_t)strtoul(path, NULL, 16);
}

static int done(void *arg, const struct delivered *what, struct err *err) {
    (void)arg, (void)what, (void)err;
    return 0;
}

/* Nobody did anything meanwhile. */
static void left(void *arg, const char *path, const char *kept) {
    (void)arg, (void)path, (void)kept;
    abort();
}

static void check_item(int dir, const struct parcel_item *i) {
    char hash[SHA256_HEX];
    if (i->kind != TAR_DIR)
        assert(parcel_hash(dir, i->path, hash) && strcmp(hash, i->sha256) == 0);
    if (i->kind != TAR_SYMLINK)
        return;
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dir, i->path, &how, sizeof(how));
    assert(fd >= 0 || errno != EXDEV);
    if (fd >= 0)
        close(fd);
}

static void check(struct tree *t, struct parcel *p) {
    char receipt[DELIVER_NAME], hash[SHA256_HEX];
    struct buf now = BUF(DELIVER_NOW_MAX);
    struct err err;
    long kept = 0, count;
    for (size_t i = 0; i < p->count; i++)
        p->items[i].wanted =
            !p->items[i].refused && p->items[i].change != '=' && t->mask >> i % 32 & 1;
    count = delivery_hash(p, hash);
    const struct delivery d = {
        .dir = t->dir, .id = ID, .record = 1, .machine = "", .archive = "", .files_sha256 = hash};
    assert(deliver(&d, p, receipt, &err) == 0);
    assert(deliver_finish(t->dir, ID, done, left, NULL, &err) == count);
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].wanted)
            check_item(t->dir, &p->items[i]);
    assert(deliver_undo(t->dir, ID, &kept, hash, &now, &err) == count && kept == 0);
    buf_done(&now);
}

/* Every kernel of ours has it; valgrind 3.19 does not know it. */
static bool has_openat2(int dir) {
    const char *name;
    int fd = parcel_parent(dir, "x", &name);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static int rm(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size;
    struct tree t = {.path = "/dev/shm/fuzz-parcel-XXXXXX", .mask = UINT32_MAX};
    const struct parcel_side side = {.since_ms = INT64_MAX};
    struct parcel p = {.dir = -1};
    struct err err;
    if (!mkdtemp(t.path))
        return 0;
    t.dir = open(t.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    t.archive = mmap(NULL, ARCHIVE_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(t.dir >= 0 && t.archive != MAP_FAILED);
    for (size_t i = 0, n; at < end && i < LINES_MAX; at += n + 1, i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        n = (size_t)((stop ? stop : end) - at);
        take_line(&t, at, n);
    }
    if (has_openat2(t.dir) && parcel_open(&p, t.archive, ARCHIVE_MAX, t.dir, &side, &err) == 0)
        check(&t, &p);
    parcel_close(&p);
    close(t.dir);
    nftw(t.path, rm, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
