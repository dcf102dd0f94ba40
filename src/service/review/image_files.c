/*
 * The archive comes from a machine, so its paths are untrusted: they are opened below the image
 * without following links. A file that cannot be read counts as changed.
 */
#include "service/review/image_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/jot.h"
#include "base/tar.h"
#include "base/utf8.h"

enum { PIECE = 32 << 10, PATH_SIZE = 2 * TAR_NAME_MAX };

struct image_files {
    int archive, root, usr;
    const char *top;
    struct tar_reader reader;
    struct tar_entry entry;
    char path[PATH_SIZE];
    char ours[PIECE], theirs[PIECE];
};

/* Removes "./" from the start of a path in the archive. */
static const char *plain_name(const char *path) {
    while (path[0] == '.' && path[1] == '/')
        path += 2;
    return path;
}

static int open_in_image(struct image_files *f, int flags) {
    const char *top = f->top + strspn(f->top, "/");
    int n = snprintf(f->path, sizeof(f->path), "%s%s%s", top, *top ? "/" : "",
                     plain_name(f->entry.path));
    if (n < 0 || (size_t)n >= sizeof(f->path))
        return -1;
    bool below_usr = f->usr >= 0 && strncmp(f->path, "usr/", 4) == 0;
    return below_usr ? beneath_open_plain(f->usr, f->path + 4, flags)
                     : beneath_open_plain(f->root, f->path, flags);
}

static bool same_bytes(struct image_files *f, int fd, off_t at) {
    for (uint64_t done = 0; done < f->entry.size;) {
        uint64_t left = f->entry.size - done;
        size_t n = left < PIECE ? (size_t)left : PIECE;
        if (pread(f->archive, f->ours, n, at + (off_t)done) != (ssize_t)n ||
            pread(fd, f->theirs, n, (off_t)done) != (ssize_t)n || memcmp(f->ours, f->theirs, n))
            return false;
        done += n;
    }
    return true;
}

static bool same_file(struct image_files *f, off_t at) {
    struct stat st;
    int fd DEFER_CLOSE = open_in_image(f, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           (uint64_t)st.st_size == f->entry.size && (st.st_mode & 0777) == (f->entry.mode & 0777) &&
           same_bytes(f, fd, at);
}

static bool same_link(struct image_files *f) {
    int fd DEFER_CLOSE = open_in_image(f, O_PATH | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", f->theirs, sizeof(f->theirs));
    return n > 0 && (size_t)n == strlen(f->entry.target) &&
           memcmp(f->theirs, f->entry.target, (size_t)n) == 0;
}

static bool is_same(struct image_files *f, off_t at) {
    const char *name = plain_name(f->entry.path);
    if (!utf8_valid(name, strlen(name)))
        return false;
    return f->entry.kind == TAR_FILE      ? same_file(f, at)
           : f->entry.kind == TAR_SYMLINK ? same_link(f)
                                          : false;
}

/* Adds the path of each unchanged file to the JSON array and returns their number. */
static size_t find_all(struct image_files *f, struct jot *j) {
    uint8_t block[TAR_BLOCK];
    size_t count = 0;
    for (off_t at = 0; pread(f->archive, block, sizeof(block), at) == (ssize_t)sizeof(block);) {
        enum tar_step step = tar_next(&f->reader, block, &f->entry);
        at += TAR_BLOCK;
        if (step == TAR_END || step == TAR_BAD)
            break;
        if (step != TAR_ENTRY)
            continue;
        uint64_t size = f->entry.kind == TAR_FILE ? f->entry.size : 0;
        const char *name = plain_name(f->entry.path);
        if (is_same(f, at)) {
            if (j->out->len + 6 * strlen(name) + 8 > IMAGE_FILES_MAX)
                break;
            jot_string(j, NULL, name);
            count++;
        }
        at += (off_t)(size + tar_padding(size));
    }
    return count;
}

char *image_files_find(int archive, const char *top, int root, int usr) {
    struct buf text DEFER(buf_done) = BUF(IMAGE_FILES_MAX + 8);
    struct jot j = JOT(&text);
    struct image_files *f DEFER_FREE = calloc(1, sizeof(*f));
    if (!f)
        abort();
    f->archive = archive;
    f->top = top;
    f->root = root;
    f->usr = usr;
    jot_array(&j, NULL);
    size_t count = find_all(f, &j);
    jot_end(&j, ']');
    return count && !j.failed ? buf_take(&text) : NULL;
}
