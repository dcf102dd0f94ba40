#include "cli/text/modes.h"

#include <stdlib.h>
#include <string.h>

/* Private modes that a question needs in their first state. */
static const struct {
    unsigned number;
    bool at_first;
} modes_rows[] = {
    {1049, false}, {1047, false}, {47, false}, /* the alternate screen, see modes_is_alternate() */
    {1, false},    {66, false},                /* cursor keys, keypad */
    {5, false},    {6, false},    {69, false}, /* reverse video, origin, left and right margins */
    {7, true},     {45, false},                /* wrapping */
    {25, true},                                /* cursor */
    {9, false},    {1000, false}, {1001, false}, /* mouse */
    {1002, false}, {1003, false}, {1005, false}, {1006, false},
    {1015, false}, {1016, false}, {1004, false}, /* focus */
    {2004, false}, {2026, false}, {2031, false}, /* paste, frames, changes of colours */
    {2048, false},                               /* changes of size */
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

/* Reads the two numbers of CSI A;B r and CSI A;B s. Without numbers there are no margins. */
static void modes_margins(const struct modes *m, unsigned ret[2]) {
    const char *at = m->sequence;
    ret[0] = modes_number(&at);
    ret[1] = modes_number(&at);
}

/* Takes a control sequence: its parameters are complete, and `last` ends it. */
static void modes_control(struct modes *m, char last) {
    if (m->len == MODES_SEQUENCE_MAX)
        return;
    m->sequence[m->len] = '\0';
    const char *at = m->sequence + 1;
    bool is_insertion = strcmp(m->sequence, "4") == 0 && (last == 'h' || last == 'l');
    bool has_numbers_only = strspn(m->sequence, "0123456789;") == m->len;
    if (m->sequence[0] == '?' && (last == 'h' || last == 'l'))
        modes_private(m, last == 'h');
    else if (m->sequence[0] == '>' && last == 'm' && modes_number(&at) == 4)
        m->other_keys = *at >= '1' && *at <= '3' && !at[1] ? *at : '\0';
    else if (last == 'u')
        modes_forms(m);
    else if (is_insertion)
        m->inserts = last == 'h';
    else if (last == 'r' && has_numbers_only)
        modes_margins(m, m->rows);
    else if (last == 's' && has_numbers_only && m->len)
        modes_margins(m, m->columns);
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
    else if (c == '=' || c == '>')
        m->keypad = c == '=';
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

/* The rows of the table: all of them in their first state, or those that the command has changed.
 */
static void modes_put_rows(uint32_t which, bool first, struct buf *to) {
    for (size_t i = MODES_SCREENS; i < MODES_ROWS; i++)
        if ((which & (1u << i)) && !buf_addf(to, "\x1b[?%u%c", modes_rows[i].number,
                                             modes_rows[i].at_first == first ? 'h' : 'l'))
            abort(); /* unreachable, as above */
}

/*
 * Ends what the command may have begun: a sequence, the VT52 mode, output to a printer or to a
 * status line, a ban on the alternate screen.
 */
#define MODES_END "\x18\x1b\\\x1b<\x1b[4i\x1b[?4i\x1b[0$}\x1b[0$~\x1b[?1046h"
/*
 * State that has no private mode: keypad, forms of keys, locked keys, insertion, line feeds and
 * echo; colours, protected characters, character sets.
 */
#define MODES_PLAIN "\x1b>\x1b[>4;0m\x1b[2l\x1b[4l\x1b[20l\x1b[12h\x1b[0m\x1b[0\"q\x1b(B\x1b)B\x0f"
/* Default colours and the palette, also that of the Linux console. */
#define MODES_COLOURS                                    \
    "\x1b]104\x1b\\\x1b]105\x1b\\\x1b]110\x1b\\\x1b]111" \
    "\x1b\\\x1b]112\x1b\\\x1b]R\x1b\\"

/*
 * Nothing here depends on what was read of the output: the command could hide a mode from
 * modes_feed(), for example by a sequence that restores a saved mode. A new entry of the stack of
 * forms of keys has no extensions. DECSTR is not used, because some terminals then forget the
 * cursor of the other screen.
 */
void modes_put_away(const struct modes *m, struct buf *to) {
    modes_put(to, MODES_END);
    if (!modes_is_alternate(m))
        modes_put(to, "\x1b[?1049h");
    modes_put_rows(UINT32_MAX, true, to);
    modes_put(to, MODES_PLAIN MODES_COLOURS "\x1b[>0u\x1b[r\x1b[?5W\x1b[H\x1b[2J");
    modes_put(to, "\x1b[22;2t\x1b]2;" MODES_TITLE "\x1b\\");
}

static void modes_put_margins(const unsigned margins[2], char last, struct buf *to) {
    if ((margins[0] || margins[1]) && !buf_addf(to, "\x1b[%u;%u%c", margins[0], margins[1], last))
        abort(); /* unreachable, as above */
}

/* Margins move the cursor, so the other screen, with its cursor, comes back after them. */
void modes_put_back(const struct modes *m, struct buf *to) {
    const char other[] = {'\x1b', '[', '>', '4', ';', m->other_keys, 'm', '\0'};
    modes_put(to, "\x1b[0m\x1b[2J\x1b[H\x1b[<1u\x1b[23;2t");
    if (m->other_keys)
        modes_put(to, other);
    if (m->keypad)
        modes_put(to, "\x1b=");
    if (m->inserts)
        modes_put(to, "\x1b[4h");
    modes_put_rows(m->changed, false, to);
    modes_put_margins(m->rows, 'r', to);
    modes_put_margins(m->columns, 's', to);
    if (!modes_is_alternate(m))
        modes_put(to, "\x1b[?1049l");
}

void modes_put_first(const struct modes *m, struct buf *to) {
    modes_put(to, MODES_END);
    if (m->key_forms && !buf_addf(to, "\x1b[<%uu", m->key_forms))
        abort();                          /* unreachable, as above */
    modes_put_rows(m->changed, true, to); /* others stay: mode 6 moves the cursor */
    modes_put(to, MODES_PLAIN MODES_COLOURS);
    if (m->rows[0] || m->rows[1])
        modes_put(to, "\x1b"
                      "7\x1b[r\x1b"
                      "8");
    if (modes_is_alternate(m))
        modes_put(to, "\x1b[?1049l");
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
