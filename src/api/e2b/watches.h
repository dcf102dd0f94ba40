/*
 * Watches of directories: WatchDir as a stream, and the procedures that poll.
 *
 * A machine watches a directory once, however many clients watch it: they share a struct spot. A
 * recursive watch has a spot for each directory below.
 */
#pragma once

#include "api/e2b/envd_inner.h"

/*
 * How temporary names of uploads begin. Watches do not report them. When such a file is renamed to
 * its place, a watch reports what a write in place would be: of a file that was there before, or
 * of one that may be new. The tool `put` of the guest (guest/put.c) uses the second one, too.
 */
#define WATCH_HIDES_OLD ".carrel-over-"
#define WATCH_HIDES_NEW ".carrel-put-"

struct watches;

struct watches *watches_new(struct loop *loop, struct service *service);
/* Ends all watches that poll; streams have ended before. */
void watches_free(struct watches *w);
/* Ends watches that nobody polls any more. True: there are watches that poll. */
bool watches_tick(struct watches *w);

struct watches *envd_watches(struct envd *e);
