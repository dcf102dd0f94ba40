/* The output of `carrel do`: one line for each tool call of a run, and its report. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/utf8.h"
#include "cli/do/do.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "cli/text/colour.h"
#include "cli/text/units.h"

enum { WORD_WIDTH = 56, WAIT_MS = 1000 };

void do_print_words(const char *text) {
    char line[WORD_WIDTH * 4 + 1];
    size_t n = 0;
    for (const char *p = text; *p && n < WORD_WIDTH; p++)
        line[n++] = *p == '\n' || *p == '\t' ? ' ' : *p;
    line[utf8_end(line, n)] = '\0'; /* do not cut a UTF-8 character */
    table_cell(line, WORD_WIDTH);
}

/* Prints the argument that best describes a tool call of the model. */
static void print_subject(const json_t *arguments) {
    static const char *const names[] = {"cmd", "path",     "pattern", "session", "url", "name",
                                        "to",  "question", "summary", "manager", "step"};
    const json_t *argv = json_object_get(arguments, "argv");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *text = json_string_value(json_object_get(arguments, names[i]));
        if (text) {
            do_print_words(text);
            return;
        }
    }
    char *text DEFER_FREE = json_dumps(argv ? argv : arguments, JSON_COMPACT);
    do_print_words(text ? text : "");
}

static void print_indented(const char *text) {
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        fputs("      | ", stdout);
        safe_text(stdout, at, (size_t)(end - at));
        putchar('\n');
    }
}

static void print_output(const json_t *event) {
    json_t *out DEFER(json_decrefp) = json_loads(client_text(event, "text"), 0, NULL);
    static const char *const names[] = {"stdout", "stderr", "content", "diff", "body", "answer"};
    bool any = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *text = client_text(out, names[i]);
        any |= *text != '\0';
        print_indented(text);
    }
    if (!any && !out)
        print_indented(client_text(event, "text"));
}

/* A refused `finish` has the status `check`: the run asks for evidence first. */
static const char *outcome_word(const json_t *event, const json_t *out) {
    const char *status = client_text(event, "status"), *said = client_text(out, "status");
    return *said ? said : strcmp(status, "check") == 0 ? "not accepted" : *status ? status : "ok";
}

static void print_outcome(const json_t *event, long long took_ms) {
    char took[UNITS_SIZE];
    json_t *out DEFER(json_decrefp) = json_loads(client_text(event, "text"), 0, NULL);
    const json_t *exit = json_object_get(out, "exit_code");
    bool failed = json_is_true(json_object_get(event, "failed"));
    const char *fallback = client_text(event, "fallback");
    if (failed)
        fputs("failed", stdout);
    else if (json_is_integer(exit))
        printf("exit %lld", (long long)json_integer_value(exit));
    else
        fputs(outcome_word(event, out), stdout);
    amount_duration((uint64_t)(took_ms > 0 ? took_ms : 0) * 1000, took);
    printf("  %s%s%s\n", took, *fallback ? "; " : "", fallback);
}

static void show_answer(struct do_screen *s, const json_t *event) {
    size_t i, n = 0;
    json_t *part;
    s->turn++;
    json_array_foreach(json_object_get(event, "parts"), i, part) {
        const char *kind = client_text(part, "kind");
        if (strcmp(kind, "call") == 0 && n < DO_CALLS_MAX) {
            json_decref(s->calls[n]);
            s->begun_ms[n] = client_number(event, "time");
            s->calls[n++] = json_incref(part);
        } else if (strcmp(kind, "text") == 0 && s->verbose) {
            print_indented(client_text(part, "text"));
        }
    }
}

static void show_result(struct do_screen *s, const json_t *event) {
    long long index = client_number(event, "index");
    const json_t *call = index >= 0 && index < DO_CALLS_MAX ? s->calls[index] : NULL;
    json_t *arguments DEFER(json_decrefp) = json_loads(client_text(call, "text"), 0, NULL);
    printf("%4zu  ", s->turn);
    table_cell(client_text(call, "name"), 10);
    print_subject(arguments);
    print_outcome(event, client_number(event, "time") - (call ? s->begun_ms[index] : 0));
    if (s->verbose || json_is_true(json_object_get(event, "failed")) ||
        strcmp(client_text(event, "status"), "check") == 0)
        print_output(event);
}

static void show_call(struct do_screen *s, const json_t *event) {
    long long index = client_number(event, "index");
    if (index >= 0 && index < DO_CALLS_MAX)
        s->begun_ms[index] = client_number(event, "time");
}

static void show_retry(const json_t *event) {
    char wait[UNITS_SIZE];
    amount_duration((uint64_t)client_number(event, "wait_ms") * 1000, wait);
    printf("      attempt %lld to call the model failed, the next one is in %s: %s\n",
           client_number(event, "attempt"), wait, client_text(event, "text"));
}

static void show_mark(const json_t *event, const char *what) {
    if (!*client_text(event, "step") && !*client_text(event, "text"))
        return; /* the daemon has not taken the step of this checkpoint yet */
    printf("      %s ", what);
    table_cell(client_text(event, "name"), 0);
    table_cell(client_text(event, "text"), 0);
    putchar('\n');
}

/* Shows a request that waits for an approval. Questions are shown by ask_person(). */
static void show_held(const json_t *event) {
    json_t *what DEFER(json_decrefp) = json_loads(client_text(event, "text"), 0, NULL);
    const json_t *item = json_object_get(what, "approval");
    if (!item)
        return;
    fputs("      waits for an approval: ", stdout);
    safe_name(stdout, client_text(item, "method"));
    fputs(*client_text(item, "method") ? " " : "", stdout);
    safe_name(stdout, client_text(item, "host"));
    fputs(client_number(item, "bytes") ? " " : "", stdout);
    safe_name(stdout, client_text(item, "path"));
    if (client_number(item, "bytes"))
        printf(" (%lld bytes, sha256 %s)", client_number(item, "bytes"),
               client_text(item, "sha256"));
    printf("; to approve it: carrel approve %s\n", client_text(item, "id"));
}

static void print_list(const char *title, const json_t *list) {
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        puts(i == 0 ? title : "");
        fputs("  - ", stdout);
        safe_text(stdout, json_string_value(item) ? json_string_value(item) : "",
                  json_string_length(item));
    }
    if (json_array_size(list))
        putchar('\n');
}

void do_show_tools(const json_t *tools) {
    size_t i;
    json_t *row;
    if (!json_array_size(tools))
        return;
    colour_heading("TOOL        CALLS  FAILED  FALLBACKS  TIME");
    json_array_foreach(tools, i, row) {
        char took[UNITS_SIZE];
        amount_duration((uint64_t)client_number(row, "wall_ms") * 1000, took);
        table_cell(client_text(row, "tool"), 10);
        printf("%5lld  %6lld  %9lld  %s\n", client_number(row, "calls"),
               client_number(row, "failed"), client_number(row, "fallbacks"), took);
    }
}

static void show_end(const json_t *event) {
    const json_t *report = json_object_get(event, "report");
    const char *summary = client_text(report, "summary"), *reason = client_text(report, "reason");
    printf("\n%s%s%s\n", client_text(event, "status"), *reason ? ": " : "", reason);
    if (*summary) {
        safe_text(stdout, summary, strlen(summary));
        putchar('\n');
    }
    print_list("Evidence:", json_object_get(report, "evidence"));
    print_list("Files:", json_object_get(report, "outputs"));
    print_list("Left:", json_object_get(report, "open_issues"));
    do_show_tries(report);
    do_show_tools(json_object_get(report, "tools"));
    printf("%lld turns, %lld calls, %lld tokens, cost %.6f, %.1f s\n",
           client_number(report, "turns"), client_number(report, "calls"),
           client_number(report, "tokens"), (double)client_number(report, "cost_micro") / 1e6,
           (double)client_number(report, "wall_ms") / 1e3);
}

static void show_note(const json_t *event) {
    if (strcmp(client_text(event, "note"), "project") == 0)
        printf("      read the notes of the project: %s\n", client_text(event, "name"));
    else
        printf("      %s\n", client_text(event, "text"));
}

void do_show_next(const json_t *event, const char *machine, bool ships) {
    const json_t *report = json_object_get(event, "report");
    const char *file = json_string_value(json_array_get(json_object_get(report, "outputs"), 0));
    if (ships)
        printf("Next: carrel ship %s   (or, to send it back: carrel ship %s --return COMMENT)\n",
               machine, machine);
    else if (file && *file == '/')
        printf("Next: carrel cp %s:%s .\n", machine, file);
    else
        printf("Next: carrel sh %s   (or, to continue: carrel do %s TASK)\n", machine, machine);
}

/* ---- waiting ---- */

/* Erases the line of do_show_wait(). */
static void clear_wait(struct do_screen *s) {
    if (s->waits)
        fwrite("\r\033[K", 1, 4, stderr);
    s->waits = false;
}

void do_show_wait(struct do_screen *s) {
    char waited[UNITS_SIZE];
    uint64_t now = monotonic_ms();
    if (!s->since_ms)
        s->since_ms = now;
    if (s->rests || now - s->since_ms < WAIT_MS || !isatty(STDOUT_FILENO) || !isatty(STDERR_FILENO))
        return;
    amount_duration((now - s->since_ms) / 1000 * 1000000, waited);
    clear_wait(s);
    fprintf(stderr, "      waiting for %s, %s", s->open ? "tools" : "the model", waited);
    s->waits = true;
}

/* ---- events ---- */

/* What the run waits for after this event. */
static void note_wait(struct do_screen *s, const char *kind) {
    clear_wait(s);
    s->since_ms = monotonic_ms();
    s->open += strcmp(kind, "call") == 0;
    s->open -= strcmp(kind, "result") == 0 && s->open;
    if (strcmp(kind, "answer") == 0)
        s->open = 0;
    if (strcmp(kind, "held") == 0 || strcmp(kind, "try") == 0)
        s->rests = true;
    else if (strcmp(kind, "freed") == 0)
        s->rests = false;
}

void do_show_event(struct do_screen *s, const json_t *event) {
    const char *kind = client_text(event, "event");
    note_wait(s, kind);
    if (strcmp(kind, "call") == 0)
        show_call(s, event);
    else if (strcmp(kind, "answer") == 0)
        show_answer(s, event);
    else if (strcmp(kind, "result") == 0)
        show_result(s, event);
    else if (strcmp(kind, "point") == 0)
        show_mark(event, "checkpoint");
    else if (strcmp(kind, "back") == 0)
        show_mark(event, "rewind to");
    else if (strcmp(kind, "note") == 0)
        show_note(event);
    else if (strcmp(kind, "held") == 0)
        show_held(event);
    else if (strcmp(kind, "retry") == 0)
        show_retry(event);
    else if (strcmp(kind, "end") == 0)
        show_end(event);
    else
        (void)do_show_try(event);
}

void do_screen_done(struct do_screen *s) {
    clear_wait(s);
    for (size_t i = 0; i < DO_CALLS_MAX; i++)
        json_decref(s->calls[i]);
}
