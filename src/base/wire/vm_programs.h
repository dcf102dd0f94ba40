/* The program that runs a vm on the host, and the package of Debian that has it. */
#pragma once

#ifdef __aarch64__
#define VM_QEMU "/usr/bin/qemu-system-aarch64"
#define VM_QEMU_PACKAGE "qemu-system-arm"
#else
#define VM_QEMU "/usr/bin/qemu-system-x86_64"
#define VM_QEMU_PACKAGE "qemu-system-x86"
#endif
