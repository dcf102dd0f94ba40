/*
 * Calls of the command `carrel` in a live machine (guest/calls.h), for the rest of src/service.
 *
 * A call has no rights: it reads what the machine may know about itself, and asks its owner.
 */
#pragma once

#include "base/jot.h"
#include "machine/machine.h"
#include "service/service.h"

struct live;
struct live_calls;

/* For struct machine: a program in the machine of a live called. */
void calls_on_call(void *live, struct machine *m, uint32_t id, const struct msg_bytes *words);
/* The machine lost its guest or has ended: drops its questions. */
void calls_detach(struct live *l);
void live_calls_free(struct live_calls *c); /* NULL is allowed */

/* Appends the questions of a machine that wait for its owner, as items of GET /v1/pending. */
void calls_put_questions(const struct live *l, struct jot *j);
