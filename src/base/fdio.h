/*
 * Small descriptor helpers: whole reads and writes, descriptors in messages.
 *
 * Thin wrappers: they return -errno and never log.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { FDIO_MAX_FDS = 32 };

/* One message of a SOCK_SEQPACKET socket, with up to FDIO_MAX_FDS descriptors. */
struct fd_message {
    size_t len;
    int fds[FDIO_MAX_FDS];
    size_t nfds;
};

/*
 * Call first in a program: opens /dev/null as standard input, output or error if that is closed.
 * Otherwise the next file that is opened would get its number and, for example, receive messages.
 */
void stdio_hold(void);

int write_all(int fd, const void *bytes, size_t len);

/* Reads a small file below a directory and adds a NUL. Returns the number of bytes or -errno. */
ssize_t read_file_at(int dir, const char *path, char *buf, size_t size);

/* Writes text with one write(2) into an existing file, such as a cgroup or sysctl setting. */
int write_file_at(int dir, const char *path, const char *text);

int send_fds(int sock, const void *bytes, size_t len, const int *fds, size_t nfds);

/* Receives a message. Its descriptors are O_CLOEXEC and owned by the caller. A length of 0 means
 * that the peer closed the socket. */
int recv_fds(int sock, void *buf, size_t size, struct fd_message *ret);
void fd_message_close(struct fd_message *m);
