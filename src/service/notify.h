/*
 * Tells the owner of this host about events, by a command and a webhook ([notify] in carrel.conf).
 *
 * Both get the JSON object of the event that GET /v1/events sends: the command on standard input,
 * the webhook as the body of a POST. Each receives one event at a time, in order. Events from
 * before the start of the daemon are not sent again.
 */
#pragma once

#include "service/service.h"

struct notify;

/* *ret is NULL if nothing is configured. */
int notify_new(struct service *s, struct loop *loop, const struct conf *conf, struct notify **ret,
               struct err *err);
void notify_free(struct notify *n); /* NULL is allowed */
