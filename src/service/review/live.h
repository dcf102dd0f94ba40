/*
 * Functions of review/ for the rest of src/service. Only review/ uses the members of struct
 * service_review.
 */
#pragma once

#include "service/service.h"

struct service_review;

struct service_review *service_review_new(void);
void service_review_free(struct service_review *r);

/* Reserves a comparison. False: too many run already. After true, call comparison_end(). */
bool comparison_begin(struct service *s);
void comparison_end(struct service *s);

/* Marks the change sets of this grant as revoked. */
int changesets_revoke(const struct service *s, const char *grant, struct err *err);
