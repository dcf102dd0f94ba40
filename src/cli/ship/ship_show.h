/*
 * Shows a change set, as text or as JSON.
 *
 * These functions only read the owner's files and the change set.
 */
#pragma once

#include "base/fdio.h"
#include "base/text/textdiff.h"
#include "cli/options.h"
#include "cli/ship/ship.h"

enum {
    SHOWN_MAX = 1 << 20,
    SHOWN_DIFFS_MAX =
        640 << 10, /* of all files in JSON, which is escaped and sent to the console */
    CONTEXT = 3,
};

/* ship.c */
bool ship_is_text(const char *bytes, size_t n);
bool ship_read_here(const struct ship *s, const char *path, struct buf *to);

/* ship_show.c */
void ship_show_item(const struct ship *s, const struct parcel_item *i);
void ship_show_json(const struct ship *s, long shipped);
