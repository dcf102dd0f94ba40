/*
 * Vms in the spawner: a vm is a box in which only QEMU and the server of its files run (launch.h).
 *
 * The box is created as any other and then booted. QEMU holds the listening socket of the guest's
 * serial port, boxes/ID/port.sock, whose path only the host can see.
 */
#pragma once

#include "base/fdio.h"
#include "base/sha256.h"
#include "spawn/spawner.h"

/*
 * Handles the request BOOT: starts the vm of a box that runs nothing else. in: kernel, initrd and,
 * if it is to go on where another one was saved, a file with its memory. The text of the answer is
 * a line that says how the vm starts (base/wire/vm_programs.h), then warnings; *ret is the standard
 * error of QEMU. `unsupported`: this host has no QEMU, or the spawner runs without root.
 */
int vm_boot(struct spawner *s, struct plan_message *m, const struct fd_message *in, int *ret,
            struct err *err);

/*
 * Handles the request HALT: ends all processes of a vm. `busy`: some are still ending. With
 * m->changed also its network ends, and the box is no vm any more.
 */
int vm_halt(struct spawner *s, struct plan_message *m, struct err *err);

/*
 * What the saved memory of a vm needs: the hash of its key, and its memory. -EXDEV: its QEMU is of
 * another version, so no QEMU of this host could go on in it; -errno.
 */
int vm_boot_key(struct spawner *s, const struct box *box, uint8_t ret[SHA256_BYTES],
                uint64_t *ret_mem);

/* Connects to the serial console of a vm (spawn/vm/serial.h). Returns a socket, or -1. */
int vm_dial_serial(struct spawner *s, const struct box *box, struct err *err);

/* True if a vm was booted in the box and not ended since. */
bool vm_is_booted(const struct spawner *s, const struct box *box);

/* The network namespace of a vm, which the box owns; -ENOENT: the box is not a vm or has none. */
int vm_netns(struct spawner *s, struct box *box);
