/*
 * Serves a tree of files to the kernel of a vm (FUSE). One process, which ends when the vm does.
 *
 * It runs inside the jail of the vm (spawn/vm/launch.h), and holds no file but those of the tree.
 * Requests are answered one after another. It keeps a descriptor for each file that the kernel
 * knows, so a file that was deleted can be used as long as it is open.
 */
#pragma once

#include <stdint.h>

/*
 * Runs `carrel-spawn --serve-files TREE FD [CONTROL [TABLE]]`: makes TREE its root and answers the
 * requests that FD, a stream socket, brings. CONTROL is a socket for struct files_word; TABLE is a
 * file with the table of another server (table.h), which this one continues. Returns the exit
 * status of the program.
 */
int fuse_server_main(int argc, char **argv);

/*
 * What the spawner asks over CONTROL, a SOCK_SEQPACKET socket, and the answer. A server that holds
 * answers no request; it goes on by itself if it hears nothing for FILES_HOLD_MS.
 */
enum files_op {
    FILES_HOLD = 1, /* -> once QEMU has taken all answers; -EBUSY: it did not */
    FILES_SAVE,     /* with a descriptor: writes the table to this file */
    FILES_GO_ON,
};

struct files_word {
    uint32_t op, number; /* the answer repeats both */
    int32_t result;      /* answer: 0 or -errno */
    uint32_t lost;       /* answer to FILES_SAVE: files that were deleted while they were open */
};

enum { FILES_HOLD_MS = 120000 };
