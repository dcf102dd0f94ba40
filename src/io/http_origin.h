/*
 * Is a request meant for us, and not sent by a page of somebody else?
 *
 * A browser can be made to talk to any address. It tells under which name it reached us (Host) and
 * for whose page it does so (Origin): a name that is not ours, or a page of elsewhere, is refused.
 */
#pragma once

#include "io/http_server.h"

/* 0, or -1 with `denied`, to be answered with 403. */
int http_check_origin(const struct http_exchange *x, struct err *err);
