/* What the files of the console share: its actions and their answers. */
#pragma once

#include <jansson.h>

#include "api/console/console.h"
#include "base/buf.h"

struct service *console_service(const struct console_face *f);
void console_reply(struct http_exchange *x, int status, const struct buf *text);
void console_refuse(struct http_exchange *x, const struct err *err);

/* orders.c */
void console_order(struct console_face *f, struct http_exchange *x, const struct caller *who,
                   const json_t *body);
void console_result(struct console_face *f, struct http_exchange *x, const struct caller *who,
                    const json_t *body);
void console_work(struct console_face *f, struct http_exchange *x, const struct caller *who,
                  const json_t *body);
void console_done(struct console_face *f, struct http_exchange *x, const struct caller *who,
                  const json_t *body);
