#include "base/text/visible.h"

#include "base/utf8.h"

/* The middle dot that replaces a space. A middle dot of the text itself becomes \u{b7}. */
#define MARK "\u00b7"
enum { MARK_CHAR = 0xb7 };

/*
 * Ranges of characters that are invisible or change the characters beside them: spaces, format
 * characters (Cf) and Default_Ignorable_Code_Points of Unicode 16, and letters that look blank.
 */
static const uint32_t unseen[][2] = {
    {0x00, 0x1f},       {0x7f, 0xa0},       {0xad, 0xad},       {0x34f, 0x34f},
    {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
    {0x890, 0x891},     {0x8e2, 0x8e2},     {0x115f, 0x1160},   {0x1680, 0x1680},
    {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x2000, 0x200f},   {0x2028, 0x202f},
    {0x205f, 0x206f},   {0x2800, 0x2800},   {0x3000, 0x3000},   {0x3164, 0x3164},
    {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffc},
    {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1345f}, {0x16fe4, 0x16fe4},
    {0x1bca0, 0x1bca3}, {0x1d159, 0x1d159}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

bool visible_is_unseen(uint32_t c) {
    for (size_t i = 0; i < sizeof(unseen) / sizeof(*unseen); i++)
        if (c >= unseen[i][0] && c <= unseen[i][1])
            return true;
    return false;
}

static bool add_space(struct buf *to, const char *text, size_t n, size_t at) {
    bool alone = at && at + 1 < n && text[at - 1] != ' ' && text[at + 1] != ' ';
    return alone ? buf_add(to, " ", 1) : buf_add(to, MARK, 2);
}

bool visible_add(struct buf *to, const char *text, size_t n) {
    bool fits = true;
    for (size_t at = 0, len; fits && at < n; at += len) {
        uint32_t c = 0;
        len = utf8_decode(text + at, n - at, &c);
        if (!len)
            fits = buf_addf(to, "\\x%02x", (unsigned char)text[at]);
        else if (c == ' ')
            fits = add_space(to, text, n, at);
        else if (c == MARK_CHAR || visible_is_unseen(c))
            fits = buf_addf(to, "\\u{%x}", c);
        else
            fits = buf_add(to, text + at, len);
        len = len ? len : 1;
    }
    return fits;
}
