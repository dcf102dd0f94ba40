/* How many requests for cached packages are worked on at the same time, and what a cancel ends. A
 * pipe in the place of a package holds its request until the test opens the other end. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cache/cache.h"
#include "cache/index.h"
#include "cache/object.h"

#define ORIGIN "http://packages.test:80"
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

enum { WISHES = 4 };

static struct world {
    char path[32];
    int dir;
    struct loop *loop;
    struct wish_queue *queue;
    struct cache *caches[2]; /* of two owners, by the same directory */
    struct cache_wish *wishes[WISHES];
    bool answered[WISHES];
    int answers;
} world;

static void put_index(void) {
    char name[INDEX_NAME_SIZE];
    index_name('l', ORIGIN, "/list", name);
    int fd DEFER_CLOSE = openat(world.dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_true(dprintf(fd, "# sha256:" ZEROS "\n") > 0);
    for (int i = 0; i < WISHES; i++)
        assert_true(dprintf(fd, "/%d.deb sha256:" ZEROS "\n", i) > 0);
}

static int world_make(void **state) {
    struct err err;
    (void)state;
    world = (struct world){.path = "/tmp/test-wishes-XXXXXX"};
    loop_set_workers(4);
    assert_non_null(mkdtemp(world.path));
    world.dir = open(world.path, O_DIRECTORY | O_CLOEXEC);
    world.loop = loop_new(&err);
    world.queue = wish_queue_new();
    const struct cache_options o = {.loop = world.loop,
                                    .wishes = world.queue,
                                    .dir = world.path,
                                    .program = "/nowhere",
                                    .keyring = "/nowhere",
                                    .max_bytes = 1 << 30};
    for (int i = 0; i < 2; i++)
        assert_non_null(world.caches[i] = cache_new(&o, &err));
    put_index();
    return 0;
}

static struct cache_subject subject_of(int i) {
    struct cache_subject s = {.kind = CACHE_PACKAGE};
    snprintf(s.origin, sizeof(s.origin), ORIGIN);
    snprintf(s.path, sizeof(s.path), "/%d.deb", i);
    return s;
}

static int object_end(int i, int flags) {
    char name[OBJECT_NAME_SIZE];
    struct cache_subject s = subject_of(i);
    object_name(&s, name);
    return openat(world.dir, name, flags | O_CLOEXEC);
}

static int world_delete(void **state) {
    uint64_t count = 0, bytes = 0;
    (void)state;
    int ends[WISHES]; /* what a failed test left in work must not wait */
    for (int i = 0; i < WISHES; i++)
        ends[i] = object_end(i, O_RDWR);
    for (int i = 0; i < 2; i++)
        cache_free(world.caches[i]);
    loop_join(world.loop);
    for (int i = 0; i < WISHES; i++)
        close_fd(&ends[i]);
    wish_queue_unref(world.queue);
    loop_free(world.loop);
    object_clear(world.dir, &count, &bytes);
    close(world.dir);
    return rmdir(world.path);
}

static void pipe_put(int i) {
    char name[OBJECT_NAME_SIZE];
    struct cache_subject s = subject_of(i);
    object_name(&s, name);
    assert_int_equal(mkfifoat(world.dir, name, 0600), 0);
}

static void pipe_release(int i) {
    int fd DEFER_CLOSE = object_end(i, O_WRONLY);
    assert_true(fd >= 0);
}

/* Whether somebody reads the pipe. Also lets go of it. */
static bool has_begun(int i) {
    int fd DEFER_CLOSE = object_end(i, O_WRONLY | O_NONBLOCK);
    return fd >= 0;
}

static void on_answer(void *arg, int fd) {
    bool *answered = arg;
    *answered = true;
    close_fd(&fd);
    if (++world.answers == 2)
        loop_stop(world.loop);
}

static void ask(int i) {
    struct cache_subject s = subject_of(i);
    world.wishes[i] = cache_ask(world.caches[i % 2], &s, on_answer, &world.answered[i]);
    assert_non_null(world.wishes[i]);
}

static void two_are_worked_on_and_the_others_follow(void **state) {
    (void)state;
    for (int i = 0; i < WISHES; i++)
        pipe_put(i);
    for (int i = 0; i < WISHES; i++)
        ask(i);
    pipe_release(0);
    pipe_release(1);
    bool third = has_begun(2), fourth = has_begun(3);
    assert_false(third || fourth);
    loop_run(world.loop); /* until two are answered */
    pipe_release(2);
    pipe_release(3);
    loop_join(world.loop);
    for (int i = 0; i < WISHES; i++)
        assert_true(world.answered[i]);
}

static void canceled_work_that_has_not_begun_never_begins(void **state) {
    (void)state;
    for (int i = 0; i < WISHES; i++)
        pipe_put(i);
    for (int i = 0; i < WISHES; i++)
        ask(i);
    cache_wish_cancel(world.wishes[3]);
    cache_wish_cancel(world.wishes[2]);
    pipe_release(0);
    pipe_release(1);
    loop_run(world.loop);
    assert_true(world.answered[0] && world.answered[1]);
    bool third = has_begun(2), fourth = has_begun(3);
    assert_false(third || fourth);
    assert_false(world.answered[2] || world.answered[3]);
    /* The queue goes on. */
    ask(2);
    pipe_release(2);
    loop_join(world.loop);
    assert_true(world.answered[2]);
}

/* Bytes that this process has read so far. */
static uint64_t bytes_read(void) {
    char text[512] = "";
    uint64_t n = 0;
    int fd DEFER_CLOSE = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
    assert_int_equal(sscanf(text, "rchar: %" SCNu64, &n), 1);
    return n;
}

static void canceled_work_ends_before_the_end_of_the_file(void **state) {
    const int64_t size = 1ll << 40; /* a file that takes an hour, but no disk */
    struct cache_subject s = subject_of(0);
    (void)state;
    int fd DEFER_CLOSE = openat(world.dir, "t-1", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(object_keep(world.dir, "t-1", fd, &s, "sha256:" ZEROS), 0);
    uint64_t before = bytes_read();
    ask(0);
    while (bytes_read() - before < 4 << 20)
        sched_yield();
    cache_wish_cancel(world.wishes[0]);
    loop_join(world.loop);
    assert_false(world.answered[0]);
    assert_true(bytes_read() - before < (uint64_t)size);
    /* It was not taken for damaged. */
    char name[OBJECT_NAME_SIZE];
    object_name(&s, name);
    assert_int_equal(faccessat(world.dir, name, F_OK, 0), 0);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, world_make, world_delete)

UNIT_MAIN(WORLD_TEST(two_are_worked_on_and_the_others_follow),
          WORLD_TEST(canceled_work_that_has_not_begun_never_begins),
          WORLD_TEST(canceled_work_ends_before_the_end_of_the_file))
