/*
 * Limits the disk space of kept output. A worker lists the files, the loop adds the owner of each
 * and marks those of running commands, and a worker deletes the files that kept_choose() names.
 * Rows are limited separately, per machine.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "service/exec/inner.h"
#include "service/exec/kept.h"
#include "service/exec/logs.h"

enum { OUTPUTS_EVERY_MS = 30000, EXECS_KEEP = 10000, EXECS_PIECE = 1000 };

struct outputs {
    struct service *service;
    char home[PLACE_SIZE];
    struct kept_limits limits;
    struct kept_file *files;
    size_t count, size;
};

static void add_file(struct outputs *o, const char *machine, const char *exec,
                     const struct stat *st) {
    if (o->count == o->size) {
        o->size = o->size ? 2 * o->size : 64;
        o->files = xrealloc(o->files, o->size, sizeof(*o->files));
    }
    struct kept_file *f = &o->files[o->count++];
    *f = (struct kept_file){.bytes = (uint64_t)st->st_blocks * 512,
                            .time_ms = (int64_t)st->st_mtim.tv_sec * 1000};
    snprintf(f->machine, sizeof(f->machine), "%s", machine);
    snprintf(f->exec, sizeof(f->exec), "%s", exec);
}

static void list_machine(struct outputs *o, int logs, const char *machine) {
    DIR *d DEFER(dir_close) = dir_list(logs, machine);
    struct stat st;
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (id_valid(e->d_name, strlen(e->d_name), 'x') &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            add_file(o, machine, e->d_name, &st);
}

/* Runs on a worker. */
static void list_all(void *arg) {
    struct outputs *o = arg;
    char path[PLACE_SIZE + 8];
    snprintf(path, sizeof(path), "%s/log", o->home);
    DIR *d DEFER(dir_close) = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (id_valid(e->d_name, strlen(e->d_name), 'm'))
            list_machine(o, dirfd(d), e->d_name);
}

/* Runs on a worker. */
static void remove_chosen(void *arg) {
    struct outputs *o = arg;
    kept_choose(o->files, o->count, &o->limits);
    for (size_t i = 0; i < o->count; i++)
        if (o->files[i].goes)
            logs_remove(o->home, o->files[i].machine, o->files[i].exec);
}

static void removed(void *arg) {
    struct outputs *o = arg;
    o->service->execs->outputs = NULL;
    free(o->files);
    free(o);
}

/* Files of a machine are adjacent, so each owner is looked up once. */
static void know_owners(struct outputs *o) {
    struct service *s = o->service;
    const struct kept_file *before = NULL;
    for (size_t i = 0; i < o->count; i++) {
        struct kept_file *f = &o->files[i];
        struct machine_row row DEFER(machine_row_done) = {0};
        const struct live *l = map_get(&s->machines, f->machine);
        f->busy = map_get(&s->execs->by_id, f->exec) || (l && !l->reach.heard);
        if (before && strcmp(before->machine, f->machine) == 0)
            memcpy(f->owner, before->owner, sizeof(f->owner));
        else if (store_machine_get(s->store, f->machine, &row, NULL) == 0)
            memcpy(f->owner, row.owner, sizeof(f->owner));
        before = f;
    }
}

static void listed(void *arg) {
    struct outputs *o = arg;
    know_owners(o);
    loop_work(o->service->loop, remove_chosen, removed, o);
}

/* Keeps only the newest commands of long-lived machines. */
static void trim_rows(struct service *s) {
    const struct live *l;
    struct err err;
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (store_exec_trim(s->store, l->row.id, EXECS_KEEP, EXECS_PIECE, &err) < 0) {
            log_line(LOG_WARN, "service", "delete old commands of a machine: %s id=%s", err.text,
                     l->row.id);
            return;
        }
}

void outputs_look(struct service *s, uint64_t loop_ms) {
    const struct conf *conf = s->conf;
    if (s->execs->outputs || loop_ms < s->execs->outputs_again_ms)
        return;
    s->execs->outputs_again_ms = loop_ms + OUTPUTS_EVERY_MS;
    trim_rows(s);
    struct outputs *o = xnew(struct outputs);
    *o = (struct outputs){.service = s,
                          .limits = {.machine_bytes = conf->output_keep_bytes,
                                     .owner_bytes = conf->output_owner_bytes,
                                     .since_ms = conf->output_keep_ms
                                                     ? wall_ms() - (int64_t)conf->output_keep_ms
                                                     : 0}};
    snprintf(o->home, sizeof(o->home), "%s", s->place->home);
    s->execs->outputs = o;
    loop_work(s->loop, list_all, listed, o);
}
