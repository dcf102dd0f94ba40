/*
 * Watches of directories: WatchDir as a stream, and the procedures that poll.
 *
 * A machine watches a directory once, however many clients watch it: they share a struct spot. A
 * recursive watch has a spot for each directory below.
 */
#pragma once

#include "api/e2b/envd_inner.h"

struct watches;

struct watches *watches_new(struct loop *loop, struct service *service);
/* Ends all watches that poll; streams have ended before. */
void watches_free(struct watches *w);
/* Ends watches that nobody polls any more. True: there are watches that poll. */
bool watches_tick(struct watches *w);

struct watches *envd_watches(struct envd *e);
