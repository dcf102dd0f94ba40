/*
 * The program that runs a vm on the host, the package of Debian that has it, how a vm starts, and
 * what runs its code.
 */
#pragma once

/* It boots; it is a clone of a template; it goes on where its memory was saved. */
#define VM_START_BOOT "boot"
#define VM_START_CLONE "clone"
#define VM_START_MEMORY "memory"

/* The processor, or QEMU, which translates. */
#define VM_ACCEL_KVM "kvm"
#define VM_ACCEL_TCG "tcg"

#ifdef __aarch64__
#define VM_QEMU "/usr/bin/qemu-system-aarch64"
#define VM_QEMU_PACKAGE "qemu-system-arm"
#else
#define VM_QEMU "/usr/bin/qemu-system-x86_64"
#define VM_QEMU_PACKAGE "qemu-system-x86"
#endif
