/* Writes the OpenAPI document from the tables of routes and schemas. */
#include <stdio.h>
#include <string.h>

#include "api/bodies.h"
#include "api/openapi.h"
#include "api/route.h"
#include "base/defer.h"

enum { DOCUMENT_MAX = 1 << 20, REF_SIZE = 100 };

static const char about[] =
    "Every AI agent gets its own computer. On the unix socket the kernel names the caller and no "
    "token is needed; over TCP a bearer token names the caller. A size is a number of bytes or a "
    "string such as \"512M\"; a duration is a number of seconds or a string such as \"5m\". In a "
    "request, null is the same as leaving a field out, and unknown fields are refused. Answers may "
    "have fields that this document does not name.";

static const char type_json[] = "application/json", type_lines[] = "application/x-ndjson",
                  type_sse[] = "text/event-stream";

/* ---- parameters ---- */

static void put_choices(struct jot *j, const char *const *choices) {
    jot_array(j, "enum");
    for (; *choices; choices++)
        jot_string(j, NULL, *choices);
    jot_end(j, ']');
}

static void parameter(struct jot *j, const char *in, const struct query *q) {
    jot_object(j, NULL);
    jot_string(j, "name", q->name);
    jot_string(j, "in", in);
    jot_bool(j, "required", q->required);
    jot_object(j, "schema");
    jot_string(j, "type", q->type);
    if (q->choices)
        put_choices(j, q->choices);
    jot_end(j, '}');
    if (q->doc)
        jot_string(j, "description", q->doc);
    jot_end(j, '}');
}

static void parameters(struct jot *j, const struct route *r) {
    char path[ROUTE_PATH_SIZE];
    route_path_named(r, path);
    jot_array(j, "parameters");
    for (const char *p = strchr(path, '{'); p; p = strchr(p + 1, '{')) {
        char name[32];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, "}"), p + 1);
        parameter(j, "path", &(struct query){name, "string", NULL, .required = true});
    }
    for (const struct query *q = r->queries; q && q->name; q++)
        parameter(j, "query", q);
    jot_end(j, ']');
}

/* ---- bodies ---- */

static void put_ref(struct jot *j, const char *name, const char *schema) {
    char ref[REF_SIZE];
    snprintf(ref, sizeof(ref), "#/components/schemas/%s", schema);
    jot_object(j, name);
    jot_string(j, "$ref", ref);
    jot_end(j, '}');
}

/* One media type. `schema` NULL: bytes, or JSON or text of any form. */
static void media(struct jot *j, const char *type, const char *schema) {
    jot_object(j, type);
    if (schema)
        put_ref(j, "schema", schema);
    jot_end(j, '}');
}

/* A stream: the schema is that of each line, or of the data of each event. OpenAPI 3.1 has no word
 * for this, so the extension says it. */
static void stream(struct jot *j, const char *type, const char *events) {
    jot_object(j, type);
    put_ref(j, "schema", events);
    jot_string(j, "x-carrel-stream", strcmp(type, type_sse) == 0 ? "events" : "lines");
    jot_end(j, '}');
}

static void content(struct jot *j, const struct route *r) {
    bool both;
    const char *events = route_events(r, &both), *type = r->type ? r->type : type_json;
    jot_object(j, "content");
    if (!events || r->response)
        media(j, type, r->response ? r->response->name : NULL);
    if (events && (both || strcmp(type, type_lines) == 0))
        stream(j, type_lines, events);
    if (events && (both || strcmp(type, type_sse) == 0))
        stream(j, type_sse, events);
    jot_end(j, '}');
}

static void responses(struct jot *j, const struct route *r) {
    char status[16];
    snprintf(status, sizeof(status), "%d", r->status);
    jot_object(j, "responses");
    jot_object(j, status);
    jot_string(j, "description", "done");
    content(j, r);
    jot_end(j, '}');
    jot_object(j, "default");
    jot_string(j, "$ref", "#/components/responses/Refused");
    jot_end(j, '}');
    jot_end(j, '}');
}

static bool needs_body(const struct schema *s) {
    for (size_t i = 0; i < s->count; i++)
        if (s->fields[i].required)
            return true;
    return false;
}

static void request_body(struct jot *j, const struct route *r) {
    jot_object(j, "requestBody");
    jot_bool(j, "required", r->request && needs_body(r->request));
    jot_object(j, "content");
    media(j, r->body == BODY_JSON ? type_json : "application/octet-stream",
          r->request ? r->request->name : NULL);
    jot_end(j, '}');
    jot_end(j, '}');
}

/* ---- operations ---- */

/* The group of a route: the resource of a machine, such as "files", or the first word after /v1. */
static void put_tag(struct jot *j, const struct route *r) {
    static const char *const parts[] = {"execs",  "files",     "steps",     "net",
                                        "grants", "exposures", "changesets"};
    static const char below[] = "/v1/machines/{}/";
    const char *word = strncmp(r->path, "/v1/", 4) == 0 ? r->path + 4 : r->path + 1;
    if (strncmp(r->path, below, strlen(below)) == 0)
        for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
            if (strncmp(r->path + strlen(below), parts[i], strlen(parts[i])) == 0)
                word = parts[i];
    char tag[32];
    snprintf(tag, sizeof(tag), "%.*s", (int)strcspn(word, "/."), word);
    jot_array(j, "tags");
    jot_string(j, NULL, tag);
    jot_end(j, ']');
}

/* A token with the scope, or no token on the unix socket. */
static void security(struct jot *j, const struct route *r) {
    jot_array(j, "security");
    if (r->scope) {
        jot_object(j, NULL);
        jot_array(j, "token");
        jot_string(j, NULL,
                   r->scope == SCOPE_RUN     ? "run"
                   : r->scope == SCOPE_ADMIN ? "admin"
                                             : "read");
        jot_end(j, ']');
        jot_end(j, '}');
        jot_object(j, NULL);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void operation(struct jot *j, const struct route *r) {
    char method[16];
    size_t n = 0;
    for (; r->method[n]; n++)
        method[n] = (char)(r->method[n] | 32);
    method[n] = '\0';
    jot_object(j, method);
    jot_string(j, "operationId", r->id);
    put_tag(j, r);
    jot_string(j, "summary", r->summary);
    security(j, r);
    parameters(j, r);
    if (r->body != BODY_NONE)
        request_body(j, r);
    responses(j, r);
    jot_end(j, '}');
}

static bool seen_before(size_t at) {
    for (size_t i = 0; i < at; i++)
        if (strcmp(routes[i].path, routes[at].path) == 0)
            return true;
    return false;
}

static void paths(struct jot *j) {
    jot_object(j, "paths");
    for (size_t i = 0; i < route_count; i++) {
        char path[ROUTE_PATH_SIZE];
        if (seen_before(i))
            continue;
        route_path_named(&routes[i], path);
        jot_object(j, path);
        for (size_t k = i; k < route_count; k++)
            if (strcmp(routes[k].path, routes[i].path) == 0)
                operation(j, &routes[k]);
        jot_end(j, '}');
    }
    jot_end(j, '}');
}

/* ---- components ---- */

static void put_union(struct jot *j, const struct event_union *u) {
    jot_object(j, u->name);
    jot_array(j, "oneOf");
    for (size_t i = 0; i < u->count; i++)
        if (i == 0 || u->kinds[i].schema != u->kinds[i - 1].schema)
            put_ref(j, NULL, u->kinds[i].schema->name);
    jot_end(j, ']');
    jot_object(j, "discriminator");
    jot_string(j, "propertyName", u->member);
    jot_object(j, "mapping");
    for (size_t i = 0; i < u->count; i++) {
        char ref[REF_SIZE];
        snprintf(ref, sizeof(ref), "#/components/schemas/%s", u->kinds[i].schema->name);
        jot_string(j, u->kinds[i].value, ref);
    }
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, '}');
}

static void components(struct jot *j) {
    jot_object(j, "components");
    jot_object(j, "schemas");
    for (const struct schema *const *s = all_schemas; *s; s++)
        schema_describe(*s, j, (*s)->name);
    for (size_t i = 0; i < event_union_count; i++)
        put_union(j, &event_unions[i]);
    jot_end(j, '}');
    jot_object(j, "responses");
    jot_object(j, "Refused");
    jot_string(j, "description", "refused or failed; `code` says how, `remedy` what to do");
    jot_object(j, "content");
    media(j, type_json, error_schema.name);
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, '}');
    jot_object(j, "securitySchemes");
    jot_object(j, "token");
    jot_string(j, "type", "http");
    jot_string(j, "scheme", "bearer");
    jot_string(j, "description", "secret of a token: POST /v1/tokens, or `carrel token new`");
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, '}');
}

static void heading(struct jot *j) {
    jot_string(j, "openapi", "3.1.0");
    jot_object(j, "info");
    jot_string(j, "title", "Carrel");
    jot_string(j, "version", CARREL_VERSION);
    jot_string(j, "description", about);
    jot_object(j, "license");
    jot_string(j, "name", "Apache-2.0");
    jot_string(j, "identifier", "Apache-2.0");
    jot_end(j, '}');
    jot_end(j, '}');
    jot_array(j, "servers");
    jot_object(j, NULL);
    jot_string(j, "url", "/");
    jot_string(j, "description",
               "the daemon that sent this document: its unix socket, or where it listens on TCP");
    jot_end(j, '}');
    jot_end(j, ']');
}

void openapi_write(struct jot *j) {
    jot_object(j, NULL);
    heading(j);
    paths(j);
    components(j);
    jot_end(j, '}');
}

void api_openapi(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(DOCUMENT_MAX);
    struct jot j = JOT(&text);
    openapi_write(&j);
    call_json(c, 200, &j, &text);
}
