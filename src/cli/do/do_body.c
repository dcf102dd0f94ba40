/* carrel do: the body of the request that starts a run. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/do/do.h"

enum { SCRIPT_MAX = 4 << 20 };

/* Environment variables with keys and URLs of providers. The daemon uses them for this run only. */
static const char *const key_names[] = {"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY",
                                        "OPENAI_BASE_URL"};

static int read_file(const char *path, struct buf *to, struct err *err) {
    char bytes[64 << 10];
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open file '%s'", path);
    for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) != 0;) {
        if (n < 0)
            return err_sys(err, "cannot read file '%s'", path);
        if (!buf_add(to, bytes, (size_t)n))
            return err_set(err, ERR_LIMIT, "file '%s' is longer than %d MiB", path,
                           SCRIPT_MAX >> 20);
    }
    return 0;
}

/* Parses an amount of money such as "1.50" into millionths. */
static int parse_money(const char *text, uint64_t *ret, struct err *err) {
    uint64_t whole = 0, part = 0, scale = 1000000;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && whole < 1000000000; p++)
        whole = whole * 10 + (uint64_t)(*p - '0');
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9' && scale > 1; p++) {
            scale /= 10;
            part += (uint64_t)(*p - '0') * scale;
        }
    *ret = whole * 1000000 + part;
    if (*p || p == text || !*ret)
        return err_set(err, ERR_INVALID, "--money %s: must be an amount such as 1.50", text);
    return 0;
}

void do_put_keys(struct jot *j, const struct client *c) {
    jot_object(j, "keys");
    for (size_t i = 0; c->local && i < sizeof(key_names) / sizeof(*key_names); i++) {
        const char *value = getenv(key_names[i]);
        if (value && *value)
            jot_string(j, key_names[i], value);
    }
    jot_end(j, '}');
}

static int put_model(struct jot *j, const struct do_options *o, struct err *err) {
    struct buf script DEFER(buf_done) = BUF(SCRIPT_MAX);
    char model[256];
    const char *name = o->model ? o->model : o->script ? "script" : NULL;
    if (o->provider && !name)
        return err_set(err, ERR_INVALID, "--provider requires --model");
    snprintf(model, sizeof(model), "%s%s%s", o->provider ? o->provider : "", o->provider ? "/" : "",
             name ? name : "");
    if (model[0])
        jot_string(j, "model", model);
    if (!o->script)
        return 0;
    if (read_file(o->script, &script, err) < 0)
        return -1;
    jot_bytes(j, "script", script.data ? script.data : "", script.len);
    return 0;
}

static int put_mode(struct jot *j, const struct do_options *o, struct err *err) {
    struct buf menu DEFER(buf_done) = BUF(SCRIPT_MAX);
    if (o->mode)
        jot_string(j, "mode", o->mode);
    if (o->made.spec.guard)
        jot_bool(j, "guard", true);
    if (o->ask_deviations)
        jot_bool(j, "ask_deviations", true);
    if (!o->menu)
        return 0;
    if (read_file(o->menu, &menu, err) < 0)
        return -1;
    jot_bytes(j, "menu", menu.data ? menu.data : "", menu.len);
    return 0;
}

/* Adds the file of --check-file FILE:/PATH to the request. */
static int put_check_file(struct jot *j, const char *words, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(SCRIPT_MAX);
    char path[4096];
    const char *colon = strrchr(words, ':');
    if (!colon || colon[1] != '/' || (size_t)(colon - words) >= sizeof(path)) {
        err_set(err, ERR_INVALID, "--check-file %s: no path in the machine given", words);
        return err_remedy(err, "write --check-file FILE:/PATH");
    }
    snprintf(path, sizeof(path), "%.*s", (int)(colon - words), words);
    if (read_file(path, &text, err) < 0)
        return -1;
    const char *bytes = text.data ? text.data : "";
    json_t *is_text = json_stringn(bytes, text.len);
    bool fits = is_text && !memchr(bytes, 0, text.len);
    json_decref(is_text);
    if (!fits)
        return err_set(err, ERR_INVALID, "--check-file %s: the file is not UTF-8 text", path);
    jot_bytes(j, colon + 1, bytes, text.len);
    return 0;
}

static int put_check(struct jot *j, const struct do_options *o, struct err *err) {
    jot_string(j, "check", o->check);
    jot_object(j, "check_files");
    for (size_t i = 0; i < o->check_files.count; i++)
        if (put_check_file(j, o->check_files.items[i], err) < 0)
            return -1;
    jot_end(j, '}');
    return 0;
}

static int put_tries(struct jot *j, const struct do_options *o, const struct do_machines *made,
                     struct err *err) {
    if (!o->tries)
        return 0;
    jot_u64(j, "tries", o->tries);
    if (o->check && put_check(j, o, err) < 0)
        return -1;
    if (!made->count)
        return 0;
    jot_array(j, "machines");
    for (size_t i = 0; i < made->count; i++)
        jot_string(j, NULL, made->ids[i]);
    jot_end(j, ']');
    return 0;
}

int do_put_start(struct jot *j, const struct do_options *o, const struct client *c,
                 const char *machine, const struct do_machines *made, const char *task,
                 struct err *err) {
    uint64_t micro = 0;
    if (!machine && made->count && !o->tries)
        machine = made->ids[0];
    jot_object(j, NULL);
    jot_string(j, "task", task);
    if (machine)
        jot_string(j, "machine", machine);
    if (o->turns)
        jot_u64(j, "turns", o->turns);
    if (o->tokens)
        jot_u64(j, "tokens", o->tokens);
    if (o->money && parse_money(o->money, &micro, err) < 0)
        return -1;
    if (micro)
        jot_u64(j, "money_micro", micro);
    if (o->timeout_ms) {
        char timeout[32];
        snprintf(timeout, sizeof(timeout), "%llums", (unsigned long long)o->timeout_ms);
        jot_string(j, "timeout", timeout);
    }
    if (put_model(j, o, err) < 0 || put_mode(j, o, err) < 0 || put_tries(j, o, made, err) < 0)
        return -1;
    do_put_keys(j, c);
    jot_end(j, '}');
    return j->failed
               ? err_set(err, ERR_LIMIT,
                         "the task, script, menu and check files are too large for one request")
               : 0;
}

/* --guard alone does not make a machine: it also applies to an existing one. */
bool do_makes(const struct do_options *o) {
    size_t first = offsetof(struct do_options, made), end = first + sizeof(o->made);
    for (const struct option_row *row = do_rows; row->name; row++)
        if (row->offset >= first && row->offset < end &&
            row->offset != offsetof(struct do_options, made.spec.guard) && option_is_given(row, o))
            return true;
    return false;
}
