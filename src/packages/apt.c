#include "packages/apt.h"

#include <string.h>
#include <strings.h>

/* ---- Release ---- */

static bool is_list_name(const char *name, size_t n) {
    static const char *const names[] = {"Packages", "Packages.gz", "Packages.xz"};
    const char *slash = memrchr(name, '/', n);
    const char *base = slash ? slash + 1 : name;
    size_t length = n - (size_t)(base - name);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (length == strlen(names[i]) && memcmp(base, names[i], length) == 0)
            return true;
    return false;
}

/* Cuts the next word, which ends at a blank, from the line. */
static const char *cut_word(const char **at, const char *end, size_t *ret) {
    while (*at < end && (**at == ' ' || **at == '\t'))
        ++*at;
    const char *word = *at;
    while (*at < end && **at != ' ' && **at != '\t' && **at != '\r')
        ++*at;
    *ret = (size_t)(*at - word);
    return word;
}

static bool read_release_row(const char *line, const char *end, const char *dir,
                             struct package_rows *ret) {
    size_t digits, size_digits, length;
    const char *hex = cut_word(&line, end, &digits);
    (void)cut_word(&line, end, &size_digits);
    const char *name = cut_word(&line, end, &length);
    return !length || !size_digits || digits != 64 || !is_list_name(name, length) ||
           package_rows_add(ret, dir, name, length, hex, digits);
}

bool apt_release_read(const char *text, size_t n, const char *dir, struct package_rows *ret) {
    static const char section[] = "SHA256:";
    const char *end = text + n;
    bool inside = false;
    for (const char *line = text, *next; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next : end;
        size_t length = (size_t)(next - line);
        if (length && (line[0] == ' ' || line[0] == '\t')) {
            if (inside && !read_release_row(line, next, dir, ret))
                return false;
        } else {
            inside = length >= sizeof(section) - 1 &&
                     strncasecmp(line, section, sizeof(section) - 1) == 0;
        }
    }
    return true;
}

/* ---- Packages ---- */

void apt_list_begin(struct apt_list *l, const char *root, struct package_rows *rows) {
    l->root = root;
    l->rows = rows;
    l->n = 0;
    l->name[0] = l->hex[0] = '\0';
    l->spoiled = false;
}

static bool end_stanza(struct apt_list *l) {
    bool ok = l->spoiled || !l->name[0] || !l->hex[0] ||
              package_rows_add(l->rows, l->root, l->name, strlen(l->name), l->hex, strlen(l->hex));
    l->name[0] = l->hex[0] = '\0';
    l->spoiled = false;
    return ok;
}

/* Takes the value of the field from the line, if the line has it. */
static void take_field(struct apt_list *l, const char *field, char value[APT_LINE_MAX]) {
    size_t length = strlen(field), kept = l->n < APT_LINE_MAX ? l->n : APT_LINE_MAX, n;
    if (kept < length || strncasecmp(l->line, field, length) != 0)
        return;
    const char *at = l->line + length, *end = l->line + kept;
    const char *word = cut_word(&at, end, &n);
    const char *more = cut_word(&at, end, &(size_t){0});
    l->spoiled |= l->n > APT_LINE_MAX || value[0] || !n || n >= APT_LINE_MAX ||
                  memchr(word, '\0', n) || (more < end && *more != '\r');
    if (l->spoiled)
        return;
    memcpy(value, word, n);
    value[n] = '\0';
}

static bool end_line(struct apt_list *l) {
    bool blank = l->n == 0 || (l->n == 1 && l->line[0] == '\r');
    bool ok = true;
    if (blank) {
        ok = end_stanza(l);
    } else {
        take_field(l, "Filename:", l->name);
        take_field(l, "SHA256:", l->hex);
    }
    l->n = 0;
    return ok;
}

bool apt_list_feed(struct apt_list *l, const char *bytes, size_t n) {
    for (const char *end = bytes + n; bytes < end;) {
        const char *next = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t length = (size_t)((next ? next : end) - bytes);
        if (l->n < APT_LINE_MAX) {
            size_t room = APT_LINE_MAX - l->n;
            memcpy(l->line + l->n, bytes, length < room ? length : room);
        }
        l->n += length;
        if (!next)
            return true;
        if (!end_line(l))
            return false;
        bytes = next + 1;
    }
    return true;
}

bool apt_list_end(struct apt_list *l) {
    return (l->n == 0 || end_line(l)) && end_stanza(l);
}
