/*
 * Watches paths with inotify.
 *
 * A watch belongs to the connection that added it, and is removed when that connection closes.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

enum serve_result watch_add(struct guest *g, struct conn *c, const struct frame *f);
enum serve_result watch_remove(struct guest *g, struct conn *c, const struct frame *f);

/*
 * Queues events as far as the output buffer has room. The kernel keeps the rest, and reports if it
 * had to drop events.
 */
void watch_pump(struct guest *g, struct conn *c);
void watch_close(struct guest *g, struct conn *c);
