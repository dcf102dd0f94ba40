/* The spawner's clients and the state of its loop. Only for src/spawn/server.c and requests.c. */
#pragma once

#include <inttypes.h>
#include <unistd.h>

#include "base/buf.h"
#include "spawn/archives.h"
#include "spawn/disk/disk_job.h"
#include "spawn/disk/layers.h"
#include "spawn/spawner.h"

enum {
    CLIENT_MAX = 4096,
    WAITING_MAX = 65536,
    RETRY_MS = 2,
    FINISH_MS = 2000,
    QUIET_MS = 3,
    PRESS_MS = 20,
    PRESS_LATE_MS = 250,
    IMAGE_MS = 200,
    IMAGE_MORE = 1 << 20, /* retry to build the image once this many more bytes are free */
    LEFT_LOOK_MS = 60,
    DEAD_MANY = 64,
    EVENTS = 64,
    WORDS_MAX = 4096,
    BOX_FD_MAX = 1 << 16,
};

struct client {
    struct client *next;
    int fd;
    bool gone;
};

/* A client whose request DESTROY is answered when the box is gone. */
struct waiter {
    struct waiter *next;
    int client;
    uint64_t tag;
    char id[ID_SIZE];
};

struct server {
    struct spawner *s;
    int epoll;
    int listener;
    struct client *clients;
    size_t client_count;
    bool stopping;
    struct create_later *later; /* requests that wait for a disk (create_later.h) */
    struct disk_job pool_disk;  /* the disk that the pool of berths waits for */
    bool pool_disk_failed;      /* the last one was not made: the pool makes the next one itself */
    bool warned; /* the limits that this host does not enforce were already reported */
    uint64_t quiet_since_ms;
    uint64_t created_ms; /* time of the last request for a box */
    struct waiter *waiters;
    size_t waiting_count;
    uint64_t image_checked_ms;
    uint64_t due_ms; /* time of the next deadline of a box; 0: none */
    size_t dead_count;
    struct undertaker undertaker;
    bool undertaker_busy; /* the undertaker accepts no work until it has reported a box as done */
    size_t ending_count;  /* boxes that were killed but are not dead yet */
    uint64_t ended_ms;    /* when a box was last killed, or died */
    uint64_t pressed_ms;  /* when ending boxes were last killed again */
    /* boxes by descriptor: pidfd of pid 1, or connection to the guest */
    struct box *box_of[BOX_FD_MAX];
    char packet[PLAN_MAX_BYTES];
    struct plan_message message;
};

/* server.c */
void server_watch_box(struct server *v, struct box *box);
void server_answer(struct server *v, struct client *c, const struct plan_message *m, const int *fds,
                   size_t nfds);
void server_answer_done(struct server *v, struct client *c);
void server_end_box(struct server *v, struct box *box);
void server_note_due(struct server *v, const struct box *box);
void server_watch_disk(struct server *v, int socket);
void server_watch_maker(struct server *v, int socket);  /* the maker of a template of vms */
void server_watch_savings(struct server *v);            /* the memory of vms: those that are new */
struct client *server_client(struct server *v, int fd); /* NULL: it disconnected */
int server_start_undertaker(struct server *v);

/* requests.c */
void server_serve_client(struct server *v, struct client *c);
/* Creates the box of v->message and answers the client. */
void server_create(struct server *v, struct client *c, const struct fd_message *in);
