/*
 * Review, for the rest of src/service. Only review/ knows what is inside struct service_review.
 */
#pragma once

#include "service/service.h"

struct service_review;

struct service_review *service_review_new(void);
void service_review_free(struct service_review *r);

/* False: the maximum of comparing workers runs. After true, call comparison_end(). */
bool comparison_begin(struct service *s);
void comparison_end(struct service *s);

/* Marks the change sets of this grant as revoked. */
int changesets_revoke(const struct service *s, const char *grant, struct err *err);
