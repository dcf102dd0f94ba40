/*
 * Requests about files of a machine. The guest resolves every path inside the machine.
 *
 * service_file() sends all of them, as messages of base/wire/msg.h. A table gives each message its
 * scope and its verb in the journal.
 */
#pragma once

#include "machine/guest.h"
#include "service/service.h"

/*
 * The user of a file operation: "user", "root" or a number. NULL is the user that commands of the
 * machine run as, which its image says: FILE_USER_OF_MACHINE stands for it as uid and gid of a
 * message of service_file(). It is never sent to a guest.
 */
#define FILE_USER_OF_MACHINE (UINT32_MAX - 1)
int file_user(const char *text, uint32_t *ret_uid, struct err *err);
/* Replaces FILE_USER_OF_MACHINE by the user of this machine. */
struct live;
void file_user_settle(const struct live *l, uint32_t *uid, uint32_t *gid);

/* Finds the user that commands of the machine run as. id: of the machine. */
int service_file_owner(struct service *s, const struct caller *who, const char *id,
                       uint32_t *ret_uid, uint32_t *ret_gid, struct err *err);

/* The directory in which the machine's commands start, unless they name another one. Valid until
 * control returns to the loop. */
const char *service_start_dir(struct service *s, const char *machine);

/*
 * Sends one file message, which must stay valid until the answer. path: for journal and errors,
 * also valid until the answer; NULL: part of a transfer that is in the journal already. `done` is
 * called as by guest_request().
 */
void service_file(struct service *s, const struct caller *who, const char *machine, uint16_t type,
                  const void *msg, const char *path, guest_reply_fn *done, void *arg);

/*
 * The same for a message after which another request about the same file comes, such as a piece of
 * its bytes: no step follows, because each step would hold a copy of all that was written so far.
 */
void service_file_piece(struct service *s, const struct caller *who, const char *machine,
                        uint16_t type, const void *msg, const char *path, guest_reply_fn *done,
                        void *arg);

/*
 * A text to write as a file of the machine's root user. Parents are created; an existing file is
 * replaced.
 */
struct file_text {
    const char *path, *text;
    uint32_t mode;
};
void service_file_text(struct service *s, const struct caller *who, const char *machine,
                       const struct file_text *f, service_done_fn *done, void *arg);

/*
 * True if the name now belongs to another file than when it was first read. A step may change the
 * inode of a file; then it counts as the same file.
 */
bool file_replaced(const struct msg_read_data *first, const struct msg_read_data *now);

/*
 * A watch on a path, until service_file_unwatch(). The service chooses its id. While a step is
 * taken it waits, because the guest would watch the old root. The path must stay valid.
 */
struct file_watch {
    struct guest_watch inner; /* the caller fills event, refused and gone */
    void *live;               /* private to the service, like the rest */
    struct watch_call *waits; /* waits for a step */
    bool begun;
    struct caller who;
    uint64_t intent;
};
int service_file_watch(struct service *s, const struct caller *who, const char *machine,
                       const struct msg_path *path, struct file_watch *w, struct err *err);
/* why: NULL if the caller ends the watch. */
void service_file_unwatch(struct file_watch *w, const struct err *why);
