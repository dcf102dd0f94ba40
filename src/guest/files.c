#include "guest/files.h"

#include <limits.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/defer.h"
#include "base/err.h"
#include "base/fs/dots.h"
#include "guest/conn.h"
#include "guest/covers.h"
#include "guest/scratch.h"
#include "guest/sys.h"
#include "guest/wipe.h"

#define PROC_SUPER_MAGIC 0x9fa0
#define LIST_MAX 4096u

/* User of a file operation. With the fsuid the kernel also drops root's file capabilities. */

void files_actor_done(struct files_actor *a) {
    if (!a->is_other)
        return;
    syscall(SYS_setfsuid, 0);
    syscall(SYS_setfsgid, 0);
    prctl(PR_SET_DUMPABLE, 0);
}

struct files_actor files_act_as(uint32_t uid, uint32_t gid) {
    if (gid != MSG_ID_NONE)
        syscall(SYS_setfsgid, gid);
    if (uid != MSG_ID_NONE)
        syscall(SYS_setfsuid, uid);
    return (struct files_actor){.is_other = uid != MSG_ID_NONE || gid != MSG_ID_NONE};
}

#define ACT_AS(msg)                                                            \
    struct files_actor actor DEFER(files_actor_done) __attribute__((unused)) = \
        files_act_as((msg)->uid, (msg)->gid)

static enum serve_result files_answer(struct conn *c, const struct frame *f, int result,
                                      const char *what) {
    if (result < 0)
        conn_fail(c, f, errno, what);
    else
        conn_ok(c, f, (uint64_t)result);
    return SERVE_DONE;
}

/* Opening paths. */

static int fail_with(int number) {
    errno = number;
    return -1;
}

static int open_path(const char *path, int flags) {
    return *path == '/' ? sys_open(AT_FDCWD, path, O_PATH | flags, 0) : fail_with(EINVAL);
}

/* A directory and a name in it, for operations on names, such as rename and remove. */
struct place {
    int dir;
    char name[NAME_MAX + 1];
};

static void place_done(struct place *p) {
    close_fd(&p->dir);
}

static int place_open(struct place *p, const struct msg_str *path) {
    char parent[PATH_MAX];
    size_t n = path->n;
    while (n > 1 && path->s[n - 1] == '/')
        n--;
    size_t slash = n;
    while (slash > 0 && path->s[slash - 1] != '/')
        slash--;
    size_t len = n - slash;
    if (slash == 0 || len == 0)
        return fail_with(EINVAL);
    if (len > NAME_MAX || slash >= sizeof(parent))
        return fail_with(ENAMETOOLONG);
    memcpy(parent, path->s, slash);
    parent[slash] = '\0';
    memcpy(p->name, path->s + slash, len);
    p->name[len] = '\0';
    if (is_dots(p->name))
        return fail_with(EINVAL);
    p->dir = open_path(parent, O_DIRECTORY);
    return p->dir < 0 ? -1 : 0;
}

/*
 * Refuses files of /proc, because they give access to the guest process itself, such as its memory
 * and limits.
 */
static int refuse_proc(int fd) {
    struct statfs fs;
    if (fstatfs(fd, &fs) < 0)
        return -1;
    return fs.f_type == PROC_SUPER_MAGIC ? fail_with(EACCES) : 0;
}

bool files_is_proc(int fd) {
    return refuse_proc(fd) < 0;
}

/* Reports the error of a file that cannot be opened at once because a process has a lease on it. */
static int fail_leased(const char *path) {
    struct stat st;
    int fd DEFER_CLOSE = open_path(path, 0);
    bool is_cover = fd >= 0 && fstat(fd, &st) == 0 && covers_have(&st);
    return fail_with(is_cover ? EACCES : EWOULDBLOCK);
}

/* Opens a file without blocking; fails unless it is a regular file outside /proc. */
static int open_regular(const char *path, int flags, uint32_t mode, struct stat *st) {
    if (*path != '/')
        return fail_with(EINVAL);
    int fd DEFER_CLOSE = sys_open(AT_FDCWD, path, flags | O_NONBLOCK | O_NOCTTY, mode);
    if (fd < 0 && errno == EWOULDBLOCK)
        return fail_leased(path);
    if (fd < 0 || fstat(fd, st) < 0)
        return -1;
    if (S_ISDIR(st->st_mode))
        return fail_with(EISDIR);
    if (!S_ISREG(st->st_mode))
        return fail_with(EINVAL);
    if (refuse_proc(fd) < 0)
        return -1;
    if (covers_have(st))
        return fail_with(EACCES);
    return TAKE_FD(fd);
}

int files_open_regular(const char *path) {
    struct stat st;
    return open_regular(path, O_RDONLY, 0, &st);
}

/* File attributes and directories. */

static uint64_t mtime_of(const struct stat *st) {
    return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

static struct msg_entry entry_of(const struct stat *st) {
    return (struct msg_entry){.mode = st->st_mode,
                              .uid = st->st_uid,
                              .gid = st->st_gid,
                              .nlink = (uint32_t)st->st_nlink,
                              .size = (uint64_t)st->st_size,
                              .mtime_ns = mtime_of(st),
                              .ino = st->st_ino};
}

enum serve_result files_stat(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_path m;
    SERVE_GET(stat, f, &m);
    ACT_AS(&m);
    struct stat st;
    int fd DEFER_CLOSE = open_path(m.path.s, m.flags & MSG_NOFOLLOW ? O_NOFOLLOW : 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return files_answer(c, f, -1, "cannot read the attributes of the file");
    struct msg_entry e = entry_of(&st);
    char target[PATH_MAX];
    ssize_t n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", target, sizeof(target)) : 0;
    if (n > 0)
        e.target = (struct msg_str){target, (uint32_t)n};
    struct frame_head head = {.type = MSG_ENTRY, .tag = f->head.tag};
    guest_conn_send(c, &head, &e);
    return SERVE_DONE;
}

struct dirent64 {
    uint64_t ino;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

struct lister {
    uint32_t max;
    struct msg_list_page page;
    uint8_t *at;
    uint8_t *end;
};

/* Adds an entry to the page. False: the page is full, and the next page starts with this entry. */
static bool list_one(void *arg, int dir, const char *name, const struct stat *st) {
    struct lister *l = arg;
    struct msg_entry e = entry_of(st);
    (void)dir;
    e.name = (struct msg_str){name, (uint32_t)strlen(name)};
    size_t n = l->page.count < l->max ? msg_entry_put(l->at, (size_t)(l->end - l->at), &e) : 0;
    l->at += n;
    l->page.count += n > 0;
    return n > 0;
}

/* An entry that vanishes meanwhile is left out. */
static bool each_one(int dir, const char *name, files_entry_fn *one, void *arg) {
    struct stat st;
    return is_dots(name) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
           one(arg, dir, name, &st);
}

int files_each(const char *path, uint64_t cookie, uint64_t *ret_next, files_entry_fn *one,
               void *arg) {
    char raw[4096] __attribute__((aligned(8)));
    int dir DEFER_CLOSE =
        *path == '/' ? sys_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0) : fail_with(EINVAL);
    if (dir < 0 || (cookie && lseek(dir, (off_t)cookie, SEEK_SET) < 0))
        return -1;
    *ret_next = cookie;
    for (;;) {
        long n = syscall(SYS_getdents64, dir, raw, sizeof(raw));
        if (n < 0)
            return -1;
        if (n == 0) {
            *ret_next = 0;
            return 0;
        }
        for (char *at = raw; at < raw + n;) {
            const struct dirent64 *d = (const struct dirent64 *)at;
            if (!each_one(dir, d->name, one, arg))
                return 0;
            *ret_next = (uint64_t)d->next;
            at += d->bytes;
        }
    }
}

enum serve_result files_list(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    static uint8_t entries[MSG_CHUNK_MAX] SCRATCH;
    struct msg_list m;
    SERVE_GET(list, f, &m);
    ACT_AS(&m);
    struct lister l = {.max = m.max && m.max < LIST_MAX ? m.max : LIST_MAX,
                       .at = entries,
                       .end = entries + sizeof(entries)};
    if (files_each(m.path.s, m.cookie, &l.page.next, list_one, &l) < 0)
        return files_answer(c, f, -1, "cannot list the directory");
    l.page.entries = (struct msg_bytes){entries, (uint32_t)(l.at - entries)};
    struct frame_head head = {.type = MSG_LIST_PAGE, .tag = f->head.tag};
    guest_conn_send(c, &head, &l.page);
    return SERVE_DONE;
}

/* Reading and writing files. */

enum serve_result files_read(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    static uint8_t data[MSG_CHUNK_MAX] SCRATCH;
    struct msg_read m;
    SERVE_GET(read, f, &m);
    if (m.bytes > MSG_CHUNK_MAX || m.offset > INT64_MAX)
        return SERVE_BROKEN;
    ACT_AS(&m);
    struct stat st;
    int fd DEFER_CLOSE = open_regular(m.path.s, O_RDONLY, 0, &st);
    ssize_t n = fd < 0 ? -1 : pread(fd, data, m.bytes, (off_t)m.offset);
    if (n < 0)
        return files_answer(c, f, -1, "cannot read the file");
    struct msg_read_data reply = {.size = (uint64_t)st.st_size,
                                  .mtime_ns = mtime_of(&st),
                                  .ino = st.st_ino,
                                  .mode = st.st_mode,
                                  .data = {data, (uint32_t)n}};
    struct frame_head head = {.type = MSG_READ_DATA, .tag = f->head.tag};
    guest_conn_send(c, &head, &reply);
    return SERVE_DONE;
}

static int write_all(int fd, const struct msg_write *m) {
    uint32_t done = 0;
    while (done < m->data.n) {
        ssize_t n = m->flags & MSG_APPEND
                        ? write(fd, m->data.p + done, m->data.n - done)
                        : pwrite(fd, m->data.p + done, m->data.n - done, (off_t)(m->offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -1 : fail_with(EIO);
        done += (uint32_t)n;
    }
    return 0;
}

/*
 * Writes a file. It is truncated only after open_regular() has checked that it is a regular file.
 */
enum serve_result files_write(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_write m;
    SERVE_GET(write, f, &m);
    if (m.data.n > MSG_CHUNK_MAX || m.offset > INT64_MAX - MSG_CHUNK_MAX)
        return SERVE_BROKEN;
    ACT_AS(&m);
    int flags = O_WRONLY;
    flags |= m.flags & MSG_CREATE ? O_CREAT : 0;
    flags |= m.flags & MSG_EXCLUSIVE ? O_EXCL : 0;
    flags |= m.flags & MSG_APPEND ? O_APPEND : 0;
    flags |= m.flags & MSG_NOFOLLOW ? O_NOFOLLOW : 0;
    struct stat st;
    int fd DEFER_CLOSE = open_regular(m.path.s, flags, m.mode, &st);
    if (fd < 0 || (m.flags & MSG_TRUNCATE && ftruncate(fd, 0) < 0) || write_all(fd, &m) < 0 ||
        fstat(fd, &st) < 0)
        return files_answer(c, f, -1, "cannot write the file");
    conn_ok(c, f, (uint64_t)st.st_size);
    return SERVE_DONE;
}

/* Operations on names. */

/* Opens the directory `name` in `dir`, and creates it if it is missing. */
static int files_enter(int dir, const char *name, uint32_t mode) {
    int next = sys_open(dir, name, O_PATH | O_DIRECTORY, 0);
    if (next >= 0 || errno != ENOENT)
        return next;
    if (mkdirat(dir, name, mode & 07777) < 0 && errno != EEXIST)
        return -1;
    return sys_open(dir, name, O_PATH | O_DIRECTORY, 0);
}

static int mkdir_parents(const struct msg_path *m) {
    int dir DEFER_CLOSE = open_path("/", O_DIRECTORY);
    char name[NAME_MAX + 1];
    for (const char *at = m->path.s; dir >= 0 && *at;) {
        const char *end = strchrnul(at, '/');
        size_t n = (size_t)(end - at);
        if (n > NAME_MAX)
            return fail_with(ENAMETOOLONG);
        memcpy(name, at, n);
        name[n] = '\0';
        at = *end ? end + 1 : end;
        if (n == 0)
            continue;
        int next = files_enter(dir, name, m->mode);
        close(dir);
        dir = next;
    }
    return dir < 0 ? -1 : 0;
}

enum serve_result files_mkdir(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_path m;
    SERVE_GET(mkdir, f, &m);
    ACT_AS(&m);
    if (*m.path.s == '/' && m.flags & MSG_PARENTS)
        return files_answer(c, f, mkdir_parents(&m), "cannot create the directory");
    struct place p DEFER(place_done) = {.dir = -1};
    bool ok = place_open(&p, &m.path) == 0 && mkdirat(p.dir, p.name, m.mode & 07777) == 0;
    return files_answer(c, f, ok ? 0 : -1, "cannot create the directory");
}

enum serve_result files_move(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_move m;
    SERVE_GET(move, f, &m);
    ACT_AS(&m);
    struct place from DEFER(place_done) = {.dir = -1};
    struct place to DEFER(place_done) = {.dir = -1};
    unsigned flags = m.flags & MSG_NOREPLACE ? 1 : 0; /* RENAME_NOREPLACE */
    bool ok = place_open(&from, &m.from) == 0 && place_open(&to, &m.to) == 0 &&
              syscall(SYS_renameat2, from.dir, from.name, to.dir, to.name, flags) == 0;
    return files_answer(c, f, ok ? 0 : -1, "cannot move the file");
}

enum serve_result files_symlink(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_move m;
    SERVE_GET(symlink, f, &m);
    ACT_AS(&m);
    struct place p DEFER(place_done) = {.dir = -1};
    bool ok = place_open(&p, &m.to) == 0 && symlinkat(m.from.s, p.dir, p.name) == 0;
    return files_answer(c, f, ok ? 0 : -1, "cannot create the symbolic link");
}

enum serve_result files_chmod(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_path m;
    SERVE_GET(chmod, f, &m);
    ACT_AS(&m);
    char path[32];
    int fd DEFER_CLOSE = open_path(m.path.s, 0);
    bool ok = fd >= 0 && refuse_proc(fd) == 0 &&
              fchmodat(usage_files.proc, own_path(fd, path), m.mode & 07777, 0) == 0;
    return files_answer(c, f, ok ? 0 : -1, "cannot change the mode of the file");
}

enum serve_result files_chown(struct guest *g, struct conn *c, const struct frame *f) {
    (void)g;
    struct msg_chown m;
    SERVE_GET(chown, f, &m);
    ACT_AS(&m);
    int fd DEFER_CLOSE = open_path(m.path.s, m.flags & MSG_NOFOLLOW ? O_NOFOLLOW : 0);
    bool ok =
        fd >= 0 && refuse_proc(fd) == 0 && fchownat(fd, "", m.owner, m.group, AT_EMPTY_PATH) == 0;
    return files_answer(c, f, ok ? 0 : -1, "cannot change the owner of the file");
}

int files_watch(int inotify, const struct msg_path *m, uint32_t events) {
    ACT_AS(m);
    char path[32];
    int fd DEFER_CLOSE = open_path(m->path.s, m->flags & MSG_NOFOLLOW ? O_NOFOLLOW : 0);
    if (fd < 0)
        return -errno;
    /* inotify takes no directory, so the working directory has to be /proc for a moment. */
    if (usage_files.is_hidden && fchdir(usage_files.proc) < 0)
        return -errno;
    int wd = inotify_add_watch(inotify, own_path(fd, path), events);
    int r = wd < 0 ? -errno : wd;
    if (usage_files.is_hidden && chdir("/") < 0)
        _exit(1); /* relative paths would lead into /proc from now on */
    return r;
}

/* Removal of files. A whole directory tree may take seconds, so a child process removes it. */

static struct removal *removal_new(struct guest *g) {
    for (int i = 0; i < REMOVAL_MAX; i++)
        if (g->removals[i].pid == 0)
            return &g->removals[i];
    return NULL;
}

static void removal_start(struct guest *g, struct conn *c, const struct frame *f,
                          const struct place *p) {
    struct removal *r = removal_new(g);
    if (!r) {
        guest_conn_refuse(c, f, ERR_LIMIT,
                          "too many directories are being removed in the machine: try again later");
        return;
    }
    pid_t pid = fork();
    if (pid == 0)
        _exit(wipe_tree(p->dir, p->name));
    if (pid < 0) {
        conn_fail(c, f, errno, "cannot remove the file or directory");
        return;
    }
    g->is_childless = false;
    *r = (struct removal){.pid = pid, .conn = c, .tag = f->head.tag};
}

enum serve_result files_remove(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_path m;
    SERVE_GET(remove, f, &m);
    ACT_AS(&m);
    struct place p DEFER(place_done) = {.dir = -1};
    if (place_open(&p, &m.path) < 0)
        return files_answer(c, f, -1, "cannot remove the file or directory");
    if (unlinkat(p.dir, p.name, 0) == 0 || unlinkat(p.dir, p.name, AT_REMOVEDIR) == 0)
        return files_answer(c, f, 0, "cannot remove the file or directory");
    if (m.flags & MSG_RECURSIVE && (errno == ENOTEMPTY || errno == EEXIST)) {
        removal_start(g, c, f, &p);
        return SERVE_DONE;
    }
    return files_answer(c, f, -1, "cannot remove the file or directory");
}

void files_child_ended(struct guest *g, pid_t pid, int status) {
    for (int i = 0; i < REMOVAL_MAX; i++) {
        struct removal *r = &g->removals[i];
        if (r->pid != pid)
            continue;
        struct frame to = {.head = {.tag = r->tag}};
        int number = WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
        if (r->conn && number)
            conn_fail(r->conn, &to, number, "cannot remove the file or directory");
        else if (r->conn)
            conn_ok(r->conn, &to, 0);
        r->pid = 0;
    }
}

void files_forget(struct guest *g, struct conn *c) {
    for (int i = 0; i < REMOVAL_MAX; i++)
        if (g->removals[i].conn == c)
            g->removals[i].conn = NULL;
}
