#include "spawn/dynmods.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fdio.h"
#include "base/log.h"

#define NOTE "favordynmods"

/* Other mount options of cgroup2: a remount must repeat them, or it turns them off. */
static const char *const known[] = {"nsdelegate", "memory_localevents", "memory_recursiveprot",
                                    "memory_hugetlb_accounting", "pids_localevents"};

static bool listed(const char *options, const char *name) {
    size_t len = strlen(name);
    for (const char *at = options; (at = strstr(at, name)); at += len)
        if ((at == options || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

/* Finds cgroup2 in /proc/self/mounts: "cgroup2 WHERE cgroup2 OPTIONS 0 0". */
static bool dynmods_find(struct dynmods *d, bool *ret_on) {
    char line[1024], where[256], type[32], options[512];
    FILE *f = fopen("/proc/self/mounts", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%*s %255s %31s %511s", where, type, options) == 3 &&
                strcmp(type, "cgroup2") == 0;
    if (f)
        fclose(f);
    if (!found)
        return false;
    snprintf(d->where, sizeof(d->where), "%s", where);
    size_t n = 0;
    d->options[0] = '\0';
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (listed(options, known[i]))
            n += (size_t)snprintf(d->options + n, sizeof(d->options) - n, "%s%s", n ? "," : "",
                                  known[i]);
    *ret_on = listed(options, "favordynmods");
    return true;
}

static struct flock all_of_it(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = 1 << 20, .l_len = 1};
}

void dynmods_favor(struct dynmods *d, int run, int lock_dir) {
    bool on = false;
    char options[200];
    *d = (struct dynmods){.lock = -1};
    if (!dynmods_find(d, &on))
        return;
    d->lock =
        openat(lock_dir, "carrel-dynmods.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct flock share = all_of_it(F_RDLCK);
    if (d->lock < 0 || fcntl(d->lock, F_OFD_SETLK, &share) < 0)
        return;
    d->ours = !on || faccessat(run, NOTE, F_OK, 0) == 0;
    if (on)
        return;
    int note = openat(run, NOTE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (note >= 0)
        close(note);
    snprintf(options, sizeof(options), "%s%sfavordynmods", d->options, d->options[0] ? "," : "");
    if (mount("none", d->where, "none", MS_REMOUNT, options) < 0)
        log_line(LOG_NOTE, "spawn",
                 "set the mount option favordynmods of cgroup2: %s; starting commands will "
                 "be slow",
                 strerror(errno));
}

void dynmods_restore(struct dynmods *d, int run) {
    struct flock alone = all_of_it(F_WRLCK);
    if (d->lock < 0)
        return;
    if (d->ours && fcntl(d->lock, F_OFD_SETLK, &alone) == 0)
        mount("none", d->where, "none", MS_REMOUNT, d->options);
    unlinkat(run, NOTE, 0);
    close(d->lock);
    d->lock = -1;
}
