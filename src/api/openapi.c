/* Writes the OpenAPI document from the tables of routes and schemas. */
#include <stdio.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/defer.h"

enum { DOCUMENT_MAX = 1 << 20 };

static void parameter(struct jot *j, const char *name, const char *in, const char *type,
                      const char *doc) {
    jot_object(j, NULL);
    jot_string(j, "name", name);
    jot_string(j, "in", in);
    jot_bool(j, "required", strcmp(in, "path") == 0);
    jot_object(j, "schema");
    jot_string(j, "type", type);
    jot_end(j, '}');
    if (doc)
        jot_string(j, "description", doc);
    jot_end(j, '}');
}

static void parameters(struct jot *j, const struct route *r) {
    char path[ROUTE_PATH_SIZE];
    route_path_named(r, path);
    jot_array(j, "parameters");
    for (const char *p = strchr(path, '{'); p; p = strchr(p + 1, '{')) {
        char name[32];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(p + 1, "}"), p + 1);
        parameter(j, name, "path", "string", NULL);
    }
    for (const struct query *q = r->queries; q && q->name; q++)
        parameter(j, q->name, "query", q->type, q->doc);
    jot_end(j, ']');
}

static void content(struct jot *j, const char *type, const struct schema *schema) {
    jot_object(j, "content");
    jot_object(j, type);
    if (schema) {
        char ref[100];
        snprintf(ref, sizeof(ref), "#/components/schemas/%s", schema->name);
        jot_object(j, "schema");
        jot_string(j, "$ref", ref);
        jot_end(j, '}');
    }
    jot_end(j, '}');
    jot_end(j, '}');
}

static void response(struct jot *j, const char *status, const char *doc, const char *type,
                     const struct schema *schema) {
    jot_object(j, status);
    jot_string(j, "description", doc);
    content(j, type, schema);
    jot_end(j, '}');
}

static void operation(struct jot *j, const struct route *r) {
    char method[16], status[8];
    size_t n = 0;
    for (; r->method[n]; n++)
        method[n] = (char)(r->method[n] | 32);
    method[n] = '\0';
    jot_object(j, method);
    jot_string(j, "operationId", r->id);
    jot_string(j, "summary", r->summary);
    parameters(j, r);
    if (r->body != BODY_NONE) {
        jot_object(j, "requestBody");
        content(j, r->body == BODY_JSON ? "application/json" : "application/octet-stream",
                r->request);
        jot_end(j, '}');
    }
    snprintf(status, sizeof(status), "%d", r->status);
    jot_object(j, "responses");
    response(j, status, "done", r->type ? r->type : "application/json", r->response);
    response(j, "default", "refused", "application/json", &error_schema);
    jot_end(j, '}');
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

static void document(struct jot *j) {
    jot_object(j, NULL);
    jot_string(j, "openapi", "3.1.0");
    jot_object(j, "info");
    jot_string(j, "title", "Carrel");
    jot_string(j, "version", CARREL_VERSION);
    jot_end(j, '}');
    paths(j);
    jot_object(j, "components");
    jot_object(j, "schemas");
    for (const struct schema *const *s = all_schemas; *s; s++)
        schema_describe(*s, j, (*s)->name);
    jot_end(j, '}');
    jot_object(j, "securitySchemes");
    jot_object(j, "token");
    jot_string(j, "type", "http");
    jot_string(j, "scheme", "bearer");
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, '}');
}

void api_openapi(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(DOCUMENT_MAX);
    struct jot j = JOT(&text);
    document(&j);
    call_json(c, 200, &j, &text);
}
