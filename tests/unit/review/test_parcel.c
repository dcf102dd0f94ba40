/* A change set beside its directory: what an archive may hold, and where its links may lead. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "review/flags.h"
#include "review/parcel.h"
#include "tests/unit/need.h"
#include "tests/unit/scratch.h"

enum { ARCHIVE_MAX = 1 << 20 };

static struct {
    struct scratch top;
    int dir;
    char *archive;
    size_t size;
    struct parcel parcel;
} now;

static int set_up(void **state) {
    (void)state;
    memset(&now, 0, sizeof(now));
    now.top = scratch_new();
    now.dir = scratch_open(&now.top);
    now.archive =
        mmap(NULL, ARCHIVE_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return now.archive == MAP_FAILED;
}

static int tear_down(void **state) {
    (void)state;
    parcel_close(&now.parcel);
    close(now.dir);
    scratch_done(&now.top);
    return 0;
}

/* Of a file, text is what it holds; of a link, where it leads. */
static void add(enum tar_kind kind, const char *path, const char *text) {
    static struct tar_entry e;
    size_t n = kind == TAR_FILE ? strlen(text) : 0;
    e = (struct tar_entry){.kind = kind, .mode = kind == TAR_DIR ? 0755 : 0644, .size = n};
    snprintf(e.path, sizeof(e.path), "%s", path);
    if (kind == TAR_SYMLINK)
        snprintf(e.target, sizeof(e.target), "%s", text);
    now.size += tar_put((uint8_t *)now.archive + now.size, &e);
    memcpy(now.archive + now.size, text ? text : "", n);
    now.size += n + tar_padding(n);
}

static void add_links(const char *const links[][2], size_t count) {
    for (size_t i = 0; i < count; i++)
        add(TAR_SYMLINK, links[i][0], links[i][1]);
}

static void look_from(const struct parcel_side *side) {
    struct err err = {0};
    need_openat2();
    assert_int_equal(parcel_open(&now.parcel, now.archive, ARCHIVE_MAX, now.dir, side, &err), 0);
}

static void look(void) {
    look_from(&(struct parcel_side){0});
}

/* A file of the owner. */
static void put(const char *path, const char *text) {
    int fd DEFER_CLOSE = openat(now.dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static const struct parcel_item *item(const char *path) {
    for (size_t i = 0; i < now.parcel.count; i++)
        if (strcmp(now.parcel.items[i].path, path) == 0)
            return &now.parcel.items[i];
    return NULL;
}

static void is_out(const char *path) {
    assert_non_null(item(path));
    assert_string_equal(item(path)->refused, "the link leads out of the tree");
    assert_true(item(path)->flags & FLAG_LEAVES);
}

static void is_taken(const char *path) {
    assert_non_null(item(path));
    assert_null(item(path)->refused);
}

static void links_within_the_tree_are_taken(void **state) {
    (void)state;
    static const char *const links[][2] = {{"a/b/up", "../.."},
                                           {"esc", "a/b/up/x"},
                                           {"dir", "a/b"},
                                           {"through", "dir/up/dir/y"},
                                           {"a/self", "../a/./z"}};
    add_links(links, 5);
    look();
    for (size_t i = 0; i < 5; i++)
        is_taken(links[i][0]);
}

static void chains_of_links_do_not_lead_out(void **state) {
    (void)state;
    static const char *const links[][2] = {{"a/b/up", "../.."}, {"esc", "a/b/up/../secret"},
                                           {"far", "/etc"},     {"by", "far/passwd"},
                                           {"one", "two"},      {"two", "by"}};
    add_links(links, 6);
    look();
    is_taken("a/b/up");
    for (size_t i = 1; i < 6; i++)
        is_out(links[i][0]);
}

static void links_of_the_owner_do_not_lead_out(void **state) {
    (void)state;
    static const char *const links[][2] = {
        {"esc", "data/secret"},     {"in", "inner/f"},           {"new", "d"},
        {"chain", "new/up/secret"}, {"behind", "inner/new2/up"}, {"d/new2", "."}};
    assert_int_equal(mkdirat(now.dir, "d", 0755), 0);
    assert_int_equal(symlinkat("/srv", now.dir, "data"), 0);
    assert_int_equal(symlinkat("../..", now.dir, "d/up"), 0);
    assert_int_equal(symlinkat("d", now.dir, "inner"), 0);
    add_links(links, 6);
    look();
    is_out("esc");
    is_taken("in");
    is_taken("new");
    is_out("chain");
    is_out("behind");
    is_taken("d/new2");
}

/* Whoever takes only one of the two gets the other as it is. */
static void neither_version_of_a_link_may_lead_out(void **state) {
    (void)state;
    static const char *const links[][2] = {{"here", "d"}, {"esc", "here/secret"}};
    assert_int_equal(symlinkat("/srv", now.dir, "here"), 0);
    add_links(links, 2);
    look();
    is_out("esc");
}

static void links_that_loop_or_are_too_long_count_as_leading_out(void **state) {
    (void)state;
    static const char *const links[][2] = {{"a", "b/x"}, {"b", "a/y"}, {"c", "c"}};
    char far[2050] = "";
    for (size_t i = 0; i + 2 < sizeof(far); i += 2)
        memcpy(far + i, "d/", 3);
    add_links(links, 3);
    add(TAR_SYMLINK, "long", far);
    look();
    for (size_t i = 0; i < 3; i++)
        is_out(links[i][0]);
    is_out("long");
}

static void an_unchanged_link_is_accepted(void **state) {
    (void)state;
    assert_int_equal(symlinkat("/srv", now.dir, "data"), 0);
    add(TAR_SYMLINK, "data", "/srv");
    look();
    assert_int_equal(item("data")->change, '=');
    is_taken("data");
}

static void paths_below_a_file_or_link_are_refused(void **state) {
    (void)state;
    static const char *const below[] = {"a/b", "a/c/d", "l/x", "l/x/y"};
    add(TAR_FILE, "a", "file");
    add(TAR_FILE, "a-b", "file");
    add(TAR_FILE, "a/b", "file");
    add(TAR_FILE, "a/c/d", "file");
    add(TAR_SYMLINK, "l", "a");
    add(TAR_DIR, "l/x", NULL);
    add(TAR_FILE, "l/x/y", "file");
    add(TAR_DIR, "ok", NULL);
    add(TAR_FILE, "ok/f", "file");
    look();
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(item(below[i])->refused,
                            "the parent of this path is not a directory in the archive");
    is_taken("a");
    is_taken("a-b");
    is_taken("l");
    is_taken("ok/f");
}

static void paths_of_staging_directories_are_refused_at_any_depth(void **state) {
    (void)state;
    assert_int_equal(mkdirat(now.dir, "sub", 0755), 0);
    assert_int_equal(mkdirat(now.dir, "sub/.carrel-ship-c-mine", 0755), 0);
    add(TAR_FILE, ".carrel-ship-c-x/receipt.json", "{}");
    add(TAR_FILE, "sub/.carrel-ship-c-x/receipt.json", "{}");
    add(TAR_FILE, "sub/.carrel-ship-c-x", "{}");
    add(TAR_FILE, "./sub/.carrel-ship-c-mine/receipt.json", "{}");
    add(TAR_DIR, "sub/.carrel-ship-c-mine/", NULL);
    add(TAR_FILE, "sub/my.carrel-ship-x", "{}");
    look();
    assert_int_equal(now.parcel.count, 4); /* his own are not looked at */
    for (size_t i = 0; i < now.parcel.count; i++)
        if (strcmp(now.parcel.items[i].path, "sub/my.carrel-ship-x") != 0)
            assert_string_equal(
                now.parcel.items[i].refused,
                "the path is absolute, too long or reserved, or contains '.' or '..'");
    is_taken("sub/my.carrel-ship-x");
}

static void names_that_are_too_long_or_not_utf8_are_refused(void **state) {
    (void)state;
    char name[300];
    memset(name, 'a', sizeof(name));
    name[256] = '\0';
    add(TAR_FILE, name, "file");
    name[255] = '\0';
    add(TAR_FILE, name, "file");
    add(TAR_FILE, "d/\xff", "file");
    add(TAR_FILE, "d/\xc3\xa9", "file");
    add(TAR_SYMLINK, "nowhere", "");
    look();
    is_taken(name);
    is_taken("d/\xc3\xa9");
    assert_string_equal(item("d/\xff")->refused,
                        "the name is not valid UTF-8, so the receipt cannot list the file");
    assert_string_equal(item("nowhere")->refused,
                        "the entry is not a file, directory or symbolic link");
    name[255] = 'a';
    assert_string_equal(item(name)->refused,
                        "the path is absolute, too long or reserved, or contains '.' or '..'");
}

static void paths_with_dots_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"../a", "d/../../a", "d/..", "d/./a"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        add(TAR_FILE, bad[i], "file");
    add(TAR_FILE, "d/..a", "file");
    look();
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_string_equal(item(bad[i])->refused,
                            "the path is absolute, too long or reserved, or contains '.' or '..'");
    is_taken("d/..a");
}

static bool is_image(const void *arg, const char *path) {
    return strcmp(path, arg) == 0;
}

/* Neither where the owner has none nor where it is another: it is not the machine's work. */
static void unchanged_files_of_the_image_are_left_out(void **state) {
    (void)state;
    put(".profile", "mine");
    add(TAR_FILE, "./.profile", "the image's");
    add(TAR_FILE, "./made", "the machine's");
    look_from(&(struct parcel_side){.mirror = true, .is_image = is_image, .arg = ".profile"});
    assert_int_equal(now.parcel.count, 2);
    assert_int_equal(item(".profile")->change, '=');
    assert_null(item(".profile")->refused);
    assert_int_equal(item("made")->change, 'A');
}

/* A second file of that name is another one. */
static void a_second_file_with_the_name_of_an_image_file_is_refused(void **state) {
    (void)state;
    add(TAR_FILE, ".profile", "the image's");
    add(TAR_FILE, ".profile", "another");
    look_from(&(struct parcel_side){.is_image = is_image, .arg = ".profile"});
    assert_int_equal(now.parcel.count, 2);
    assert_string_equal(now.parcel.items[1].refused, "the archive has this path twice");
}

/* ---- beside the directory ---- */

/* Nothing here changed since: whatever differs is the machine's work. */
static const struct parcel_side quiet = {.since_ms = INT64_MAX};
static const struct parcel_side mirror = {.since_ms = INT64_MAX, .mirror = true};

static void has_change(const char *path, char change, const char *refused) {
    const struct parcel_item *i = item(path);
    assert_non_null(i);
    assert_int_equal(i->change, change);
    if (refused)
        assert_string_equal(i->refused, refused);
    else
        assert_null(i->refused);
}

static void has_hash(const char hash[SHA256_HEX], const char *text) {
    char want[SHA256_HEX];
    sha256_hex(text, strlen(text), want);
    assert_string_equal(hash, want);
}

static void content_and_the_executable_bit_decide_what_is_modified(void **state) {
    (void)state;
    put("same", "text");
    put("text", "old");
    put("run", "text");
    assert_int_equal(fchmodat(now.dir, "run", 0755, 0), 0);
    add(TAR_FILE, "new", "text");
    add(TAR_FILE, "same", "text");
    add(TAR_FILE, "text", "new");
    add(TAR_FILE, "run", "text");
    look_from(&quiet);
    has_change("new", 'A', NULL);
    has_change("same", '=', NULL);
    has_change("text", 'M', NULL);
    has_change("run", 'M', NULL);
    has_hash(item("text")->before, "old");
    has_hash(item("text")->sha256, "new");
}

static void a_file_that_the_owner_changed_is_refused(void **state) {
    (void)state;
    put("text", "mine");
    add(TAR_FILE, "text", "theirs");
    look();
    has_change("text", 'M', "the file changed on your side since the machine was made");
    assert_true(item("text")->differs);
}

static void a_path_of_another_type_is_refused(void **state) {
    (void)state;
    static const char above[] =
        "in your directory, a parent of this path is a symbolic link or a file";
    put("file", "text");
    assert_int_equal(mkdirat(now.dir, "dir", 0755), 0);
    assert_int_equal(symlinkat("dir", now.dir, "link"), 0);
    add(TAR_FILE, "dir", "text");
    add(TAR_FILE, "file/below", "text");
    add(TAR_FILE, "link/below", "text");
    look_from(&quiet);
    has_change("dir", 0, "your directory has another type of file at this path");
    has_change("file/below", 0, above);
    has_change("link/below", 0, above);
}

static void a_path_that_comes_twice_is_taken_once(void **state) {
    (void)state;
    add(TAR_FILE, "twice", "one");
    add(TAR_FILE, "twice", "two");
    look();
    assert_int_equal(now.parcel.count, 2);
    assert_null(now.parcel.items[0].refused);
    assert_string_equal(now.parcel.items[1].refused, "the archive has this path twice");
}

static void an_archive_that_is_cut_or_damaged_is_refused(void **state) {
    (void)state;
    const struct parcel_side side = {0};
    struct err err = {0};
    char text[2 * TAR_BLOCK];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    add(TAR_FILE, "file", text);
    assert_int_equal(
        parcel_open(&now.parcel, now.archive, now.size - TAR_BLOCK, now.dir, &side, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.text, "the archive of the change set ends in the middle of a file");
    now.archive[0] ^= 1; /* and the sum of the header does not fit */
    assert_int_equal(parcel_open(&now.parcel, now.archive, ARCHIVE_MAX, now.dir, &side, &err), -1);
    assert_string_equal(err.text, "the archive of the change set is broken at byte 512");
}

static void a_mirror_removes_what_the_archive_lacks(void **state) {
    (void)state;
    put("kept", "text");
    put("gone", "old");
    assert_int_equal(mkdirat(now.dir, "d", 0755), 0);
    assert_int_equal(symlinkat("gone", now.dir, "d/link"), 0);
    assert_int_equal(mkdirat(now.dir, ".carrel-ship-c-x", 0755), 0);
    put(".carrel-ship-c-x/receipt.json", "{}");
    add(TAR_FILE, "kept", "text");
    look_from(&mirror);
    assert_int_equal(now.parcel.count, 3);
    has_change("kept", '=', NULL);
    has_change("gone", 'D', NULL);
    has_hash(item("gone")->sha256, "old");
    has_change("d/link", 'D', NULL);
    has_hash(item("d/link")->sha256, "gone");
}

static void nothing_is_removed_without_a_mirror_or_a_baseline(void **state) {
    (void)state;
    put("mine", "text");
    add(TAR_FILE, "new", "text");
    look_from(&quiet);
    assert_int_equal(now.parcel.count, 1);
}

static void note(struct buf *to, const char *path) {
    struct stat st;
    assert_int_equal(fstatat(now.dir, path, &st, 0), 0);
    assert_true(baseline_put(to, path, &st));
}

/* The owner made "new", changed "changed" and deleted "deleted"; the machine deleted the rest. */
static void a_baseline_tells_whose_work_it_was(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = BUF(4096);
    struct baseline base DEFER(baseline_done) = {0};
    struct err err;
    static const char *const lent[] = {"changed", "deleted", "left"};
    for (size_t i = 0; i < 3; i++)
        put(lent[i], "text");
    note(&text, ".");
    for (size_t i = 0; i < 3; i++)
        note(&text, lent[i]);
    assert_int_equal(baseline_read(text.data, text.len, &base, &err), 0);
    put("new", "mine");
    put("changed", "changed by the owner");
    assert_int_equal(unlinkat(now.dir, "deleted", 0), 0);
    add(TAR_FILE, "deleted", "theirs");
    look_from(&(struct parcel_side){.base = &base});
    assert_int_equal(now.parcel.count, 3);
    has_change("left", 'D', NULL);
    has_change("changed", 'D', "the file changed on your side since the machine was made");
    has_change("deleted", 'A', "you deleted the file since the machine got it");
    assert_true(item("deleted")->differs);
}

static void a_baseline_of_another_directory_is_not_used(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = BUF(4096);
    struct baseline base DEFER(baseline_done) = {0};
    struct stat st;
    struct err err;
    put("left", "text");
    assert_int_equal(fstat(now.dir, &st), 0);
    st.st_ino++;
    assert_true(baseline_put(&text, ".", &st));
    note(&text, "left");
    assert_int_equal(baseline_read(text.data, text.len, &base, &err), 0);
    look_from(&(struct parcel_side){.base = &base, .since_ms = INT64_MAX});
    assert_int_equal(now.parcel.count, 0);
}

/* Files without content are all the same, and not renamed. */
static void a_file_with_another_name_has_a_partner(void **state) {
    (void)state;
    put("old", "text");
    put("none-old", "");
    add(TAR_FILE, "new", "text");
    add(TAR_FILE, "none-new", "");
    look_from(&mirror);
    assert_string_equal(item("old")->partner, "new");
    assert_string_equal(item("new")->partner, "old");
    assert_null(item("none-old")->partner);
    assert_null(item("none-new")->partner);
}

static void directories_that_are_too_deep_are_not_entered(void **state) {
    (void)state;
    char path[256] = "d";
    for (size_t depth = 1; depth <= 70; depth++) {
        assert_int_equal(mkdirat(now.dir, path, 0755), 0);
        size_t n = strlen(path);
        snprintf(path + n, sizeof(path) - n, "/%s", depth < 70 ? "d" : "file");
    }
    put(path, "text");
    put("gone", "text");
    int before = dup(now.dir);
    close(before);
    look_from(&mirror);
    int after DEFER_CLOSE = dup(now.dir);
    assert_int_equal(now.parcel.count, 1);
    assert_int_equal(after, before); /* none stays open */
}

static void files_and_links_have_a_hash(void **state) {
    (void)state;
    char hash[SHA256_HEX];
    need_openat2();
    put("file", "text");
    assert_int_equal(symlinkat("file", now.dir, "link"), 0);
    assert_int_equal(mkdirat(now.dir, "dir", 0755), 0);
    assert_true(parcel_hash(now.dir, "file", hash));
    has_hash(hash, "text");
    assert_true(parcel_hash(now.dir, "link", hash));
    has_hash(hash, "file");
    assert_false(parcel_hash(now.dir, "dir", hash));
    assert_false(parcel_hash(now.dir, "none", hash));
    assert_false(parcel_hash(now.dir, "link/x", hash));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
UNIT_MAIN(TEST(unchanged_files_of_the_image_are_left_out),
          TEST(a_second_file_with_the_name_of_an_image_file_is_refused),
          TEST(paths_with_dots_are_refused), TEST(links_within_the_tree_are_taken),
          TEST(chains_of_links_do_not_lead_out), TEST(links_of_the_owner_do_not_lead_out),
          TEST(neither_version_of_a_link_may_lead_out),
          TEST(links_that_loop_or_are_too_long_count_as_leading_out),
          TEST(an_unchanged_link_is_accepted), TEST(paths_below_a_file_or_link_are_refused),
          TEST(paths_of_staging_directories_are_refused_at_any_depth),
          TEST(names_that_are_too_long_or_not_utf8_are_refused),
          TEST(content_and_the_executable_bit_decide_what_is_modified),
          TEST(a_file_that_the_owner_changed_is_refused), TEST(a_path_of_another_type_is_refused),
          TEST(a_path_that_comes_twice_is_taken_once),
          TEST(an_archive_that_is_cut_or_damaged_is_refused),
          TEST(a_mirror_removes_what_the_archive_lacks),
          TEST(nothing_is_removed_without_a_mirror_or_a_baseline),
          TEST(a_baseline_tells_whose_work_it_was),
          TEST(a_baseline_of_another_directory_is_not_used),
          TEST(a_file_with_another_name_has_a_partner),
          TEST(directories_that_are_too_deep_are_not_entered), TEST(files_and_links_have_a_hash))
