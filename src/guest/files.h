/*
 * File operations for the host, with the user id (fsuid) that the request names.
 *
 * The kernel resolves every path inside this machine's root. Links in /proc are not followed and
 * files in /proc are not opened; only regular files are read or written. So no path can make the
 * guest block or reach its own descriptors.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

enum serve_result files_stat(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_list(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_read(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_write(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_mkdir(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_move(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_remove(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_chmod(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_chown(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result files_symlink(struct guest *g, struct conn *c, const struct frame *f);

/* The user of a file operation, until files_actor_done(). */
struct files_actor {
    bool is_other;
};
struct files_actor files_act_as(uint32_t uid, uint32_t gid);
void files_actor_done(struct files_actor *a);

/* Opens a regular file outside /proc for reading, without blocking; -1: errno says why not. */
int files_open_regular(const char *path);
/* True for a file of /proc, and if that is not known. */
bool files_is_proc(int fd);

/*
 * Calls `one` for each entry of a directory from the cookie on, until it returns false. Sets the
 * cookie of the entry that it was called for last, or 0 at the end. -1: errno says why not.
 */
struct stat;
typedef bool files_entry_fn(void *arg, int dir, const char *name, const struct stat *st);
int files_each(const char *path, uint64_t cookie, uint64_t *ret_next, files_entry_fn *one,
               void *arg);

/* Adds the path to an inotify descriptor. Returns the watch descriptor, or -errno. */
int files_watch(int inotify, const struct msg_path *m, uint32_t events);

/*
 * Call it when a child process that is not a command has ended: answers the remove request that the
 * child worked on.
 */
void files_child_ended(struct guest *g, pid_t pid, int status);

/* Call it when a connection is closed: its remove requests continue, but are not answered. */
void files_forget(struct guest *g, struct conn *c);
