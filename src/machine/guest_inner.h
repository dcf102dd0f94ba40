/* Internals shared by src/machine/guest*.c, the daemon's side of a guest. */
#pragma once

#include "io/guest_link.h"
#include "machine/guest.h"

enum {
    PENDING_MAX = 1024,
    PENDING_FIRST = 8,
    BUCKETS = 64,
    COMMANDS_MAX = 1024,
    WATCHES_MAX = 64,
    ACK_MS = 4,
};

/* Tags of requests whose reply is found by the id of its command or watch. Other tags are a counter
 * in the high bits and the index in `pending` in the low PLACE_BITS. */
#define TAG_EXEC UINT32_MAX
#define TAG_ATTACH (UINT32_MAX - 1)
#define TAG_WATCH (UINT32_MAX - 2)
#define TAG_LOG (UINT32_MAX - 3)
#define PLACE_BITS 10u

struct pending {
    uint32_t tag; /* 0: the slot is free */
    uint16_t type;
    uint32_t most; /* maximum bytes of the reply to a READ or LOG_READ */
    guest_reply_fn *done;
    void *arg;
};

/* A request that failed before it was sent. The loop reports it later, not within the call. */
struct refusal {
    struct refusal *next;
    guest_reply_fn *done;
    void *arg;
    struct guest_command *command;
    struct guest_watch *watch;
    struct guest_command *log_of;
    struct err err;
};

struct guest {
    struct loop *loop;
    struct guest_link *link;
    struct loop_watch *watch;
    unsigned armed;
    void (*on_gone)(void *arg);
    void *arg;
    guest_call_fn *on_call; /* NULL: nobody answers calls */
    bool is_gone;
    bool is_told; /* on_gone was called */
    bool is_freed;
    unsigned depth; /* nested callbacks in progress */
    struct err why;
    struct pending *pending;
    uint32_t pending_cap, pending_count;
    uint32_t place; /* index of the last free slot of `pending` */
    uint32_t turn;
    struct guest_command *commands[BUCKETS];
    uint32_t command_count;
    struct guest_watch *watches;
    uint32_t watch_count;
    struct refusal *refusals, **refusals_end;
    struct loop_call later; /* reports refusals and the loss of the connection */
    struct loop_timer *ack; /* sends acknowledgements; created when first needed */
    bool ack_waits;
};

/* guest.c */
void guest_rearm(struct guest *g);
void guest_lose(struct guest *g, const struct err *why);
int guest_dispatch(struct guest *g, const struct frame_head *head, const void *msg, const int *fds,
                   uint32_t nfds, struct err *err);
struct refusal *guest_refuse(struct guest *g, const struct err *err);

/* guest_command.c */
struct guest_command *guest_command_find(struct guest *g, uint32_t id);
void guest_command_remove(struct guest *g, struct guest_command *c);
struct guest_watch *guest_watch_find(struct guest *g, uint32_t id);
bool guest_watch_remove(struct guest *g, struct guest_watch *w);
