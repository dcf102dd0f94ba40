/*
 * File operations on behalf of the host, with the fsuid it names.
 *
 * Every path is resolved by the kernel inside this machine's root. Links of
 * /proc are not followed, files of /proc are not opened, and nothing is read or
 * written that is not a regular file, so no name can make the guest block or
 * turn its own descriptors against it.
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

/* Adds the path to an inotify descriptor: the watch, or -errno. */
int files_watch(int inotify, const struct msg_path *m, uint32_t events);

/* A child that is no command ended: answers the removal it worked for. */
void files_child_ended(struct guest *g, pid_t pid, int status);

/* That connection waits for nothing any more. */
void files_forget(struct guest *g, struct conn *c);
