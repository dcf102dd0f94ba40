/*
 * Prints docs/reference/api.md from the table of routes:
 * build/tests/daemon/api-doc >docs/reference/api.md
 * With the argument `openapi` it prints the OpenAPI document, which sdk/generate reads.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/bodies.h"
#include "api/openapi.h"
#include "api/route.h"
#include "base/defer.h"

static const char head[] =
    "# The API\n"
    "\n"
    "This page lists every route of the HTTP API, with its bodies, its answers and an example.\n"
    "`build/tests/daemon/api-doc` prints it from the tables of routes (`src/api/routes.c`) and\n"
    "bodies (`src/api/bodies.c`). The daemon uses the same tables to dispatch and check requests\n"
    "and to make `/v1/openapi.json`. A test runs every `curl` line of this page.\n"
    "\n"
    "The daemon listens on the unix socket `carrel.sock` in its run directory, where the kernel\n"
    "names the caller. With `--listen`, or `listen` in carrel.conf, it also listens on TCP, where\n"
    "a bearer token names the caller. The examples use these names:\n"
    "\n"
    "```sh\n"
    "alias curl='curl -sS --fail-with-body --unix-socket ${XDG_RUNTIME_DIR}/carrel/carrel.sock'\n"
    "URL=http://carrel   # over TCP: http://127.0.0.1:PORT, and -H \"Authorization: Bearer "
    "$TOKEN\"\n"
    "M=m-...             # a machine: its id, its name, or the beginning of its id\n"
    "X=x-...             # a command in it (POST .../execs with \"background\": true gives one)\n"
    "G=g-...             # a grant of it\n"
    "T=t-...             # a token's id\n"
    "C=c-...             # a change set\n"
    "B=b-...             # a build of an image\n"
    "R=r-...             # a run; ASKING=r-... one that waits for an answer to question Q=q-...\n"
    "TAR=some.tar        # an archive\n"
    "DOWNLOAD=..., UPLOAD=... # tickets of the tool `transfer` (MCP)\n"
    "```\n"
    "\n"
    "* A size is a number of bytes or a string such as `\"512M\"`.\n"
    "* A duration is a number of seconds or a string such as `\"5m\"`.\n"
    "* `null` is the same as leaving a field out.\n"
    "* Unknown fields and parameters are refused.\n"
    "\n"
    "Every refusal has the same form. `message` is a sentence, and `remedy`, if there is one, "
    "says\n"
    "what to do:\n"
    "\n"
    "```json\n"
    "{\"error\": {\"code\": \"not_found\", \"message\": \"...\", \"remedy\": \"...\"}}\n"
    "```\n"
    "\n";

static const struct {
    const char *status, *code, *when;
} refusals[] = {
    {"400", "invalid", "malformed, unknown, of the wrong type or out of range"},
    {"401", "denied", "no token, a wrong token, or a revoked token"},
    {"403", "denied", "the token lacks the scope; a foreign Host or Origin"},
    {"404", "not_found", "no such path, or the caller has nothing with that id"},
    {"405", "invalid", "the path does not support the method"},
    {"409", "busy, exists", "it is in the wrong state; the name is in use"},
    {"410", "gone", "the machine has ended"},
    {"413", "limit", "the body is too long"},
    {"429", "limit", "a quota or limit; the message says which and how much"},
    {"500", "internal, unknown", "a fault of Carrel or the host; the log says more"},
    {"501", "unsupported", "this host or kind of machine cannot do it"},
    {"504", "timeout", "it took too long"},
};

static const char *const kind_names[] = {
    [FIELD_TEXT] = "string",
    [FIELD_FLAG] = "true or false",
    [FIELD_NUMBER] = "whole number",
    [FIELD_SIZE] = "size",
    [FIELD_CPUS] = "number",
    [FIELD_MONEY] = "number",
    [FIELD_JSON] = "JSON",
    [FIELD_DURATION] = "duration",
    [FIELD_TEXTS] = "list of strings",
    [FIELD_MAP] = "object of strings",
    [FIELD_OBJECT] = "",
    [FIELD_OBJECTS] = "list of ",
    [SHOW_TEXT] = "string",
    [SHOW_CHARS] = "string",
    [SHOW_NUMBER] = "whole number",
    [SHOW_COUNT] = "whole number",
    [SHOW_SIGNED] = "whole number",
    [SHOW_FLAG] = "true or false",
    [SHOW_TIME] = "RFC 3339 time",
    [SHOW_CPUS] = "number",
    [SHOW_JSON] = "",
    [SHOW_OBJECT] = "",
};

enum { WIDTH = 100 };

/* A full stop follows. */
static void print_wrapped(const char *text) {
    size_t column = 0;
    while (*text) {
        size_t n = strcspn(text, " ");
        bool is_last = !text[n];
        if (column && column + 1 + n + is_last > WIDTH) {
            putchar('\n');
            column = 0;
        } else if (column) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)n, text);
        column += n;
        text += n + !is_last;
    }
}

static void print_link_to(const char *name) {
    printf("[%s](#", name);
    for (const char *p = name; *p; p++)
        putchar(*p | 32);
    printf(")");
}

static void print_link(const struct schema *s) {
    print_link_to(s->name);
}

static void print_type(const struct field *f) {
    if (f->choices) {
        for (size_t i = 0; f->choices[i]; i++)
            printf("%s`%s`", i ? ", " : "", f->choices[i]);
        return;
    }
    static const char *const shapes[] = {
        [SHAPE_TEXTS] = "list of strings",          [SHAPE_MAP] = "object of strings",
        [SHAPE_COUNTS] = "object of whole numbers", [SHAPE_OBJECT] = "object",
        [SHAPE_ROWS] = "list of objects",
    };
    printf("%s", kind_names[f->kind]);
    if (f->kind == SHOW_JSON && f->shape == SHAPE_ANY)
        printf(f->sub ? "list of " : "JSON");
    else if (f->kind == SHOW_JSON && !f->sub)
        printf("%s", shapes[f->shape]);
    if (f->sub)
        print_link(f->sub);
}

static double shown(const struct field *f, uint64_t n) {
    bool milli = f->kind == FIELD_CPUS || f->kind == FIELD_DURATION;
    return milli ? (double)n / 1000 : (double)n;
}

static void print_range(const struct field *f) {
    switch (f->kind) {
    case FIELD_NUMBER:
    case FIELD_SIZE:
    case FIELD_CPUS:
    case FIELD_DURATION:
        printf(" %.15g to %.15g", shown(f, f->min), shown(f, f->max));
        break;
    case FIELD_TEXT:
        if (f->max)
            printf(" of up to %" PRIu64 " bytes", f->max);
        break;
    case FIELD_TEXTS:
    case FIELD_MAP:
    case FIELD_OBJECTS:
        printf(", up to %" PRIu64, f->max);
        break;
    default:
        break;
    }
}

static void print_fields(const struct schema *s) {
    printf("| field | type | |\n|---|---|---|\n");
    for (size_t i = 0; i < s->count; i++) {
        const struct field *f = &s->fields[i];
        bool needed = f->required && f->kind < SHOW_TEXT;
        printf("| `%s` | ", f->name);
        print_type(f);
        print_range(f);
        printf(" | %s%s%s |\n", needed ? "required" : "", needed && f->doc ? "; " : "",
               f->doc ? f->doc : "");
    }
    printf("\n");
}

static void print_queries(const struct route *r) {
    if (!r->queries)
        return;
    printf("| parameter | type | |\n|---|---|---|\n");
    for (const struct query *q = r->queries; q->name; q++)
        printf("| `%s` | %s | %s |\n", q->name, q->type, q->doc ? q->doc : "");
    printf("\n");
}

static void print_body(const struct route *r) {
    if (r->body == BODY_NONE)
        return;
    printf("Body: ");
    if (r->body == BODY_JSON)
        print_link(r->request);
    else
        printf("bytes");
    printf(".\n\n");
}

static void print_answer(const struct route *r) {
    printf("Answer: %d, ", r->status);
    if (r->response)
        print_link(r->response);
    else
        printf("`%s`", r->type ? r->type : "application/json");
    bool both;
    const char *events = route_events(r, &both);
    if (events) {
        printf(r->response ? ", or a stream of " : " of ");
        print_link_to(events);
    }
    printf(".");
    if (r->scope)
        printf(" Scope: %s.", r->scope == SCOPE_RUN ? "run" : "read");
    printf("\n\n");
}

static void print_route(const struct route *r) {
    char path[ROUTE_PATH_SIZE];
    route_path_named(r, path);
    printf("## %s %s\n\n", r->method, path);
    print_wrapped(r->summary);
    printf(".\n\n");
    print_queries(r);
    print_body(r);
    print_answer(r);
    printf("```sh\ncurl %s\n```\n\n", r->example);
}

static void print_union(const struct event_union *u) {
    printf("## %s\n\n| `%s` | object |\n|---|---|\n", u->name, u->member);
    for (size_t i = 0; i < u->count; i++) {
        printf("| `%s` | ", u->kinds[i].value);
        print_link(u->kinds[i].schema);
        printf(" |\n");
    }
    printf("\n");
}

static int print_openapi(void) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    openapi_write(&j);
    printf("%s\n", j.failed ? "" : text.data);
    return j.failed || fflush(stdout) != 0;
}

static void print_refusals(void) {
    printf("| status | code | when |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
        printf("| %s | %s | %s |\n", refusals[i].status, refusals[i].code, refusals[i].when);
    printf("\n");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "openapi") == 0)
        return print_openapi();
    printf("%s", head);
    print_refusals();
    for (size_t i = 0; i < route_count; i++)
        print_route(&routes[i]);
    printf("# Bodies\n\n");
    for (const struct schema *const *s = all_schemas; *s; s++) {
        printf("## %s\n\n", (*s)->name);
        print_fields(*s);
    }
    for (size_t i = 0; i < event_union_count; i++)
        print_union(&event_unions[i]);
    return fflush(stdout) == 0 ? 0 : 1;
}
