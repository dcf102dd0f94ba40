#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/erofs.h"
#include "image/erofs.h"
#include "tests/unit/scratch.h"

#define ID "i-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define OTHER "i-baaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

enum { FILE_MAX = 4 << 20 };

static uint64_t number(const uint8_t *at, size_t bytes) {
    uint64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n |= (uint64_t)at[i] << 8 * i;
    return n;
}

/* ---- heads ---- */

static void only_our_own_head_of_that_image_counts(void **state) {
    uint8_t block[EROFS_EMPTY_BYTES], *head = block + EROFS_HEAD_AT;
    (void)state;
    erofs_put_empty(block, ID);
    assert_true(erofs_is_ours(head, ID, sizeof(block)));
    assert_false(erofs_is_ours(head, OTHER, sizeof(block)));
    assert_false(erofs_is_ours(head, ID, sizeof(block) + 1));
    assert_false(erofs_is_ours(head, ID, 0));
    /* Its root and how many inodes it has may differ; where inodes begin, times and names are zero.
     */
    for (size_t i = 0; i < EROFS_HEAD_BYTES; i++) {
        bool free_to_differ = i == 14 || i == 15 || (i >= 16 && i < 24);
        head[i] ^= 0x10;
        assert_int_equal(erofs_is_ours(head, ID, sizeof(block)), free_to_differ);
        head[i] ^= 0x10;
    }
}

/* ---- whole files ---- */

struct made {
    uint8_t *bytes;
    size_t size;
};

static void made_done(struct made *m) {
    free(m->bytes);
}

static int make_dir(const struct scratch *dir, const char *name) {
    char path[128];
    assert_int_equal(mkdir(scratch_file(dir, name, path), 0755), 0);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static struct made make(const struct scratch *dir, int root) {
    struct made m = {.bytes = malloc(FILE_MAX)};
    char path[128];
    struct report quiet = {.fd = -1};
    struct err err = {.text = ""};
    int file DEFER_CLOSE = open(scratch_file(dir, "file", path), O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct image_ids ids = {.shared = false};
    int r = image_erofs(file, root, ids, ID, &quiet, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(r, 0);
    ssize_t n = read(file, m.bytes, FILE_MAX);
    assert_true(n > 0 && n < FILE_MAX && n % EROFS_BLOCK == 0);
    m.size = (size_t)n;
    return m;
}

/* Looked up by the format's own rules, as a kernel would, but block by block and entry by entry. */

static const uint8_t *inode_at(const struct made *m, uint64_t nid) {
    assert_true(nid * EROFS_SLOT + EROFS_INODE_BYTES <= m->size);
    return m->bytes + nid * EROFS_SLOT;
}

/* Where byte `at` of its data is; never across blocks. */
static const uint8_t *data_at(const struct made *m, const uint8_t *inode, uint64_t at) {
    uint64_t size = number(inode + 8, 8), xattrs = number(inode + 2, 2);
    bool beside = number(inode, 2) >> 1 == EROFS_INLINE;
    uint64_t tail = beside ? size / EROFS_BLOCK * EROFS_BLOCK : size;
    if (at < tail)
        return m->bytes + number(inode + 16, 4) * EROFS_BLOCK + at;
    const uint8_t *to = inode + EROFS_INODE_BYTES + (xattrs ? 12 + 4 * (xattrs - 1) : 0);
    assert_true((uint64_t)(to - m->bytes) % EROFS_BLOCK + size - tail <= EROFS_BLOCK);
    return to + (at - tail);
}

static const uint8_t *look_up(const struct made *m, const uint8_t *dir, const char *name) {
    uint64_t size = number(dir + 8, 8);
    char last[300] = "";
    const uint8_t *found = NULL;
    for (uint64_t at = 0; at < size; at += EROFS_BLOCK) {
        const uint8_t *block = data_at(m, dir, at);
        uint64_t room = size - at < EROFS_BLOCK ? size - at : EROFS_BLOCK;
        size_t count = number(block + 8, 2) / EROFS_ENTRY_BYTES;
        for (size_t i = 0; i < count; i++) {
            const uint8_t *e = block + i * EROFS_ENTRY_BYTES;
            size_t from = number(e + 8, 2);
            size_t to = i + 1 < count ? number(e + EROFS_ENTRY_BYTES + 8, 2) : room;
            char own[300];
            assert_true(from < to && to <= room);
            size_t len = strnlen((const char *)block + from, to - from); /* the last ends early */
            assert_true(len < sizeof(own));
            snprintf(own, sizeof(own), "%.*s", (int)len, (const char *)block + from);
            assert_true(strcmp(last, own) < 0); /* sorted, or a kernel does not find it */
            memcpy(last, own, sizeof(last));
            if (strcmp(own, name) == 0)
                found = inode_at(m, number(e, 8));
        }
    }
    return found;
}

static const uint8_t *root_of(const struct made *m) {
    assert_true(erofs_is_ours(m->bytes + EROFS_HEAD_AT, ID, m->size));
    return inode_at(m, number(m->bytes + EROFS_HEAD_AT + 14, 2));
}

static void put(int root, const char *name, size_t size, char fill) {
    char *text DEFER_FREE = malloc(size + 1);
    memset(text, fill, size + 1);
    int fd DEFER_CLOSE = openat(root, name, O_WRONLY | O_CREAT | O_EXCL, 0640);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, size), 0);
}

static void sizes_around_a_block_are_all_there(void **state) {
    static const size_t sizes[] = {0, 1, 4031, 4032, 4033, 4095, 4096, 4097, 8191, 8192, 300000};
    struct scratch dir DEFER(scratch_done) = scratch_new();
    (void)state;
    int root DEFER_CLOSE = make_dir(&dir, "root");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char name[24];
        snprintf(name, sizeof(name), "f%zu", sizes[i]);
        put(root, name, sizes[i], (char)('a' + i));
    }
    struct made m DEFER(made_done) = make(&dir, root);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        char name[24];
        snprintf(name, sizeof(name), "f%zu", sizes[i]);
        const uint8_t *inode = look_up(&m, root_of(&m), name);
        assert_non_null(inode);
        assert_int_equal(number(inode + 8, 8), sizes[i]);
        assert_int_equal(number(inode + 4, 2), S_IFREG | 0640);
        for (size_t at = 0; at < sizes[i]; at += 7)
            assert_int_equal(*data_at(&m, inode, at), 'a' + i);
        if (sizes[i])
            assert_int_equal(*data_at(&m, inode, sizes[i] - 1), 'a' + i);
    }
}

static void a_large_directory_is_sorted_and_whole(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    (void)state;
    int root DEFER_CLOSE = make_dir(&dir, "root");
    static const char *const odd[] = {"-a", ".-b", "...", "..a", "!", "~", "\xc3\xbc"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        put(root, odd[i], i, 'x');
    for (int i = 0; i < 600; i++) {
        char name[256];
        snprintf(name, sizeof(name), "%d%0*d", i, i % 240 + 1, 0);
        put(root, name, 3, 'y');
    }
    assert_int_equal(mkdirat(root, "sub", 0700), 0);
    struct made m DEFER(made_done) = make(&dir, root);
    const uint8_t *top = root_of(&m);
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
        assert_non_null(look_up(&m, top, odd[i]));
    for (int i = 0; i < 600; i++) {
        char name[256];
        snprintf(name, sizeof(name), "%d%0*d", i, i % 240 + 1, 0);
        assert_non_null(look_up(&m, top, name));
    }
    const uint8_t *sub = look_up(&m, top, "sub");
    assert_ptr_equal(look_up(&m, sub, ".."), top);
    assert_ptr_equal(look_up(&m, sub, "."), sub);
    assert_ptr_equal(look_up(&m, top, ".."), top);
    assert_int_equal(number(top + 44, 4), 3); /* links: its own two and the one from below */
    assert_null(look_up(&m, top, "nothing"));
}

static void links_of_both_kinds(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char far[4001];
    (void)state;
    memset(far, 'f', sizeof(far) - 1);
    far[sizeof(far) - 1] = '\0';
    int root DEFER_CLOSE = make_dir(&dir, "root");
    put(root, "one", 10, 'x');
    assert_int_equal(linkat(root, "one", root, "two", 0), 0);
    assert_int_equal(symlinkat("one", root, "soft"), 0);
    assert_int_equal(symlinkat(far, root, "far"), 0);
    assert_int_equal(mkfifoat(root, "pipe", 0600), 0);
    struct made m DEFER(made_done) = make(&dir, root);
    const uint8_t *top = root_of(&m), *soft = look_up(&m, top, "soft");
    assert_ptr_equal(look_up(&m, top, "one"), look_up(&m, top, "two"));
    assert_int_equal(number(look_up(&m, top, "one") + 44, 4), 2);
    assert_memory_equal(data_at(&m, soft, 0), "one", 3);
    assert_int_equal(number(look_up(&m, top, "far") + 8, 8), 4000);
    assert_memory_equal(data_at(&m, look_up(&m, top, "far"), 0), far, 4000);
    assert_int_equal(number(look_up(&m, top, "pipe") + 4, 2) & S_IFMT, S_IFIFO);
    struct made again DEFER(made_done) = make(&dir, root);
    assert_int_equal(again.size, m.size);
    assert_memory_equal(again.bytes, m.bytes, m.size);
}

/* A disk that is full, in miniature. */
static void no_room_is_said(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct report quiet = {.fd = -1};
    struct image_ids ids = {.shared = false};
    struct rlimit before, small;
    struct err err = {.text = ""};
    char path[128];
    (void)state;
    int root DEFER_CLOSE = make_dir(&dir, "root");
    put(root, "large", 300000, 'x');
    int file DEFER_CLOSE =
        open(scratch_file(&dir, "file", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 100000, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(image_erofs(file, root, ids, ID, &quiet, &err), -1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(err.text, "allocate the erofs file"));
}

UNIT_MAIN(cmocka_unit_test(no_room_is_said),
          cmocka_unit_test(only_our_own_head_of_that_image_counts),
          cmocka_unit_test(sizes_around_a_block_are_all_there),
          cmocka_unit_test(a_large_directory_is_sorted_and_whole),
          cmocka_unit_test(links_of_both_kinds))
