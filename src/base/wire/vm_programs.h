/* The programs that run a vm on the host, and the packages of Debian that have them. */
#pragma once

#ifdef __aarch64__
#define VM_QEMU "/usr/bin/qemu-system-aarch64"
#define VM_QEMU_PACKAGE "qemu-system-arm"
#else
#define VM_QEMU "/usr/bin/qemu-system-x86_64"
#define VM_QEMU_PACKAGE "qemu-system-x86"
#endif

#define VM_VIRTIOFSD "/usr/lib/qemu/virtiofsd"
#define VM_VIRTIOFSD_PACKAGE "qemu-system-common"
