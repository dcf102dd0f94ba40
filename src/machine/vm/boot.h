/*
 * What QEMU boots in a vm: a kernel of the host, an initramfs made of this program's guest and the
 * modules it needs, and the kernel command line.
 *
 * The initramfs is kept in the daemon's directory and made again when the kernel or the guest has
 * changed. docs/internals/vm-boot.md describes the start inside the vm.
 */
#pragma once

#include "io/vm/kernel.h"

enum { VM_BASE_LINE_SIZE = 256 };

struct vm_boot_options {
    const char *state_dir;
    const char *guest;  /* path of carrel-guest */
    const char *kernel; /* path of a kernel; NULL or "": choose one of /boot */
};

struct vm_boot {
    struct kernel kernel;
    char initrd[KERNEL_PATH_SIZE];
    char line[VM_BASE_LINE_SIZE]; /* add vm_line_write() (base/wire/vm_line.h) */
};

/* Blocks for about 20 ms. Fails with ERR_UNSUPPORTED and a
 * remedy if the host has no kernel for a vm. */
int vm_boot_prepare(const struct vm_boot_options *o, struct vm_boot *ret, struct err *err);
