/*
 * carrel.1.call: runs another program in a store of its own, inside the same worker process.
 *
 * The program has the capabilities of its caller. Its fuel is taken from that of the caller, and
 * its memory has to fit beside that of the caller. The log has the answer and the fuel, so a replay
 * runs no other program.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "cell/host_inner.h"
#include "cell/verb.h"

enum {
    CALL_DEPTH_MAX = 8,
    CALL_NAME_MAX = 64,
    CALL_PROGRAM_MAX = 64 << 20,
    CALL_BYTE_FUEL = 8, /* to read and check one byte of a program */
};

/* A program that is called: its bytes, and how the call ended. */
struct called {
    char name[CALL_NAME_MAX + 1];
    struct slice bytes;
    struct buf room;      /* memory of bytes, in a machine */
    uint64_t limit, used; /* fuel */
    enum host_code code;  /* 0: it ended well, and `result` is its result */
    const char *why;
    char text[sizeof(((struct err *)0)->text)];
    struct buf result;
};

static int call_fail(struct called *c, enum host_code code, const char *why) {
    c->code = code;
    c->why = why;
    return -1;
}

static bool call_name_ok(const char *name, size_t len) {
    if (len == 0 || len > CALL_NAME_MAX || name[0] == '.')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", name[i]) ||
            !name[i])
            return false;
    return true;
}

/* --- finding the program --- */

/* Takes the fuel for a program of this size; false: it is more than the limit. */
static bool call_pays(struct called *c, uint64_t bytes) {
    uint64_t fuel = bytes * CALL_BYTE_FUEL;
    if (fuel > c->limit)
        return false;
    c->used = fuel;
    return true;
}

static int call_find_given(const struct session *s, struct called *c) {
    const struct job *job = s->job;
    for (int i = 0; i < job->program_count; i++)
        if (strcmp(job->programs[i].name, c->name) == 0) {
            c->bytes = job->programs[i].bytes;
            return call_pays(c, c->bytes.len)
                       ? 0
                       : call_fail(c, HOST_LIMIT, "the program needs more fuel to be loaded");
        }
    return call_fail(c, HOST_NOT_FOUND, "the program does not exist: give it with --program");
}

/* O_NONBLOCK: a pipe must not block; it is refused once it is open. */
static int call_find_file(const struct session *s, struct called *c) {
    char path[CALL_NAME_MAX + 16], chunk[65536];
    struct stat st;
    snprintf(path, sizeof(path), "bin/%s.wasm", c->name);
    int fd DEFER_CLOSE = beneath_open(s->link->dirs[0], path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return call_fail(c, HOST_NOT_FOUND, "the program does not exist: it is /bin/NAME.wasm");
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return call_fail(c, HOST_INVALID, "the program is not a file");
    if (st.st_size > CALL_PROGRAM_MAX || !call_pays(c, (uint64_t)st.st_size))
        return call_fail(c, HOST_LIMIT, "the program is too large to be loaded");
    off_t at = 0;
    for (ssize_t n; at < st.st_size; at += n) { /* bytes that were added since are not paid */
        size_t left = (size_t)(st.st_size - at);
        n = pread(fd, chunk, left < sizeof(chunk) ? left : sizeof(chunk), at);
        if (n <= 0)
            break;
        if (!buf_add(&c->room, chunk, (size_t)n))
            return call_fail(c, HOST_LIMIT, "cannot load the program: out of memory");
    }
    c->bytes = (struct slice){.data = (const uint8_t *)(c->room.data ? c->room.data : ""),
                              .len = c->room.len};
    return 0;
}

/* --- running it --- */

static void call_judge(struct called *c, int code, const struct ending *e) {
    static const struct {
        int code;
        enum host_code to;
    } codes[] = {{CELL_DENIED, HOST_DENIED}, {CELL_LIMIT, HOST_LIMIT}};
    c->code = code == CELL_OK ? 0 : HOST_INVALID;
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (code == codes[i].code)
            c->code = codes[i].to;
    if (code != CELL_OK) {
        c->why = c->text[0] ? c->text : "the program is not valid";
    } else if (e->outcome == WASM_OUT_OF_FUEL) {
        call_fail(c, HOST_LIMIT, "the program used all its fuel");
    } else if (e->outcome != WASM_DONE) {
        snprintf(c->text, sizeof(c->text), "the program trapped: %s", e->text ? e->text : "");
        call_fail(c, HOST_FAILED, c->text);
    } else if (e->has_exited && e->exit_code) {
        snprintf(c->text, sizeof(c->text), "the program exited with code %u", e->exit_code);
        call_fail(c, HOST_FAILED, c->text);
    }
}

/* Returns the pages of memory that the program may have beside its caller. */
static uint64_t call_pages(const struct session *s) {
    uint64_t used = wasm_store_bytes(s->store) >> 16;
    return used < s->pages ? s->pages - used : 0;
}

static void call_run(struct session *s, struct called *c, const char *args) {
    const char *words[] = {c->name};
    struct cell_options o = *s->job->options;
    o.words = words;
    o.word_count = 1;
    o.input = args;
    o.invoke = o.record = o.resume = o.out = NULL;
    o.arg_count = 0;
    o.json = o.has_suspend_at = false;
    o.fuel = c->limit - c->used;
    struct job job = {.options = &o,
                      .file = c->name,
                      .bytes = c->bytes,
                      .programs = s->job->programs,
                      .program_count = s->job->program_count};
    struct session inner DEFER(session_done);
    struct ending e = {0};
    session_init(&inner, s->link, &job);
    inner.caller = s;
    inner.depth = s->depth + 1;
    inner.allowed = s->allowed;
    inner.began_ns = s->began_ns;
    inner.fuel_outside = s->fuel_outside + wasm_fuel_used(s->store) + c->used;
    int code = session_load(&inner, c->bytes, o.spec, call_pages(s));
    if (code == CELL_OK)
        code = session_check_grants(&inner, o.grants, o.grant_count);
    if (code == CELL_OK)
        code = run_new(&inner, &e);
    if (inner.store)
        c->used += wasm_fuel_used(inner.store);
    snprintf(c->text, sizeof(c->text), "%s", inner.why);
    call_judge(c, code, &e);
    c->result = inner.result;
    inner.result = BUF(0);
}

static void call_do(struct session *s, struct called *c, const char *args) {
    const struct cell_options *o = s->job->options;
    if (s->depth + 1 >= CALL_DEPTH_MAX)
        call_fail(c, HOST_LIMIT, "programs call each other more than 8 deep");
    else if ((o->in_machine ? call_find_file(s, c) : call_find_given(s, c)) == 0)
        call_run(s, c, args);
}

static void call_answer(struct pending *p, const struct called *c) {
    if (c->code)
        host_put_failure(p, c->used, c->code, c->why);
    else if (c->result.len)
        host_put_answer(p, c->used, c->result.data, c->result.len);
    else
        host_put_answer(p, c->used, "null", 4);
}

void host_do_call(struct session *s, struct pending *p) {
    uint32_t name_len = host_arg(p, 1), args_len = host_arg(p, 3);
    const uint8_t *name = host_guest_bytes(s, p, host_arg(p, 0), name_len);
    const uint8_t *args = name ? host_guest_bytes(s, p, host_arg(p, 2), args_len) : NULL;
    if (!args)
        return;
    p->call.taken = cell_digest(name, name_len) ^ (cell_digest(args, args_len) << 1);
    if (s->replay)
        return;
    if (!call_name_ok((const char *)name, name_len)) {
        host_put_failure(p, host_fuel_of(s, name_len), HOST_INVALID,
                         "the name of the program is not valid");
        return;
    }
    if (!host_is_json(args, args_len)) {
        host_put_failure(p, 0, HOST_INVALID, "the arguments are not JSON");
        return;
    }
    uint64_t asked = (uint64_t)p->call.args.list[4].i64, left = wasm_fuel_left(s->store);
    struct called c = {.limit = asked && asked < left ? asked : left,
                       .room = BUF(CALL_PROGRAM_MAX)};
    struct buf text = BUF(HOST_TRANSFER_MAX);
    memcpy(c.name, name, name_len); /* memory of the caller may not be used while another runs */
    if (buf_add(&text, args, args_len))
        call_do(s, &c, text.data);
    else
        call_fail(&c, HOST_LIMIT, "cannot copy the arguments: out of memory");
    call_answer(p, &c);
    buf_done(&text);
    buf_done(&c.room);
    buf_done(&c.result);
}
