/* The package cache of an owner (src/cache): packages that machines downloaded. */
#pragma once

#include "service/net/net.h"

/* Answers {"packages":[{"url","digest","bytes","used_ms"}],"bytes","max_bytes"}. */
void service_package_list(struct service *s, const struct caller *who, service_net_fn *done,
                          void *arg);
/* Deletes all packages of the caller's cache. Answers {"removed","bytes"}. */
void service_package_clear(struct service *s, const struct caller *who, service_net_fn *done,
                           void *arg);
