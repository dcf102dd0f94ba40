/*
 * The words of a vm's kernel command line that are for the guest:
 *
 *   carrel.hostname=NAME         required
 *   carrel.init=guest|system     which program is pid 1; default: the guest
 *   carrel.net=0|1               whether there is a network device; default: 0
 *
 * Pure. The daemon writes them; the guest reads them when it is started as /init (guest/init.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { VM_HOSTNAME_SIZE = 65, VM_LINE_SIZE = 2048 };

struct vm_line {
    char hostname[VM_HOSTNAME_SIZE];
    bool starts_system; /* pid 1 is /sbin/init of the vm, and the guest is its child */
    bool has_net;
};

/* Reads a command line of any content. False: a word that begins with `carrel.` is unknown or
 * wrong, or there is no name. *ret then holds the defaults. */
bool vm_line_read(const char *text, size_t len, struct vm_line *ret);

/* Writes the words, each with a space in front, for the end of a command line. False: the name is
 * not a host name. */
bool vm_line_write(const struct vm_line *line, char *ret, size_t size);
