/*
 * Requests about files of a machine. The guest resolves every path inside the machine.
 *
 * One function for all of them: the guest's messages are the vocabulary (base/wire/msg.h), and a
 * table here says which scope each needs and under which name it is written down.
 */
#pragma once

#include "machine/guest.h"
#include "service/service.h"

/* Whom a file verb acts as: "user" (NULL), "root", or a number. */
int file_user(const char *text, uint32_t *ret_uid, struct err *err);

/*
 * Sends one file message; what it points to lives until it is answered. path: for the journal and
 * for messages, kept by the caller until it is answered; NULL: this one belongs to a transfer that
 * was written down already. `done` comes later, as from guest_request().
 */
void service_file(struct service *s, const struct caller *who, const char *machine, uint16_t type,
                  const void *msg, const char *path, guest_reply_fn *done, void *arg);

/* A text as a file of the machine's root; parents are made, and what is there is replaced. */
struct file_text {
    const char *path, *text;
    uint32_t mode;
};
void service_file_text(struct service *s, const struct caller *who, const char *machine,
                       const struct file_text *f, service_done_fn *done, void *arg);

/*
 * Is this another file than the one whose first bytes were read under that name? A step gives a
 * file another inode and leaves the rest as it was.
 */
bool file_replaced(const struct msg_read_data *first, const struct msg_read_data *now);

/*
 * Events of a path, until unwatched. The guest's watch is made under an id chosen here, and not
 * while a step is taken: it would look at a root that is left. What path points to stays.
 */
struct file_watch {
    struct guest_watch inner; /* event, refused and gone filled by the caller */
    void *live;               /* the service's, as what follows */
    struct watch_call *waits; /* for a step that is under way */
    bool begun;
    struct caller who;
    uint64_t intent;
};
int service_file_watch(struct service *s, const struct caller *who, const char *machine,
                       const struct msg_path *path, struct file_watch *w, struct err *err);
/* why: NULL when it was not wanted any more. */
void service_file_unwatch(struct file_watch *w, const struct err *why);
