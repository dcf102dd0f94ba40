#include "service/desktop/input.h"

#include <string.h>

#include "base/utf8.h"
#include "service/desktop/keys.h"

const char *const desktop_actions[] = {"click", "move", "scroll", "type", "key", NULL};
const char *const desktop_buttons[] = {"left", "middle", "right", NULL};
const char *const desktop_directions[] = {"up", "down", "left", "right", NULL};

static const unsigned button_masks[] = {RFB_LEFT, RFB_MIDDLE, RFB_RIGHT};
static const unsigned wheel_masks[] = {RFB_WHEEL_UP, RFB_WHEEL_DOWN, RFB_WHEEL_LEFT,
                                       RFB_WHEEL_RIGHT};

struct point {
    unsigned x, y;
};

static int input_index(const char *const *names, const char *name) {
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return names[i] ? i : -1;
}

static int input_full(struct err *err) {
    return err_set(err, ERR_LIMIT, "the action has too many events");
}

static int input_point(const struct rfb *r, const struct given *x, const struct given *y,
                       struct point *ret, struct err *err) {
    if (!x->is || !y->is)
        return err_set(err, ERR_INVALID, "the action needs both coordinates of a point");
    if (x->value >= rfb_width(r) || y->value >= rfb_height(r))
        return err_set(err, ERR_INVALID,
                       "point %llu,%llu lies outside of the screen, which has %ux%u pixels",
                       (unsigned long long)x->value, (unsigned long long)y->value, rfb_width(r),
                       rfb_height(r));
    *ret = (struct point){(unsigned)x->value, (unsigned)y->value};
    return 0;
}

/* Presses the keys in order, or releases them in reverse order. */
static int input_press(struct rfb *r, const struct chord *c, bool down, struct err *err) {
    for (size_t i = 0; i < c->count; i++)
        if (!rfb_key(r, c->keysyms[down ? i : c->count - 1 - i], down))
            return input_full(err);
    return 0;
}

static int input_held(const struct desktop_input *in, struct chord *ret, struct err *err) {
    *ret = (struct chord){.count = 0};
    return in->hold ? chord_read(in->hold, strlen(in->hold), ret, err) : 0;
}

/* Presses the buttons at one point and releases them at another. */
static bool input_drag(struct rfb *r, unsigned mask, struct point from, struct point to) {
    bool fits = rfb_point(r, mask, from.x, from.y);
    if (from.x != to.x || from.y != to.y) /* programs take one jump for no movement at all */
        fits = rfb_point(r, mask, (from.x + to.x) / 2, (from.y + to.y) / 2) &&
               rfb_point(r, mask, to.x, to.y) && fits;
    return rfb_point(r, 0, to.x, to.y) && fits;
}

static int input_move(const struct desktop_input *in, struct rfb *r, struct err *err) {
    struct point at;
    if (input_point(r, &in->x, &in->y, &at, err) < 0)
        return -1;
    return rfb_point(r, 0, at.x, at.y) ? 0 : input_full(err);
}

static int input_click(const struct desktop_input *in, struct rfb *r, struct err *err) {
    struct point at, to;
    struct chord held;
    int button = input_index(desktop_buttons, in->button ? in->button : "left");
    uint64_t count = in->count.is ? in->count.value : 1;
    if (button < 0 || count < 1 || count > DESKTOP_CLICKS_MAX)
        return err_set(err, ERR_INVALID, "unknown button, or more than %d clicks",
                       DESKTOP_CLICKS_MAX);
    if (input_point(r, &in->x, &in->y, &at, err) < 0 || input_held(in, &held, err) < 0)
        return -1;
    to = at;
    if ((in->to_x.is || in->to_y.is) && input_point(r, &in->to_x, &in->to_y, &to, err) < 0)
        return -1;
    if (!rfb_point(r, 0, at.x, at.y))
        return input_full(err);
    if (input_press(r, &held, true, err) < 0)
        return -1;
    for (uint64_t i = 0; i < count; i++)
        if (!input_drag(r, button_masks[button], at, to))
            return input_full(err);
    return input_press(r, &held, false, err);
}

static int input_scroll(const struct desktop_input *in, struct rfb *r, struct err *err) {
    struct point at;
    struct chord held;
    int direction = input_index(desktop_directions, in->direction ? in->direction : "down");
    uint64_t amount = in->amount.is ? in->amount.value : 3;
    if (direction < 0 || amount > DESKTOP_SCROLL_MAX)
        return err_set(err, ERR_INVALID, "unknown direction, or an amount of more than %d",
                       DESKTOP_SCROLL_MAX);
    if (input_point(r, &in->x, &in->y, &at, err) < 0 || input_held(in, &held, err) < 0)
        return -1;
    if (!rfb_point(r, 0, at.x, at.y))
        return input_full(err);
    if (input_press(r, &held, true, err) < 0)
        return -1;
    for (uint64_t i = 0; i < amount; i++)
        if (!input_drag(r, wheel_masks[direction], at, at))
            return input_full(err);
    return input_press(r, &held, false, err);
}

/* Types one character. Without Shift, the X server would type a capital letter by Caps Lock. */
static bool input_character(struct rfb *r, uint32_t keysym) {
    bool shifts = keysym >= 'A' && keysym <= 'Z';
    return (!shifts || rfb_key(r, KEYSYM_SHIFT, true)) && rfb_key(r, keysym, true) &&
           rfb_key(r, keysym, false) && (!shifts || rfb_key(r, KEYSYM_SHIFT, false));
}

static int input_type(const struct desktop_input *in, struct rfb *r, struct err *err) {
    const char *text = in->text ? in->text : "";
    size_t left = strlen(text), n;
    for (; left > 0; text += n, left -= n) {
        uint32_t character;
        n = utf8_decode(text, left, &character);
        uint32_t keysym = n ? keysym_of(character) : 0;
        if (!keysym)
            return err_set(err, ERR_INVALID, "the text has a character that no key types");
        if (!input_character(r, keysym))
            return input_full(err);
    }
    return 0;
}

static int input_key(const struct desktop_input *in, struct rfb *r, struct err *err) {
    const char *at = in->text ? in->text : "";
    unsigned chords = 0;
    for (at += strspn(at, " "); *at; at += strspn(at, " "), chords++) {
        size_t n = strcspn(at, " ");
        struct chord c;
        if (chord_read(at, n, &c, err) < 0 || input_press(r, &c, true, err) < 0 ||
            input_press(r, &c, false, err) < 0)
            return -1;
        at += n;
    }
    return chords ? 0 : err_set(err, ERR_INVALID, "the action needs keys, such as ctrl+s");
}

static int (*const writers[])(const struct desktop_input *in, struct rfb *r, struct err *err) = {
    input_click, input_move, input_scroll, input_type, input_key,
};

int desktop_input_write(const struct desktop_input *in, struct rfb *r, struct err *err) {
    int action = input_index(desktop_actions, in->action);
    return action < 0 ? err_set(err, ERR_INVALID, "unknown action '%.20s'", in->action)
                      : writers[action](in, r, err);
}
