/*
 * What a vm is told by its host, once it waits for that (guest/init.h): struct vm_wake, then words
 * and a line feed. Nothing of it is in the kernel command line, so that vms can start as clones of
 * one that has booted. The words are:
 *
 *   carrel.hostname=NAME         required
 *   carrel.init=guest|system     which program is pid 1; default: the guest
 *   carrel.net=0|1               whether there is a network device; default: 0
 *
 * Pure. The daemon writes the words, the spawner the rest; the guest reads them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VM_HOSTNAME_SIZE = 65, VM_LINE_SIZE = 2048 };

#define VM_WORD_PREFIX "carrel."
/* What the guest says before, and after. */
#define VM_WAITS "waits\n"
#define VM_AWAKE "awake\n"
/* What the process of its serial console says once the vm has ended, from its last words. */
#define VM_SAID_RESTART "restart\n"
#define VM_SAID_PANIC "panic\n"
#define VM_SAID_OFF "off\n"
enum { VM_SAID_SIZE = 16 };

struct vm_wake {
    uint64_t seconds, nanoseconds; /* of the clock; 0: that of the device for it is right */
    uint8_t seed[32];              /* for random numbers */
};

struct vm_line {
    char hostname[VM_HOSTNAME_SIZE];
    bool starts_system; /* pid 1 is /sbin/init of the vm, and the guest is its child */
    bool has_net;
};

/* Reads a line of any content. False: a word that begins with `carrel.` is unknown or
 * wrong, or there is no name. *ret then holds the defaults. */
bool vm_line_read(const char *text, size_t len, struct vm_line *ret);

/* Writes the words, each with a space in front, for the end of a line. False: the name is
 * not a host name. */
bool vm_line_write(const struct vm_line *line, char *ret, size_t size);
