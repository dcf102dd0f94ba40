#include "service/vm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/wire/vm_memory.h"
#include "service/vm/vms.h"
#include "store/owners.h"
#include "store/saved.h"

enum { STEPS_LOOKED_AT = 50 };

static void memory_folder(const struct service *s, char ret[MEMORY_PATH_SIZE]) {
    snprintf(ret, MEMORY_PATH_SIZE, "%s/memory", s->place->home);
}

void memory_path(const struct service *s, const char *machine, const char *step,
                 char ret[MEMORY_PATH_SIZE]) {
    snprintf(ret, MEMORY_PATH_SIZE, "%s/memory/%s.%s", s->place->home, machine, step);
}

int memory_check(const struct live *l, struct err *err) {
    char folder[MEMORY_PATH_SIZE];
    if (!live_is_vm(l)) {
        err_set(err, ERR_UNSUPPORTED, "only a vm has a memory that can be saved; '%s' is a %s",
                l->row.id, l->row.kind);
        return err_remedy(err, "leave --memory out: the files are saved");
    }
    if (!l->machine || l->row.state != MACHINE_RUNNING) {
        err_set(err, ERR_BUSY, "machine '%s' does not run, so its memory cannot be saved",
                l->row.id);
        return err_remedy(err, "start or resume it first");
    }
    memory_folder(l->service, folder);
    int r = folder_make(folder);
    return r < 0 ? err_num(err, r, "cannot make '%s'", folder) : 0;
}

int memory_sync(const struct service *s, struct err *err) {
    char folder[MEMORY_PATH_SIZE];
    memory_folder(s, folder);
    int dir DEFER_CLOSE = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 || fsync(dir) < 0 ? err_sys(err, "cannot sync '%s'", folder) : 0;
}

int memory_of_paused(const struct live *l, char ret[MEMORY_PATH_SIZE], char ret_step[ID_SIZE],
                     struct err *err) {
    struct saved_row saved DEFER(saved_row_done) = {.source = NULL};
    struct step_row step DEFER(step_row_done) = {0};
    struct store *store = l->service->store;
    if (store_saved_get(store, l->row.id, &saved, err) < 0 ||
        (store_step_find(store, l->row.id, saved.step, &step, err) < 0 &&
         err->code != ERR_NOT_FOUND))
        return -1;
    memory_path(l->service, l->row.id, saved.step, ret);
    snprintf(ret_step, ID_SIZE, "%s", saved.step);
    if (step_has_memory(&step) && access(ret, F_OK) == 0)
        return 0;
    return err_set(err, ERR_UNSUPPORTED, "the saved memory of vm '%s' is gone", l->row.id);
}

void memory_forget(const struct service *s, const char *machine, const char *step) {
    char path[MEMORY_PATH_SIZE];
    if (step) {
        memory_path(s, machine, step, path);
        unlink(path);
        return;
    }
    memory_folder(s, path);
    DIR *d DEFER(dir_close) = dir_list(AT_FDCWD, path);
    size_t n = strlen(machine);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, machine, n) == 0 && e->d_name[n] == '.')
            unlinkat(dirfd(d), e->d_name, 0);
}

void memory_drop(const struct service *s, const char *machine, const char *step) {
    struct step_row row DEFER(step_row_done) = {0};
    struct err err;
    memory_forget(s, machine, step);
    if (store_step_find(s->store, machine, step, &row, &err) < 0 || !step_has_memory(&row))
        return;
    row.reason[strlen(row.reason) - strlen(STEP_MEMORY)] = '\0';
    if (store_step_update(s->store, &row, &err) < 0)
        log_line(LOG_WARN, "service", "forget the memory of a step: %s id=%s", err.text, machine);
}

void memory_drop_pauses(const struct live *l) {
    struct step_list list DEFER(step_list_done) = {0};
    struct err err;
    if (store_step_list(l->service->store, l->row.id, 0, false, STEPS_LOOKED_AT, &list, &err) < 0)
        return;
    for (size_t i = 0; i < list.count; i++) {
        const struct step_row *row = &list.rows[i];
        if (strcmp(row->what, MEMORY_OF_PAUSE) == 0 && !row->name[0] && step_has_memory(row))
            memory_drop(l->service, l->row.id, row->id);
    }
}

/* The machine that a file belongs to, and its step; NULL: none that lives. */
static struct live *memory_of(const struct service *s, const char *name, const char **ret_step) {
    char machine[ID_SIZE];
    const char *dot = strchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : ID_SIZE;
    if (n >= sizeof(machine))
        return NULL;
    memcpy(machine, name, n);
    machine[n] = '\0';
    *ret_step = dot + 1;
    return map_get(&s->machines, machine);
}

/* True if a finished step of a live machine has this file. */
static bool memory_is_used(struct service *s, const char *name) {
    struct step_row row DEFER(step_row_done) = {0};
    struct err err;
    const char *step;
    const struct live *l = memory_of(s, name, &step);
    /* If the store cannot be read, the file stays. */
    return l && (store_step_find(s->store, l->row.id, step, &row, &err) == 0
                     ? step_has_memory(&row)
                     : err.code != ERR_NOT_FOUND);
}

/* ---- disk space ---- */

uint64_t memory_used(struct service *s, const char *owner, const char *token, const char *machine) {
    char folder[MEMORY_PATH_SIZE];
    uint64_t bytes = 0;
    struct stat st;
    memory_folder(s, folder);
    DIR *d DEFER(dir_close) = dir_list(AT_FDCWD, folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *step;
        const struct live *l = memory_of(s, e->d_name, &step);
        if (l && strcmp(l->row.owner, owner) == 0 && (!token || strcmp(l->row.token, token) == 0) &&
            (!machine || strcmp(l->row.id, machine) == 0) &&
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            bytes += (uint64_t)st.st_blocks * 512;
    }
    return bytes;
}

/* The saved memory of a machine takes at most as much disk as its files may. */
static int memory_room(struct live *l, uint64_t *ret, struct err *err) {
    uint64_t limit = l->row.disk_bytes;
    uint64_t used = memory_used(l->service, l->row.owner, NULL, l->row.id);
    char shown[AMOUNT_SIZE];
    *ret = limit ? limit - used : 0;
    if (!limit || used < limit)
        return 0;
    amount_size(limit, shown);
    err_set(err, ERR_LIMIT, "the saved memory of machine '%s' takes %s, its disk limit", l->row.id,
            shown);
    return err_remedy(err, "set a larger --disk");
}

int memory_hold(struct live *l, struct memory_hold *h, struct err *err) {
    struct service *s = l->service;
    struct token_row token;
    uint64_t mem = l->row.mem_bytes ? l->row.mem_bytes : LIMIT_VM_MEM, room;
    uint64_t most = VM_MEMORY_STREAM + mem + VM_MEMORY_DEVICES_MAX + VM_MEMORY_TABLE_MAX;
    snprintf(h->who.owner, sizeof(h->who.owner), "%s", l->row.owner);
    snprintf(h->who.token, sizeof(h->who.token), "%s", l->row.token);
    if (l->row.token[0] && store_token_get(s->store, l->row.token, &token, err) == 0)
        h->who.quota = token.quota;
    else if (l->row.token[0] && err->code != ERR_NOT_FOUND)
        return -1;
    h->hold.who = &h->who;
    if (memory_room(l, &room, err) < 0 || quota_hold(s, &h->hold, err) < 0)
        return -1;
    h->is_held = true;
    if (room && room < most)
        most = room;
    if (!h->hold.bytes || h->hold.bytes > most)
        h->hold.bytes = most;
    return 0;
}

void memory_release(struct service *s, struct memory_hold *h) {
    if (h->is_held)
        quota_release(s, &h->hold);
    h->is_held = false;
}

/* ---- at the start of the daemon ---- */

void memory_sweep(struct service *s) {
    char folder[MEMORY_PATH_SIZE];
    memory_folder(s, folder);
    DIR *d DEFER(dir_close) = dir_list(AT_FDCWD, folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && !memory_is_used(s, e->d_name))
            unlinkat(dirfd(d), e->d_name, 0);
}

bool step_has_memory(const struct step_row *row) {
    size_t n = strlen(row->reason), m = strlen(STEP_MEMORY);
    return row->has_point && n > m && strcmp(row->reason + n - m, STEP_MEMORY) == 0;
}
