#include "gate/refusal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "base/jot.h"

/* apt reads at most 359 bytes of a reason phrase. */
enum { PHRASE_MAX = 340, WHY_SIZE = 512 };

enum remedy remedy_of(const struct policy_answer *a) {
    if (a->by_taint)
        return REMEDY_TAINT;
    if (!a->rule)
        return REMEDY_ALLOW;
    if (a->rule->action != POLICY_DENY)
        return REMEDY_NONE;
    return strcmp(a->rule->from, "conf") == 0 ? REMEDY_CONF : REMEDY_RULE;
}

bool refusal_wants_json(const struct http_head *h) {
    for (size_t i = 0; i < h->count; i++) {
        struct http_text rest = h->fields[i].value, type;
        if (!http_text_is_like(h->fields[i].name, "Accept"))
            continue;
        while (http_list_next(&rest, &type)) {
            const char *end = memchr(type.s, ';', type.n);
            size_t n = end ? (size_t)(end - type.s) : type.n;
            while (n && type.s[n - 1] == ' ')
                n--;
            if (n >= 5 && strchr("/+", type.s[n - 5]) &&
                strncasecmp(type.s + n - 4, "json", 4) == 0)
                return true;
        }
    }
    return false;
}

/* ---- the remedy ---- */

/* Each text is followed by the command, if there is one. "%m" is the machine, "%t" the target, "%h"
 * the host and "%r" the number of the rule. */
static const struct {
    const char *text, *command;
} remedies[REMEDIES] = {
    [REMEDY_NONE] = {"", ""},
    [REMEDY_ALLOW] = {"the owner of this machine can allow this host: ", "carrel net %m allow %t"},
    [REMEDY_RULE] = {"the owner of this machine can delete the rule: ", "carrel net %m rm %r"},
    [REMEDY_CONF] =
        {"the key internet in the section [e2b] of carrel.conf denies it, but the owner of "
         "this machine can allow this host: ",
         "carrel net %m allow %t"},
    [REMEDY_LOCAL] = {"the owner of this machine can allow such an address: ",
                      "carrel net %m allow --local %t"},
    [REMEDY_TAINT] = {"the owner of this machine can allow this host also after that: ",
                      "carrel net %m allow --tainted %t"},
    [REMEDY_APPROVE] = {"the owner of this machine can see and approve waiting requests: ",
                        "carrel pending"},
    [REMEDY_RETRY] =
        {"the key internet in the section [e2b] of carrel.conf asks for it, so the owner of this "
         "machine can approve the request, and the program can then send it again: ",
         "carrel pending"},
    [REMEDY_SECRET_HOST] = {"the owner of this machine can grant the secret for this host: ",
                            "carrel grant add %m --secret NAME@%h"},
    [REMEDY_SECRET_PLACE] = {"send the placeholder in the part of the request that the grant names "
                             "(a header field, unless :basic or :query): ",
                             "carrel grants %m"},
    [REMEDY_SECRET_TLS] = {"use https:// for requests with a secret", ""},
    [REMEDY_SECRET_LOST] = {"the owner of this machine can set it again: ",
                            "carrel secret set NAME"},
};

/* The length of what is appended to ret[n]; the buffer has room for the longest remedy. */
__attribute__((format(printf, 3, 4))) static size_t append(char ret[REMEDY_SIZE], size_t n,
                                                           const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int more = vsnprintf(ret + n, REMEDY_SIZE - n, fmt, args);
    va_end(args);
    assert(more >= 0 && (size_t)more < REMEDY_SIZE - n);
    return n + (size_t)more;
}

static size_t append_target(const struct refusal *r, char ret[REMEDY_SIZE], size_t n) {
    bool is_tcp = !r->knows_protocol || r->protocol == PROTOCOL_TCP;
    unsigned usual = is_tcp ? 0 : r->protocol == PROTOCOL_HTTP ? 80 : 443;
    bool six = strchr(r->host, ':') != NULL;
    n = append(ret, n, "%s%s%s%s", is_tcp ? "tcp://" : "", six ? "[" : "", r->host, six ? "]" : "");
    return r->port == usual ? n : append(ret, n, ":%u", r->port);
}

static size_t append_word(const struct refusal *r, char word, char ret[REMEDY_SIZE], size_t n) {
    switch (word) {
    case 'm':
        return append(ret, n, "%s", r->machine);
    case 't':
        return append_target(r, ret, n);
    case 'h':
        return append(ret, n, "%s", r->host);
    default:
        return append(ret, n, "%" PRIu64, r->rule);
    }
}

void refusal_remedy(const struct refusal *r, char ret[REMEDY_SIZE]) {
    size_t n = 0;
    ret[0] = '\0';
    if (!r->host[0])
        return;
    n = append(ret, n, "%s", remedies[r->remedy].text);
    for (const char *p = remedies[r->remedy].command; *p; p++)
        n = *p == '%' ? append_word(r, *++p, ret, n) : append(ret, n, "%c", *p);
}

/* ---- the answer ---- */

bool refusal_put_status(int status, const char *why, struct buf *out) {
    char phrase[PHRASE_MAX + 1];
    snprintf(phrase, sizeof(phrase), "%s", why);
    for (char *p = phrase; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    return buf_addf(out, "HTTP/1.1 %s: %s\r\n", http_status_name(status), phrase);
}

/* A remedy that does not fit is left out, because half a command would mislead. */
static bool put_status(const struct refusal *r, const char *remedy, struct buf *out) {
    char phrase[PHRASE_MAX + 1];
    int n = snprintf(phrase, sizeof(phrase), "%s; %s", r->why, remedy);
    return refusal_put_status(403, *remedy && n <= PHRASE_MAX ? phrase : r->why, out);
}

static const char *code_of(const struct refusal *r) {
    return r->timed_out ? "timeout" : "denied";
}

/* npm prints the member `error`, which must be a text for that. */
static bool put_body(const struct refusal *r, const char *remedy, struct buf *out) {
    char what[NAME_SIZE + 96], whole[sizeof(what) + REMEDY_SIZE + WHY_SIZE];
    struct jot j = JOT(out);
    snprintf(what, sizeof(what), "machine '%s' may not reach '%s:%u'", r->machine,
             r->host[0] ? r->host : "?", r->port);
    snprintf(whole, sizeof(whole), "%s: %.*s%s%s", what, WHY_SIZE - 4, r->why, *remedy ? "; " : "",
             remedy);
    if (!r->wants_json)
        return buf_addf(out, "%s\n", whole);
    jot_object(&j, NULL);
    jot_string(&j, "error", whole);
    jot_string(&j, "code", code_of(r));
    jot_string(&j, "message", what);
    jot_string(&j, "cause", r->why);
    if (*remedy)
        jot_string(&j, "remedy", remedy);
    jot_end(&j, '}');
    return !j.failed && buf_add(out, "\n", 1);
}

bool refusal_put(const struct refusal *r, struct buf *out) {
    struct buf body DEFER(buf_done) = BUF(16384);
    char remedy[REMEDY_SIZE];
    refusal_remedy(r, remedy);
    if (!put_body(r, remedy, &body))
        return false;
    const char *type = r->wants_json ? "application/json" : "text/plain; charset=utf-8";
    return put_status(r, remedy, out) &&
           http_put_pairs(out, HTTP_FIELDS({"Content-Type", type}, {"Connection", "close"},
                                           {"Carrel-Gate", code_of(r)})) &&
           http_put_number(out, "Content-Length", body.len) && http_put_end(out) &&
           (r->no_body || buf_add(out, body.data, body.len));
}
