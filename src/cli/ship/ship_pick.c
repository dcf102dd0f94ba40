/* carrel ship --pick for directories: asks which files and hunks of a change set are shipped. */
#include <string.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "cli/ship/pick.h"
#include "cli/ship/ship.h"
#include "cli/ship/ship_show.h"
#include "review/flags.h"

static void use_text(struct parcel_item *i, struct buf *made) {
    i->n = made->len;
    i->own = buf_take(made);
    i->bytes = i->own ? i->own : "";
    sha256_hex(i->bytes, i->n, i->sha256);
}

int ship_take_hunks(const struct ship *s, struct parcel_item *i, const char *words,
                    struct err *err) {
    struct buf here DEFER(buf_done) = BUF(SHOWN_MAX), made DEFER(buf_done) = BUF(2 * SHOWN_MAX);
    bool chosen[HUNKS_MAX + 1];
    if (i->kind != TAR_FILE || i->change != 'M' || !ship_is_text(i->bytes, i->n) ||
        !ship_read_here(s, i->path, &here) || !ship_is_text(here.data, here.len))
        return err_set(err, ERR_INVALID,
                       "--hunk '%s': the file is not a changed text file of up to 1 MiB", i->path);
    if (hunks_parse(words, chosen, err) < 0)
        return -1;
    const struct pick_file f = {.path = i->path,
                                .before = here.data ? here.data : "",
                                .before_n = here.len,
                                .after = i->bytes,
                                .after_n = i->n};
    if (pick_apply(&f, chosen, &made, err) < 0)
        return -1;
    use_text(i, &made);
    return 0;
}

/* A renamed file is one change: its old name follows the answer for its new name. */
static void pick_partner(struct ship *s, const struct parcel_item *i) {
    for (size_t k = 0; i->partner && k < s->parcel.count; k++)
        if (strcmp(s->parcel.items[k].path, i->partner) == 0)
            s->parcel.items[k].wanted = i->wanted;
}

static int pick_item(struct ship *s, struct pick *p, struct parcel_item *i, struct err *err) {
    struct buf here DEFER(buf_done) = BUF(SHOWN_MAX), made DEFER(buf_done) = BUF(2 * SHOWN_MAX);
    char flags[FLAGS_TEXT];
    bool chosen[HUNKS_MAX + 1];
    struct pick_file f = {.path = i->path, .change = i->change, .note = flags};
    flags_text(i->flags, flags);
    bool is_file = i->kind == TAR_FILE;
    if (is_file && i->change != 'D' && ship_is_text(i->bytes, i->n)) {
        f.after = i->bytes;
        f.after_n = i->n;
    }
    if (is_file && i->change != 'A' && ship_read_here(s, i->path, &here) &&
        ship_is_text(here.data ? here.data : "", here.len)) {
        f.before = here.data ? here.data : "";
        f.before_n = here.len;
    }
    enum pick_choice choice = pick_ask(p, &f, chosen);
    i->wanted = choice != PICK_NONE;
    pick_partner(s, i);
    if (choice != PICK_SOME)
        return 0;
    if (pick_apply(&f, chosen, &made, err) < 0)
        return -1;
    use_text(i, &made);
    return 0;
}

int ship_pick(struct ship *s, struct err *err) {
    struct pick p = {.is_over = false};
    for (size_t k = 0; k < s->parcel.count; k++) {
        struct parcel_item *i = &s->parcel.items[k];
        bool follows = i->partner && i->change == 'D';
        if (i->wanted && !follows && pick_item(s, &p, i, err) < 0)
            return -1;
    }
    return 0;
}
