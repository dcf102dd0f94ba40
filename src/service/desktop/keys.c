#include "service/desktop/keys.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "base/utf8.h"

enum { UNICODE = 0x01000000, F1 = 0xffbe, F_KEYS = 24, LATIN_END = 0x100, NAME_MAX_CHARS = 16 };

/* Names are compared without regard to case: a key of one character is not in the table. */
static const struct {
    const char *name;
    uint32_t keysym;
} keys[] = {
    {"ctrl", 0xffe3},     {"control", 0xffe3},    {"control_l", 0xffe3}, {"control_r", 0xffe4},
    {"alt", 0xffe9},      {"alt_l", 0xffe9},      {"alt_r", 0xffea},     {"option", 0xffe9},
    {"shift", 0xffe1},    {"shift_l", 0xffe1},    {"shift_r", 0xffe2},   {"super", 0xffeb},
    {"super_l", 0xffeb},  {"super_r", 0xffec},    {"cmd", 0xffeb},       {"command", 0xffeb},
    {"win", 0xffeb},      {"meta", 0xffeb},       {"return", 0xff0d},    {"enter", 0xff0d},
    {"kp_enter", 0xff8d}, {"tab", 0xff09},        {"space", 0x20},       {"backspace", 0xff08},
    {"delete", 0xffff},   {"del", 0xffff},        {"insert", 0xff63},    {"escape", 0xff1b},
    {"esc", 0xff1b},      {"home", 0xff50},       {"end", 0xff57},       {"left", 0xff51},
    {"up", 0xff52},       {"right", 0xff53},      {"down", 0xff54},      {"arrowleft", 0xff51},
    {"arrowup", 0xff52},  {"arrowright", 0xff53}, {"arrowdown", 0xff54}, {"page_up", 0xff55},
    {"pageup", 0xff55},   {"prior", 0xff55},      {"page_down", 0xff56}, {"pagedown", 0xff56},
    {"next", 0xff56},     {"caps_lock", 0xffe5},  {"capslock", 0xffe5},  {"num_lock", 0xff7f},
    {"menu", 0xff67},     {"print", 0xff61},      {"pause", 0xff13},     {"plus", '+'},
    {"minus", '-'},       {"equal", '='},         {"comma", ','},        {"period", '.'},
    {"slash", '/'},       {"backslash", '\\'},    {"semicolon", ';'},    {"apostrophe", '\''},
    {"grave", '`'},       {"bracketleft", '['},   {"bracketright", ']'}, {"underscore", '_'},
};

uint32_t keysym_of(uint32_t character) {
    if (character == '\n' || character == '\r')
        return 0xff0d;
    if (character == '\t')
        return 0xff09;
    if (character < ' ' || (character >= 0x7f && character < 0xa0))
        return 0;
    return character < LATIN_END ? character : UNICODE + character;
}

/* Returns the keysym of a function key, "f1" to "f24"; 0: it is none. */
static uint32_t keys_function(const char *text, size_t n) {
    unsigned number = 0;
    if (n < 2 || n > 3 || (text[0] | 0x20) != 'f' || text[1] == '0')
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        number = number * 10 + (unsigned)(text[i] - '0');
    }
    return number <= F_KEYS ? F1 + number - 1 : 0;
}

/* Returns the keysym of one key; 0: it is unknown. */
static uint32_t keys_find(const char *text, size_t n) {
    uint32_t character;
    if (n && utf8_decode(text, n, &character) == n)
        return keysym_of(character);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (strlen(keys[i].name) == n && strncasecmp(keys[i].name, text, n) == 0)
            return keys[i].keysym;
    return keys_function(text, n);
}

/*
 * Adds a key. A letter is a capital exactly while Shift is down: for any other pair, the X server
 * would press Caps Lock.
 */
static int chord_add(struct chord *c, uint32_t keysym, struct err *err) {
    bool has_shift = false, is_capital = keysym >= 'A' && keysym <= 'Z';
    for (size_t i = 0; i < c->count; i++)
        has_shift = has_shift || c->keysyms[i] == KEYSYM_SHIFT;
    if (c->count + (is_capital && !has_shift) >= CHORD_KEYS)
        return err_set(err, ERR_INVALID, "more than %d keys at once", CHORD_KEYS);
    if (is_capital && !has_shift)
        c->keysyms[c->count++] = KEYSYM_SHIFT;
    c->keysyms[c->count++] =
        has_shift && keysym >= 'a' && keysym <= 'z' ? keysym - 'a' + 'A' : keysym;
    return 0;
}

int chord_read(const char *text, size_t n, struct chord *ret, struct err *err) {
    struct chord c = {.count = 0};
    for (const char *end = text + n;; text++) {
        /* A '+' at the start of a key is that key itself, as in "ctrl++". */
        const char *plus = text < end ? memchr(text + 1, '+', (size_t)(end - text - 1)) : NULL;
        size_t len = (size_t)((plus ? plus : end) - text);
        uint32_t keysym = keys_find(text, len);
        if (!keysym) {
            err_set(err, ERR_INVALID, "unknown key '%.*s'",
                    (int)(len < NAME_MAX_CHARS ? len : NAME_MAX_CHARS), text);
            return err_remedy(err, "write keys as in ctrl+s, Return, alt+Tab, Page_Down, F5 or a");
        }
        if (chord_add(&c, keysym, err) < 0)
            return -1;
        if (!plus)
            break;
        text = plus;
    }
    *ret = c;
    return 0;
}
