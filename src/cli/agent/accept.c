/*
 * The project file of a directory: reads it, shows what it asks for, and keeps the hash of the file
 * that the owner accepted. A file with another hash has no effect, whoever changed it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/sha256.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"

struct agent_accept {
    struct project project;
    char *setup; /* text of the script; NULL: none */
    char hash[SHA256_HEX];
    char kept[PATH_MAX]; /* file with the accepted hash */
};

void agent_accept_free(struct agent_accept *f) {
    if (f)
        free(f->setup);
    free(f);
}

static void accept_freep(struct agent_accept **slot) {
    agent_accept_free(*slot);
}

/* ---- reading ---- */

/* Reads a file below `dir`, with no link on the way. NULL: it does not exist, or *err is set. */
static char *accept_read(int dir, const char *path, struct err *err) {
    struct stat st;
    int fd DEFER_CLOSE = beneath_open_plain(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd == -ENOENT || fd == -ENOTDIR)
        return NULL;
    if (fd < 0 || fstat(fd, &st) < 0) {
        err_num(err, fd < 0 ? fd : -errno, "cannot open '%s'", path);
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > PROJECT_FILE_MAX) {
        err_set(err, ERR_LIMIT, "'%s' is not a file of at most %d KiB", path,
                PROJECT_FILE_MAX >> 10);
        return NULL;
    }
    char *text = xcalloc(1, PROJECT_FILE_MAX + 2);
    ssize_t n = pread(fd, text, PROJECT_FILE_MAX + 1, 0);
    if (n >= 0 && project_check(text, (size_t)n, err) == 0)
        return text;
    if (n < 0)
        err_sys(err, "cannot read it");
    err_wrap(err, "%s", path);
    free(text);
    return NULL;
}

/* The hash covers both texts, so that another script of the same name must be accepted too. */
static void accept_hash(struct agent_accept *f, const char *conf) {
    struct buf all DEFER(buf_done) = BUF(4 * PROJECT_FILE_MAX);
    size_t setup = f->setup ? strlen(f->setup) : 0;
    bool fits = buf_addf(&all, "carrel-project-1 %zu %zu\n", strlen(conf), setup) &&
                buf_add(&all, conf, strlen(conf)) && buf_add(&all, f->setup ? f->setup : "", setup);
    if (!fits)
        abort(); /* unreachable: both texts have at most PROJECT_FILE_MAX bytes */
    sha256_hex(all.data, all.len, f->hash);
}

static int accept_load(const char *top, struct agent_accept *f, const char *conf, int dir,
                       struct err *err) {
    char name[SHA256_HEX], data[PATH_MAX];
    if (project_parse(conf, strlen(conf), &f->project, err) < 0)
        return err_wrap(err, PROJECT_PATH);
    if (f->project.setup[0]) {
        f->setup = accept_read(dir, f->project.setup, err);
        if (!f->setup && !err->code)
            err_set(err, ERR_NOT_FOUND, PROJECT_PATH ": script '%s' does not exist",
                    f->project.setup);
        if (!f->setup)
            return -1;
    }
    accept_hash(f, conf);
    sha256_hex(top, strlen(top), name);
    if (agent_data_dir(data, err) < 0)
        return -1;
    snprintf(f->kept, sizeof(f->kept), "%.*s/accepted/%s", PATH_MAX - 128, data, name);
    return 0;
}

/* 0 with *ret NULL: the directory has no project file. */
static int accept_open(const char *top, struct agent_accept **ret, struct err *err) {
    int dir DEFER_CLOSE = dir_open(AT_FDCWD, top);
    struct err why = {0};
    *ret = NULL;
    if (dir < 0)
        return err_num(err, dir, "cannot open directory '%s'", top);
    char *conf DEFER_FREE = accept_read(dir, PROJECT_PATH, &why);
    struct agent_accept *f DEFER(accept_freep) = xnew(struct agent_accept);
    if ((!conf && why.code) || (conf && accept_load(top, f, conf, dir, &why) < 0)) {
        *err = why;
        return err->remedy[0] ? -1 : err_remedy(err, "correct the file, or use --no-project");
    }
    if (conf)
        *ret = TAKE(f);
    return 0;
}

/* ---- the accepted hash ---- */

enum accept_state { ACCEPT_NEW, ACCEPT_CHANGED, ACCEPT_VALID };

static enum accept_state accept_look(const struct agent_accept *f) {
    char kept[256] = "";
    ssize_t n = read_file_at(AT_FDCWD, f->kept, kept, sizeof(kept));
    kept[strcspn(kept, "\n")] = '\0';
    return n <= 0 ? ACCEPT_NEW : strcmp(kept, f->hash) == 0 ? ACCEPT_VALID : ACCEPT_CHANGED;
}

/* Replaces the file by rename, so that it always has a whole hash. */
static int accept_keep(const struct agent_accept *f, struct err *err) {
    char dir[PATH_MAX], new[PATH_MAX];
    snprintf(dir, sizeof(dir), "%s", f->kept);
    *strrchr(dir, '/') = '\0';
    snprintf(new, sizeof(new), "%.*s/.new-XXXXXX", PATH_MAX - 64, dir);
    if (agent_make_dirs(dir, err) < 0)
        return -1;
    int fd DEFER_CLOSE = mkostemp(new, O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot create a file in '%s'", dir);
    if (dprintf(fd, "%s\n", f->hash) < 0 || fsync(fd) < 0 || rename(new, f->kept) < 0) {
        err_sys(err, "cannot write file '%s'", f->kept);
        unlink(new);
        return -1;
    }
    folder_sync(dir);
    return 0;
}

/* ---- what the file asks for ---- */

static void accept_show_list(const char *what, const char *texts, size_t size, size_t count) {
    for (size_t i = 0; i < count; i++)
        printf("  %-9s %s\n", what, texts + i * size);
}

static void accept_show_pairs(const char *what, const struct project_pair *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        printf("  %-9s %s = %s\n", what, list[i].name, list[i].text);
}

static void accept_show_setup(const struct agent_accept *f) {
    const char *at = f->setup;
    printf("  setup     %s, run by the shell of the machine:\n", f->project.setup);
    while (*at) {
        size_t n = strcspn(at, "\n");
        fputs("    | ", stdout);
        safe_text(stdout, at, n);
        putchar('\n');
        at += n + (at[n] == '\n');
    }
}

static void accept_show(const struct agent_accept *f, enum accept_state state) {
    const struct project *p = &f->project;
    char budget[96];
    printf("file " PROJECT_PATH " of this directory %s. It asks for:\n",
           state == ACCEPT_VALID     ? "is accepted"
           : state == ACCEPT_CHANGED ? "has changed since you accepted it"
                                     : "is not accepted yet");
    if (f->setup)
        accept_show_setup(f);
    accept_show_list("package", p->packages[0], sizeof(p->packages[0]), p->package_count);
    accept_show_list("network", p->allow[0], sizeof(p->allow[0]), p->allow_count);
    if (agent_project_budget(f, budget))
        printf("  %-9s %s\n", "budget", budget);
    accept_show_pairs("variable", p->env, p->env_count);
    accept_show_pairs("prompt", p->prompts, p->prompt_count);
    accept_show_list("note", p->notes[0], sizeof(p->notes[0]), p->note_count);
}

/* ---- carrel agent accept ---- */

int agent_accept_run(struct agent *a, char **words, struct err *err) {
    struct agent_accept *f DEFER(accept_freep) = NULL;
    if (words[0])
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", words[0]);
    if (agent_slice_find(&a->slice, err) < 0 || accept_open(a->slice.top, &f, err) < 0)
        return -1;
    if (!f)
        return err_set(err, ERR_NOT_FOUND, "directory '%s' has no file " PROJECT_PATH,
                       a->slice.top);
    enum accept_state state = accept_look(f);
    accept_show(f, state);
    if (state == ACCEPT_VALID)
        return 0;
    if (!a->o->yes && !isatty(STDIN_FILENO)) {
        err_set(err, ERR_INVALID, "carrel agent accept requires a terminal");
        return err_remedy(err, "review the file, then use -y");
    }
    if (!a->o->yes && !agent_confirms("accept this file? [y/N] ")) {
        cli_done(a->o->quiet, "the file was not accepted: it has no effect");
        return 0;
    }
    if (accept_keep(f, err) < 0)
        return -1;
    cli_done(a->o->quiet, "accepted file " PROJECT_PATH " of directory %s", a->slice.top);
    return 0;
}

/* ---- the file of an agent that starts ---- */

/* NULL: the file has no prompt of this name. */
static const char *prompt_named(const struct project *p, const char *name) {
    for (size_t i = 0; i < p->prompt_count; i++)
        if (strcmp(p->prompts[i].name, name) == 0)
            return p->prompts[i].text;
    return NULL;
}

int agent_project_open(struct agent *a, struct err *err) {
    struct agent_accept *f DEFER(accept_freep) = NULL;
    if (a->o->no_project)
        return 0;
    if (accept_open(a->slice.top, &f, err) < 0)
        return -1;
    if (!f)
        return 0;
    enum accept_state state = accept_look(f);
    if (state != ACCEPT_VALID && !a->o->task) {
        accept_show(f, state);
        if (agent_confirms("accept this file? [y/N] ")) {
            if (accept_keep(f, err) < 0)
                return -1;
            state = ACCEPT_VALID;
        }
    }
    if (state == ACCEPT_VALID)
        a->project = TAKE(f);
    else if (a->o->task && a->o->task[0] == '@' && prompt_named(&f->project, a->o->task + 1)) {
        err_set(err, ERR_DENIED, "prompt '%s' is of file " PROJECT_PATH ", which is not accepted",
                a->o->task + 1);
        return err_remedy(err, "review the file: carrel agent accept");
    } else
        cli_done(a->o->quiet, "file " PROJECT_PATH " is not accepted, so it has no effect; to "
                              "review it: carrel agent accept");
    return 0;
}

/* ---- what it gives ---- */

const struct project *agent_project(const struct agent *a) {
    return a->project ? &a->project->project : NULL;
}

bool agent_project_budget(const struct agent_accept *f, char ret[96]) {
    const struct project *p = f ? &f->project : NULL;
    ret[0] = '\0';
    if (!p || (!p->tokens && !p->money[0]))
        return false;
    int n = p->tokens ? snprintf(ret, 96, "tokens=%llu", (unsigned long long)p->tokens) : 0;
    if (p->money[0])
        snprintf(ret + n, 96 - (size_t)n, "%smoney=%s", n ? "," : "", p->money);
    return true;
}

bool agent_project_script(const struct agent *a, bool as_root, struct buf *ret) {
    const struct project *p = agent_project(a);
    bool ok = p && buf_addf(ret, "set -e\n"), any = false;
    for (const struct project_manager *m = project_managers; ok && m->name; m++) {
        bool begun = false;
        size_t n = strlen(m->name);
        for (size_t i = 0; ok && i < p->package_count; i++) {
            if (strncmp(p->packages[i], m->name, n) != 0 || p->packages[i][n] != ':' ||
                m->as_root != as_root)
                continue;
            ok = (begun || buf_addf(ret, "%s", m->install)) &&
                 buf_addf(ret, " '%s'", p->packages[i] + n + 1);
            begun = any = true;
        }
        ok = ok && (!begun || buf_addf(ret, "\n"));
    }
    const char *setup = ok && !as_root ? a->project->setup : NULL;
    return ok && (any || setup) && buf_addf(ret, "set +e\n%s\n", setup ? setup : "");
}

int agent_project_task(struct agent *a, const char **task, struct err *err) {
    const struct project *p = agent_project(a);
    if (!*task || (*task)[0] != '@')
        return 0;
    if (!p)
        return 0; /* without a project file, @ has no meaning */
    const char *text = prompt_named(p, *task + 1);
    if (text) {
        *task = text;
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "prompt '%s' does not exist in " PROJECT_PATH, *task + 1);
}
