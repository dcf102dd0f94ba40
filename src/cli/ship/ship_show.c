/* Shows a change set, to people and as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/text/textdiff.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/ship/ship.h"
#include "cli/ship/ship_show.h"
#include "cli/table.h"
#include "review/flags.h"
#include "review/hunks.h"

/* Prints the diff. If it has several hunks, prints their numbers too, for --hunk. */
static void show_hunks(const char *diff, size_t n) {
    size_t number = 0, count = hunks_count(diff, n);
    for (const char *at = diff, *end = diff + n, *line; at < end; at = line) {
        line = memchr(at, '\n', (size_t)(end - at));
        line = line ? line + 1 : end;
        if (count > 1 && strncmp(at, "@@ ", 3) == 0)
            printf("hunk %zu\n", ++number);
        safe_text(stdout, at, (size_t)(line - at));
    }
}

/* Whether the change is one of lines; then the diff is added to `ret`. */
static bool item_diff(const struct ship *s, const struct parcel_item *i, struct buf *ret) {
    struct buf here DEFER(buf_done) = BUF(SHOWN_MAX);
    struct textdiff_count count;
    if (i->kind != TAR_FILE || (i->change != 'D' && !ship_is_text(i->bytes, i->n)))
        return false;
    if (i->change != 'A' &&
        (!ship_read_here(s, i->path, &here) || !ship_is_text(here.data, here.len)))
        return false;
    return textdiff(ret, here.data ? here.data : "", here.len, i->change == 'D' ? "" : i->bytes,
                    i->change == 'D' ? 0 : i->n, CONTEXT, &count);
}

/* Whether the lines of the item are shown, if it has any. */
static bool item_has_diff(const struct ship *s, const struct parcel_item *i) {
    return !s->options->stat && !s->options->pick && i->wanted && !i->partner;
}

void ship_show_item(const struct ship *s, const struct parcel_item *i) {
    char flags[FLAGS_TEXT], size[16];
    flags_text(i->flags, flags);
    table_bytes((long long)i->n, size);
    printf("%c  ", i->refused ? '!' : i->change);
    safe_name(stdout, i->path);
    if (i->kind == TAR_SYMLINK && i->target) {
        fputs(" -> ", stdout);
        safe_name(stdout, i->target);
    } else if (i->kind == TAR_FILE && i->change != 'D') {
        printf("  %s", size);
    }
    if (i->partner) {
        fputs(i->change == 'D' ? "  is now " : "  was ", stdout);
        safe_name(stdout, i->partner);
    }
    if (*flags)
        printf("  [%s]", flags);
    if (*flags_why(i->path))
        printf("  %s", flags_why(i->path));
    if (i->step && i->wanted)
        printf("  step %" PRIu64, i->step);
    if (i->refused)
        printf("  refused: %s", i->refused);
    putchar('\n');
    struct buf diff DEFER(buf_done) = BUF(4 * SHOWN_MAX);
    if (item_has_diff(s, i) && item_diff(s, i, &diff))
        show_hunks(diff.data ? diff.data : "", diff.len);
}

/* `room`: bytes of diffs that the answer can still take. */
static void put_diff(struct jot *j, const struct ship *s, const struct parcel_item *i,
                     size_t *room) {
    struct buf diff DEFER(buf_done) = BUF(4 * SHOWN_MAX);
    if (s->options->yes || !item_has_diff(s, i) || !item_diff(s, i, &diff))
        return;
    if (diff.len > *room) {
        jot_bool(j, "diff_left_out", true);
        return;
    }
    *room -= diff.len;
    jot_bytes(j, "diff", diff.data ? diff.data : "", diff.len);
}

static void put_item(struct jot *j, const struct ship *s, const struct parcel_item *i,
                     size_t *room) {
    char flags[FLAGS_TEXT];
    flags_text(i->flags, flags);
    jot_object(j, NULL);
    jot_string(j, "path", i->path);
    if (i->change)
        jot_bytes(j, "change", &i->change, 1);
    jot_string(j, "sha256", i->sha256);
    jot_u64(j, "size", i->n);
    jot_string(j, "flags", flags);
    if (*flags_why(i->path))
        jot_string(j, "why", flags_why(i->path));
    if (i->kind == TAR_SYMLINK && i->target)
        jot_string(j, "target", i->target);
    if (i->kind == TAR_DIR)
        jot_bool(j, "directory", true);
    if (i->step)
        jot_u64(j, "step", i->step);
    if (i->refused)
        jot_string(j, "refused", i->refused);
    if (i->partner)
        jot_string(j, i->change == 'D' ? "now" : "was", i->partner);
    jot_bool(j, "wanted", i->wanted);
    put_diff(j, s, i, room);
    jot_end(j, '}');
}

static void put_database(struct jot *j, const struct ship *s) {
    char *text DEFER_FREE = s->database ? json_dumps(s->database, JSON_COMPACT) : NULL;
    if (text)
        jot_raw(j, "database", text);
}

void ship_show_json(const struct ship *s, long shipped) {
    struct buf text DEFER(buf_done) = BUF(64 << 20);
    struct jot j = JOT(&text);
    size_t room = SHOWN_DIFFS_MAX;
    jot_object(&j, NULL);
    jot_string(&j, "changeset", client_text(s->set, "id"));
    jot_string(&j, "machine", client_text(s->set, "machine"));
    jot_string(&j, "slice", client_text(s->set, "slice"));
    jot_string(&j, "target", s->target);
    jot_i64(&j, "shipped", shipped);
    jot_array(&j, "files");
    for (size_t i = 0; i < s->parcel.count; i++)
        if (s->parcel.items[i].change != '=' || s->parcel.items[i].refused)
            put_item(&j, s, &s->parcel.items[i], &room);
    jot_end(&j, ']');
    put_database(&j, s);
    jot_end(&j, '}');
    if (s->told)
        *s->told = j.failed ? json_object() : json_loads(text.data, 0, NULL);
    else
        safe_json_line(j.failed ? "{}" : text.data);
}
