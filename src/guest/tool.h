/*
 * Programs that the guest has in itself, for what must work in every image: MSG_EXEC_TOOL.
 *
 * A tool runs as a command does: in a process of its own, with the command's user, cgroup,
 * limits and streams, so that it can neither hold the guest up nor do more than its user.
 * It is forked and not executed: what it parses badly can hurt that process alone.
 *
 *   tar PATH                  packs a directory (or one file) to stdout
 *   untar DIR                 unpacks stdin into an existing directory
 *   sha256 PATH               "HASH SIZE\n" of a regular file
 *   put PATH IF MODE [sync]   stdin becomes the file, in one step: see guest/put.c
 *
 * Exit status: enum msg_tool_status. stderr has one line for each trouble: "ERRNO WHAT PATH",
 * the errno 0 where there is none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/wire/msg.h"

typedef int tool_fn(char **argv);

/* NULL: there is none of that name. */
tool_fn *guest_tool_find(const char *name);

tool_fn tool_tar, tool_untar, tool_untar_masked, tool_sha256, tool_put;

/* Writes the line; the first hundred of them, so that nobody must read for ever. */
void tool_complain(int number, const char *what, const char *path);

/* The same, and the end of the tool. */
_Noreturn void tool_fail(int number, const char *what, const char *path);

/* Output through one buffer. What cannot be written any more ends the tool. */
void guest_tool_write(const void *bytes, size_t n);
void tool_flush(void);

/* Up to max bytes of fd straight into that buffer; as read(2). */
ssize_t tool_write_from(int fd, size_t max);

/* One read of standard input; 0 at its end. */
size_t guest_tool_read(void *to, size_t max);
void tool_write_all(int fd, const void *bytes, size_t n, const char *path);

bool tool_is_proc(int fd);
