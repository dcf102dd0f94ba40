/* Internals shared by the files of the box driver: machines, pending operations, the host. */
#pragma once

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "base/wire/vm_memory.h"
#include "io/place.h"
#include "machine/machine.h"
#include "machine/spawner.h"

/* A pending operation of a machine; box NULL: the machine was released by machine_free(). */
struct call {
    struct call *next, *prev; /* other calls of the same machine */
    struct call *queued;      /* STATS: the next call in the queue */
    struct box *box;
    machine_done_fn *done;
    machine_stats_fn *stats;
    machine_doors_fn *doors;
    machine_dial_fn *dial;
    machine_lend_fn *lend;
    machine_root_fn *root;
    machine_move_fn *move;
    machine_copy_fn *copied;
    machine_view_fn *view;
    void *arg;
    struct loop_timer *timer;
    uint64_t until_ms;
    bool frozen;
    bool rests; /* the call waits for its timer to ask again; no reply is pending */
    bool changed;
    bool forced; /* switch the root even if nothing was written */
    bool disk;   /* the view shows the whole disk of the machine */
    int file;    /* MEMORY: the file to save to; 0: none */
    enum plan_memory memory;
    uint64_t max_bytes; /* MEMORY: of the file */
};

struct creation;
struct vm;
struct vm_end;

struct box {
    struct machine m;
    struct call *calls;
    struct loop_timer *timer; /* to connect again, or to wait for the guest's first reply */
    struct vm *vm;            /* NULL: the machine is not a vm */
    struct vm_end *end;       /* NULL: QEMU has not ended by itself */
    struct guest *fresh;      /* new connection that has not replied yet */
    struct guest *old;        /* connection that `fresh` replaced; it has pending requests */
    struct loop_call retire;  /* frees `old` */
    unsigned tries;
    bool ended;
    bool confirming; /* the box is new and its guest has not replied yet */
    /* Used while the box is created. */
    machine_made_fn *made;
    void *made_arg;
    char *warnings;
    struct creation *creation; /* NULL: the box exists, or was adopted */
    struct loop_call later;
    struct err refusal; /* the error that `later` reports */
};

struct machine_host {
    struct loop *loop;
    struct place place;
    char store[ID_SIZE]; /* store of the machines we create; empty: none */
    int boxes;           /* $CARREL_RUN/boxes; -1: not opened yet */
    struct spawner_link *spawner;
    struct call *stats_first, **stats_end; /* calls of stats() that wait for one packet */
    bool stats_under_way;
    struct plan_message message; /* the next request: large, sent before it is reused */
};

/* A caller that waits for an operation without a struct machine. */
struct ending {
    machine_done_fn *done;
    void *arg;
};

/* Prepares the next request to the spawner in h->message; send it before the next call. */
struct plan_message *box_message(struct machine_host *h, enum plan_type type, const char *id);

struct call *call_new(struct machine *m, void *arg);
void call_free(struct call *c);

/* Error for a reply without its descriptors: this process reached its limit of open files. */
int box_no_fds(struct err *err, const char *what);
/* The callback of spawner_ask() for operations whose callback is a machine_done_fn. */
void call_answered(void *arg, const struct plan_message *m, struct fd_message *fds,
                   const struct err *err);

/* layers.c */
void box_alone(struct machine *m, machine_done_fn *done, void *arg);
void box_root(struct machine *m, const char *stack, uint32_t layer, unsigned how,
              machine_root_fn *done, void *arg);
void box_view(struct machine *m, const char *stack, machine_view_fn *done, void *arg);
void box_peek(struct machine *m, const char *request, const int *dirs, size_t count,
              machine_view_fn *done, void *arg);
void box_disk(struct machine *m, const char *name, machine_view_fn *done, void *arg);
void box_merge(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
               void *arg);
void box_merge_home(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
                    void *arg);
void box_keep(struct machine *m, const char *ranges, machine_done_fn *done, void *arg);
void box_copy(struct machine *m, uint32_t number, machine_copy_fn *done, void *arg);
void box_save(struct machine *m, const char *layer, const char *disk, uint32_t number,
              machine_done_fn *done, void *arg);
void box_tell(struct machine *m, const char *network, machine_done_fn *done, void *arg);

void root_end(struct call *c, bool changed, const struct err *err);

/* stats.c */
void box_stats(struct machine *m, machine_stats_fn *done, void *arg);

/* doors.c */
void box_doors_listen(struct machine *m, machine_doors_fn *done, void *arg);
void box_doors_dial(struct machine *m, uint16_t port, machine_dial_fn *done, void *arg);
/* The callback of spawner_ask() for PLAN_LEND. */
void box_lent(void *arg, const struct plan_message *m, struct fd_message *fds,
              const struct err *failed);
void box_doors_lend(struct machine *m, const char *paths, machine_lend_fn *done, void *arg);

/* host.c */
void box_list(struct machine_host *h, machine_list_fn *done, void *arg);
void box_claim(struct machine_host *h, const char *id, machine_claim_fn *done, void *arg);
void box_unpack(struct machine_host *h, const struct machine_unpack *what, int archive, int report,
                machine_done_fn *done, void *arg);
void box_pack(struct machine_host *h, const char *form, const char *image, int archive, int report,
              machine_done_fn *done, void *arg);
void box_draw(struct machine *m, const struct machine_draw *what, int archive, int report,
              machine_done_fn *done, void *arg);
void box_wipe(struct machine_host *h, const char *name, machine_done_fn *done, void *arg);
void box_volume(struct machine_host *h, const char *request, machine_done_fn *done, void *arg);
void box_shed(struct machine_host *h, const char *disk, const char *ranges, machine_done_fn *done,
              void *arg);
void box_status(struct machine_host *h,
                void (*done)(void *arg, const char *json, const struct err *err), void *arg);

/* A request for a box, kept until the box exists: the spawner may die while it creates it. */
struct creation {
    struct box *box;
    bool early;
    unsigned tries;
    uint64_t losses; /* spawner_link_losses() at the last request */
    struct err why;  /* error that makes the next request necessary */
    struct plan plan;
    int fds[PLAN_MAX_GRANTS]; /* owned copies of the granted directories */
};

/* box.c */
void box_give_up(struct box *b, const struct err *err);
void box_end(struct box *b, const struct err *why);
void box_made(struct box *b);
void box_creation_free(struct creation *c);
void box_create_again(struct box *b, const struct err *why);

/* link.c */
/* Connects to a socket of a box. Returns it or -errno; -EAGAIN: the backlog is full. */
int box_connect(struct machine_host *h, const char *id, const char *name);
void box_after(struct box *b, uint64_t ms, loop_fn *fn);
/* Replaces the connection to the guest by `fresh`, and says so. */
void box_use_fresh(struct box *b);
void box_retire_old(void *arg);
void box_link_again(void *arg);
void box_on_gone(void *arg);
void box_confirm(struct box *b);
void box_on_call(void *arg, struct guest *g, uint32_t id, const struct msg_bytes *words);

/* vm.c */
/*
 * Makes the machine a vm; later calls only change what the next boot uses. is_copy: saved memory
 * that it goes on in is that of another machine.
 */
void vm_new(struct box *b, const struct machine_vm *spec, bool is_copy);
void vm_fill_plan(const struct vm *v, struct plan *p);
void vm_free(struct vm *v);
/* Boots the vm of a new box; then the machine is made. */
void vm_start(struct box *b);
/* QEMU has ended: boots the vm again with the same root. */
void vm_boot_same(struct box *b);
/* The same, but it stays off: the loss of the connection to its guest ends no machine. */
void vm_stay_off(struct box *b);
bool vm_is_booting(const struct vm *v);
/* The connection to the guest of a booting vm was lost. */
void vm_on_gone(struct box *b, const struct err *why);
/* True if it was the connection to the guest of the box that was lost; it is closed then. */
bool vm_outer_is_gone(struct box *b);
/* As box_doors_lend(). Ends everything in the vm, and boots it again without the directories. */
void vm_lend(struct call *c, const char *paths);
/* Boots a vm in a box in which no program runs. After a failure the machine is a box as before. */
void vm_move(struct call *c, const struct machine_vm *spec);
/* True if the box has lost its own guest during a move, which then fails. */
bool vm_box_is_gone(struct box *b);
/* True if a vm runs in a machine that is adopted as a box. It is ended, then the box connected. */
bool vm_leave_adopted(struct box *b);
/* vm_end.c */
/* QEMU has ended: boots the vm again if its kernel restarted, else ends or stops the machine. */
void vm_look_end(struct box *b);
void vm_end_free(struct vm_end *v);
/* memory.c */
void box_save_memory(struct machine *m, int file, uint64_t max_bytes, machine_done_fn *done,
                     void *arg);
void box_go_on(struct machine *m, enum plan_memory how, machine_done_fn *done, void *arg);
/* Tells the guest of a vm that its memory was saved, and who it is now. */
void vm_tell_resumed(struct box *b, const char *hostname, enum vm_resumed who,
                     guest_reply_fn *done);

void vm_recall(struct machine *m, const char *memory);
/* As box_root(). Ends everything in the vm, and boots it again with the new root. */
void vm_root(struct call *c, const char *stack, uint32_t layer, unsigned how);
