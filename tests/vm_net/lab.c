/*
 * vm-net-lab FD ROOT: the network of a vm, with a network namespace in the place of QEMU and its
 * guest.
 *
 * Sends descriptors over the socket FD: the namespace of the vm, that of the guest, and the gate's
 * sockets. Then copies frames between the tap of the vm and a device `eth0` of the guest, and
 * answers "dial PORT" with a socket, "found" with the namespace that vm_net_find() finds, and
 * "fresh" with a namespace of a box. An error is the text of the answer. ROOT is the directory with
 * dev/net/tun. Ends when FD closes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/make/netns.h"
#include "spawn/make/reuse.h"
#include "spawn/make/vm_net.h"

enum { FRAME = 1 << 17, FDS = 2 + NETNS_FDS };

static void lab_send(int sock, const char *text, const int *fds, size_t count) {
    char control[CMSG_SPACE(sizeof(int) * FDS)] = "";
    struct iovec part = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (count) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    if (sendmsg(sock, &m, MSG_NOSIGNAL) < 0)
        exit(1);
}

static void lab_fail(int sock, const char *what, int negative) {
    char text[200];
    snprintf(text, sizeof(text), "%s: %s", what, strerror(-negative));
    lab_send(sock, text, NULL, 0);
}

/* The guest: a namespace with a device as its only card. */
static int guest_open(int home, int *ret_card) {
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR, .ifr_name = "eth0"};
    if (unshare(CLONE_NEWNET) < 0)
        return -errno;
    int ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int card = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (card < 0 || ioctl(card, TUNSETIFF, &r) < 0 || setns(home, CLONE_NEWNET) < 0)
        return -errno;
    *ret_card = card;
    return ns;
}

static void copy_frames(int from, int to) {
    static char frame[FRAME];
    for (int i = 0; i < 256; i++) {
        ssize_t n = read(from, frame, sizeof(frame));
        if (n <= 0)
            return;
        (void)!write(to, frame, (size_t)n);
    }
}

/* The namespace that vm_net_find() finds, or -errno. */
static int lab_find(int pidfd, int tap) {
    struct vm_net net DEFER(vm_net_close) = VM_NET_NONE;
    int r = vm_net_find(pidfd, tap, &net);
    return r < 0 ? r : TAKE_FD(net.ns);
}

static void lab_answer(int sock, struct netns_maker *maker, const struct vm_net *net) {
    char text[64] = "";
    unsigned port = 0;
    if (recv(sock, text, sizeof(text) - 1, 0) <= 0)
        exit(0);
    int self DEFER_CLOSE = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int fd DEFER_CLOSE = -EINVAL;
    if (sscanf(text, "dial %u", &port) == 1)
        fd = vm_net_dial(maker, net->ns, (uint16_t)port);
    else if (strcmp(text, "found") == 0)
        fd = lab_find(self, net->tap);
    else if (strcmp(text, "not a tap") == 0)
        fd = lab_find(self, sock);
    else if (strcmp(text, "fresh") == 0)
        fd = reuse_take(maker) < 0 ? netns_new(maker) : -EEXIST;
    if (fd < 0)
        lab_fail(sock, text, fd);
    else
        lab_send(sock, "ok", &fd, 1);
}

int main(int argc, char **argv) {
    int sock = argc == 3 ? (int)strtol(argv[1], NULL, 10) : -1, fds[FDS], card = -1;
    struct netns_maker maker = {.home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC),
                                .proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC),
                                .reuse = {.bait.fd = -1}};
    int host = argc == 3 ? open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    struct vm_net net = VM_NET_NONE;
    struct err err;
    if (vm_net_open(&maker, host, &net, &err) < 0) {
        lab_send(sock, err.text, NULL, 0);
        return 1;
    }
    fds[0] = net.ns;
    fds[1] = guest_open(maker.home, &card);
    int r = fds[1] < 0 ? fds[1] : vm_net_listen(&maker, net.ns, fds + 2);
    if (r < 0) {
        lab_fail(sock, "lab", r);
        return 1;
    }
    lab_send(sock, "ok", fds, FDS);
    for (int i = 1; i < FDS; i++)
        close(fds[i]);
    struct pollfd ready[] = {{net.tap, POLLIN, 0}, {card, POLLIN, 0}, {sock, POLLIN, 0}};
    for (;;) {
        poll(ready, 3, -1);
        if (ready[2].revents)
            lab_answer(sock, &maker, &net);
        copy_frames(net.tap, card);
        copy_frames(card, net.tap);
    }
}
