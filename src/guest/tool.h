/*
 * Tools: programs inside the guest, for operations that must work in every image (MSG_EXEC_TOOL).
 *
 * A tool runs like a command: in its own process, with the command's user, cgroup,
 * limits and streams, so it can neither delay the guest nor do more than its user may.
 * It is forked, not executed: an error in its parser can harm only that process.
 *
 *   tar PATH                  packs a directory (or one file) to stdout
 *   untar DIR                 unpacks stdin into an existing directory
 *   sha256 PATH               "HASH SIZE\n" of a regular file
 *   put PATH IF MODE [sync [nofollow]]   replaces the file by stdin, atomically: see guest/put.c
 *   connect PATH [MS]         copies between a unix socket and stdin and stdout
 *
 * Exit status: enum msg_tool_status. stderr gets one line per error: "ERRNO WHAT PATH". ERRNO is 0
 * for an error that is not from a system call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/wire/msg.h"

typedef int tool_fn(char **argv);

/* Finds a tool by name. NULL: no tool has that name. */
tool_fn *guest_tool_find(const char *name);

tool_fn tool_tar, tool_untar, tool_untar_masked, tool_sha256, tool_put, tool_connect;

/* Writes an error line to stderr; only the first hundred lines are written. */
void tool_complain(int number, const char *what, const char *path);

/* Writes an error line and ends the tool. */
_Noreturn void tool_fail(int number, const char *what, const char *path);

/* Writes to stdout through a buffer. A failed write ends the tool. */
void guest_tool_write(const void *bytes, size_t n);
void tool_flush(void);

/*
 * Reads up to max bytes from fd into the buffer of guest_tool_write(); returns the same as read(2).
 */
ssize_t tool_write_from(int fd, size_t max);

/* Reads once from standard input; returns 0 at its end. */
size_t guest_tool_read(void *to, size_t max);
void tool_write_all(int fd, const void *bytes, size_t n, const char *path);

bool tool_is_proc(int fd);
