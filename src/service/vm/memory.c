#include "service/vm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "service/vm/vms.h"

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

/* True if a finished step of a live machine has this file. */
static bool memory_is_used(struct service *s, const char *name) {
    char machine[ID_SIZE];
    struct step_row row DEFER(step_row_done) = {0};
    struct err err;
    const char *dot = strchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : ID_SIZE;
    if (n >= sizeof(machine))
        return false;
    memcpy(machine, name, n);
    machine[n] = '\0';
    if (!map_get(&s->machines, machine))
        return false;
    /* If the store cannot be read, the file stays. */
    return store_step_find(s->store, machine, dot + 1, &row, &err) == 0 ? step_has_memory(&row)
                                                                        : err.code != ERR_NOT_FOUND;
}

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
