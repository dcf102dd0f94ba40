#include "service/exec/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/id.h"
#include "base/log.h"

enum { LOG_PATH = 1200 };

struct job {
    char dir[LOG_PATH], machine[ID_SIZE], exec[ID_SIZE];
    const struct outlog_fd *log;
    struct outlog_kept done;
    logs_kept_fn *finished;
    void *arg;
    bool kept;
    struct err err;
};

static int open_dir(const char *home, const char *machine, bool make) {
    char all[LOG_PATH], path[LOG_PATH + ID_SIZE];
    snprintf(all, sizeof(all), "%s/log", home);
    snprintf(path, sizeof(path), "%s/%s", all, machine);
    int status = make ? folder_make(all) : 0;
    if (make && status == 0)
        status = folder_make(path);
    if (status < 0) {
        errno = -status;
        return -1;
    }
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Continues after the output that the log file already has, also after a restart of the daemon. */
static void look_back(struct job *j, int file) {
    struct outlog before;
    if (!j->done.produced[0] && !j->done.produced[1] && outlog_open_kept(&before, file, NULL) == 0)
        j->done = outlog_kept_of(&before);
}

/* The sizes in the file are written last, so it always reads as a consistent earlier state. */
static int logs_write_file(struct job *j) {
    int dir DEFER_CLOSE = open_dir(j->dir, j->machine, true);
    int file DEFER_CLOSE =
        dir < 0 ? -1 : openat(dir, j->exec, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0)
        return err_sys(&j->err, "cannot create the log file of a command's output");
    look_back(j, file);
    bool is_new = lseek(file, 0, SEEK_END) == 0;
    if (outlog_keep(&j->log->log, file, &j->done, &j->err) < 0)
        return -1;
    return is_new && fsync(dir) < 0 ? err_sys(&j->err, "cannot sync the directory of log files")
                                    : 0;
}

static void logs_run(void *arg) {
    struct job *j = arg;
    j->kept = logs_write_file(j) == 0;
}

static void finished(void *arg) {
    struct job *j = arg;
    if (!j->kept)
        log_line(LOG_ERROR, "service", "save the output of a command: %s exec=%s", j->err.text,
                 j->exec);
    j->finished(j->arg, j->kept, &j->done);
    free(j);
}

void logs_keep(struct loop *loop, const char *home, const char *machine, const char *exec,
               const struct outlog_fd *log, const struct outlog_kept *so_far, logs_kept_fn *done,
               void *arg) {
    struct job *j = xnew(struct job);
    *j = (struct job){.log = log, .done = *so_far, .finished = done, .arg = arg};
    snprintf(j->dir, sizeof(j->dir), "%s", home);
    snprintf(j->machine, sizeof(j->machine), "%s", machine);
    snprintf(j->exec, sizeof(j->exec), "%s", exec);
    loop_work(loop, logs_run, finished, j);
}

int logs_open(const char *home, const char *machine, const char *exec) {
    int dir DEFER_CLOSE = open_dir(home, machine, false);
    return dir < 0 ? -1 : openat(dir, exec, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

bool logs_are_whole(const char *home, const char *machine, const char *exec) {
    int file DEFER_CLOSE = logs_open(home, machine, exec);
    return file >= 0 && outlog_is_whole(file);
}

void logs_remove(const char *home, const char *machine, const char *exec) {
    int dir DEFER_CLOSE = open_dir(home, machine, false);
    if (dir >= 0)
        unlinkat(dir, exec, 0);
}

void logs_drop(const char *home, const char *machine) {
    DIR *dir DEFER(dir_close) = dir_take(open_dir(home, machine, false));
    char path[LOG_PATH];
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(dir), e->d_name, 0);
    snprintf(path, sizeof(path), "%s/log/%s", home, machine);
    rmdir(path);
}
