/*
 * Model calls of a live machine, for the rest of src/service: its account, and ending its calls.
 * Only files of models/ know the fields of struct service_models.
 */
#pragma once

#include "base/jot.h"
#include "service/service.h"

struct live;
struct service_models;

/* Fails with *err if no HTTP client can be made. Call it after the gate was made (net/live.h). */
struct service_models *service_models_new(struct service *s, struct err *err);
/* Call it before the machines are freed. */
void service_models_free(struct service_models *m, struct loop *loop);

/* Sets those limits of the machine's account that the request names. */
int models_limit(struct live *l, const struct models_request *r, struct err *err);
/* Creates the account of fork `l`. It shares the limits of its source, and what is left of them. */
int models_inherit(struct live *l, const struct live *from, struct err *err);
void models_detach(struct live *l); /* ends the calls of the machine */
/* Writes the account as a JSON object; false: the machine never called a model. */
bool models_put(const struct live *l, struct jot *j);
/* Writes the account that the machine's first call would get: nothing is used yet. */
bool models_put_unused(const struct live *l, struct jot *j);
