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
 * First in a program: where standard input, output or error is closed, /dev/null takes its place.
 * Else the next file that is opened would be it, and receive what is meant for a reader.
 */
void stdio_hold(void);

int write_all(int fd, const void *bytes, size_t len);

/* Whole small file below a directory; returns bytes read (NUL added) or -errno. */
ssize_t read_file_at(int dir, const char *path, char *buf, size_t size);

/* One write(2) into an existing file such as a cgroup or sysctl knob. */
int write_file_at(int dir, const char *path, const char *text);

int send_fds(int sock, const void *bytes, size_t len, const int *fds, size_t nfds);

/* Received descriptors are O_CLOEXEC and owned by the caller. 0 length means the peer left. */
int recv_fds(int sock, void *buf, size_t size, struct fd_message *ret);
void fd_message_close(struct fd_message *m);
