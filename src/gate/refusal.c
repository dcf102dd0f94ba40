/* Writes the refusal that a client in the machine reads. */
#include <string.h>

#include "base/defer.h"
#include "gate/inner.h"

static const char *code_of(const struct conn *c) {
    return c->timed_out ? "timeout" : "denied";
}

/* Writes the command with which the owner can allow the host. */
static void put_remedy(const struct conn *c, struct jot *j) {
    char text[NAME_SIZE + ID_SIZE + 96];
    const char *scheme = !c->knows_protocol || c->protocol == PROTOCOL_TCP ? "tcp://" : "";
    unsigned usual = c->knows_protocol && c->protocol == PROTOCOL_HTTP  ? 80
                     : c->knows_protocol && c->protocol == PROTOCOL_TLS ? 443
                                                                        : 0;
    char port[8] = "";
    if (c->port != usual)
        snprintf(port, sizeof(port), ":%u", c->port);
    snprintf(text, sizeof(text),
             "the owner of this machine can allow this host: carrel net %s allow %s%s%s",
             c->machine->id, scheme, c->host, port);
    jot_string(j, "remedy", text);
}

static bool put_json(const struct conn *c, const char *why, struct buf *out) {
    char text[NAME_SIZE + ID_SIZE + 64];
    struct jot j = JOT(out);
    snprintf(text, sizeof(text), "machine '%s' may not reach '%s:%u'", c->machine->id,
             c->host[0] ? c->host : "?", c->port);
    jot_object(&j, NULL);
    jot_object(&j, "error");
    jot_string(&j, "code", code_of(c));
    jot_string(&j, "message", text);
    jot_string(&j, "cause", why);
    if (c->host[0])
        put_remedy(c, &j);
    jot_end(&j, '}');
    jot_end(&j, '}');
    return !j.failed && buf_add(out, "\n", 1);
}

bool refusal_response(const struct conn *c, const char *method, const char *why, struct buf *out) {
    struct buf json DEFER(buf_done) = BUF(8192);
    if (!put_json(c, why, &json))
        return false;
    return http_put_status_line(out, 403) &&
           http_put_pairs(out, HTTP_FIELDS({"Content-Type", "application/json"},
                                           {"Connection", "close"}, {"Carrel-Gate", code_of(c)})) &&
           http_put_number(out, "Content-Length", json.len) && http_put_end(out) &&
           (strcmp(method, "HEAD") == 0 || buf_add(out, json.data, json.len));
}
