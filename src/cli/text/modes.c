#include "cli/text/modes.h"

#include <stdlib.h>
#include <string.h>

/* Private modes that a question needs in their first state. */
static const struct {
    unsigned number;
    bool at_first;
} modes_rows[] = {
    {1049, false}, {1047, false}, {47, false}, /* the alternate screen, see modes_is_alternate() */
    {1, false},    {6, false},    {7, true},   /* cursor keys, origin, wrapping */
    {25, true},                                /* cursor */
    {9, false},    {1000, false}, {1001, false}, /* mouse */
    {1002, false}, {1003, false}, {1005, false}, {1006, false},
    {1015, false}, {1016, false}, {1004, false}, /* focus */
    {2004, false}, {2026, false}, {2031, false}, /* paste, frames, changes of colours */
};
enum { MODES_ROWS = sizeof(modes_rows) / sizeof(*modes_rows), MODES_SCREENS = 3 };

static void modes_set(struct modes *m, unsigned number, bool on) {
    for (size_t i = 0; i < MODES_ROWS; i++)
        if (modes_rows[i].number == number && on != modes_rows[i].at_first)
            m->changed |= 1u << i;
        else if (modes_rows[i].number == number)
            m->changed &= ~(1u << i);
}

/* Reads one number of the parameters; *at moves behind it and a semicolon. */
static unsigned modes_number(const char **at) {
    unsigned value = 0;
    for (; **at >= '0' && **at <= '9'; ++*at)
        if (value < 100000)
            value = value * 10 + (unsigned)(**at - '0');
    if (**at == ';')
        ++*at;
    return value;
}

static void modes_private(struct modes *m, bool on) {
    const char *at = m->sequence + 1;
    do
        modes_set(m, modes_number(&at), on);
    while (*at >= '0' && *at <= '9');
}

/* CSI > FLAGS u adds an entry to the stack of forms of keys, and CSI < N u removes N. */
static void modes_forms(struct modes *m) {
    const char *at = m->sequence + 1;
    unsigned n = modes_number(&at);
    if (m->sequence[0] == '>')
        m->key_forms += m->key_forms < MODES_FORMS_MAX;
    else if (m->sequence[0] == '<')
        m->key_forms -= !n ? m->key_forms > 0 : n < m->key_forms ? n : m->key_forms;
}

/* Takes a control sequence: its parameters are complete, and `last` ends it. */
static void modes_control(struct modes *m, char last) {
    if (m->len == MODES_SEQUENCE_MAX)
        return;
    m->sequence[m->len] = '\0';
    const char *at = m->sequence + 1;
    if (m->sequence[0] == '?' && (last == 'h' || last == 'l'))
        modes_private(m, last == 'h');
    else if (m->sequence[0] == '>' && last == 'm' && modes_number(&at) == 4)
        m->other_keys = *at >= '1' && *at <= '3' && !at[1] ? *at : '\0';
    else if (last == 'u')
        modes_forms(m);
}

static void modes_escape(struct modes *m, char c) {
    m->state = MODES_TEXT;
    m->len = 0;
    if (c == '[')
        m->state = MODES_CONTROL;
    else if (c && strchr("]PX^_", c))
        m->state = MODES_STRING;
    else if (c && strchr("()*+-./#% ", c))
        m->state = MODES_SKIP;
    else if (c == '\x1b')
        m->state = MODES_ESCAPE;
    else if (c == 'c') /* reset of the whole terminal */
        *m = (struct modes){0};
}

static void modes_in_control(struct modes *m, char c) {
    if (c >= 0x40 && c <= 0x7e) {
        m->state = MODES_TEXT;
        modes_control(m, c);
    } else if (c >= 0x20 && c < 0x40 && m->len < MODES_SEQUENCE_MAX - 1) {
        m->sequence[m->len++] = c;
    } else if (c >= 0x20 && c < 0x40) {
        m->len = MODES_SEQUENCE_MAX;
    }
}

static void modes_byte(struct modes *m, char c) {
    bool in_string = m->state == MODES_STRING || m->state == MODES_STRING_ESCAPE;
    if (c == '\x18' || c == '\x1a') /* cancels every sequence */
        m->state = MODES_TEXT;
    else if (c == '\x1b')
        m->state = m->state == MODES_STRING ? MODES_STRING_ESCAPE : MODES_ESCAPE;
    else if (m->state == MODES_ESCAPE || (m->state == MODES_STRING_ESCAPE && c != '\\'))
        modes_escape(m, c);
    else if (m->state == MODES_SKIP || (in_string && c == '\a') || m->state == MODES_STRING_ESCAPE)
        m->state = MODES_TEXT;
    else if (m->state == MODES_CONTROL)
        modes_in_control(m, c);
}

void modes_feed(struct modes *m, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        modes_byte(m, bytes[i]);
}

bool modes_is_between(const struct modes *m) {
    return m->state == MODES_TEXT;
}

bool modes_is_alternate(const struct modes *m) {
    return m->changed & ((1u << MODES_SCREENS) - 1);
}

/* ---- writing ---- */

static void modes_put(struct buf *to, const char *text) {
    if (!buf_add(to, text, strlen(text)))
        abort(); /* unreachable: MODES_WRITTEN_MAX has room for all rows */
}

static void modes_put_rows(const struct modes *m, bool first, struct buf *to) {
    for (size_t i = MODES_SCREENS; i < MODES_ROWS; i++)
        if ((m->changed & (1u << i)) && !buf_addf(to, "\x1b[?%u%c", modes_rows[i].number,
                                                  modes_rows[i].at_first == first ? 'h' : 'l'))
            abort(); /* unreachable, as above */
}

/*
 * The first bytes end a sequence that the command has begun. Then come the screen, the modes, the
 * keyboard (a new entry of its stack, without extensions), and what has no number: colours,
 * characters, margins, insertion.
 */
void modes_put_away(const struct modes *m, struct buf *to) {
    modes_put(to, "\x18\x1b\\");
    if (!modes_is_alternate(m))
        modes_put(to, "\x1b[?1049h");
    modes_put_rows(m, true, to);
    if (m->other_keys)
        modes_put(to, "\x1b[>4;0m");
    modes_put(to, "\x1b[>0u\x1b[0m\x1b(B\x0f\x1b[r\x1b[4l\x1b[H\x1b[2J");
}

void modes_put_back(const struct modes *m, struct buf *to) {
    const char other[] = {'\x1b', '[', '>', '4', ';', m->other_keys, 'm', '\0'};
    modes_put(to, "\x1b[0m\x1b[2J\x1b[H\x1b[<1u");
    if (m->other_keys)
        modes_put(to, other);
    modes_put_rows(m, false, to);
    if (!modes_is_alternate(m))
        modes_put(to, "\x1b[?1049l");
}

void modes_put_first(const struct modes *m, struct buf *to) {
    modes_put(to, "\x18\x1b\\");
    if (m->key_forms && !buf_addf(to, "\x1b[<%uu", m->key_forms))
        abort(); /* unreachable, as above */
    if (m->other_keys)
        modes_put(to, "\x1b[>4;0m");
    modes_put_rows(m, true, to);
    modes_put(to, "\x1b[0m\x1b(B\x0f\x1b[4l");
    if (modes_is_alternate(m))
        modes_put(to, "\x1b[r\x1b[?1049l");
}

/* The cursor is saved and restored with its colours and characters. */
void modes_put_line(const char *text, size_t cols, struct buf *to) {
    size_t n = strlen(text);
    modes_put(to, "\x1b"
                  "7\x1b[0m\x1b(B\x0f\x1b[?6l\x1b[1;1H\x1b[7m");
    if (!buf_add(to, text, n < cols ? n : cols))
        abort(); /* unreachable: text is shorter than MODES_WRITTEN_MAX */
    modes_put(to, "\x1b[0m\x1b"
                  "8");
}

/* ---- keys ---- */

enum { MODES_CTRL = 4, MODES_LOCKS = 64 | 128, MODES_KEY_UP = 3, MODES_KEY_MAX = 48 };

static bool is_modifier(unsigned code) {
    return code >= 57441 && code <= 57454;
}

/* Reads numbers between semicolons, each with one more after a colon. Others are ignored. */
static void key_numbers(const char *text, unsigned ret[3][2]) {
    for (size_t field = 0, part = 0; *text; text++) {
        if (*text == ';') {
            field++;
            part = 0;
        } else if (*text == ':') {
            part++;
        } else if (field < 3 && part < 2 && ret[field][part] < 100000) {
            ret[field][part] = ret[field][part] * 10 + (unsigned)(*text - '0');
        }
    }
}

/* Reads CODE[:...];MODIFIERS[:EVENT][;...]u, or 27;MODIFIERS;CODE~. */
static enum modes_key key_parse(const char *text, char last, char character) {
    unsigned numbers[3][2] = {{0}};
    key_numbers(text, numbers);
    unsigned code = last == 'u' ? numbers[0][0] : numbers[2][0], modifiers = numbers[1][0];
    if (last == '~' && numbers[0][0] != 27)
        return MODES_KEY_OTHER;
    if (numbers[1][1] == MODES_KEY_UP || is_modifier(code))
        return MODES_KEY_NEUTRAL;
    bool has_ctrl = modifiers && ((modifiers - 1) & ~(unsigned)MODES_LOCKS) == MODES_CTRL;
    return has_ctrl && code == (unsigned char)character ? MODES_KEY_PRESSED : MODES_KEY_OTHER;
}

enum modes_key modes_key_read(const char *bytes, size_t n, char character, size_t *ret_len) {
    char text[MODES_KEY_MAX];
    *ret_len = 1;
    if (bytes[0] == (character & 0x1f))
        return MODES_KEY_PRESSED;
    if (n < 4 || bytes[0] != '\x1b' || bytes[1] != '[')
        return MODES_KEY_OTHER;
    size_t len = 2;
    while (len < n && len < MODES_KEY_MAX && strchr("0123456789;:", bytes[len]) && bytes[len])
        len++;
    if (len == n || len == MODES_KEY_MAX || (bytes[len] != 'u' && bytes[len] != '~'))
        return MODES_KEY_OTHER;
    memcpy(text, bytes + 2, len - 2);
    text[len - 2] = '\0';
    *ret_len = len + 1;
    return key_parse(text, bytes[len], character);
}
