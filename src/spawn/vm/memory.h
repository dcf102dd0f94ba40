/*
 * Saves the memory of a running vm: RAM, devices, and the table of the server of its files.
 *
 * A process of its own does it, carrel-memory. It stops the vm, writes the file (base/wire/
 * vm_memory.h) and leaves the vm stopped, so that its files can be copied in the same state, until
 * it is told to go on. Whatever ends early, the vm goes on: the process does it when the spawner is
 * gone or says nothing for long, and a process of the next spawner when the process was killed.
 *
 * The vm of a machine that is to be without a box stays stopped instead (MEMORY_STAY). Then only
 * MEMORY_REPAIR or the next spawner lets it go on.
 */
#pragma once

#include <sys/types.h>

#include "base/fdio.h"
#include "spawn/spawner.h"

/* A process. Its vm may have one whose result is waited for, and some that were left. */
struct vm_saving {
    struct vm_saving *next; /* of the spawner */
    struct box *box;        /* NULL: it is gone */
    pid_t pid;              /* 0: it has ended */
    int pidfd;
    int sock;   /* connection to the process */
    int client; /* descriptor of the client that waits */
    dev_t dev;  /* the file */
    ino_t ino;
    bool is_left;    /* nobody waits for the result */
    bool repairs;    /* it only lets the vm go on, for nobody or for MEMORY_REPAIR */
    bool is_watched; /* vm_memory_unwatched() has told its pidfd */
    bool is_saved, goes_on;
};

/*
 * Handles the request MEMORY (enum plan_memory). SAVE writes to the file in->fds[0], and is done
 * when the vm is stopped and saved. `busy`: ask again.
 */
int vm_memory_request(struct spawner *s, struct plan_message *m, int client,
                      const struct fd_message *in, struct err *err);

/* The pidfd of a new process, for vm_memory_ended() once it is readable; -1: there is none. */
int vm_memory_unwatched(struct spawner *s);
/* Collects the process. If it was killed, another one lets the vm go on. */
void vm_memory_ended(struct spawner *s, int pidfd);

/* What this client waited for is of no use any more. */
void vm_memory_client_gone(struct spawner *s, int client);
void vm_memory_box_gone(struct spawner *s, const struct box *box);

/* An earlier spawner may have left the vm stopped. */
void vm_memory_adopt(struct spawner *s, struct box *box);
