#include "guest/wipe.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs/dots.h"
#include "guest/sys.h"

/*
 * Each directory level needs one descriptor, so the depth is limited. Deeper directories are moved
 * to the top directory and removed from there.
 */
#define DEPTH_MAX 64

struct wiper {
    int top;
    unsigned moved;
    bool again; /* a directory was moved to the top directory, which must be read again */
};

static int wipe_inside(struct wiper *w, int dir, int depth);

static void name_moved(struct wiper *w, char ret[24]) {
    memcpy(ret, ".carrel-wipe-", 13);
    unsigned v = w->moved++;
    for (int i = 0; i < 8; i++, v >>= 4)
        ret[13 + i] = "0123456789abcdef"[v & 15];
    ret[21] = '\0';
}

static int move_up(struct wiper *w, int dir, const char *name) {
    char to[24];
    for (int i = 0; i < 1000; i++) {
        name_moved(w, to);
        if (syscall(SYS_renameat2, dir, name, w->top, to, 1u) == 0) {
            w->again = true;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return errno;
}

static int wipe_entry(struct wiper *w, int dir, const char *name, int depth) {
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return errno;
    if (depth == DEPTH_MAX)
        return move_up(w, dir, name);
    int sub = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0)
        return errno;
    int number = wipe_inside(w, sub, depth + 1);
    if (number)
        return number;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? errno : 0;
}

/* Takes over `dir`. Reads the directory again until a pass finds no entry. */
static int wipe_inside(struct wiper *w, int dir, int depth) {
    DIR *d = fdopendir(dir);
    if (!d) {
        int number = errno;
        close(dir);
        return number;
    }
    int number = 0, found = 1;
    while (number == 0 && found > 0) {
        found = 0;
        rewinddir(d);
        for (struct dirent *e; number == 0 && (e = readdir(d));) {
            if (is_dots(e->d_name))
                continue;
            found++;
            number = wipe_entry(w, dirfd(d), e->d_name, depth);
        }
    }
    closedir(d);
    return number;
}

int wipe_tree(int dir, const char *name) {
    struct wiper w = {.top = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (w.top < 0)
        return errno;
    int number = 0;
    do {
        w.again = false;
        number = wipe_inside(&w, openat(w.top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
    } while (number == 0 && w.again);
    close(w.top);
    if (number)
        return number;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? errno : 0;
}
