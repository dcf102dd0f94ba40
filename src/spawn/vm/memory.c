#include "spawn/vm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fs/fs_room.h"
#include "base/wire/vm_memory.h"
#include "spawn/cgroup.h"
#include "spawn/fuse/server.h"
#include "spawn/vm/boot.h"
#include "spawn/vm/launch.h"
#include "spawn/vm/qmp.h"

enum {
    ASK_MS = 10000,    /* for one answer */
    SAVE_MS = 100000,  /* for the whole memory: less than FILES_HOLD_MS */
    GO_ON_MS = 150000, /* until the spawner says that the vm may go on */
    LOOK_MS = 5,
    LIFE_S = (SAVE_MS + GO_ON_MS) / 1000 + 60, /* if a program of the vm reads nothing any more */
    FINISH_S = 180,
    PART = 1 << 20,
    ROOM_KEPT = 256 << 20, /* bytes that stay free beside the file */
    FIRST_FD = 3,
    HIGH_FD = 64,
};

/* ---- the process ---- */

struct memory_job {
    int sock, qmp, control, out;
    struct qmp monitor;
    struct vm_memory_head head;
    uint64_t max_bytes; /* of the file; 0: no limit */
    uint32_t word;
    uint64_t began_ms;
};

/*
 * What the process says to the spawner: a byte that is 0, or an enum err_code and the text of the
 * error.
 */
static void __attribute__((noreturn)) memory_fail(struct memory_job *j, const char *what, int r);

static int files_ask(struct memory_job *j, enum files_op op, int fd, uint32_t *ret_lost) {
    struct files_word w = {.op = op, .number = ++j->word}, got;
    uint64_t until = boot_ms() + ASK_MS;
    if (send_fds(j->control, &w, sizeof(w), &fd, fd >= 0) < 0)
        return -EPIPE;
    for (uint64_t now; (now = boot_ms()) < until;) {
        struct pollfd p = {j->control, POLLIN, 0};
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        if (recv(j->control, &got, sizeof(got), MSG_DONTWAIT) != sizeof(got) ||
            got.number != w.number || got.op != w.op)
            continue;
        if (ret_lost)
            *ret_lost = got.lost;
        return got.result;
    }
    return -ETIMEDOUT;
}

/*
 * The vm runs on. Each call is harmless if it does already. While a migration ends, QEMU refuses to
 * go on.
 */
static void memory_go_on(struct memory_job *j) {
    uint64_t until = boot_ms() + ASK_MS;
    while (!qmp_do(&j->monitor, "{\"execute\":\"cont\"", -1, until) && !j->monitor.is_gone &&
           boot_ms() < until)
        poll(NULL, 0, LOOK_MS);
    files_ask(j, FILES_GO_ON, -1, NULL);
    j->head.stopped_ms = (uint32_t)(boot_ms() - j->began_ms);
}

static void memory_fail(struct memory_job *j, const char *what, int r) {
    static const struct {
        int error;
        const char *why;
    } limits[] = {
        {-ENOSPC, "less than 256M would stay free on the disk with CARREL_HOME"},
        {-EDQUOT, "the disk limit of the machine or a disk quota leaves too little for it"},
    };
    const char *why = r < 0 ? strerror(-r) : "";
    char text[256], word, code = ERR_INTERNAL;
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
        if (r == limits[i].error) {
            why = limits[i].why;
            code = ERR_LIMIT;
        }
    qmp_do(&j->monitor, "{\"execute\":\"migrate_cancel\"", -1, boot_ms() + ASK_MS);
    memory_go_on(j);
    /* A word that was left unread would hide our last one from the spawner. */
    (void)!recv(j->sock, &word, 1, MSG_DONTWAIT);
    int n = snprintf(text, sizeof(text), "%ccannot %s%s%s", code, what, *why ? ": " : "", why);
    send(j->sock, text, (size_t)n, MSG_NOSIGNAL);
    _exit(1);
}

static void memory_tell(struct memory_job *j, const char *command, int fd) {
    if (!qmp_do(&j->monitor, command, fd, boot_ms() + ASK_MS))
        memory_fail(j, "stop the vm: its monitor does not do what it is told", 0);
}

/* -errno: the file becomes too large. */
static int memory_check_size(const struct memory_job *j) {
    uint64_t size = j->head.stream_bytes + j->head.table_bytes;
    if (j->head.stream_bytes > j->head.mem_bytes + VM_MEMORY_DEVICES_MAX)
        return -EFBIG;
    return j->max_bytes && VM_MEMORY_STREAM + size > j->max_bytes ? -EDQUOT : 0;
}

/* Copies the stream until QEMU closes it, or until the spawner is gone or wants it no more. */
static int memory_copy_stream(struct memory_job *j, int from) {
    uint64_t until = boot_ms() + SAVE_MS, *size = &j->head.stream_bytes;
    for (;;) {
        uint64_t now = boot_ms();
        struct pollfd p[] = {{from, POLLIN, 0}, {j->sock, POLLIN, 0}};
        if (now >= until)
            return -ETIMEDOUT;
        if (poll(p, 2, (int)(until - now)) <= 0)
            continue;
        if (p[1].revents)
            return -ECANCELED;
        if (fs_room(j->out) < ROOM_KEPT)
            return -ENOSPC;
        off_t at = (off_t)(VM_MEMORY_STREAM + *size);
        ssize_t n = splice(from, NULL, j->out, &at, PART, SPLICE_F_MOVE);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        *size += n > 0 ? (uint64_t)n : 0;
        int r = memory_check_size(j);
        if (r < 0)
            return r;
    }
}

/* The whole memory, not only what is not shared with a file: a template's memory is not ours. */
static void memory_save_stream(struct memory_job *j) {
    static const char *const before[] = {
        "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
        "[{\"capability\":\"x-ignore-shared\",\"state\":false}]}",
        "{\"execute\":\"migrate-set-parameters\",\"arguments\":"
        "{\"max-bandwidth\":1099511627776,\"downtime-limit\":2000}",
    };
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        memory_fail(j, "open a pipe", -errno);
    fcntl(ends[1], F_SETPIPE_SZ, PART);
    for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++)
        memory_tell(j, before[i], -1);
    memory_tell(j, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"memory\"}", ends[1]);
    close(ends[1]);
    memory_tell(j, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:memory\"}", -1);
    int r = memory_copy_stream(j, ends[0]);
    if (r < 0)
        memory_fail(j, "copy the memory of the vm", r);
    close(ends[0]);
    for (uint64_t until = boot_ms() + ASK_MS; boot_ms() < until;) {
        memory_tell(j, "{\"execute\":\"query-migrate\"", -1);
        if (strstr(j->monitor.line, "\"status\": \"completed\""))
            return;
        if (strstr(j->monitor.line, "\"status\": \"failed\""))
            break;
        poll(NULL, 0, 1);
    }
    memory_fail(j, "save the memory of the vm: QEMU says that it failed", 0);
}

static void memory_save_table(struct memory_job *j) {
    struct stat st;
    off_t at = 0;
    int fd = memfd_create("carrel-files", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : files_ask(j, FILES_SAVE, fd, &j->head.lost);
    if (r == 0 && fstat(fd, &st) < 0)
        r = -errno;
    if (r == 0 && (st.st_size < 1 || st.st_size > VM_MEMORY_TABLE_MAX))
        r = -EBADMSG;
    j->head.table_bytes = r < 0 ? 0 : (uint64_t)st.st_size;
    r = r < 0 ? r : memory_check_size(j);
    if (r == 0 && lseek(j->out, (off_t)(VM_MEMORY_STREAM + j->head.stream_bytes), SEEK_SET) < 0)
        r = -errno;
    while (r == 0 && at < st.st_size) {
        ssize_t n = sendfile(j->out, fd, &at, (size_t)(st.st_size - at));
        r = n < 0 ? -errno : n == 0 ? -EIO : 0;
    }
    if (r < 0)
        memory_fail(j, "save the table of open files", r);
    close(fd);
}

/*
 * Waits until the spawner says that the files are copied, too. Returns its word, MEMORY_GO_ON or
 * MEMORY_STAY. -errno: it says nothing, or is gone.
 */
static int memory_await_go(struct memory_job *j) {
    struct pollfd p = {j->sock, POLLIN, 0};
    char word;
    if (poll(&p, 1, GO_ON_MS) <= 0)
        return -ETIMEDOUT;
    return recv(j->sock, &word, 1, MSG_DONTWAIT) == 1 ? word : -ECANCELED;
}

static int memory_finish(struct memory_job *j) {
    int r = vm_memory_sum(&j->head, j->out);
    if (r == 0 &&
        (fdatasync(j->out) < 0 || pwrite(j->out, &j->head, sizeof(j->head), 0) != sizeof(j->head) ||
         fdatasync(j->out) < 0))
        r = -errno;
    return r;
}

/* Keeps only what the process needs: no other descriptor of the spawner may live longer here. */
static void memory_leave(struct memory_job *j) {
    int *const own[] = {&j->sock, &j->qmp, &j->control, &j->out};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < 4; i++)
        if (*own[i] >= 0 && (*own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, HIGH_FD)) < 0)
            _exit(1);
    for (int i = 0; i < 4; i++) {
        if (*own[i] < 0) {
            close(FIRST_FD + i);
            continue;
        }
        dup3(*own[i], FIRST_FD + i, O_CLOEXEC);
        *own[i] = FIRST_FD + i;
    }
    close_range(FIRST_FD + 4, ~0u, 0);
}

static void memory_begin(struct memory_job *j, unsigned life_s) {
    prctl(PR_SET_NAME, "carrel-memory");
    memory_leave(j);
    alarm(life_s);
    if (!qmp_open(&j->monitor, j->qmp, boot_ms() + ASK_MS))
        memory_fail(j, "reach the monitor of QEMU", 0);
}

static void __attribute__((noreturn)) memory_run(struct memory_job *j) {
    memory_begin(j, LIFE_S);
    if (ftruncate(j->out, 0) < 0)
        memory_fail(j, "write the file", -errno);
    j->began_ms = boot_ms();
    int r = files_ask(j, FILES_HOLD, -1, NULL);
    if (r < 0)
        memory_fail(j, "stop the server of the files", r);
    memory_save_stream(j);
    memory_save_table(j);
    send(j->sock, "", 1, MSG_NOSIGNAL);
    r = memory_await_go(j);
    if (r < 0)
        memory_fail(j, "wait for the copy of the files", r);
    if (r == MEMORY_GO_ON)
        memory_go_on(j);
    alarm(FINISH_S);
    r = memory_finish(j);
    if (r < 0)
        memory_fail(j, "write the file", r);
    send(j->sock, "", 1, MSG_NOSIGNAL);
    _exit(0);
}

/* The process that saved was killed, with or without its spawner. */
static void __attribute__((noreturn)) memory_repair(struct memory_job *j) {
    memory_begin(j, 4 * ASK_MS / 1000);
    memory_go_on(j);
    send(j->sock, "", 1, MSG_NOSIGNAL);
    _exit(0);
}

/* ---- the spawner ---- */

/* The two programs of a vm, found by what they have as descriptors of these numbers. */
struct memory_ends {
    pid_t guest; /* of the box */
    int qmp, control;
};

static void ends_close(struct memory_ends *e) {
    close_fd(&e->qmp);
    close_fd(&e->control);
}

/* QEMU may have been taken over: it is believed only what harms nobody but its own vm. */
static int memory_take(int pidfd, int number, int type) {
    int is = 0, domain = 0, fd DEFER_CLOSE = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
    socklen_t size = sizeof(is);
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &size) == 0 && is == type &&
                   getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX
               ? TAKE_FD(fd)
               : -1;
}

static void memory_try_process(int pid, void *arg) {
    struct memory_ends *e = arg;
    if (pid == e->guest)
        return;
    int pidfd DEFER_CLOSE = pidfd_open(pid, 0);
    int control = memory_take(pidfd, VM_LAUNCH_CONTROL, SOCK_SEQPACKET);
    int qmp = control < 0 ? memory_take(pidfd, VM_LAUNCH_MONITOR, SOCK_STREAM) : -1;
    if (control >= 0) {
        close_fd(&e->control);
        e->control = control;
    }
    if (qmp >= 0) {
        close_fd(&e->qmp);
        e->qmp = qmp;
    }
}

static bool memory_find_ends(struct spawner *s, struct box *box, struct memory_ends *ret) {
    *ret = (struct memory_ends){.guest = box->pid, .qmp = -1, .control = -1};
    if (vm_is_booted(s, box))
        cgroup_each_pid(&s->cgroups, box->cgroup, memory_try_process, ret);
    if (ret->qmp >= 0 && ret->control >= 0)
        return true;
    ends_close(ret);
    return false;
}

/* The process of a box; one that was left is found last. */
static struct vm_saving *saving_find(const struct spawner *s, const struct box *box) {
    struct vm_saving *found = NULL;
    for (struct vm_saving *v = s->savings; v; v = v->next)
        if (v->box == box && (!found || found->is_left))
            found = v;
    return found;
}

static void saving_free(struct spawner *s, struct vm_saving *v) {
    struct vm_saving **at = &s->savings;
    while (*at != v)
        at = &(*at)->next;
    *at = v->next;
    close_fd(&v->sock);
    close_fd(&v->pidfd);
    free(v);
}

/* Nobody waits for the result any more: the process hears that, lets the vm go on, and ends. */
static void saving_leave(struct spawner *s, struct vm_saving *v) {
    v->is_left = true;
    close_fd(&v->sock);
    if (v->pid == 0)
        saving_free(s, v);
}

/* run: what the process does. If no process can be started, returns NULL and sets errno. */
static struct vm_saving *saving_start(struct spawner *s, struct box *box, struct memory_job *job,
                                      void (*run)(struct memory_job *j)) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return NULL;
    pid_t pid = fork();
    if (pid == 0) {
        job->sock = ends[1];
        run(job);
    }
    int pidfd = pid < 0 ? -1 : pidfd_open(pid, 0), e = errno;
    close(ends[1]);
    if (pidfd < 0) {
        close(ends[0]);
        if (pid > 0)
            kill(pid, SIGKILL);
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        errno = e;
        return NULL;
    }
    struct vm_saving *v = xnew(struct vm_saving);
    *v = (struct vm_saving){
        .next = s->savings, .box = box, .pid = pid, .pidfd = pidfd, .sock = ends[0]};
    s->savings = v;
    return v;
}

/* NULL: there is nothing that could go on, or no process can be started. */
static struct vm_saving *saving_start_repair(struct spawner *s, struct box *box) {
    struct memory_ends e;
    if (!memory_find_ends(s, box, &e))
        return NULL;
    struct memory_job job = {.out = -1, .qmp = e.qmp, .control = e.control};
    struct vm_saving *v = saving_start(s, box, &job, memory_repair);
    if (v)
        v->repairs = true;
    ends_close(&e);
    return v;
}

static void saving_repair(struct spawner *s, struct box *box) {
    struct vm_saving *v = saving_start_repair(s, box);
    if (v)
        saving_leave(s, v);
}

void vm_memory_adopt(struct spawner *s, struct box *box) {
    if (!box->dead && !box->ending)
        saving_repair(s, box);
}

static int memory_start(struct spawner *s, struct box *box, int client, int out, uint64_t max_bytes,
                        struct err *err) {
    struct memory_ends e;
    struct memory_job job = {.out = out, .max_bytes = max_bytes};
    struct stat st;
    vm_memory_begin(&job.head);
    if (fstat(out, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "the memory of a vm can be saved to a file only");
    int r = vm_boot_key(s, box, job.head.key, &job.head.mem_bytes);
    if (r < 0 || !memory_find_ends(s, box, &e)) {
        err_set(err, ERR_UNSUPPORTED, "the memory of machine '%s' cannot be saved%s", box->id,
                r == -EXDEV ? ": QEMU or its devices are others since it started" : "");
        return err_remedy(err, "rewind the machine, which boots it again");
    }
    job.qmp = e.qmp;
    job.control = e.control;
    struct vm_saving *v = saving_start(s, box, &job, memory_run);
    if (!v)
        err_sys(err, "cannot save the memory of machine '%s'", box->id);
    ends_close(&e);
    if (!v)
        return -1;
    v->client = client;
    v->dev = st.st_dev;
    v->ino = st.st_ino;
    return 0;
}

/* Hears the process. 1: it has done what it was to do, 0: not yet. */
static int memory_hear(struct spawner *s, struct vm_saving *v, struct err *err) {
    char text[256];
    ssize_t n = recv(v->sock, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    text[n > 0 ? n : 0] = '\0';
    if (n > 0 && text[0] == '\0')
        return 1;
    err_set(err, n > 1 ? (enum err_code)text[0] : ERR_INTERNAL,
            "cannot save the memory of machine '%s': %s", v->box->id,
            n > 1 ? text + 1 : "the process that saved it was killed");
    if (err->code == ERR_LIMIT)
        err_remedy(err, "free space, delete machines, or set a larger --disk");
    saving_leave(s, v);
    return -1;
}

static int memory_mend(struct spawner *s, struct box *box, int client, struct err *err) {
    struct vm_saving *v = s->savings;
    while (v && (v->box != box || !v->repairs || v->is_left))
        v = v->next;
    if (!v) {
        v = saving_start_repair(s, box);
        if (!v)
            return 0;
        v->client = client;
    }
    int heard = memory_hear(s, v, err);
    if (heard == 0)
        return err_set(err, ERR_BUSY, "vm '%s' is about to go on", box->id);
    if (heard > 0)
        saving_leave(s, v);
    return heard > 0 ? 0 : -1;
}

static int memory_wait(struct spawner *s, struct vm_saving *v, bool saves, struct err *err) {
    int heard = v->is_saved && saves ? 1 : memory_hear(s, v, err);
    if (heard < 0)
        return -1;
    bool is_over = heard > 0 && v->is_saved;
    v->is_saved |= heard > 0;
    if (heard == 0 || (!saves && !is_over))
        return err_set(err, ERR_BUSY, "the memory of machine '%s' is being saved", v->box->id);
    if (!saves)
        saving_leave(s, v);
    return 0;
}

/* True if this process saves to this file for this client. */
static bool saving_is(const struct vm_saving *v, int client, int file) {
    struct stat st;
    return !v->is_left && v->client == client && fstat(file, &st) == 0 && st.st_dev == v->dev &&
           st.st_ino == v->ino;
}

int vm_memory_request(struct spawner *s, struct plan_message *m, int client,
                      const struct fd_message *in, struct err *err) {
    struct box *box = box_find(s, m->plan.id);
    if (!box || box->dead || box->ending)
        return box ? err_set(err, ERR_GONE, "machine '%s' is ending", box->id)
                   : box_missing(s, m->plan.id, err);
    if (m->changed == MEMORY_REPAIR)
        return memory_mend(s, box, client, err);
    bool saves = m->changed == MEMORY_SAVE;
    char word = m->changed == MEMORY_STAY ? MEMORY_STAY : MEMORY_GO_ON;
    if (saves && in->nfds != 1)
        return err_set(err, ERR_INVALID, "the memory of a vm needs a file");
    struct vm_saving *v = saving_find(s, box);
    if (saves && v && !saving_is(v, client, in->fds[0])) {
        if (!v->is_left)
            saving_leave(s, v);
        return err_set(err, ERR_BUSY, "the memory of machine '%s' was being saved", box->id);
    }
    if (saves && !v && memory_start(s, box, client, in->fds[0], m->plan.disk_bytes, err) < 0)
        return -1;
    v = saving_find(s, box);
    if (!v || v->is_left)
        return err_set(err, ERR_NOT_FOUND, "the memory of machine '%s' is not being saved",
                       box->id);
    if (!saves && !v->goes_on) {
        v->goes_on = true;
        send(v->sock, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return memory_wait(s, v, saves, err);
}

int vm_memory_unwatched(struct spawner *s) {
    for (struct vm_saving *v = s->savings; v; v = v->next)
        if (!v->is_watched) {
            v->is_watched = true;
            return v->pidfd;
        }
    return -1;
}

void vm_memory_ended(struct spawner *s, int pidfd) {
    struct vm_saving *v = s->savings;
    int status = 0;
    while (v && v->pidfd != pidfd)
        v = v->next;
    if (!v || waitpid(v->pid, &status, WNOHANG) != v->pid)
        return;
    v->pid = 0;
    close_fd(&v->pidfd);
    if (WIFSIGNALED(status) && v->box && !v->repairs)
        saving_repair(s, v->box);
    if (v->is_left)
        saving_free(s, v);
}

void vm_memory_client_gone(struct spawner *s, int client) {
    for (struct vm_saving *v = s->savings, *next; v; v = next) {
        next = v->next;
        if (!v->is_left && v->client == client)
            saving_leave(s, v);
    }
}

void vm_memory_box_gone(struct spawner *s, const struct box *box) {
    for (struct vm_saving *v = s->savings, *next; v; v = next) {
        next = v->next;
        if (v->box != box)
            continue;
        v->box = NULL;
        if (v->pid > 0)
            kill(v->pid, SIGKILL);
        if (!v->is_left)
            saving_leave(s, v);
    }
}
