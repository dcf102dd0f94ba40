/*
 * Metadata of files (MSG_META), as files.h: with the fsuid of the request, and resolved inside this
 * machine.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

enum serve_result meta_get(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result meta_set(struct guest *g, struct conn *c, const struct frame *f);
/* Makes a directory the root of the guest. Commands that start later have it as their root too. */
enum serve_result meta_root(struct guest *g, struct conn *c, const struct frame *f);
