#include "gate/override.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "gate/path.h"

static const char form_name[] = "_method";

static const struct {
    const char *name;
    bool paths; /* the field replaces the path; false: the method */
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

/* CGI-like servers treat '_' and '-' in field names as equal. */
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
                return "a header field names another path, and a rule checks paths or asks for "
                       "approval";
            if (!fields[i].paths && care.methods)
                return "a header field names another method, and a rule checks methods or asks for "
                       "approval";
        }
    return NULL;
}

/* ---- the name "_method" in forms ---- */

enum { ENCODED_SIZE = 3, ESCAPE_SIZE = 6 }; /* %5f, \\u005f */

static void next_name(struct override_name *s) {
    *s = (struct override_name){.matched = 0};
}

/* Some frameworks also read ".method" and " _method" as "_method": leading blanks are skipped. */
static bool is_blank(const struct override_name *s, char c) {
    return s->matched == 0 && (c == ' ' || c == '+');
}

/* Takes the next character of a field name. True: the name is complete and is "_method". */
static bool override_take_name(struct override_name *s, char c) {
    if (s->matched == sizeof(form_name) - 1 && (c == '\0' || strchr("=&;[", c)))
        return true;
    if (is_blank(s, c))
        return false;
    c = c == '.' && s->matched == 0 ? form_name[0] : (char)tolower((unsigned char)c);
    if (c == form_name[s->matched] && c)
        s->matched++;
    else
        s->in_value = true; /* not "_method": skip the rest of the field */
    return false;
}

static bool take_digit(struct override_name *s, char c) {
    s->escaped[s->escaped_n++] = c;
    if (s->escaped_n < ENCODED_SIZE)
        return false;
    s->escaped_n = 0;
    return override_take_name(s, (char)path_hex(s->escaped + 1));
}

static bool take_encoded(struct override_name *s, char c) {
    if (s->escaped_n && isxdigit((unsigned char)c))
        return take_digit(s, c);
    if (s->escaped_n) { /* an incomplete escape is not part of the name */
        s->escaped_n = 0;
        s->in_value = true;
    }
    if (c == '%' && !s->in_value) {
        s->escaped[s->escaped_n++] = c;
        return false;
    }
    bool found = !s->in_value && override_take_name(s, c);
    if (c == '&' || c == ';')
        next_name(s);
    else if (c == '=')
        s->in_value = true;
    return found;
}

static bool is_of_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Multipart bodies have the name in the heads of their parts, in quotes or after "=". Looks for it
 * anywhere in the body, because heads are not parsed. */
static bool take_part(struct override_name *s, char c) {
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

static void take_string(struct override_name *s, char c) {
    if (!s->in_value && s->matched < sizeof(form_name) - 1 &&
        tolower((unsigned char)c) == form_name[s->matched])
        s->matched++;
    else
        s->in_value = true;
}

static void take_escape(struct override_name *s, char c) {
    s->escaped[s->escaped_n++] = c;
    if (s->escaped_n == 2 && c == 'u')
        return;
    if (s->escaped_n > 1 && s->escaped_n < ESCAPE_SIZE && s->escaped[1] == 'u')
        return;
    bool plain = s->escaped_n == ESCAPE_SIZE && s->escaped[2] == '0' && s->escaped[3] == '0';
    take_string(s, plain ? (char)path_hex(s->escaped + 4) : '\0');
    s->escaped_n = 0;
}

/* In JSON a name is a string that is followed by a colon, at any depth. */
static bool take_json(struct override_name *s, char c) {
    if (s->escaped_n) {
        take_escape(s, c);
    } else if (s->in_string && c == '\\') {
        s->escaped[s->escaped_n++] = c;
    } else if (s->in_string && c != '"') {
        take_string(s, c);
    } else if (c == '"') {
        bool over = s->in_string;
        bool fits = over && !s->in_value && s->matched == sizeof(form_name) - 1;
        *s = (struct override_name){.in_string = !over, .was_name = fits};
    } else if (s->was_name && !strchr(" \t\r\n", c)) {
        s->was_name = false;
        return c == ':';
    }
    return false;
}

bool override_feed(struct override_scan *s, const char *bytes, size_t n) {
    for (size_t i = 0; s->forms && i < n; i++)
        if ((s->forms & FORM_ENCODED && take_encoded(&s->encoded, bytes[i])) ||
            (s->forms & FORM_PARTS && take_part(&s->parts, bytes[i])) ||
            (s->forms & FORM_JSON && take_json(&s->json, bytes[i])))
            return true;
    return false;
}

static bool holds(struct http_text t, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= t.n; i++)
        if (strncasecmp(t.s + i, word, n) == 0)
            return true;
    return false;
}

/* Servers are lenient about content types, so any type that contains the word counts. */
static unsigned forms_of(struct http_text type) {
    static const struct {
        const char *word;
        enum override_form form;
    } types[] = {
        {"form-urlencoded", FORM_ENCODED}, {"multipart/", FORM_PARTS}, {"json", FORM_JSON}};
    unsigned forms = 0;
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        forms |= holds(type, types[i].word) ? types[i].form : 0;
    return forms;
}

void override_begin(struct override_scan *s, const struct http_head *h, struct policy_care care) {
    *s = (struct override_scan){.forms = 0};
    for (size_t i = 0; care.methods && i < h->count; i++)
        if (is_field(h->fields[i].name, "content-type"))
            s->forms |= forms_of(h->fields[i].value);
}

/* True if the content type names no charset, or only charsets that write "_method" in ASCII. */
static bool is_plain_charset(struct http_text type) {
    static const char word[] = "charset";
    static const char *const plain[] = {"utf-8", "utf8", "us-ascii", "iso-8859-1"};
    for (size_t i = 0; i + sizeof(word) <= type.n; i++) {
        if (strncasecmp(type.s + i, word, sizeof(word) - 1) != 0)
            continue;
        bool known = false;
        size_t at = i + sizeof(word) - 1;
        while (at < type.n && strchr(" \t=\"'", type.s[at]))
            at++;
        for (size_t k = 0; k < sizeof(plain) / sizeof(*plain); k++) {
            size_t n = strlen(plain[k]), end = at + n;
            known |= end <= type.n && strncasecmp(type.s + at, plain[k], n) == 0 &&
                     (end == type.n || strchr(" \t\"';,", type.s[end]));
        }
        if (!known)
            return false;
    }
    return true;
}

/* True if the gate cannot see "_method" in the form as its server does: another charset, or a
 * compressed form. Compressed JSON is accepted, because programs send it; they do not compress
 * forms. */
static bool hides_form(const struct http_head *h) {
    bool packed = false, odd = false;
    unsigned forms = 0;
    for (size_t i = 0; i < h->count; i++) {
        struct http_text name = h->fields[i].name, value = h->fields[i].value;
        if (is_field(name, "content-encoding"))
            packed |= value.n && !http_text_is_like(value, "identity");
        if (!is_field(name, "content-type"))
            continue;
        forms |= forms_of(value);
        odd |= !is_plain_charset(value);
    }
    return (forms && odd) || (forms & (FORM_ENCODED | FORM_PARTS) && packed);
}

/* ---- overrides in request heads ---- */

static bool query_names_method(struct http_text query) {
    struct override_scan s = {.forms = FORM_ENCODED};
    return query.n && (override_feed(&s, query.s, query.n) || override_feed(&s, "&", 1));
}

const char *override_in_head(const struct http_head *h, struct policy_care care) {
    for (size_t i = 0; i < h->count; i++) {
        const char *why = field_refused(h->fields[i].name, care);
        if (why)
            return why;
    }
    if (care.methods && hides_form(h))
        return "the encoding of the form could hide a method";
    if (care.methods && query_names_method(h->query))
        return "the query names another method, and a rule checks methods or asks for approval";
    return NULL;
}
