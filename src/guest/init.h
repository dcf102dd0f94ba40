/*
 * The start of the guest as /init of a vm's initramfs.
 *
 * Loads the modules that the initramfs holds, mounts the vm's root (pump.h), sets
 * host name and network as its host says (base/wire/vm_line.h) and enters the root.
 * A failure ends the process, and so the kernel: the last line of the console is the reason.
 */
#pragma once

#include <stdbool.h>

/* Whether this process is the /init of a vm. Its other arguments are words of the kernel command
 * line that the kernel does not know. */
bool init_is_wanted(char **argv);

/* Prepares the vm. With `carrel.init=system` it returns in a child of pid 1, which becomes
 * /sbin/init. Returns a directory for cgroups of commands. */
int init_run(void);

/* Ends the machine: the process, and with it all others of a box; or the vm. */
void __attribute__((noreturn)) guest_end(void);
