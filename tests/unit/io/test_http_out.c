#include "tests/unit/unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/http_out.h"

/* Receives one byte and the descriptors with it; returns how many. */
static size_t receive_fds(int sock, int *ret) {
    char byte, control[CMSG_SPACE(2 * HTTP_FDS_MAX * sizeof(int))];
    struct iovec iov = {&byte, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    assert_int_equal(recvmsg(sock, &m, 0), 1);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    size_t n = c ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
    if (n)
        memcpy(ret, CMSG_DATA(c), n * sizeof(int));
    return n;
}

static void as_many_descriptors_as_allowed_are_sent_and_not_one_more(void **state) {
    struct http_out out = {0};
    int fds[HTTP_FDS_MAX + 1], got[2 * HTTP_FDS_MAX], ends[2];
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    for (size_t i = 0; i < HTTP_FDS_MAX; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_false(http_out_add_fds(&out, fds, HTTP_FDS_MAX + 1));
    assert_true(http_out_add_fds(&out, fds, HTTP_FDS_MAX));
    assert_true(http_out_add(&out, "x", 1));
    assert_true(http_out_send(&out, ends[0], NULL, 0) >= 0);
    assert_int_equal(receive_fds(ends[1], got), HTTP_FDS_MAX);
    for (size_t i = 0; i < HTTP_FDS_MAX; i++)
        assert_int_equal(close(got[i]), 0);
    http_out_done(&out);
    close(ends[0]);
    close(ends[1]);
}

UNIT_MAIN(cmocka_unit_test(as_many_descriptors_as_allowed_are_sent_and_not_one_more))
