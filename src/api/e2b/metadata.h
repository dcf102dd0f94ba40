/*
 * Metadata of files: what clients send in fields X-Metadata-KEY with a file, and read with entries.
 * Keys are lower case. An upload replaces all metadata of the file.
 */
#pragma once

#include "api/e2b/envd_inner.h"

/* Texts of a request: a key, its value, the next key, and NULL at the end. */
struct metadata {
    char *texts[2 * MSG_META_PAIRS + 1];
    uint32_t count; /* of texts */
};
void metadata_done(struct metadata *m);
int metadata_read(const struct http_head *head, struct metadata *ret, struct err *err);

/* The pairs of an entry as an object; NULL: there are none. They come from a machine. */
json_t *metadata_json(const struct msg_strs *pairs);
/* Writes the member `metadata`, if there is any. */
void metadata_put_json(struct jot *j, const json_t *object);
