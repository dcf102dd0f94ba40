/* Questions that machines ask their owners with `carrel ask`. */
#pragma once

#include "service/net/net.h"

/* True if the id of a pending item is that of a question. */
bool question_is(const char *id);
/* Answers a question; text NULL: the owner does not answer it. */
void service_question_answer(struct service *s, const struct caller *who, const char *id,
                             const char *text, service_net_fn *done, void *arg);
/* Makes the machine a vm, if that is what the question asks for; else `invalid`. */
void service_question_approve(struct service *s, const struct caller *who, const char *id,
                              service_net_fn *done, void *arg);
