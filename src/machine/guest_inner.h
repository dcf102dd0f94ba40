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

/* Tags of what is answered by its id. A request's tag is a turn and, below, its place. */
#define TAG_EXEC UINT32_MAX
#define TAG_ATTACH (UINT32_MAX - 1)
#define TAG_WATCH (UINT32_MAX - 2)
#define TAG_LOG (UINT32_MAX - 3)
#define PLACE_BITS 10u

struct pending {
    uint32_t tag; /* 0: free */
    uint16_t type;
    uint32_t most; /* bytes that a READ may bring */
    guest_reply_fn *done;
    void *arg;
};

/* Something that failed before it was sent; told when the caller's stack has unwound. */
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
    bool is_gone;
    bool is_told; /* on_gone was called */
    bool is_freed;
    unsigned depth; /* of callbacks under way */
    struct err why;
    struct pending *pending;
    uint32_t pending_cap, pending_count;
    uint32_t place; /* where the last free one was found */
    uint32_t turn;
    struct guest_command *commands[BUCKETS];
    uint32_t command_count;
    struct guest_watch *watches;
    uint32_t watch_count;
    struct refusal *refusals, **refusals_end;
    struct loop_call later; /* tells refusals, and that it is gone */
    struct loop_timer *ack; /* made when first needed */
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
