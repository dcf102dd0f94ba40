/* A small Markdown to HTML writer: text in, text out, a byte at a time. */
#include "kernel.h"

enum { OUT_MAX = 1 << 16 };

static const char page[] =
    "# A page about *nothing*\n"
    "\n"
    "Plain words, some **bold words** and some *slanted ones*, `code <here>`\n"
    "and a [link to a place](http://example.org/a?b=1&c=2) in a paragraph\n"
    "that runs over three lines & ends here.\n"
    "\n"
    "## Lists\n"
    "\n"
    "- first point with `inline <code> & more`\n"
    "- second point, **strong**\n"
    "- third \"quoted\" point\n"
    "\n"
    "> A quotation with a [second link](/x/y/z) and an ampersand & a < sign.\n"
    "\n"
    "    indented code <b>stays</b> as it is\n"
    "    and is escaped & kept\n"
    "\n"
    "---\n"
    "\n"
    "### The end\n"
    "Last words * without emphasis * and 2 < 3.\n";

static char out[OUT_MAX];

struct writer {
    size_t len;
};

static void put(struct writer *w, char c) {
    if (w->len < OUT_MAX)
        out[w->len++] = c;
}

static void put_text(struct writer *w, const char *s) {
    while (*s)
        put(w, *s++);
}

static void put_escaped(struct writer *w, char c) {
    switch (c) {
    case '<':
        put_text(w, "&lt;");
        break;
    case '>':
        put_text(w, "&gt;");
        break;
    case '&':
        put_text(w, "&amp;");
        break;
    case '"':
        put_text(w, "&quot;");
        break;
    default:
        put(w, c);
    }
}

static const char *find(const char *s, const char *end, char c) {
    while (s < end && *s != c)
        s++;
    return s < end ? s : NULL;
}

static void put_span(struct writer *w, const char *s, const char *end);

static const char *put_code(struct writer *w, const char *s, const char *end) {
    const char *close = find(s + 1, end, '`');
    if (!close)
        return NULL;
    put_text(w, "<code>");
    for (s++; s < close; s++)
        put_escaped(w, *s);
    put_text(w, "</code>");
    return close + 1;
}

static const char *put_emphasis(struct writer *w, const char *s, const char *end) {
    int strong = s + 1 < end && s[1] == '*';
    const char *from = s + 1 + strong;
    const char *close = find(from, end, '*');
    if (!close || close == from || *from == ' ')
        return NULL;
    put_text(w, strong ? "<strong>" : "<em>");
    put_span(w, from, close);
    put_text(w, strong ? "</strong>" : "</em>");
    return close + 1 + strong;
}

static const char *put_link(struct writer *w, const char *s, const char *end) {
    const char *close = find(s, end, ']');
    const char *stop = close && close + 1 < end && close[1] == '(' ? find(close, end, ')') : NULL;
    if (!stop)
        return NULL;
    put_text(w, "<a href=\"");
    for (const char *p = close + 2; p < stop; p++)
        put_escaped(w, *p);
    put_text(w, "\">");
    put_span(w, s + 1, close);
    put_text(w, "</a>");
    return stop + 1;
}

static NOINLINE void put_span(struct writer *w, const char *s, const char *end) {
    while (s < end) {
        const char *next = NULL;
        if (*s == '`')
            next = put_code(w, s, end);
        else if (*s == '*')
            next = put_emphasis(w, s, end);
        else if (*s == '[')
            next = put_link(w, s, end);
        if (!next) {
            put_escaped(w, *s);
            next = s + 1;
        }
        s = next;
    }
}

static int starts(const char *s, const char *end, const char *prefix) {
    for (; *prefix; prefix++, s++)
        if (s >= end || *s != *prefix)
            return 0;
    return 1;
}

static void put_wrapped(struct writer *w, const char *tag, const char *s, const char *end) {
    put(w, '<');
    put_text(w, tag);
    put(w, '>');
    put_span(w, s, end);
    put_text(w, "</");
    put_text(w, tag);
    put_text(w, ">\n");
}

static NOINLINE void put_line(struct writer *w, const char *s, const char *end) {
    static const struct {
        const char *prefix, *tag;
        int skip;
    } kinds[] = {{"### ", "h3", 4}, {"## ", "h2", 3}, {"# ", "h1", 2},
                 {"- ", "li", 2},   {"> ", "q", 2},   {"    ", "pre", 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (starts(s, end, kinds[i].prefix)) {
            put_wrapped(w, kinds[i].tag, s + kinds[i].skip, end);
            return;
        }
    if (starts(s, end, "---"))
        put_text(w, "<hr>\n");
    else if (s < end)
        put_wrapped(w, "p", s, end);
}

KERNEL uint32_t run(uint32_t n) {
    uint32_t sum = 0;
    const char *const end = page + sizeof page - 1;
    for (uint32_t i = 0; i < n; i++) {
        struct writer w = {0};
        for (const char *s = page; s < end;) {
            const char *stop = find(s, end, '\n');
            put_line(&w, s, stop ? stop : end);
            s = stop ? stop + 1 : end;
        }
        sum = mix(sum, (uint32_t)w.len + (uint8_t)out[i % w.len]);
    }
    return sum;
}
