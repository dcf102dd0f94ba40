/* Files put into their owner's directory: what he did to it meanwhile is never lost, and whatever
 * is said to be there is on the disk. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "review/deliver.h"
#include "tests/sync_record.h"
#include "tests/unit/need.h"
#include "tests/unit/scratch.h"

#define ID "c-aaaaaaaaaaaa"
#define STAGE ".carrel-ship-" ID "/"

static struct {
    struct scratch top;
    int dir;
    long left, done, count;
    char path[64], kept[64]; /* of the last that was left */
} now;

#define ITEM(where, what, how, text) \
    { .path = (char *)(where), .kind = (what), .change = (how), .bytes = (text), .mode = 0644 }

static void put(const char *name, const char *text) {
    int fd DEFER_CLOSE = openat(now.dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    sync_forget(); /* what its owner writes is not our care */
}

/* As editors do: another file under the same name. */
static void save(const char *name, const char *text) {
    put("aside", text);
    assert_int_equal(renameat(now.dir, "aside", now.dir, name), 0);
    sync_forget();
}

static void is_synced(void) {
    const char *found = sync_unsynced(now.top.path);
    if (found)
        print_error("'%s' is not on the disk\n", found);
    assert_null(found);
    assert_string_equal(sync_seen.early, "");
}

static const char *get(const char *name) {
    static char text[64];
    int fd DEFER_CLOSE = openat(now.dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n < 0 ? 0 : n] = '\0';
    return n < 0 ? NULL : text;
}

static int set_up(void **state) {
    (void)state;
    memset(&now, 0, sizeof(now));
    now.top = scratch_new();
    now.dir = scratch_open(&now.top);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    close(now.dir);
    scratch_done(&now.top);
    return 0;
}

/* Staged and with its receipt, but not in its place: as after a kill. Its record is 7. */
static void stage(struct parcel_item *items, size_t count) {
    char receipt[DELIVER_NAME], hash[SHA256_HEX];
    struct err err = {0};
    const struct parcel p = {.dir = now.dir, .items = items, .count = count};
    need_openat2();
    for (size_t i = 0; i < count; i++) {
        struct parcel_item *item = &items[i];
        item->wanted = true;
        item->n = item->bytes ? strlen(item->bytes) : 0;
        if (item->bytes)
            sha256_hex(item->bytes, item->n, item->sha256);
        if (item->change != 'A')
            parcel_hash(now.dir, item->path, item->change == 'M' ? item->before : item->sha256);
    }
    delivery_hash(&p, hash);
    const struct delivery d = {
        .dir = now.dir, .id = ID, .record = 7, .machine = "m", .archive = "", .files_sha256 = hash};
    sync_forget();
    assert_int_equal(deliver(&d, &p, receipt, &err), 0);
    is_synced();
}

static int done(void *arg, const struct delivered *what, struct err *err) {
    (void)arg, (void)err;
    is_synced();
    now.done++;
    now.count = what->count;
    return 0;
}

static void left(void *arg, const char *path, const char *kept) {
    (void)arg;
    now.left++;
    snprintf(now.path, sizeof(now.path), "%s", path);
    snprintf(now.kept, sizeof(now.kept), STAGE "%s", kept ? kept : "");
}

static long finish(void) {
    struct err err = {0};
    long count = deliver_finish(now.dir, ID, done, left, NULL, &err);
    if (count < 0)
        print_error("%s\n", err.text);
    return count;
}

static long undo(long *ret_kept) {
    char hash[SHA256_HEX];
    struct err err = {0};
    struct buf text DEFER(buf_done) = BUF(DELIVER_NOW_MAX);
    sync_forget();
    long count = deliver_undo(now.dir, ID, ret_kept, hash, &text, &err);
    is_synced();
    return count;
}

static void stage_one(const char *path, char change, const char *bytes) {
    struct parcel_item item = ITEM(path, TAR_FILE, change, bytes);
    stage(&item, 1);
}

static void is_left(const char *path, const char *text) {
    long kept;
    assert_int_equal(finish(), 0);
    assert_int_equal(now.left, 1);
    assert_string_equal(now.path, path);
    assert_string_equal(get(path), text);
    assert_int_equal(now.done, 1);
    assert_int_equal(finish(), 0);
    assert_int_equal(now.done, 1); /* it is over */
    assert_int_equal(undo(&kept), 0);
    assert_int_equal(kept, 1);
    assert_string_equal(get(path), text);
}

static void a_delivery_places_all_files_and_undo_restores_them(void **state) {
    (void)state;
    long kept;
    put("m", "old");
    put("d", "gone");
    struct parcel_item items[] = {ITEM("a/b", TAR_FILE, 'A', "new"), ITEM("d", TAR_FILE, 'D', NULL),
                                  ITEM("m", TAR_FILE, 'M', "now")};
    stage(items, 3);
    assert_int_equal(finish(), 3);
    assert_string_equal(get("a/b"), "new");
    assert_string_equal(get("m"), "now");
    assert_null(get("d"));
    assert_int_equal(now.left, 0);
    assert_int_equal(undo(&kept), 3);
    assert_string_equal(get("m"), "old");
    assert_string_equal(get("d"), "gone");
    assert_null(get("a/b"));
    assert_null(get(STAGE "receipt.json"));
}

/* Directories of several depths, one of them made on the way. done() looks what is on the disk. */
static void new_directories_are_flushed_at_every_depth(void **state) {
    (void)state;
    long kept;
    mkdirat(now.dir, "x", 0755);
    put("x/m", "old");
    struct parcel_item items[] = {
        ITEM("a/b/c", TAR_FILE, 'A', "1"), ITEM("a/b/d", TAR_SYMLINK, 'A', "2"),
        ITEM("a/b/e", TAR_DIR, 'A', NULL), ITEM("x/m", TAR_FILE, 'M', "now"),
        ITEM("x/y", TAR_FILE, 'A', "3"),   ITEM("z", TAR_FILE, 'A', "4")};
    items[1].target = (char *)"c";
    items[1].bytes = NULL;
    stage(items, 6);
    assert_int_equal(finish(), 6);
    assert_int_equal(undo(&kept) + kept, 6);
}

static void a_version_kept_aside_is_flushed(void **state) {
    (void)state;
    char name[DELIVER_NAME];
    struct err err;
    struct parcel_item item = ITEM("f", TAR_FILE, 'M', "theirs");
    item.n = strlen(item.bytes);
    sha256_hex(item.bytes, item.n, item.sha256);
    need_openat2();
    sync_forget();
    assert_int_equal(deliver_aside(now.dir, ID, &item, name, &err), 0);
    is_synced();
}

/* Over a file that runs with its owner's rights: what a machine wrote must not. */
static void git_ignores_the_stage(void **state) {
    struct parcel_item item = ITEM("a", TAR_FILE, 'A', "theirs");
    char name[DELIVER_NAME];
    long kept;
    struct err err = {0};
    (void)state;
    stage_one("a", 'A', "new");
    assert_string_equal(get(STAGE ".gitignore"), "*\n");
    assert_int_equal(finish(), 1);
    assert_string_equal(get(STAGE ".gitignore"), "*\n");
    assert_int_equal(undo(&kept), 1);
    assert_int_equal(faccessat(now.dir, STAGE, F_OK, 0), -1);
    /* A version kept aside makes a stage, too. */
    assert_int_equal(deliver_aside(now.dir, ID, &item, name, &err), 0);
    assert_string_equal(get(STAGE ".gitignore"), "*\n");
}

static void delivered_files_are_never_setuid(void **state) {
    (void)state;
    struct stat st;
    static const struct {
        mode_t here, theirs, wanted;
    } rows[] = {
        {04755, 0755, 0755}, {06755, 04755, 0755}, {02644, 0644, 0644}, {01666, 0644, 0666},
        {04711, 0755, 0700}, {0600, 06777, 0700},  {0640, 0644, 0640},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        long kept;
        struct parcel_item item = ITEM("f", TAR_FILE, 'M', "theirs");
        item.mode = rows[i].theirs;
        save("f", "mine");
        assert_int_equal(fchmodat(now.dir, "f", rows[i].here, 0), 0);
        assert_int_equal(fstatat(now.dir, "f", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, rows[i].here); /* the control: it was */
        stage(&item, 1);
        assert_int_equal(finish(), 1);
        assert_int_equal(fstatat(now.dir, "f", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, rows[i].wanted);
        assert_int_equal(undo(&kept), 1);
        assert_int_equal(fstatat(now.dir, "f", &st, 0), 0);
        assert_int_equal(st.st_mode & 07777, rows[i].here);
    }
}

static void a_new_file_of_the_owner_is_not_replaced(void **state) {
    (void)state;
    stage_one("a", 'A', "theirs");
    put("a", "mine");
    is_left("a", "mine");
    assert_string_equal(get(now.kept), "theirs");
}

static void an_entry_of_another_type_is_not_replaced(void **state) {
    (void)state;
    struct parcel_item items[] = {ITEM("a", TAR_FILE, 'A', "x"), ITEM("b", TAR_DIR, 'A', NULL),
                                  ITEM("b/c", TAR_FILE, 'A', "x"), ITEM("e", TAR_FILE, 'A', "x")};
    stage(items, 4);
    assert_int_equal(mkdirat(now.dir, "a", 0755), 0);
    put("b", "mine");
    assert_int_equal(finish(), 1); /* the rest goes on */
    assert_int_equal(now.left, 3);
    assert_string_equal(get("b"), "mine");
    assert_string_equal(get("e"), "x");
}

/* A FIFO in the place of a file stays. place_at() must not open it: that would wait for a writer.
 */
static void a_fifo_of_the_owner_is_not_replaced(void **state) {
    (void)state;
    struct stat st;
    put("m", "one");
    stage_one("m", 'M', "theirs");
    assert_int_equal(unlinkat(now.dir, "m", 0), 0);
    assert_int_equal(mkfifoat(now.dir, "m", 0644), 0);
    assert_int_equal(finish(), 0);
    assert_int_equal(now.left, 1);
    assert_int_equal(fstatat(now.dir, "m", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISFIFO(st.st_mode));
}

static void the_same_change_by_the_owner_is_not_a_conflict(void **state) {
    (void)state;
    stage_one("a", 'A', "theirs");
    put("a", "theirs");
    assert_int_equal(finish(), 1);
    assert_int_equal(now.left, 0);
    assert_null(get(STAGE "7.0.new"));
}

static void a_later_version_of_the_owner_is_not_replaced(void **state) {
    (void)state;
    put("m", "one");
    stage_one("m", 'M', "theirs");
    put("m", "two");
    is_left("m", "two");
}

static void a_version_saved_during_the_delivery_is_not_replaced(void **state) {
    (void)state;
    put("m", "one");
    stage_one("m", 'M', "theirs");
    assert_int_equal(linkat(now.dir, "m", now.dir, STAGE "7.0.old", 0), 0);
    save("m", "two");
    is_left("m", "two");
    assert_string_equal(get(STAGE "7.0.old"), "one");
}

static void a_file_that_the_owner_deleted_is_not_restored(void **state) {
    (void)state;
    put("m", "one");
    stage_one("m", 'M', "theirs");
    assert_int_equal(unlinkat(now.dir, "m", 0), 0);
    assert_int_equal(finish(), 0);
    assert_int_equal(now.left, 1);
    assert_null(get("m"));
}

static void a_file_made_after_a_deletion_is_not_deleted(void **state) {
    (void)state;
    put("d", "one");
    stage_one("d", 'D', NULL);
    assert_int_equal(renameat(now.dir, "d", now.dir, STAGE "7.0.old"), 0);
    put("d", "one"); /* even the same */
    is_left("d", "one");
}

static void a_file_changed_before_its_deletion_is_not_deleted(void **state) {
    (void)state;
    put("d", "one");
    stage_one("d", 'D', NULL);
    put("d", "two");
    is_left("d", "two");
}

/* Every state that a kill can leave, and those of filesystems without such renames. */
static void an_interrupted_delivery_is_finished_from_any_point(void **state) {
    (void)state;
    long kept;
    put("m", "one");
    put("d", "gone");
    put("n", "one");
    struct parcel_item items[] = {ITEM("a", TAR_FILE, 'A', "x"), ITEM("d", TAR_FILE, 'D', NULL),
                                  ITEM("m", TAR_FILE, 'M', "two"), ITEM("n", TAR_FILE, 'M', "two")};
    stage(items, 4);
    assert_int_equal(linkat(now.dir, STAGE "7.0.new", now.dir, "a", 0), 0);
    assert_int_equal(linkat(now.dir, "d", now.dir, STAGE "7.1.old", 0), 0);
    assert_int_equal(linkat(now.dir, "m", now.dir, STAGE "7.2.old", 0), 0);
    assert_int_equal(linkat(now.dir, "n", now.dir, STAGE "7.3.old", 0), 0);
    assert_int_equal(renameat2(now.dir, STAGE "7.3.new", now.dir, "n", RENAME_EXCHANGE), 0);
    assert_int_equal(finish(), 4);
    assert_int_equal(now.left, 0);
    assert_string_equal(get("m"), "two");
    assert_string_equal(get("n"), "two");
    assert_null(get("d"));
    assert_int_equal(undo(&kept), 4);
    assert_string_equal(get("m"), "one");
    assert_string_equal(get("n"), "one");
    assert_string_equal(get("d"), "gone");
    assert_null(get("a"));
}

static void undo_keeps_files_changed_since_the_delivery(void **state) {
    (void)state;
    long kept;
    put("d", "one");
    stage_one("d", 'D', NULL);
    assert_int_equal(finish(), 1);
    assert_int_equal(mkdirat(now.dir, "d", 0755), 0);
    assert_int_equal(undo(&kept), 0);
    assert_int_equal(kept, 1);
    assert_string_equal(get(STAGE "7.0.old"), "one");
}

/* For good: in a process of its own. */
static void forget_renameat2(void) {
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof(rows) / sizeof(*rows), rows};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        _exit(77);
}

static void filesystems_without_rename_flags_lose_nothing(void **state) {
    (void)state;
    long kept;
    int status;
    put("m", "old");
    put("d", "gone");
    struct parcel_item items[] = {ITEM("a", TAR_FILE, 'A', "new"), ITEM("d", TAR_FILE, 'D', NULL),
                                  ITEM("m", TAR_FILE, 'M', "now"), ITEM("z", TAR_FILE, 'A', "new")};
    stage(items, 4);
    put("z", "mine");
    pid_t pid = fork();
    if (pid == 0) {
        forget_renameat2();
        _exit(finish() == 3 && now.left == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip(); /* an emulated processor */
    assert_int_equal(status, 0);
    assert_string_equal(get("a"), "new");
    assert_string_equal(get("m"), "now");
    assert_string_equal(get("z"), "mine");
    assert_null(get("d"));
    assert_int_equal(undo(&kept), 3);
    assert_string_equal(get("m"), "old");
    assert_string_equal(get("d"), "gone");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
UNIT_MAIN(TEST(a_delivery_places_all_files_and_undo_restores_them),
          TEST(new_directories_are_flushed_at_every_depth), TEST(a_version_kept_aside_is_flushed),
          TEST(git_ignores_the_stage), TEST(delivered_files_are_never_setuid),
          TEST(a_new_file_of_the_owner_is_not_replaced),
          TEST(an_entry_of_another_type_is_not_replaced), TEST(a_fifo_of_the_owner_is_not_replaced),
          TEST(the_same_change_by_the_owner_is_not_a_conflict),
          TEST(a_later_version_of_the_owner_is_not_replaced),
          TEST(a_version_saved_during_the_delivery_is_not_replaced),
          TEST(a_file_that_the_owner_deleted_is_not_restored),
          TEST(a_file_made_after_a_deletion_is_not_deleted),
          TEST(a_file_changed_before_its_deletion_is_not_deleted),
          TEST(an_interrupted_delivery_is_finished_from_any_point),
          TEST(undo_keeps_files_changed_since_the_delivery),
          TEST(filesystems_without_rename_flags_lose_nothing))
