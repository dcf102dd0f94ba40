#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

static void descriptors_travel_with_their_message(void **state) {
    (void)state;
    int pair[2], ends[2];
    char got[16], c = 0;
    struct fd_message m;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(send_fds(pair[0], "hello", 5, ends, 2), 0);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(recv_fds(pair[1], got, sizeof(got), &m), 0);
    assert_int_equal(m.len, 5);
    assert_int_equal(m.nfds, 2);
    assert_true(fcntl(m.fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(m.fds[1], "x", 1), 1);
    assert_int_equal(read(m.fds[0], &c, 1), 1);
    assert_int_equal(c, 'x');
    int first = m.fds[0];
    fd_message_close(&m);
    assert_int_equal(fcntl(first, F_GETFD), -1);
    close(pair[0]);
    close(pair[1]);
}

static void a_message_that_does_not_fit_is_refused_and_closed(void **state) {
    (void)state;
    int pair[2];
    char got[4];
    struct fd_message m = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(send_fds(pair[0], "too long", 8, &pair[0], 1), 0);
    assert_int_equal(recv_fds(pair[1], got, sizeof(got), &m), -EMSGSIZE);
    assert_int_equal(m.nfds, 0);
    assert_int_equal(send_fds(pair[0], "x", 1, pair, FDIO_MAX_FDS + 1), -EINVAL);
    close(pair[0]);
    assert_int_equal(recv_fds(pair[1], got, sizeof(got), &m), 0); /* the end: an empty message */
    assert_int_equal(m.len, 0);
    assert_int_equal(send_fds(pair[1], "x", 1, NULL, 0), -EPIPE);
    close(pair[1]);
}

static void files_are_read_and_written_whole(void **state) {
    (void)state;
    char dir[] = "/tmp/carrel-unit-XXXXXX", text[8];
    assert_non_null(mkdtemp(dir));
    int at DEFER_CLOSE = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(write_file_at(at, "f", "x"), -ENOENT);
    int fd = openat(at, "f", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write_all(fd, "0123456789", 10), 0);
    close(fd);
    assert_int_equal(read_file_at(at, "f", text, sizeof(text)), 7);
    assert_string_equal(text, "0123456"); /* cut to the room, ended by NUL */
    assert_int_equal(write_file_at(at, "f", "ab"), 0);
    assert_int_equal(read_file_at(at, "none", text, sizeof(text)), -ENOENT);
    assert_int_equal(write_all(-1, "x", 1), -EBADF);
    unlinkat(at, "f", 0);
    rmdir(dir);
}

/* In a child: standard streams closed in each way there is; what is opened next is none of them. */
static void a_closed_standard_stream_is_held(void **state) {
    (void)state;
    for (int closed = 0; closed < 8; closed++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct stat st;
            for (int fd = 0; fd < 3; fd++)
                if (closed & 1 << fd)
                    close(fd);
            stdio_hold();
            int next = open("/", O_RDONLY | O_CLOEXEC);
            bool held = next > 2;
            for (int fd = 0; fd < 3; fd++)
                held = held && fstat(fd, &st) == 0 &&
                       (!(closed & 1 << fd) ||
                        (S_ISCHR(st.st_mode) && !(fcntl(fd, F_GETFD) & FD_CLOEXEC)));
            _exit(held ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

UNIT_MAIN(cmocka_unit_test(a_closed_standard_stream_is_held),
          cmocka_unit_test(descriptors_travel_with_their_message),
          cmocka_unit_test(a_message_that_does_not_fit_is_refused_and_closed),
          cmocka_unit_test(files_are_read_and_written_whole))
