/*
 * Starts QEMU and the server of its files (spawn/fuse/server.h) in a box, which makes it a vm.
 *
 * Both programs see a jail: a mount namespace with the host's /usr (read-only), /proc and /dev of
 * the box and, for the server, the files of the machine. They
 * have a network namespace of their own without any way out, the other namespaces and the cgroup of
 * the box, its seccomp filter, and no capabilities but those with which the server acts on files
 * for the users inside. With KVM, /dev is one of their own which has the node kvm too. When either
 * of them ends, so does the other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sha256.h"
#include "spawn/spawner.h"

/*
 * Numbers of descriptors in QEMU and in the server of the files, by which a later spawner finds the
 * network of a vm, the monitor of QEMU and the control socket of the server. QEMU's memory is found
 * by qemu_memory.c.
 */
enum { VM_LAUNCH_TAP = 7, VM_LAUNCH_RAM, VM_LAUNCH_MONITOR = 13, VM_LAUNCH_CONTROL = 6 };

struct vm_launch {
    int report;         /* pipe: what failed, as text; closed without text once both run */
    int console;        /* standard error of both */
    int port;           /* listening socket, which becomes the serial port of the guest */
    int serial;         /* listening socket, for clients of the serial console (serial.h) */
    int tap;            /* -1: no network */
    bool has_kvm;       /* the processor runs the code of the guest */
    int kernel, initrd; /* files that every user may read */
    int ram;            /* memory of the guest: a file that every user may write */
    int state;          /* what QEMU loads, for a clone or saved memory; -1: the vm boots */
    bool is_clone;      /* `ram` belongs to a template, and only its devices are loaded */
    int table;          /* of the server of the files, with saved memory; else -1 */
    int word[2];        /* the port over which the guest is told what it is; QEMU holds both ends */
    int qmp[2];         /* the same for its monitor */
    const char *line;   /* the kernel's command line */
    const char *name;   /* host name, for lists of processes */
    uint64_t mem_bytes; /* memory of the guest */
    unsigned cpus;
    int cgroup[4]; /* files to write "0" to, or -1 */
};

/* What a clone is told over its monitor, before it is started. */
#define VM_LAUNCH_CLONE                                                          \
    "{\"execute\":\"qmp_capabilities\"}"                                         \
    "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":" \
    "[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}"                    \
    "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:11\"}}"

/* The same for saved memory, which is loaded too. */
#define VM_LAUNCH_RESUME                 \
    "{\"execute\":\"qmp_capabilities\"}" \
    "{\"execute\":\"migrate-incoming\",\"arguments\":{\"uri\":\"fd:11\"}}"

/* Adds to a hash which devices QEMU gives a vm. Its state fits no others. */
void vm_launch_hash_devices(struct sha256 *to);

/* Whether QEMU can get the device of KVM. That does not mean that it works. */
bool vm_launch_has_kvm(const struct spawner *s);

/* Runs in a child of the spawner, and ends it. */
void __attribute__((noreturn))
vm_launch_main(const struct spawner *s, const struct box *box, const struct vm_launch *launch);
