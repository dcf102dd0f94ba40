/*
 * Checks that a request is meant for this server, and was not sent by a web page of another site.
 *
 * A web page can make a browser send requests to any address. The browser sends the name of the
 * server (Host) and of the site of the page (Origin). Other names and other sites are refused.
 */
#pragma once

#include "io/http_server.h"

/* 0, or -1 with `denied`: the caller answers with 403. */
int http_check_host(const struct http_exchange *x, struct err *err); /* only the name */
int http_check_origin(const struct http_exchange *x, struct err *err);
