#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/wire/vm_line.h"
#include "spawn/vm/serial.h"
#include "tests/unit/unit.h"

struct console {
    int qemu; /* our end, as QEMU's */
    pid_t process;
    struct sockaddr_un address;
};

static int console_start(void **state) {
    struct console *c = calloc(1, sizeof(*c));
    int ends[2], listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    c->address.sun_family = AF_UNIX;
    snprintf(c->address.sun_path + 1, 64, "carrel-serial-test-%d", (int)getpid());
    assert_int_equal(bind(listener, (struct sockaddr *)&c->address, sizeof(c->address)), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    c->process = fork();
    if (c->process == 0) {
        close(ends[0]);
        serial_serve(ends[1], listener);
        _exit(0);
    }
    close(ends[1]);
    close(listener);
    c->qemu = ends[0];
    *state = c;
    return 0;
}

static int console_stop(void **state) {
    struct console *c = *state;
    int status = -1;
    close(c->qemu);
    waitpid(c->process, &status, 0);
    free(c);
    return status;
}

static int console_connect(const struct console *c, const char *line) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&c->address, sizeof(c->address)), 0);
    if (line)
        assert_int_equal(send(fd, line, strlen(line), MSG_NOSIGNAL), strlen(line));
    return fd;
}

/* Reads n bytes, or up to the end. */
static size_t take(int fd, char *to, size_t n) {
    size_t at = 0;
    for (ssize_t got; at < n && (got = read(fd, to + at, n - at)) > 0;)
        at += (size_t)got;
    to[at] = '\0';
    return at;
}

static void expect(int fd, const char *text) {
    char got[256];
    take(fd, got, strlen(text));
    assert_string_equal(got, text);
}

static void a_client_gets_what_was_written_before_and_types(void **state) {
    struct console *c = *state;
    char typed[8];
    assert_int_equal(write(c->qemu, "early ", 6), 6);
    int one = console_connect(c, "0\n"), other = console_connect(c, "2\nab");
    expect(one, "0\nearly ");
    expect(other, "2\nrly ");
    take(c->qemu, typed, 2);
    assert_string_equal(typed, "ab");
    assert_int_equal(write(c->qemu, "late", 4), 4);
    expect(one, "late");
    expect(other, "late");
    close(one);
    close(other);
}

static void the_end_of_typing_ends_the_log(void **state) {
    struct console *c = *state;
    char got[64];
    assert_int_equal(write(c->qemu, "words", 5), 5);
    int fd = console_connect(c, "0\n");
    shutdown(fd, SHUT_WR);
    assert_int_equal(take(fd, got, sizeof(got) - 1), 7);
    assert_string_equal(got, "0\nwords");
    close(fd);
}

static void the_oldest_bytes_are_forgotten(void **state) {
    struct console *c = *state;
    static char much[SERIAL_KEPT], got[SERIAL_KEPT + 64];
    int reader = console_connect(c, "0\n");
    expect(reader, "0\n");
    memset(much, 'x', sizeof(much));
    for (size_t at = 0; at < sizeof(much); at += 4096) {
        assert_int_equal(write(c->qemu, much + at, 4096), 4096);
        assert_int_equal(take(reader, got, 4096), 4096);
    }
    assert_int_equal(write(c->qemu, "123", 3), 3);
    expect(reader, "123");
    close(reader);
    int fd = console_connect(c, "1\n");
    shutdown(fd, SHUT_WR);
    assert_int_equal(take(fd, got, sizeof(got) - 1), SERIAL_KEPT + 2);
    assert_memory_equal(got, "3\nx", 3);
    assert_string_equal(got + SERIAL_KEPT - 1, "123");
    close(fd);
}

static void a_bad_first_line_ends_the_connection(void **state) {
    struct console *c = *state;
    static const char *const lines[] = {"x\n", "-1\n", "\n", "99999999999999999999999\n",
                                        "111111111111111111111111111111"};
    char got[8];
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        int fd = console_connect(c, lines[i]);
        assert_int_equal(take(fd, got, 4), 0);
        close(fd);
    }
}

static void one_client_too_many_is_disconnected(void **state) {
    struct console *c = *state;
    int fds[SERIAL_CLIENTS];
    char got[8];
    for (int i = 0; i < SERIAL_CLIENTS; i++) {
        fds[i] = console_connect(c, "0\n");
        expect(fds[i], "0\n");
    }
    int more = console_connect(c, NULL);
    assert_int_equal(take(more, got, 4), 0);
    close(more);
    for (int i = 0; i < SERIAL_CLIENTS; i++)
        close(fds[i]);
}

static void a_client_that_does_not_read_does_not_stop_the_others(void **state) {
    struct console *c = *state;
    static char piece[4096], got[4097];
    int slow = console_connect(c, "0\n"), fast = console_connect(c, "0\n");
    memset(piece, 'y', sizeof(piece));
    expect(fast, "0\n");
    for (int i = 0; i < 4 * SERIAL_KEPT / 4096; i++) {
        assert_int_equal(write(c->qemu, piece, sizeof(piece)), sizeof(piece));
        assert_int_equal(take(fast, got, sizeof(piece)), sizeof(piece));
    }
    size_t left = 0;
    for (ssize_t n; (n = read(slow, got, sizeof(got) - 1)) > 0;)
        left += (size_t)n;
    assert_true(left < 4 * SERIAL_KEPT); /* it was disconnected, with a gap nobody can overlook */
    close(slow);
    close(fast);
}

/* QEMU ends after the words; `word` is what a client hears that comes then, or came a moment
 * before. */
static void end_with(const struct console *c, const char *words, const char *word) {
    char got[VM_SAID_SIZE];
    int early = console_connect(c, NULL), reader = console_connect(c, "0\n");
    expect(reader, "0\n"); /* `early` was accepted before it */
    assert_int_equal(write(c->qemu, words, strlen(words)), strlen(words));
    shutdown(c->qemu, SHUT_WR);
    take(early, got, sizeof(got) - 1);
    assert_string_equal(got, word ? word : "");
    close(early);
    close(reader);
    if (!word)
        return;
    int late = console_connect(c, NULL);
    take(late, got, sizeof(got) - 1);
    assert_string_equal(got, word);
    close(late);
    kill(c->process, SIGKILL);
}

static void the_last_words_of_a_kernel_are_told(void **state) {
    static const struct {
        const char *words, *word;
    } rows[] = {
        {"[ 9.1] reboot: Restarting system\r\n[ 9.2] reboot: machine restart\r\n", VM_SAID_RESTART},
        {"x reboot: Power down\r\n", VM_SAID_OFF},
        {"Kernel panic - not syncing: sysrq\r\nCPU: 0\r\n", VM_SAID_PANIC},
        {"reboot: Restarting system\r\n"
         "more than follows the words of a kernel: ......................................... "
         "......................................................................",
         NULL},
        {"good bye\r\n", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        void *console;
        console_start(&console);
        end_with(console, rows[i].words, rows[i].word);
        console_stop(&console);
    }
}

#define CONSOLE_TEST(f) cmocka_unit_test_setup_teardown(f, console_start, console_stop)

UNIT_MAIN(CONSOLE_TEST(a_client_gets_what_was_written_before_and_types),
          CONSOLE_TEST(the_end_of_typing_ends_the_log),
          CONSOLE_TEST(the_oldest_bytes_are_forgotten),
          CONSOLE_TEST(a_bad_first_line_ends_the_connection),
          CONSOLE_TEST(one_client_too_many_is_disconnected),
          CONSOLE_TEST(a_client_that_does_not_read_does_not_stop_the_others),
          cmocka_unit_test(the_last_words_of_a_kernel_are_told))
