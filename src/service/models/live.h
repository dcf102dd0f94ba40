/*
 * Models of a live machine, for the rest of src/service: its account, and the end of its calls.
 * Only models/ knows what is inside struct service_models.
 */
#pragma once

#include "base/jot.h"
#include "service/service.h"

struct live;
struct service_models;

/* NULL: connections cannot be made, for the reason in *err. After the gate: see net/live.h. */
struct service_models *service_models_new(struct service *s, struct err *err);
void service_models_free(struct service_models *m, struct loop *loop); /* before all machines */

/* Sets the limits of the machine's account that the request has. */
int models_limit(struct live *l, const struct models_request *r, struct err *err);
/* A fork shares the limits of its source, and what is left of them. */
int models_inherit(struct live *l, const struct live *from, struct err *err);
void models_detach(struct live *l); /* ends the calls of the machine */
/* Writes the account as a JSON object; false: the machine never called a model. */
bool models_put(const struct live *l, struct jot *j);
