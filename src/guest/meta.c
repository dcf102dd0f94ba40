/*
 * Metadata of files, and the directory that file requests cannot leave.
 *
 * Programs in the machine may set any attribute, so only those of a form that a client can set are
 * reported. Attributes are read and written through a descriptor, which a rename cannot swap.
 */
#include "guest/meta.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/defer.h"
#include "guest/conn.h"
#include "guest/files.h"
#include "guest/scratch.h"
#include "guest/sys.h"

#define PREFIX_LEN (sizeof(MSG_META_PREFIX) - 1)
#define NAMES_MAX 65536u

/* ---- reading ---- */

/* The names of one file and its pairs, as they are sent. */
static char names[NAMES_MAX] SCRATCH;
static struct {
    uint32_t n, count;
    char text[MSG_META_MAX + 2 * MSG_META_PAIRS]; /* each name and value has a NUL */
} pairs SCRATCH;

static bool is_printable(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] > 0x7e)
            return false;
    return true;
}

static bool is_own(const char *name) {
    size_t n = strlen(name);
    return n > PREFIX_LEN && n - PREFIX_LEN <= (size_t)MSG_META_KEY_MAX &&
           memcmp(name, MSG_META_PREFIX, PREFIX_LEN) == 0 &&
           is_printable(name + PREFIX_LEN, n - PREFIX_LEN);
}

static void pair_add(const char *name, const char *value, size_t n) {
    size_t key = strlen(name + PREFIX_LEN);
    if (pairs.count == 2 * MSG_META_PAIRS || key + n + 2 > sizeof(pairs.text) - pairs.n)
        return;
    memcpy(pairs.text + pairs.n, name + PREFIX_LEN, key + 1);
    pairs.n += (uint32_t)key + 1;
    memcpy(pairs.text + pairs.n, value, n);
    pairs.n += (uint32_t)n;
    pairs.text[pairs.n++] = '\0';
    pairs.count += 2;
}

/* Reads the pairs of an open file. A filesystem without attributes has none. */
static void pairs_read(int fd) {
    static char value[MSG_META_MAX] SCRATCH;
    pairs.n = pairs.count = 0;
    ssize_t n = flistxattr(fd, names, sizeof(names) - 1);
    if (n <= 0)
        return;
    names[n] = '\0';
    for (const char *at = names; at < names + n; at += strlen(at) + 1) {
        ssize_t size = is_own(at) ? fgetxattr(fd, at, value, sizeof(value)) : -1;
        if (size >= 0 && is_printable(value, (size_t)size))
            pair_add(at, value, (size_t)size);
    }
}

static uint64_t ns_of(const struct timespec *t) {
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* Files and directories have metadata; opening anything else could wait, or do something. */
static struct msg_meta meta_of(int dir, const char *name, const struct stat *st) {
    struct msg_meta m = {.name = {name, (uint32_t)strlen(name)},
                         .atime_ns = ns_of(&st->st_atim),
                         .ctime_ns = ns_of(&st->st_ctim)};
    bool has = S_ISREG(st->st_mode) || S_ISDIR(st->st_mode);
    int fd DEFER_CLOSE =
        has ? sys_open(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0) : -1;
    pairs.n = pairs.count = 0;
    if (fd >= 0 && !files_is_proc(fd))
        pairs_read(fd);
    m.pairs = (struct msg_strs){.s = pairs.text, .n = pairs.n, .count = pairs.count};
    return m;
}

/* ---- pages ---- */

struct meta_lister {
    struct msg_meta_page page;
    uint32_t max;
    uint8_t *at, *end;
};

static bool meta_add(struct meta_lister *l, const struct msg_meta *m) {
    size_t n = l->page.count < l->max ? msg_meta_put(l->at, (size_t)(l->end - l->at), m) : 0;
    l->at += n;
    l->page.count += n > 0;
    return n > 0;
}

/* False: the page is full, and the next one starts with this entry. */
static bool meta_one(void *arg, int dir, const char *name, const struct stat *st) {
    struct msg_meta m = meta_of(dir, name, st);
    return meta_add(arg, &m);
}

static int meta_alone(struct meta_lister *l, const char *path) {
    struct stat st;
    int fd DEFER_CLOSE = *path == '/' ? sys_open(AT_FDCWD, path, O_PATH, 0) : -1;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -1;
    struct msg_meta m = {.atime_ns = ns_of(&st.st_atim), .ctime_ns = ns_of(&st.st_ctim)};
    bool has = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
    /* Opened again by its path: if that is another file by now, it is that one's metadata. */
    int again DEFER_CLOSE =
        has ? sys_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0) : -1;
    pairs.n = pairs.count = 0;
    if (again >= 0 && !files_is_proc(again))
        pairs_read(again);
    m.pairs = (struct msg_strs){.s = pairs.text, .n = pairs.n, .count = pairs.count};
    l->max = 1;
    return meta_add(l, &m) ? 0 : -1;
}

enum serve_result meta_get(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    static uint8_t entries[MSG_CHUNK_MAX] SCRATCH;
    struct msg_list m;
    SERVE_GET(meta, f, &m);
    struct files_actor actor DEFER(files_actor_done) = files_act_as(m.uid, m.gid);
    (void)actor;
    struct meta_lister l = {.max = m.max, .at = entries, .end = entries + sizeof(entries)};
    int r = m.max ? files_each(m.path.s, m.cookie, &l.page.next, meta_one, &l)
                  : meta_alone(&l, m.path.s);
    if (r < 0) {
        conn_fail(c, f, errno, "cannot read the metadata of the file");
        return SERVE_DONE;
    }
    l.page.entries = (struct msg_bytes){entries, (uint32_t)(l.at - entries)};
    struct frame_head head = {.type = MSG_META_PAGE, .tag = f->head.tag};
    guest_conn_send(c, &head, &l.page);
    return SERVE_DONE;
}

/* ---- writing ---- */

static int refuse_with(int number) {
    errno = number;
    return -1;
}

/* True: one of the pairs has this name. */
static bool is_among(const struct msg_strs *all, const char *key) {
    const char *at = all->s;
    for (uint32_t i = 0; i < all->count; i += 2) {
        if (strcmp(at, key) == 0)
            return true;
        at += strlen(at) + 1;
        at += strlen(at) + 1;
    }
    return false;
}

static int meta_check(const struct msg_strs *all) {
    const char *at = all->s;
    if (all->count % 2 || all->count > 2 * MSG_META_PAIRS || all->n > sizeof(pairs.text))
        return refuse_with(E2BIG);
    for (uint32_t i = 0; i < all->count; i++) {
        size_t n = strlen(at);
        if (!is_printable(at, n) || (i % 2 == 0 && (!n || n > (size_t)MSG_META_KEY_MAX)))
            return refuse_with(EINVAL);
        at += n + 1;
    }
    return 0;
}

/* The old ones first: the file may have no room for both. */
static int meta_clear(int fd, const struct msg_strs *stay) {
    ssize_t n = flistxattr(fd, names, sizeof(names) - 1);
    if (n < 0)
        return errno == EOPNOTSUPP && !stay->count ? 0 : -1;
    names[n] = '\0';
    for (const char *at = names; at < names + n; at += strlen(at) + 1)
        if (strncmp(at, MSG_META_PREFIX, PREFIX_LEN) == 0 && !is_among(stay, at + PREFIX_LEN) &&
            fremovexattr(fd, at) < 0 && errno != ENODATA)
            return -1;
    return 0;
}

static int meta_write(int fd, const struct msg_strs *all) {
    char name[PREFIX_LEN + MSG_META_KEY_MAX + 1] = MSG_META_PREFIX;
    const char *at = all->s;
    if (meta_clear(fd, all) < 0)
        return -1;
    for (uint32_t i = 0; i < all->count; i += 2) {
        const char *value = at + strlen(at) + 1;
        memcpy(name + PREFIX_LEN, at, strlen(at) + 1);
        if (fsetxattr(fd, name, value, strlen(value), 0) < 0)
            return -1;
        at = value + strlen(value) + 1;
    }
    return 0;
}

enum serve_result meta_set(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_meta_set m;
    SERVE_GET(meta_set, f, &m);
    struct files_actor actor DEFER(files_actor_done) = files_act_as(m.uid, m.gid);
    (void)actor;
    int fd DEFER_CLOSE = files_open_regular(m.path.s);
    if (fd < 0 || meta_check(&m.pairs) < 0 || meta_write(fd, &m.pairs) < 0)
        conn_fail(c, f, errno, "cannot write the metadata of the file");
    else
        conn_ok(c, f, 0);
    return SERVE_DONE;
}

/* ---- the root ---- */

/* /proc of the machine is out of reach afterwards, so that its directory is opened before. */
enum serve_result meta_root(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_path m;
    SERVE_GET(file_root, f, &m);
    int dir DEFER_CLOSE =
        *m.path.s == '/' ? sys_open(AT_FDCWD, m.path.s, O_PATH | O_DIRECTORY | O_NOFOLLOW, 0) : -1;
    if (usage_files.proc < 0)
        usage_files.proc = sys_open(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY, 0);
    if (dir < 0 || usage_files.proc < 0 || fchdir(dir) < 0 || chroot(".") < 0) {
        conn_fail(c, f, errno, "cannot enter the directory");
        return SERVE_DONE;
    }
    usage_files.is_hidden = true;
    conn_ok(c, f, 0);
    return SERVE_DONE;
}
