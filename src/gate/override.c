#include "gate/override.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "gate/path.h"

static const char form_name[] = "_method";

static const struct {
    const char *name;
    bool paths; /* else methods */
} fields[] = {
    {"x-http-method-override", false}, {"x-http-method", false},
    {"x-method-override", false},      {"x-original-url", true},
    {"x-original-uri", true},          {"x-original-path", true},
    {"x-rewrite-url", true},           {"x-rewrite-uri", true},
    {"x-override-url", true},          {"x-forwarded-path", true},
    {"x-forwarded-prefix", true},      {"x-forwarded-uri", true},
    {"x-forwarded-url", true},         {"x-envoy-original-path", true},
};
enum { FIELDS = sizeof(fields) / sizeof(*fields) };

/* Servers that pass fields on as variables make no difference between '_' and '-'. */
static bool is_field(struct http_text t, const char *name) {
    if (t.n != strlen(name))
        return false;
    for (size_t i = 0; i < t.n; i++)
        if ((t.s[i] == '_' ? '-' : tolower((unsigned char)t.s[i])) != name[i])
            return false;
    return true;
}

static const char *field_refused(struct http_text name, struct policy_care care) {
    for (size_t i = 0; i < FIELDS; i++)
        if (is_field(name, fields[i].name)) {
            if (fields[i].paths && care.paths)
                return "a field of it names another path, and a rule is about paths";
            if (!fields[i].paths && care.methods)
                return "a field of it names another method, and a rule is about methods";
        }
    return NULL;
}

/* ---- forms ---- */

static void next_name(struct override_scan *s) {
    s->matched = s->percent_n = 0;
    s->in_value = false;
}

/* Some languages take ".method" or " _method" for it, too. */
static bool is_blank(const struct override_scan *s, char c) {
    return s->matched == 0 && (c == ' ' || c == '+');
}

/* A character of a name. True: the name is there, whole. */
static bool take_name(struct override_scan *s, char c) {
    if (s->matched == sizeof(form_name) - 1 && (c == '\0' || strchr("=&;[", c)))
        return true;
    if (is_blank(s, c))
        return false;
    c = c == '.' && s->matched == 0 ? form_name[0] : (char)tolower((unsigned char)c);
    if (c == form_name[s->matched] && c)
        s->matched++;
    else
        s->in_value = true; /* it is another one */
    return false;
}

static bool take_digit(struct override_scan *s, char c) {
    s->percent[s->percent_n++] = c;
    if (s->percent_n < sizeof(s->percent))
        return false;
    s->percent_n = 0;
    return take_name(s, (char)path_hex(s->percent + 1));
}

static bool take_encoded(struct override_scan *s, char c) {
    if (s->percent_n && isxdigit((unsigned char)c))
        return take_digit(s, c);
    if (s->percent_n) { /* it encoded nothing, and is no part of the name */
        s->percent_n = 0;
        s->in_value = true;
    }
    if (c == '%' && !s->in_value) {
        s->percent[s->percent_n++] = c;
        return false;
    }
    bool found = !s->in_value && take_name(s, c);
    if (c == '&' || c == ';')
        next_name(s);
    else if (c == '=')
        s->in_value = true;
    return found;
}

static bool is_of_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* In parts it stands in their heads, as a word in quotes or behind "="; so it is found anywhere. */
static bool take_part(struct override_scan *s, char c) {
    bool whole = s->matched == sizeof(form_name) - 1, begins = s->last && strchr("\"'=", s->last);
    if (whole && !is_of_word(c))
        return true;
    if (s->matched && !whole && tolower((unsigned char)c) == form_name[s->matched])
        s->matched++;
    else
        s->matched = begins && c == form_name[0];
    s->last = c;
    return false;
}

bool override_feed(struct override_scan *s, const char *bytes, size_t n) {
    for (size_t i = 0; s->form != FORM_NONE && i < n; i++)
        if (s->form == FORM_ENCODED ? take_encoded(s, bytes[i]) : take_part(s, bytes[i]))
            return true;
    return false;
}

static bool starts(struct http_text t, const char *with) {
    size_t n = strlen(with);
    return t.n >= n && strncasecmp(t.s, with, n) == 0;
}

void override_begin(struct override_scan *s, const struct http_head *h, struct policy_care care) {
    *s = (struct override_scan){.form = FORM_NONE};
    for (size_t i = 0; care.methods && i < h->count; i++) {
        if (!http_text_is_like(h->fields[i].name, "Content-Type"))
            continue;
        if (starts(h->fields[i].value, "application/x-www-form-urlencoded"))
            s->form = FORM_ENCODED;
        else if (starts(h->fields[i].value, "multipart/"))
            s->form = FORM_PARTS;
    }
}

/* ---- heads ---- */

static bool query_names_method(struct http_text query) {
    struct override_scan s = {.form = FORM_ENCODED};
    return query.n && (override_feed(&s, query.s, query.n) || override_feed(&s, "&", 1));
}

const char *override_in_head(const struct http_head *h, struct policy_care care) {
    for (size_t i = 0; i < h->count; i++) {
        const char *why = field_refused(h->fields[i].name, care);
        if (why)
            return why;
    }
    if (care.methods && query_names_method(h->query))
        return "its query names another method, and a rule is about methods";
    return NULL;
}
