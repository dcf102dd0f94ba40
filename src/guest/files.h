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

/* Adds the path to an inotify descriptor. Returns the watch descriptor, or -errno. */
int files_watch(int inotify, const struct msg_path *m, uint32_t events);

/*
 * Call it when a child process that is not a command has ended: answers the remove request that the
 * child worked on.
 */
void files_child_ended(struct guest *g, pid_t pid, int status);

/* Call it when a connection is closed: its remove requests continue, but are not answered. */
void files_forget(struct guest *g, struct conn *c);
