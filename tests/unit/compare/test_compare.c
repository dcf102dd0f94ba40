/* Comparing trees: what is said of each kind of difference, and what an order may be. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/tar.h"
#include "compare/compare.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

static void only_whole_orders_are_taken(void **state) {
    (void)state;
    static const char *const good[] = {"", "a", "home/user", "...", "a/..b"}, *const bad[] = {
                                                                                  "/a",   "a/",
                                                                                  "a//b", ".",
                                                                                  "..",   "a/../b",
                                                                                  "a/."};
    struct compare_order *o DEFER_FREE = calloc(1, sizeof(*o));
    o->task = COMPARE_TREES;
    o->disk_count = 1;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        snprintf(o->under, sizeof(o->under), "%s", good[i]);
        assert_true(compare_order_ok(o));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        snprintf(o->under, sizeof(o->under), "%s", bad[i]);
        assert_false(compare_order_ok(o));
    }
    o->under[0] = '\0';
    o->layer_count = COMPARE_LAYERS_MAX + 1;
    assert_false(compare_order_ok(o));
    o->layer_count = 1;
    assert_true(compare_order_ok(o));
    o->disks[0] = 1;
    assert_false(compare_order_ok(o));
    o->disk_count = 2;
    assert_true(compare_order_ok(o));
    o->disk_count = COMPARE_DISKS_MAX + 1;
    assert_false(compare_order_ok(o));
    o->disk_count = o->layer_count = 0;
    assert_false(compare_order_ok(o));
    o->disk_count = 1;
    o->own_count = COMPARE_OWN_MAX;
    assert_true(compare_order_ok(o));
    memset(o->own[1].path, 'a', sizeof(o->own[1].path));
    assert_false(compare_order_ok(o));
    o->own[1].path[0] = '\0';
    o->own_count++;
    assert_false(compare_order_ok(o));
    o->own_count = 0;
    o->task = 9;
    assert_false(compare_order_ok(o));
    o->task = COMPARE_SIZES;
    memset(o->under, 'a', sizeof(o->under));
    assert_false(compare_order_ok(o));
}

static void put(int dir, const char *name, const char *text, mode_t mode) {
    int fd DEFER_CLOSE = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write_all(fd, text, strlen(text)) == 0 && fchmod(fd, mode) == 0);
}

static int make(int dir, const char *name) {
    assert_int_equal(mkdirat(dir, name, 0755), 0);
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static const struct change *find(const struct change_list *l, const char *path) {
    for (size_t i = 0; i < l->count; i++)
        if (l->v[i].path.n == strlen(path) && memcmp(l->v[i].path.s, path, strlen(path)) == 0)
            return &l->v[i];
    return NULL;
}

/* The layer that is named is not there, so every name is looked at. */
static void compare(int before, int after, struct change_list *ret) {
    struct compare_order *o DEFER_FREE = calloc(1, sizeof(*o));
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    const int fds[] = {before, before, after, after, before};
    *o = (struct compare_order){.task = COMPARE_TREES,
                                .context = 3,
                                .text = 1,
                                .layer_count = 1,
                                .layers = {77},
                                .disk_count = 1};
    compare_trees(o, fds, &out);
    assert_true(change_list_take(&out, ret));
}

static void each_difference_is_told(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    (void)state;
    int top DEFER_CLOSE = scratch_open(&dir);
    int a DEFER_CLOSE = make(top, "a"), b DEFER_CLOSE = make(top, "b");
    struct change_list l DEFER(change_list_done) = {0};
    put(a, "same", "1\n", 0644);
    put(b, "same", "1\n", 0644);
    put(a, "mode", "1\n", 0644);
    put(b, "mode", "1\n", 0600);
    put(a, "text", "1\n2\n", 0644);
    put(b, "text", "1\n3\n", 0644);
    put(a, "binary", "\xff", 0644);
    put(b, "binary", "\xfe", 0644);
    put(a, "gone", "", 0644);
    put(b, "usr", "here it is a file like others", 0644);
    assert_int_equal(mkfifoat(b, "pipe", 0600), 0);
    assert_int_equal(symlinkat("x", a, "link"), 0);
    assert_int_equal(symlinkat("y", b, "link"), 0);
    compare(a, b, &l);
    assert_int_equal(l.count, 7);
    assert_null(find(&l, "same"));
    assert_int_equal(find(&l, "mode")->content, CONTENT_NONE);
    assert_int_equal(find(&l, "text")->content, CONTENT_TEXT);
    assert_int_equal(find(&l, "text")->lines_added, 1);
    assert_int_equal(find(&l, "binary")->content, CONTENT_BINARY);
    assert_int_equal(find(&l, "gone")->kind, CHANGE_DELETED);
    assert_int_equal(find(&l, "usr")->kind, CHANGE_ADDED);
    assert_string_equal(change_type_name(find(&l, "pipe")->after.mode), "fifo");
    assert_memory_equal(find(&l, "link")->target_before.s, "x", 1);
    assert_memory_equal(find(&l, "link")->target_after.s, "y", 1);
    assert_int_equal(l.end.cut, CUT_NONE);
}

static void layers_are_measured(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    (void)state;
    int disk DEFER_CLOSE = scratch_open(&dir);
    int layer DEFER_CLOSE = make(disk, "3"), u DEFER_CLOSE = make(layer, "u");
    int sub DEFER_CLOSE = make(u, "sub"), usr DEFER_CLOSE = make(layer, "U");
    struct compare_order *o DEFER_FREE = calloc(1, sizeof(*o));
    struct buf out DEFER(buf_done) = BUF(1 << 20);
    struct changes_record r;
    put(u, "1", "one", 0644);
    put(sub, "2", "two", 0644);
    put(usr, "3", "three", 0644);
    *o = (struct compare_order){.task = COMPARE_SIZES, .layer_count = 2, .layers = {3, 4}};
    compare_sizes(o, disk, &out);
    const char *at = out.data, *end = out.data + out.len;
    assert_int_equal(changes_read(&at, end, &r), 1);
    assert_int_equal(r.type, CHANGES_SIZE);
    assert_int_equal(r.size.layer, 3);
    assert_int_equal(r.size.files, 3);
    assert_int_equal(changes_read(&at, end, &r), 1);
    assert_int_equal(r.type, CHANGES_END); /* there is no layer 4 */
    assert_ptr_equal(at, end);
}

static void half_an_answer_is_none(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(1 << 12);
    struct change_list l;
    const struct changes_record end = {.type = CHANGES_END}, size = {.type = CHANGES_SIZE};
    assert_false(change_list_take(&out, &l));
    assert_true(changes_write(&out, &size));
    assert_false(change_list_take(&out, &l));
    out.len = 0;
    assert_true(changes_write(&out, &end));
    out.len--;
    assert_false(change_list_take(&out, &l));
    out.len++;
    assert_true(change_list_take(&out, &l));
    assert_int_equal(l.count, 0);
    change_list_done(&l);
}

/* ---- packing ---- */

struct answer {
    struct buf archive, list;
    char end[600]; /* the last message */
};

static void answer_done(struct answer *a) {
    buf_done(&a->archive);
    buf_done(&a->list);
}

static struct answer packed_of(int upper) {
    struct answer a = {.archive = BUF(1 << 20), .list = BUF(1 << 20)};
    static char bytes[COMPARE_MESSAGE_MAX];
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    int ours DEFER_CLOSE = ends[0];
    pid_t pid = fork();
    if (pid == 0) {
        compare_pack(upper, true, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    while (!a.end[0]) {
        ssize_t n = read(ours, bytes, sizeof(bytes));
        assert_true(n > 0);
        struct buf *to = bytes[0] == COMPARE_ARCHIVE ? &a.archive
                         : bytes[0] == COMPARE_LIST  ? &a.list
                                                     : NULL;
        if (to)
            assert_true(buf_add(to, bytes + 1, (size_t)n - 1));
        else
            memcpy(a.end, bytes, (size_t)n < sizeof(a.end) ? (size_t)n : sizeof(a.end) - 1);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return a;
}

static bool has_line(const struct answer *a, const char *line) {
    const char *at = strstr(a->list.data ? a->list.data : "", line);
    return at && (at == a->list.data || at[-1] == '\n') && at[strlen(line)] == '\n';
}

static const struct tar_entry *entry_of(const struct answer *a, const char *path) {
    static struct tar_entry e;
    struct tar_reader *r DEFER_FREE = calloc(1, sizeof(*r));
    for (size_t at = 0; at + TAR_BLOCK <= a->archive.len;) {
        enum tar_step step = tar_next(r, (const uint8_t *)a->archive.data + at, &e);
        at += TAR_BLOCK;
        if (step == TAR_ENTRY && strcmp(e.path, path) == 0)
            return &e;
        if (step == TAR_ENTRY && e.kind == TAR_FILE)
            at += e.size + tar_padding(e.size);
        if (step == TAR_END)
            break;
    }
    return NULL;
}

static void an_upper_is_packed_with_a_list_of_its_paths(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    (void)state;
    int top DEFER_CLOSE = scratch_open(&dir);
    int merged DEFER_CLOSE = make(top, "merged"), opaque DEFER_CLOSE = make(top, "opaque");
    put(merged, "text", "1\n", 0750);
    put(opaque, "a b", "", 0644);
    assert_int_equal(symlinkat("x", top, "link"), 0);
    assert_int_equal(mkfifoat(top, "pipe", 0600), 0);
    if (fsetxattr(opaque, "user.overlay.opaque", "y", 1, 0) < 0)
        skip(); /* a filesystem without such attributes */
    bool can_hide = mknodat(top, "hidden", S_IFCHR, 0) == 0;
    struct answer a DEFER(answer_done) = packed_of(top);
    assert_int_equal(a.end[0], COMPARE_END);
    assert_int_equal(a.archive.len % TAR_BLOCK, 0);
    assert_int_equal(entry_of(&a, "merged/")->kind, TAR_DIR);
    assert_int_equal(entry_of(&a, "merged/text")->size, 2);
    assert_int_equal(entry_of(&a, "merged/text")->mode, 0750);
    assert_string_equal(entry_of(&a, "link")->target, "x");
    assert_int_equal(entry_of(&a, "pipe")->kind, TAR_OTHER);
    assert_true(has_line(&a, "= merged") && has_line(&a, "/ merged/text"));
    assert_true(has_line(&a, "/ opaque") && has_line(&a, "/ opaque/a%20b"));
    assert_true(has_line(&a, "/ link") && has_line(&a, "/ pipe"));
    assert_true(!can_hide || (has_line(&a, "/ hidden") && !entry_of(&a, "hidden")));
}

static void a_directory_that_is_too_deep_is_not_packed(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    (void)state;
    int top DEFER_CLOSE = scratch_open(&dir);
    int at = dup(top);
    for (int depth = 0; depth < 258; depth++) {
        int below = make(at, "d");
        close(at);
        at = below;
    }
    close(at);
    struct answer a DEFER(answer_done) = packed_of(top);
    assert_int_equal(a.end[0], COMPARE_FAILED);
    assert_int_equal(a.end[1], PACK_UNREADABLE);
    assert_non_null(strstr(a.end + 2, "cannot open directory 'd/d/"));
}

UNIT_MAIN(cmocka_unit_test(only_whole_orders_are_taken), cmocka_unit_test(each_difference_is_told),
          cmocka_unit_test(layers_are_measured), cmocka_unit_test(half_an_answer_is_none),
          cmocka_unit_test(an_upper_is_packed_with_a_list_of_its_paths),
          cmocka_unit_test(a_directory_that_is_too_deep_is_not_packed))
