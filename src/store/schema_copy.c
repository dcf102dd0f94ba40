/*
 * Before a migration the database is copied next to itself, with its version in the name, so that
 * the previous Carrel can be used again. Only the newest copy is kept.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "store/schema.h"
#include "store/store.h"

enum { PATH_SIZE = 4096 };

#define COPY_PREFIX "carrel.db.v"

static void db_closep(sqlite3 **db) {
    sqlite3_close(*db);
}

static int copy_pages(sqlite3 *db, const char *path, struct err *err) {
    sqlite3 *to DEFER(db_closep) = NULL;
    int rc = sqlite3_open_v2(path, &to, SQLITE_OPEN_READWRITE, NULL);
    if (rc != SQLITE_OK)
        return err_sqlite(err, to, rc, "cannot open the backup copy of the database");
    sqlite3_backup *b = sqlite3_backup_init(to, "main", db, "main");
    if (b) {
        sqlite3_backup_step(b, -1);
        sqlite3_backup_finish(b);
    }
    rc = sqlite3_errcode(to);
    return rc == SQLITE_OK || rc == SQLITE_DONE
               ? 0
               : err_sqlite(err, to, rc, "cannot copy the database");
}

static void remove_others(int home, const char *kept) {
    DIR *dir DEFER(dir_close) = dir_list(home, ".");
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, COPY_PREFIX, strlen(COPY_PREFIX)) == 0 &&
            strcmp(e->d_name, kept) != 0)
            unlinkat(home, e->d_name, 0);
}

static int make_copy(sqlite3 *db, int home, const char *name, struct err *err) {
    static const char draft[] = COPY_PREFIX ".draft";
    char path[PATH_SIZE];
    unlinkat(home, draft, 0);
    int fd DEFER_CLOSE =
        openat(home, draft, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(err, "cannot create the backup copy '%s'", draft);
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", home, draft);
    if (copy_pages(db, path, err) < 0)
        return -1;
    if (fsync(fd) < 0 || renameat(home, draft, home, name) < 0 || fsync(home) < 0)
        return err_sys(err, "cannot save the backup copy '%s'", name);
    return 0;
}

int schema_copy(sqlite3 *db, size_t count, int home, struct err *err) {
    char name[48];
    size_t version;
    if (schema_version_of(db, &version, err) < 0)
        return -1;
    if (version == 0 || version >= count)
        return 0;
    snprintf(name, sizeof(name), COPY_PREFIX "%zu", version);
    if (make_copy(db, home, name, err) < 0) {
        err_wrap(err, "cannot back up the database before the update");
        return err_remedy(err,
                          "free disk space in CARREL_HOME, or use the previous version of Carrel");
    }
    remove_others(home, name);
    return 0;
}
