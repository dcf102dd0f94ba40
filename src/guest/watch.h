/*
 * Watches paths with inotify.
 *
 * A watch belongs to the connection that added it and ends with it.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

enum serve_result watch_add(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result watch_remove(struct guest *g, struct conn *c, const struct frame *f);

/* Queue events as far as there is room; the kernel keeps the rest, and says if it had to drop. */
void watch_pump(struct guest *g, struct conn *c);
void watch_close(struct guest *g, struct conn *c);
