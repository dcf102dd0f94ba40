/*
 * Templates of vms: the memory and the devices of a vm whose guest waits to be told which machine
 * it belongs to, before it has seen a file of any machine. A vm that starts from one is a clone: it
 * does not boot, and it shares the pages that it does not write.
 *
 * A template is made by the first vm of its kind, which boots anyway, by a process of its own that
 * stops it for a moment. Both files are sealed memfds. They live as long as the spawner.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Everything that makes a difference to the memory or the devices of a vm. */
struct vm_template_key {
    struct vm_file_id {
        uint64_t dev, ino, size;
        int64_t changed_ns;
    } qemu, kernel, initrd;
    uint64_t mem_bytes;
    uint32_t cpus, devices; /* enum vm_devices */
    char line[1024];        /* of the kernel */
};

enum vm_devices { VM_HAS_TAP = 1, VM_HAS_KVM = 2 };

struct vm_template {
    struct vm_template_key key;
    int ram, state; /* -1: the slot is free */
    uint64_t used;  /* when, by a count of uses */
    bool is_proven; /* a clone has said that it is awake */
    int proof;      /* connection to a clone that may say so; -1: none */
};

enum { VM_TEMPLATES = 4 };

/* The ends of a vm that boots for which a template is to be made. All of them belong to
 * the maker. */
struct vm_making {
    int ram;    /* memory of the vm */
    int qmp;    /* connection to QEMU's monitor */
    int word;   /* connection to the guest, which says that it waits */
    char *wake; /* what it waits for */
    size_t wake_size;
};

struct vm_templates {
    struct vm_template slots[VM_TEMPLATES];
    uint64_t uses;
    struct vm_template_key making; /* what the maker makes */
    int maker;                     /* connection to the maker; -1: none */
    pid_t maker_pid;
    struct vm_making made_of; /* the vm that the maker boots, which is woken if the maker dies */
};

void vm_templates_init(struct vm_templates *t);

/* Drops a template whose first clone ended without a word: then QEMU could not load it. */
struct vm_template *vm_template_find(struct vm_templates *t, const struct vm_template_key *key);

/* Listens, if nobody has proved the template yet, to the next clone; takes the connection. */
void vm_template_prove(struct vm_template *t, int word);

/*
 * Starts a maker. Whatever becomes of the template, the vm runs on and gets its wake. 0 or -errno;
 * takes the descriptors in both cases. t->maker is then readable when there is an end.
 */
int vm_template_make(struct vm_templates *t, const struct vm_template_key *key,
                     struct vm_making *m);

/* Takes what the maker made, if it has ended. A vm whose maker was killed is woken at once. */
void vm_template_collect(struct vm_templates *t);
