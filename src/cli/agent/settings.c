/*
 * carrel agent import-settings: shows the owner's settings of an agent, and after a yes copies them
 * into the home of the agent's machine.
 *
 * Only the files of the table are read. Logins, and members that hold keys or choose where model
 * calls go, are left out, also those of MCP servers. What Carrel wrote for the agent wins over what
 * is copied.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/utf8.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"

enum { SETTING_MAX = 128 << 10, SETTINGS_MAX = 64 };

/* A file to copy. */
struct setting_copy {
    char path[256]; /* in the home */
    char *text;
    bool is_shared; /* the agent writes this file too: keep its other members, and let it write */
};

struct settings {
    const struct agent *agent;
    const char *home; /* of the owner, on this host */
    struct setting_copy list[SETTINGS_MAX];
    size_t count, skipped;
};

static void settings_done(struct settings *s) {
    for (size_t i = 0; i < s->count; i++)
        free(s->list[i].text);
}

static void setting_skip(struct settings *s, const char *path, const char *why) {
    printf("skipped ~/%s: %s\n", path, why);
    s->skipped++;
}

/* ---- reading ---- */

/* Returns the text of the owner's file; NULL: it does not exist or was skipped. */
static char *setting_read(struct settings *s, const char *path) {
    char full[PATH_MAX];
    struct stat st;
    snprintf(full, sizeof(full), "%.*s/%.*s", PATH_MAX / 2, s->home, PATH_MAX / 4, path);
    int fd DEFER_CLOSE = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    if (!S_ISREG(st.st_mode) || st.st_size > SETTING_MAX) {
        setting_skip(s, path, "it is not a file of at most 128 KiB");
        return NULL;
    }
    char *text = xmalloc(SETTING_MAX + 2);
    ssize_t n = read_file_at(AT_FDCWD, full, text, SETTING_MAX + 2);
    if (n >= 0 && n <= SETTING_MAX && strlen(text) == (size_t)n && utf8_valid(text, (size_t)n))
        return text;
    free(text);
    setting_skip(s, path, "it is not text in UTF-8");
    return NULL;
}

static void setting_add(struct settings *s, const char *path, char *text, bool is_shared) {
    if (s->count == SETTINGS_MAX || strlen(path) >= sizeof(s->list[0].path)) {
        setting_skip(s, path, "there are too many files, or its path is too long");
        free(text);
        return;
    }
    snprintf(s->list[s->count].path, sizeof(s->list[0].path), "%s", path);
    s->list[s->count].is_shared = is_shared;
    s->list[s->count++].text = text;
}

/* ---- JSON ---- */

/* The members that Carrel itself writes into this file; NULL: none. */
static json_t *setting_own(const struct agent_row *row, const char *path, const char *dir) {
    for (const struct agent_file *f = row->files; f && f->path; f++) {
        struct buf text DEFER(buf_done) = BUF(SETTING_MAX);
        struct err none;
        if (strcmp(f->path, path) == 0 && agent_file_text(f, dir, &text, &none) == 0)
            return json_loads(text.data, 0, NULL);
    }
    return NULL;
}

/* Keeps only the member `only`, or all members without those of `drop`. */
static json_t *setting_pick(json_t *all, const struct agent_setting *row) {
    json_t *kept = json_object();
    if (row->only && json_object_get(all, row->only))
        json_object_set(kept, row->only, json_object_get(all, row->only));
    if (!row->only)
        json_object_update(kept, all);
    for (size_t i = 0; i < AGENT_DROP_MAX && row->drop[i]; i++)
        json_object_del(kept, row->drop[i]);
    return kept;
}

/* Deletes the members of one MCP server that hold keys, and says so. */
static void setting_drop_keys(const char *path, const char *server, json_t *members) {
    static const char *const keys[] = {"env", "environment", "headers", "oauth"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (json_object_del(members, keys[i]) == 0) {
            printf("left out '%s' of MCP server '", keys[i]);
            safe_text(stdout, server, strlen(server));
            printf("' of ~/%s: it may have keys\n", path);
        }
}

/* MCP servers are in one of these members, by their names. */
static void setting_drop_server_keys(const char *path, json_t *kept) {
    static const char *const lists[] = {"mcpServers", "mcp"};
    const char *server;
    json_t *members;
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        json_object_foreach(json_object_get(kept, lists[i]), server, members)
            setting_drop_keys(path, server, members);
}

static void setting_json(struct settings *s, const struct agent_setting *row) {
    char *text DEFER_FREE = setting_read(s, row->path);
    if (!text)
        return;
    json_t *all DEFER(json_decrefp) = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(all)) {
        setting_skip(s, row->path, "it is not a JSON object");
        return;
    }
    json_t *kept DEFER(json_decrefp) = setting_pick(all, row);
    if (!json_object_size(kept))
        return;
    setting_drop_server_keys(row->path, kept);
    json_t *own DEFER(json_decrefp) = setting_own(s->agent->row, row->path, s->agent->slice.dir);
    if (own)
        json_object_update_recursive(kept, own);
    setting_add(s, row->path, json_dumps(kept, JSON_INDENT(2)), row->only);
}

/* ---- files and directories ---- */

static void setting_dir(struct settings *s, const struct agent_setting *row) {
    char full[PATH_MAX], path[512];
    struct dirent **names = NULL;
    snprintf(full, sizeof(full), "%.*s/%s", PATH_MAX / 2, s->home, row->path);
    int n = scandir(full, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        bool is_plain = names[i]->d_name[0] != '.' && strlen(names[i]->d_name) < 128;
        snprintf(path, sizeof(path), "%s/%.128s", row->path, names[i]->d_name);
        char *text = is_plain ? setting_read(s, path) : NULL;
        if (text)
            setting_add(s, path, text, false);
        free(names[i]);
    }
    free(names);
}

static void setting_text(struct settings *s, const struct agent_setting *row) {
    char *text = setting_read(s, row->path);
    if (text)
        setting_add(s, row->path, text, false);
}

static void settings_collect(struct settings *s) {
    static void (*const collect[])(struct settings *, const struct agent_setting *) = {
        [AGENT_SETTING_TEXT] = setting_text,
        [AGENT_SETTING_DIR] = setting_dir,
        [AGENT_SETTING_JSON] = setting_json,
    };
    for (const struct agent_setting *row = s->agent->row->settings; row->path; row++)
        collect[row->kind](s, row);
}

/* ---- copying ---- */

/* Adds the members of the agent's own file, which those of the copy replace. */
static char *setting_join(const struct settings *s, const char *target, const char *text) {
    const struct client_request r = {.method = "GET", .target = target};
    json_t *there DEFER(json_decrefp) = NULL, *copy DEFER(json_decrefp) = json_loads(text, 0, NULL);
    struct err none;
    if (client_call(s->agent->client, &r, &there, &none) < 0 || !json_is_object(there))
        return xstrdup(text);
    json_object_update_recursive(there, copy);
    return json_dumps(there, JSON_INDENT(2));
}

/* An old copy is read-only, so it is deleted first. */
static int setting_send(const struct settings *s, const struct setting_copy *copy,
                        struct err *err) {
    char target[CLIENT_TARGET_SIZE], path[512];
    struct buf body DEFER(buf_done) = BUF(SETTING_MAX * 16);
    struct err none;
    snprintf(path, sizeof(path), AGENT_HOME_INSIDE "/%s", copy->path);
    const struct client_request drop = {.method = "DELETE", .target = target},
                                write = {.method = "PUT", .target = target, .body = &body};
    if (client_target(target, err, "/v1/machines/%s/files?path=%s", s->agent->machine, path) < 0)
        return -1;
    char *text DEFER_FREE =
        copy->is_shared ? setting_join(s, target, copy->text) : xstrdup(copy->text);
    if (!text || !buf_add(&body, text, strlen(text)))
        return err_set(err, ERR_LIMIT, "the file is too long");
    (void)client_call(s->agent->client, &drop, NULL, &none);
    if (agent_make_parent(s->agent, path, err) < 0 ||
        client_query(target, "mode", copy->is_shared ? "600" : "444", err) < 0)
        return -1;
    return client_call(s->agent->client, &write, NULL, err);
}

static void settings_show(const struct settings *s) {
    for (size_t i = 0; i < s->count; i++) {
        printf("---- ~/%s\n", s->list[i].path);
        safe_text(stdout, s->list[i].text, strlen(s->list[i].text));
        puts("");
    }
}

static int settings_send(const struct settings *s, struct err *err) {
    for (size_t i = 0; i < s->count; i++)
        if (setting_send(s, &s->list[i], err) < 0)
            return err_wrap(err, "cannot copy ~/%s", s->list[i].path);
    cli_done(s->agent->o->quiet, "copied %zu file%s into the home of agent %s in machine %s",
             s->count, s->count == 1 ? "" : "s", s->agent->row->name, s->agent->name);
    return 0;
}

static int settings_check(const struct agent *a, char **words, struct err *err) {
    if (words[1])
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", words[1]);
    if (!a->row->settings) {
        err_set(err, ERR_UNSUPPORTED, "Carrel does not know the settings of agent '%s'",
                a->row->name);
        return err_remedy(err, "copy them: carrel cp FILE MACHINE:PATH");
    }
    if (a->o->yes || isatty(STDIN_FILENO))
        return 0;
    err_set(err, ERR_INVALID, "carrel agent import-settings requires a terminal");
    return err_remedy(err, "review the files, then use -y");
}

int agent_import(struct agent *a, char **words, struct err *err) {
    struct settings *s DEFER_FREE = xnew(struct settings);
    if (!words[0])
        return err_set(err, ERR_INVALID, "carrel agent import-settings requires an agent");
    if (agent_find(a, words[0], err) < 0 || settings_check(a, words, err) < 0 ||
        agent_slice_find(&a->slice, err) < 0)
        return -1;
    *s = (struct settings){.agent = a, .home = getenv("HOME")};
    settings_collect(s);
    settings_show(s);
    int r = 0;
    if (!s->count)
        cli_done(a->o->quiet, "your home has no settings of agent %s", a->row->name);
    else if (!a->o->yes && !agent_confirms("copy these files into the agent's machine? [y/N] "))
        cli_done(a->o->quiet, "nothing was copied");
    else
        r = agent_machine_open(a, err) < 0 ? -1 : settings_send(s, err);
    settings_done(s);
    return r;
}
