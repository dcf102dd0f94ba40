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

/* m NULL: err is the reason. Message and descriptors are valid only during the call; take those
 * that you keep. */
typedef void spawner_answer_fn(void *arg, const struct plan_message *m, struct fd_message *fds,
                               const struct err *err);

/* Starts or finds the spawner in the background. */
struct spawner_link *spawner_link_new(struct loop *loop, const struct place *place);
/* Pending requests get no reply. May be called from a spawner_answer_fn. */
void spawner_link_free(struct spawner_link *l);

/*
 * Sends a request and sets m->tag. The caller still owns the descriptors. A later page of a LIST is
 * not requested from another spawner: it fails with `unknown`, and the caller lists from the start.
 */
void spawner_ask(struct spawner_link *l, struct plan_message *m, const int *fds, size_t nfds,
                 spawner_answer_fn *done, void *arg);

/*
 * Sets the time after which requests to a silent spawner fail with `timeout`. The spawner may still
 * create a box after that, so the caller must destroy it.
 */
void spawner_link_set_silence(struct spawner_link *l, uint64_t ms);

/* Number of times that the connection to a running spawner was lost, for metrics. */
uint64_t spawner_link_losses(const struct spawner_link *l);
