#include "service/exec/dumps.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "base/log.h"
#include "io/place.h"
#include "machine/dump.h"
#include "service/cells.h"
#include "service/exec/inner.h"
#include "service/images/live.h"

/* Interpreters that can be saved after their start (cell/warm.h). */
static const char *const dump_programs[] = {"python", "ruby", "php", "qjs"};

enum {
    DUMPS_MAX = 8,     /* files in the directory: a new one replaces the oldest */
    DUMP_KEPT_S = 600, /* but not one that is newer than this */
    DUMP_NAME_SIZE = IMAGE_ID_SIZE + 64,
};

/* A dump that is being made. One at a time. */
struct dump_job {
    struct service *service;
    struct live *live;
    char name[DUMP_NAME_SIZE]; /* of the file */
    const char *program;
    int root; /* files of the image */
    bool failed;
    struct err err;
};

static int dumps_dir(const struct service *s) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/dumps", s->place->home);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -1;
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Names the file after the image, the interpreter, and the worker program that can use it. */
static int dump_name(const struct live *l, const char *program, char ret[DUMP_NAME_SIZE]) {
    const struct service *s = l->service;
    char path[PLACE_SIZE + 32];
    struct stat st;
    snprintf(path, sizeof(path), "%s/carrel-cell", s->place->libexec);
    if (stat(path, &st) < 0)
        return -1;
    int n = snprintf(ret, DUMP_NAME_SIZE, "%s.%s.%llx.%llx%09lx", l->row.image, program,
                     (unsigned long long)st.st_ino, (unsigned long long)st.st_ctim.tv_sec,
                     (unsigned long)st.st_ctim.tv_nsec);
    return n < DUMP_NAME_SIZE ? 0 : -1;
}

/* ---- making ---- */

static bool is_dump(const char *file) {
    return strncmp(file, "i-", 2) == 0;
}

/* Counts the dumps, and finds the one that was made first. */
static size_t dumps_count(int at, char oldest[DUMP_NAME_SIZE], time_t *ret_made) {
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    size_t count = 0;
    struct stat st;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!is_dump(e->d_name) || fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (count++ == 0 || st.st_mtime < *ret_made) {
            *ret_made = st.st_mtime;
            snprintf(oldest, DUMP_NAME_SIZE, "%s", e->d_name);
        }
    }
    if (dir)
        closedir(dir);
    return count;
}

/*
 * Makes room for one more dump. A dump stays for a while before another replaces it, so that nobody
 * can keep the host busy with dumps of many images.
 */
static int dumps_room(int dir, struct err *err) {
    char oldest[DUMP_NAME_SIZE];
    time_t made = 0;
    if (dumps_count(dir, oldest, &made) < DUMPS_MAX)
        return 0;
    if (made + DUMP_KEPT_S > time(NULL))
        return err_set(err, ERR_BUSY, "there are %d dumps, all of them new", DUMPS_MAX);
    return unlinkat(dir, oldest, 0) < 0 ? err_sys(err, "cannot delete an old dump") : 0;
}

static void dump_job_run(void *arg) {
    struct dump_job *j = arg;
    const char *libexec = j->service->place->libexec;
    int dir DEFER_CLOSE = dumps_dir(j->service);
    if (dir < 0)
        err_sys(&j->err, "cannot open the directory of dumps");
    j->failed = dir < 0 || dumps_room(dir, &j->err) < 0 ||
                dump_run(libexec, j->root, j->program, dir, j->name, j->service->execs->dump_stop,
                         &j->err) < 0;
}

static void dump_job_done(void *arg) {
    struct dump_job *j = arg;
    struct service_execs *e = j->service->execs;
    e->dumping = false;
    if (j->failed)
        log_line(LOG_DEBUG, "service", "make a dump: %s file=%s", j->err.text, j->name);
    if (j->failed && j->err.code != ERR_BUSY)
        snprintf(e->undumped[e->undumped_at++ % UNDUMPED_MAX], DUMP_FILE_SIZE, "%s", j->name);
    close_fd(&j->root);
    free(j);
}

static void dump_image_known(void *arg, int root, int usr, const struct err *err) {
    struct dump_job *j = arg;
    close_fd(&usr);
    live_unref(TAKE(j->live));
    j->root = root;
    if (err) {
        j->failed = true;
        j->err = *err;
        dump_job_done(j);
        return;
    }
    loop_work(j->service->loop, dump_job_run, dump_job_done, j);
}

static bool has_failed(const struct service_execs *e, const char *name) {
    for (size_t i = 0; i < UNDUMPED_MAX; i++)
        if (strcmp(e->undumped[i], name) == 0)
            return true;
    return false;
}

static void dump_begin(struct live *l, const char *program, const char *name) {
    struct service_execs *e = l->service->execs;
    if (e->dumping || has_failed(e, name) || l->service->store_full || l->service->store_scarce)
        return;
    struct dump_job *j = xnew(struct dump_job);
    *j = (struct dump_job){.service = l->service, .live = l, .program = program, .root = -1};
    snprintf(j->name, sizeof(j->name), "%s", name);
    e->dumping = true;
    live_ref(l);
    l->service->driver->view(l->machine, "", dump_image_known, j);
}

/* ---- using ---- */

static const char *program_of(const char *word) {
    for (size_t i = 0; i < sizeof(dump_programs) / sizeof(*dump_programs); i++)
        if (word && strcmp(word, dump_programs[i]) == 0)
            return dump_programs[i];
    return NULL;
}

int dumps_open(struct live *l, const char *const *words) {
    const char *program = program_of(words[0]);
    char name[DUMP_NAME_SIZE];
    if (!program || !live_is_cell(l) || !guest_passes_dump(l->machine->guest) ||
        !image_id_valid(l->row.image) || dump_name(l, program, name) < 0)
        return -1;
    int dir DEFER_CLOSE = dumps_dir(l->service);
    int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        dump_begin(l, program, name);
    return fd;
}

/* ---- the end of the daemon ---- */

void dumps_stop(struct service *s) {
    uint64_t one = 1;
    if (write(s->execs->dump_stop, &one, sizeof(one)) < 0)
        log_line(LOG_WARN, "service", "stop the worker that makes a dump: %s", strerror(errno));
}

/* ---- deleting ---- */

static bool is_of_image(const char *file, const char *image) {
    size_t n = strlen(image);
    return strncmp(file, image, n) == 0 && file[n] == '.';
}

/* Deletes the dumps of one image; NULL: of all images that are gone, and what is no dump. */
static void dumps_delete(struct service *s, const char *image) {
    int fd = dumps_dir(s);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char id[IMAGE_ID_SIZE];
        snprintf(id, sizeof(id), "%s", e->d_name);
        bool is_gone =
            image ? is_of_image(e->d_name, image) : !image_id_valid(id) || !image_is_whole(s, id);
        if (is_gone && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(fd, e->d_name, 0);
    }
    if (dir)
        closedir(dir);
}

void dumps_forget(struct service *s, const char *image) {
    dumps_delete(s, image);
}

void dumps_sweep(struct service *s) {
    dumps_delete(s, NULL);
}
