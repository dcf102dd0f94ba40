/* The jail, attacked from inside. Each attack is run outside first: it must work there. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "cell/jail.h"

static int open_file(struct link *l, const void *arg) {
    (void)l, (void)arg;
    return open("/etc/passwd", O_RDONLY) >= 0 ? 0 : 1;
}

static int make_socket(struct link *l, const void *arg) {
    (void)l, (void)arg;
    return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 1;
}

static int make_process(struct link *l, const void *arg) {
    (void)l, (void)arg;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid > 0 ? 0 : 1;
}

static int make_code(struct link *l, const void *arg) {
    (void)l, (void)arg;
    void *p =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED ? 0 : 1;
}

static int turn_into_code(struct link *l, const void *arg) {
    (void)l, (void)arg;
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(p, 4096, PROT_READ | PROT_EXEC);
}

static int write_elsewhere(struct link *l, const void *arg) {
    (void)l, (void)arg;
    return write(STDERR_FILENO, "", 0) == 0 ? 0 : 1;
}

static int send_signal(struct link *l, const void *arg) {
    (void)l, (void)arg;
    return kill(getppid(), 0);
}

static int send_signal_by_file(struct link *l, const void *arg) {
    (void)arg;
    int fd = l ? l->fd : STDERR_FILENO;
    return fcntl(fd, F_SETSIG, SIGUSR1) < 0 || fcntl(fd, F_SETSIG, 0) < 0;
}

static int nothing(struct link *l, const void *arg) {
    (void)l, (void)arg;
    return 0;
}

/* It makes system calls of its own in the worker, which end it. */
static bool under_valgrind(void) {
    const char *preload = getenv("LD_PRELOAD");
    return preload && strstr(preload, "vgpreload");
}

/* An emulated CPU has no seccomp: then a worker must refuse to start, and the rest cannot be seen.
 */
static void skip_where_nothing_can_be_confined(void) {
    if (under_valgrind())
        skip();
    struct jail j = {.out_fd = -1, .err_fd = -1, .state = BUF(10), .log = BUF(10)};
    struct err err;
    if (jail_run(&j, nothing, NULL, &err) == 0)
        return;
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    skip();
}

static void attacks_end_the_worker(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    static int (*const attacks[])(struct link *, const void *) = {
        open_file,      make_socket,     make_process, make_code,
        turn_into_code, write_elsewhere, send_signal,  send_signal_by_file,
    };
    if (!jail_is_tight())
        skip();
    for (size_t i = 0; i < sizeof(attacks) / sizeof(*attacks); i++) {
        struct jail j = {.out_fd = -1, .err_fd = -1, .state = BUF(10), .log = BUF(10)};
        struct err err;
        assert_int_equal(attacks[i](NULL, NULL), 0);
        assert_int_equal(jail_run(&j, attacks[i], NULL, &err), -1);
        assert_non_null(strstr(err.text, "signal 31"));
    }
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

static int answer(struct link *l, const void *arg) {
    uint8_t bytes[16] = {0};
    link_random(l, bytes, sizeof(bytes));
    link_state(l, bytes, sizeof(bytes));
    link_log(l, arg, strlen(arg));
    return link_clock_ns(l) > 0 ? 7 : 8;
}

static void a_worker_can_answer_and_ask(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    struct jail j = {.out_fd = -1, .err_fd = -1, .state = BUF(100), .log = BUF(100)};
    struct err err;
    assert_int_equal(jail_run(&j, answer, "hello", &err), 7);
    assert_int_equal(j.state.len, 16);
    assert_memory_not_equal(j.state.data, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_string_equal(j.log.data, "hello");
    buf_done(&j.state);
    buf_done(&j.log);
}

static int read_input(struct link *l, const void *arg) {
    char bytes[16] = "";
    (void)arg;
    ssize_t n = link_read(l, bytes, sizeof(bytes));
    return n == 4 && memcmp(bytes, "text", 4) == 0 ? 7 : n == 0 ? 8 : 9;
}

static void a_worker_reads_input_only_if_it_may(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    int ends[2];
    struct err err;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "text", 4), 4);
    struct jail j = {
        .out_fd = -1, .err_fd = -1, .in_fd = ends[0], .state = BUF(10), .log = BUF(10)};
    assert_int_equal(jail_run(&j, read_input, NULL, &err), 8);
    j.has_input = true;
    assert_int_equal(jail_run(&j, read_input, NULL, &err), 7);
    close(ends[0]);
    close(ends[1]);
}

static int flood(struct link *l, const void *arg) {
    (void)arg;
    static char chunk[1 << 20];
    for (int i = 0; i < 100000; i++)
        link_state(l, chunk, sizeof(chunk));
    return 0;
}

static int shout(struct link *l, const void *arg) {
    (void)arg;
    static char chunk[1 << 20];
    for (int i = 0; i < 100000; i++)
        link_out(l, chunk, sizeof(chunk));
    return 0;
}

static void a_flood_ends_at_its_limit(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    struct jail j = {.out_fd = -1, .err_fd = -1, .state = BUF(3 << 20), .log = BUF(0)};
    struct err err;
    assert_int_equal(jail_run(&j, flood, NULL, &err), -1);
    assert_int_equal(jail_run(&j, shout, NULL, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    buf_done(&j.state);
}

/* What a worker that was taken over might send. */
static int lie(struct link *l, const void *arg) {
    (void)l;
    static const uint32_t frames[][3] = {
        {99, 0, 0}, {1, 0xffffffff, 0}, {8, 4, 0xffffffff}, {7, 4, 0xffffffff}, {8, 1, 0}};
    const uint32_t *f = frames[*(const int *)arg];
    ssize_t n = write(3, f, sizeof(frames[0]));
    return n < 0;
}

static void lies_are_not_believed(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    for (int i = 0; i < 5; i++) {
        struct jail j = {.out_fd = -1, .err_fd = -1, .state = BUF(10), .log = BUF(10)};
        struct err err;
        assert_int_equal(jail_run(&j, lie, &i, &err), -1);
    }
}

/* ---- Limits of the process ---- */

enum { PIECE = 8 << 20, PIECES = 64 };

/* How many pieces of 8 MiB it got, of 64. */
static int take_memory(struct link *l, const void *arg) {
    (void)l, (void)arg;
    int got = 0;
    while (got < PIECES && mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        got++;
    return got;
}

/* Shared files are memory, too. */
static int take_files(struct link *l, const void *arg) {
    (void)l, (void)arg;
    int got = 0, fd = memfd_create("cell", 0);
    if (fd < 0 || ftruncate(fd, PIECE) < 0)
        return 0;
    while (got < PIECES &&
           mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
        got++;
    return got;
}

static void a_worker_gets_no_more_memory_than_its_limit(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    if (!jail_is_tight())
        skip();
    int (*const takes[])(struct link *, const void *) = {take_memory, take_files};
    for (int i = 0; i < 2; i++) {
        struct jail j = {.out_fd = -1, .err_fd = -1, .state = BUF(10), .log = BUF(10)};
        struct err err;
        assert_int_equal(jail_run(&j, takes[i], NULL, &err), PIECES); /* without a limit */
        j.memory_bytes = (uint64_t)10 * PIECE;
        assert_in_range(jail_run(&j, takes[i], NULL, &err), 8, 10);
    }
}

static int spin(struct link *l, const void *arg) {
    (void)l, (void)arg;
    for (volatile unsigned n = 1;; n++)
        ;
    return 0;
}

static void a_worker_that_uses_up_its_processor_time_is_ended(void **state) {
    (void)state;
    skip_where_nothing_can_be_confined();
    struct jail j = {
        .out_fd = -1, .err_fd = -1, .cpu_seconds = 1, .state = BUF(10), .log = BUF(10)};
    struct err err;
    assert_int_equal(jail_run(&j, spin, NULL, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_non_null(strstr(err.text, "processor time"));
}

UNIT_MAIN(cmocka_unit_test(a_worker_reads_input_only_if_it_may),
          cmocka_unit_test(attacks_end_the_worker), cmocka_unit_test(a_worker_can_answer_and_ask),
          cmocka_unit_test(a_flood_ends_at_its_limit), cmocka_unit_test(lies_are_not_believed),
          cmocka_unit_test(a_worker_gets_no_more_memory_than_its_limit),
          cmocka_unit_test(a_worker_that_uses_up_its_processor_time_is_ended))
