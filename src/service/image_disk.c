#include "service/image_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"

enum { DEPTH_MAX = 200 };

struct disk_sum {
    uint64_t least, bytes;
};

static int add_dir(int above, const char *name, unsigned depth, struct disk_sum *sum);

static int add_entry(int dir, const char *name, unsigned depth, struct disk_sum *sum) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == EACCES ? 0 : -errno;
    uint64_t bytes = (uint64_t)st.st_blocks * 512;
    bytes = bytes > sum->least ? bytes : sum->least;
    if (S_ISDIR(st.st_mode)) {
        sum->bytes += bytes;
        return add_dir(dir, name, depth, sum);
    }
    /* All links of the file are in this tree, since it is not shared with another image yet. */
    sum->bytes += bytes / (st.st_nlink ? st.st_nlink : 1);
    return 0;
}

static int add_dir(int above, const char *name, unsigned depth, struct disk_sum *sum) {
    if (depth > DEPTH_MAX)
        return -ELOOP;
    DIR *d DEFER(dir_close) = dir_list(above, name);
    if (!d)
        return errno == EACCES ? 0 : -errno;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e)
            return -errno;
        int r = is_dots(e->d_name) ? 0 : add_entry(dirfd(d), e->d_name, depth + 1, sum);
        if (r < 0)
            return r;
    }
}

int image_disk(int dir, uint64_t least, uint64_t *ret) {
    struct disk_sum sum = {.least = least};
    int r = add_dir(dir, ".", 0, &sum);
    *ret = sum.bytes;
    return r;
}
