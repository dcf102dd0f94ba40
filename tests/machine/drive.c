/*
 * machine-drive: the machine layer behind a line protocol, for tests that want real machines.
 *
 * In: SEQ VERB WORD... (a space in a word is 0x1f)   Out: SEQ ok WORD... | SEQ error CODE TEXT | -
 * EVENT ID ... Everything is asked at once as it is read and answered when it is done, so a test
 * may have many requests under way. See verbs[] at the end.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"
#include "machine/machine.h"

enum { WORDS = 64, OUT_MAX = 1 << 20 };

struct known {
    struct known *next;
    struct machine *m;
};

struct drive {
    struct loop *loop;
    struct machine_host *host;
    struct loop_watch *input;
    struct known *known;
    char line[1 << 16];
    size_t len;
};

/* One request under way. */
struct ask {
    struct drive *d;
    uint64_t seq;
    char id[ID_SIZE];
    struct guest_command command;
    struct guest_watch watch;
    struct buf out;
    uint64_t seen[2]; /* bytes of stdout and stderr */
    bool exited, eof[2], frames;
    struct msg_exit exit;
};

static struct ask *ask_new(struct drive *d, uint64_t seq, const char *id) {
    struct ask *a = xnew(struct ask);
    a->d = d;
    a->seq = seq;
    snprintf(a->id, sizeof(a->id), "%s", id ? id : "");
    a->out = BUF(OUT_MAX);
    return a;
}

static void ask_free(struct ask *a) {
    buf_done(&a->out);
    free(a);
}

static void say_error(uint64_t seq, const struct err *err) {
    printf("%" PRIu64 " error %s %s\n", seq, err_code_name(err->code), err->text);
}

static void done(void *arg, const struct err *err) {
    struct ask *a = arg;
    if (err)
        say_error(a->seq, err);
    else
        printf("%" PRIu64 " ok\n", a->seq);
    ask_free(a);
}

static struct machine *find(struct drive *d, const char *id) {
    for (struct known *k = d->known; k; k = k->next)
        if (strcmp(k->m->id, id) == 0)
            return k->m;
    return NULL;
}

static void on_end(void *arg, struct machine *m, const struct err *why) {
    (void)arg;
    printf("- end %s %s %s\n", m->id, err_code_name(why->code), why->text);
}

static void on_back(void *arg, struct machine *m) {
    (void)arg;
    printf("- back %s\n", m->id);
}

static void made(void *arg, struct machine *m, const char *warnings, const struct err *err) {
    struct ask *a = arg;
    if (err) {
        say_error(a->seq, err);
    } else {
        struct known *k = xnew(struct known);
        *k = (struct known){a->d->known, m};
        a->d->known = k;
        m->on_end = on_end;
        m->on_back = on_back;
        printf("%" PRIu64 " ok %s\n", a->seq, *warnings ? "warned" : "");
    }
    ask_free(a);
}

static uint64_t number(char **words, const char *key) {
    size_t n = strlen(key);
    for (; *words; words++)
        if (strncmp(*words, key, n) == 0 && (*words)[n] == '=')
            return strtoull(*words + n + 1, NULL, 10);
    return 0;
}

static const char *word(char **words, const char *key) {
    size_t n = strlen(key);
    for (; *words; words++)
        if (strncmp(*words, key, n) == 0 && (*words)[n] == '=')
            return *words + n + 1;
    return NULL;
}

static struct machine_limits limits_of(char **words) {
    return (struct machine_limits){.mem_bytes = number(words, "mem"),
                                   .cpu_milli = number(words, "cpu"),
                                   .pids = number(words, "pids"),
                                   .disk_bytes = number(words, "disk")};
}

/* vm=KERNEL: the machine is a vm; vm= alone: with a kernel of the host. */
static const struct machine_vm *vm_of(char **words, struct machine_vm *vm) {
    const char *kernel = word(words, "vm");
    *vm =
        (struct machine_vm){.hostname = "vm", .kernel = kernel, .mem_bytes = number(words, "mem")};
    return kernel ? vm : NULL;
}

static void do_create(struct ask *a, struct machine *m, char **words) {
    (void)m;
    struct machine_vm vm;
    struct machine_spec spec = {.id = a->id,
                                .image = "host",
                                .vm = vm_of(words, &vm),
                                .limits = limits_of(words),
                                .deadline_ms = number(words, "deadline"),
                                .linger = number(words, "linger"),
                                .early = number(words, "early"),
                                .stack = word(words, "stack")};
    box_driver.create(a->d->host, &spec, made, a);
}

static void do_adopt(struct ask *a, struct machine *m, char **words) {
    (void)m;
    struct machine_vm vm;
    box_driver.adopt(a->d->host, a->id, vm_of(words, &vm), made, a);
}

static void do_destroy(struct ask *a, struct machine *m, char **words) {
    (void)m, (void)words;
    box_driver.destroy(a->d->host, a->id, done, a);
}

static void do_free(struct ask *a, struct machine *m, char **words) {
    (void)words;
    for (struct known **at = &a->d->known; *at; at = &(*at)->next)
        if ((*at)->m == m) {
            struct known *k = *at;
            *at = k->next;
            free(k);
            break;
        }
    machine_free(m);
    done(a, NULL);
}

static void do_freeze(struct ask *a, struct machine *m, char **words) {
    m->driver->freeze(m, number(words, "on"), done, a);
}

static void do_limit(struct ask *a, struct machine *m, char **words) {
    struct machine_limits limits = limits_of(words);
    if (number(words, "nocpu"))
        limits.cpu_milli = MACHINE_UNLIMITED;
    m->driver->limit(m, &limits, done, a);
}

static void do_deadline(struct ask *a, struct machine *m, char **words) {
    m->driver->set_deadline(m, number(words, "in"), done, a);
}

static void told_stats(void *arg, const struct machine_stats *s, const struct err *err) {
    struct ask *a = arg;
    if (err)
        say_error(a->seq, err);
    else
        printf("%" PRIu64 " ok cpu=%" PRIu64 " mem=%" PRIu64 " peak=%" PRIu64 " limit=%" PRIu64
               " pids=%" PRIu64 " io=%" PRIu64 " disk=%" PRIu64 " oom=%" PRIu64 " refused=%" PRIu64
               " frozen=%d\n",
               a->seq, s->cpu_us, s->mem_bytes, s->mem_peak_bytes, s->mem_limit_bytes, s->pids,
               s->io_bytes, s->disk_bytes, s->oom_kills, s->pids_refused, s->frozen);
    ask_free(a);
}

static void do_stats(struct ask *a, struct machine *m, char **words) {
    (void)words;
    m->driver->stats(m, told_stats, a);
}

static void told_root(void *arg, bool changed, const struct err *err) {
    struct ask *a = arg;
    if (err)
        say_error(a->seq, err);
    else
        printf("%" PRIu64 " ok changed=%d\n", a->seq, changed);
    ask_free(a);
}

/* root ID layer=N stack=... if_changed=1 */
static void do_root(struct ask *a, struct machine *m, char **words) {
    const char *stack = word(words, "stack");
    m->driver->root(m, stack ? stack : "", (uint32_t)number(words, "layer"),
                    number(words, "if_changed") ? ROOT_IF_CHANGED : 0, told_root, a);
}

/* The names of /home/user and of /usr/local in it, with their owners. */
static void print_dir(int dir, const char *path) {
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] != '.' && fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            printf(" %s:%u", e->d_name, st.st_uid);
    }
    if (d)
        closedir(d);
}

static void told_view(void *arg, int root, int usr, const struct err *err) {
    struct ask *a = arg;
    if (err) {
        say_error(a->seq, err);
    } else {
        printf("%" PRIu64 " ok", a->seq);
        print_dir(root, "home/user");
        print_dir(usr, "local/share");
        printf("\n");
        close(root);
        close(usr);
    }
    ask_free(a);
}

static void do_view(struct ask *a, struct machine *m, char **words) {
    const char *stack = word(words, "stack");
    m->driver->view(m, stack ? stack : "", told_view, a);
}

static void do_merge(struct ask *a, struct machine *m, char **words) {
    const char *stack = word(words, "stack");
    m->driver->merge(m, stack ? stack : "", (uint32_t)number(words, "layer"), done, a);
}

static void do_keep(struct ask *a, struct machine *m, char **words) {
    const char *ranges = word(words, "ranges");
    m->driver->keep(m, ranges ? ranges : "", done, a);
}

static void told_list(void *arg, const struct plan_found *found, size_t count,
                      const struct err *err) {
    struct ask *a = arg;
    if (err) {
        say_error(a->seq, err);
    } else {
        printf("%" PRIu64 " ok", a->seq);
        for (size_t i = 0; i < count; i++)
            printf(" %s", found[i].id);
        printf("\n");
    }
    ask_free(a);
}

static void do_list(struct ask *a, struct machine *m, char **words) {
    (void)m, (void)words;
    box_driver.list(a->d->host, told_list, a);
}

static void told_status(void *arg, const char *json, const struct err *err) {
    struct ask *a = arg;
    if (err)
        say_error(a->seq, err);
    else
        printf("%" PRIu64 " ok %s\n", a->seq, json);
    ask_free(a);
}

static void do_status(struct ask *a, struct machine *m, char **words) {
    (void)m, (void)words;
    box_driver.status(a->d->host, told_status, a);
}

/* Commands. */

static void print_hex(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        printf("%02x", (unsigned char)bytes[i]);
}

static void command_over(struct ask *a) {
    if (!a->exited || (a->frames && !(a->eof[0] && a->eof[1])))
        return;
    struct machine *m = find(a->d, a->id);
    if (m)
        guest_forget(m->guest, &a->command, true);
    printf("%" PRIu64 " ok status=%u flags=%u out=", a->seq, a->exit.status, a->exit.flags);
    print_hex(a->out.data ? a->out.data : "", a->out.len);
    printf("\n");
    ask_free(a);
}

static void exited(void *arg, const struct msg_exit *exit) {
    struct ask *a = arg;
    a->exit = *exit;
    a->exited = true;
    command_over(a);
}

static void data(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                 bool eof) {
    struct ask *a = arg;
    struct machine *m = find(a->d, a->id);
    if (stream == 1 && n && !buf_add(&a->out, p, n))
        printf("- full %s\n", a->id);
    a->seen[stream - 1] = offset + n;
    a->eof[stream - 1] = a->eof[stream - 1] || eof;
    if (m && n) {
        struct msg_credit credit = {.stream = (uint8_t)stream, .consumed = offset + n};
        guest_tell(m->guest, (struct frame_head){.type = MSG_CREDIT, .id = a->command.id}, &credit,
                   NULL);
    }
    command_over(a);
}

static void failed(void *arg, const struct msg_exec_failed *f) {
    struct ask *a = arg;
    printf("%" PRIu64 " ok never errno=%u step=%u\n", a->seq, f->number, f->step);
    ask_free(a);
}

static void refused(void *arg, const struct err *err) {
    struct ask *a = arg;
    say_error(a->seq, err);
    ask_free(a);
}

static void follow(struct ask *a, const char *xid) {
    a->command = (struct guest_command){.id = (uint32_t)strtoul(xid, NULL, 10),
                                        .arg = a,
                                        .failed = failed,
                                        .refused = refused,
                                        .data = data,
                                        .exited = exited,
                                        .lost = refused};
}

/*
 * exec ID XID MODE ARGV...; MODE: pipe (output in frames), root (the same, as root of the machine),
 * null, fd (written to ./fd.out)
 */
static void do_exec(struct ask *a, struct machine *m, char **words) {
    static const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
    bool as_root = words[0] && words[1] && strcmp(words[1], "root") == 0;
    bool pipe_out = as_root || (words[0] && words[1] && strcmp(words[1], "pipe") == 0);
    bool fd_out = words[0] && words[1] && strcmp(words[1], "fd") == 0;
    int fd DEFER_CLOSE = fd_out ? open("fd.out", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    struct msg_exec exec = {
        .flags = MSG_EXEC_QUIET,
        .uid = as_root ? 0 : 1000,
        .gid = as_root ? 0 : 1000,
        .argv = {.v = (const char *const *)words + 2},
        .env = {.v = env},
    };
    uint8_t out = pipe_out ? MSG_STDIO_PIPE : fd_out ? MSG_STDIO_FD : MSG_STDIO_NULL;
    exec.stdio[1] = out;
    exec.stdio[2] = pipe_out ? MSG_STDIO_PIPE : MSG_STDIO_NULL;
    a->frames = pipe_out;
    follow(a, words[0]);
    guest_exec(m->guest, &a->command, &exec, &fd, fd >= 0);
}

static void do_attach(struct ask *a, struct machine *m, char **words) {
    struct msg_attach from = {.consumed = {UINT64_MAX, UINT64_MAX}};
    a->frames = number(words, "frames");
    follow(a, words[0]);
    guest_attach(m->guest, &a->command, &from);
}

/* Requests. */

static void replied(void *arg, const struct frame *f, const struct err *err) {
    struct ask *a = arg;
    struct msg_read_data read;
    struct msg_rows rows;
    struct msg_row row;
    if (err) {
        say_error(a->seq, err);
    } else if (msg_get_read_data(f, &read) == 0) {
        printf("%" PRIu64 " ok ", a->seq);
        print_hex((const char *)read.data.p, read.data.n);
        printf("\n");
    } else if (msg_get_rows(f, &rows) == 0) {
        printf("%" PRIu64 " ok", a->seq);
        while (msg_row_next(&rows.rows, &row) == 1)
            printf(" %u:%u:%u", row.id, row.state, row.exit.status);
        printf("\n");
    } else {
        printf("%" PRIu64 " ok %s\n", a->seq, msg_type_name(f->head.type));
    }
    ask_free(a);
}

static struct msg_str text(const char *s) {
    return (struct msg_str){s ? s : "", s ? (uint32_t)strlen(s) : 0};
}

static void do_write(struct ask *a, struct machine *m, char **words) {
    struct msg_write w = {
        .uid = 1000, .gid = 1000, .flags = MSG_CREATE | MSG_TRUNCATE, .mode = 0644};
    w.path = text(words[0]);
    w.data = (struct msg_bytes){(const uint8_t *)words[1], (uint32_t)strlen(words[1])};
    guest_request(m->guest, (struct frame_head){.type = MSG_WRITE}, &w, NULL, 0, replied, a);
}

static void do_read(struct ask *a, struct machine *m, char **words) {
    struct msg_read r = {.uid = 1000, .gid = 1000, .bytes = MSG_CHUNK_MAX, .path = text(words[0])};
    guest_request(m->guest, (struct frame_head){.type = MSG_READ}, &r, NULL, 0, replied, a);
}

static void do_table(struct ask *a, struct machine *m, char **words) {
    (void)words;
    guest_request(m->guest, (struct frame_head){.type = MSG_TABLE}, NULL, NULL, 0, replied, a);
}

static void do_kill(struct ask *a, struct machine *m, char **words) {
    struct frame_head head = {.type = MSG_KILL, .id = (uint32_t)strtoul(words[0], NULL, 10)};
    guest_request(m->guest, head, NULL, NULL, 0, replied, a);
}

static void do_shutdown(struct ask *a, struct machine *m, char **words) {
    (void)words;
    guest_tell(m->guest, (struct frame_head){.type = MSG_SHUTDOWN}, NULL, NULL);
    done(a, NULL);
}

/* What no guest takes: it closes the connection. */
static void do_rubbish(struct ask *a, struct machine *m, char **words) {
    (void)words;
    guest_tell(m->guest, (struct frame_head){.type = MSG_STDOUT}, &(struct msg_data){0}, NULL);
    done(a, NULL);
}

static void watch_ready(void *arg) {
    struct ask *a = arg;
    printf("%" PRIu64 " ok\n", a->seq);
}

static void watch_event(void *arg, const struct msg_event *e) {
    struct ask *a = arg;
    printf("- event %s %s %x\n", a->id, e->name.s, e->mask);
}

static void watch_ended(void *arg, const struct err *err) {
    struct ask *a = arg;
    say_error(a->seq, err);
    ask_free(a);
}

static void do_watch(struct ask *a, struct machine *m, char **words) {
    struct msg_path p = {.uid = 1000, .gid = 1000, .path = text(words[0])};
    a->watch = (struct guest_watch){
        .id = 7, .arg = a, .ready = watch_ready, .event = watch_event, .ended = watch_ended};
    guest_watch(m->guest, &a->watch, &p);
}

static void do_quit(struct ask *a, struct machine *m, char **words) {
    (void)m, (void)words;
    loop_stop(a->d->loop);
    done(a, NULL);
}

static const struct verb {
    const char *name;
    void (*run)(struct ask *a, struct machine *m, char **words);
    bool of_machine; /* a machine that is known here */
    int words;       /* it needs after the id */
} verbs[] = {
    {"create", do_create, false, 0},    {"adopt", do_adopt, false, 0},
    {"destroy", do_destroy, false, 0},  {"free", do_free, true, 0},
    {"freeze", do_freeze, true, 0},     {"limit", do_limit, true, 0},
    {"deadline", do_deadline, true, 0}, {"stats", do_stats, true, 0},
    {"list", do_list, false, 0},        {"status", do_status, false, 0},
    {"exec", do_exec, true, 3},         {"attach", do_attach, true, 1},
    {"write", do_write, true, 2},       {"read", do_read, true, 1},
    {"root", do_root, true, 0},         {"view", do_view, true, 0},
    {"keep", do_keep, true, 0},         {"merge", do_merge, true, 0},
    {"table", do_table, true, 0},       {"kill", do_kill, true, 1},
    {"watch", do_watch, true, 1},       {"shutdown", do_shutdown, true, 0},
    {"quit", do_quit, false, 0},        {"rubbish", do_rubbish, true, 0},
};

static const struct verb *verb_named(const char *name) {
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static void obey(struct drive *d, char *line) {
    char *words[WORDS + 1] = {NULL}, *at;
    int count = 0;
    for (char *w = strtok_r(line, " ", &at); w && count < WORDS; w = strtok_r(NULL, " ", &at))
        words[count++] = w;
    for (int i = 0; i < count; i++)
        for (char *p = words[i]; (p = strchr(p, 0x1f));)
            *p = ' ';
    const struct verb *verb = count >= 2 ? verb_named(words[1]) : NULL;
    uint64_t seq = count ? strtoull(words[0], NULL, 10) : 0;
    struct machine *m = count > 2 ? find(d, words[2]) : NULL;
    if (!verb || (verb->of_machine && !m) || count < 3 + verb->words - !verb->of_machine) {
        printf("%" PRIu64 " error invalid what\n", seq);
        return;
    }
    verb->run(ask_new(d, seq, words[2]), m, words + 3);
}

static void on_input(void *arg, unsigned events) {
    struct drive *d = arg;
    (void)events;
    ssize_t n = read(0, d->line + d->len, sizeof(d->line) - 1 - d->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        loop_stop(d->loop);
        return;
    }
    d->len += (size_t)n;
    d->line[d->len] = '\0';
    char *start = d->line;
    for (char *end; (end = strchr(start, '\n')); start = end + 1) {
        *end = '\0';
        obey(d, start);
    }
    d->len = strlen(start);
    memmove(d->line, start, d->len + 1);
}

int main(void) {
    static struct drive d;
    struct err err = {0};
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);
    d.loop = loop_new(&err);
    d.host = d.loop ? box_driver.open(d.loop, NULL, &err) : NULL;
    if (!d.host || loop_watch_new(d.loop, 0, LOOP_READ, on_input, &d, &d.input, &err) < 0) {
        fprintf(stderr, "machine-drive: %s\n", err.text);
        return 1;
    }
    loop_run(d.loop);
    while (d.known) {
        struct known *k = d.known;
        d.known = k->next;
        machine_free(k->m);
        free(k);
    }
    box_driver.close(d.host);
    loop_watch_free(d.input);
    loop_free(d.loop);
    return 0;
}
