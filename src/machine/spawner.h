/*
 * The daemon's connection to the spawner, on the loop.
 *
 * A job starts the spawner if it is not running, and again after it died; boxes do not notice.
 * Pending requests are then sent again. This is safe: a spawner that died before it replied to
 * CREATE made no box, and all other requests are idempotent. Replies come later, exactly once. The
 * number of requests in flight is limited; others wait here.
 */
#pragma once

#include "base/fdio.h"
#include "base/wire/plan.h"
#include "io/loop.h"
#include "io/place.h"

struct spawner_link;

/* m NULL: err says why. Message and descriptors live only during the call; take what you keep. */
typedef void spawner_answer_fn(void *arg, const struct plan_message *m, struct fd_message *fds,
                               const struct err *err);

/* Starts or finds the spawner in the background. */
struct spawner_link *spawner_link_new(struct loop *loop, const struct place *place);
/* What was asked is never answered. May be called from an answer. */
void spawner_link_free(struct spawner_link *l);

/*
 * Descriptors stay the caller's. m->tag is chosen here. A page of a LIST but the first is not asked
 * again of another spawner: that is `unknown`, begin anew.
 */
void spawner_ask(struct spawner_link *l, struct plan_message *m, const int *fds, size_t nfds,
                 spawner_answer_fn *done, void *arg);

/*
 * After how long without a word what was asked fails with `timeout`. Whatever a silent spawner was
 * asked to make it may still make: the caller has it destroyed.
 */
void spawner_link_set_silence(struct spawner_link *l, uint64_t ms);

/* How often a spawner that was there was lost, for metrics. */
uint64_t spawner_link_losses(const struct spawner_link *l);
