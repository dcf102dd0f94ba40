/*
 * model-ask MODEL [name=value ...]: talks to a model as an operator would and prints one line of
 * JSON for everything that happens. Each call of a tool is answered with "ran NAME ARGUMENTS".
 *
 * Settings: stream=0, steps=N, attempts=N, back_off_ms=N, idle_ms=N, deadline_ms=N, cancel_after=N
 * (pieces seen), script=FILE, home=DIR (a ledger there: limit_tokens=N, limit_micro=N), price=LINE,
 * ca=FILE, proxy=URL, bare=1 (the provider's key is not needed). Keys and URLs come from the
 * environment.
 */
#include <fcntl.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"
#include "base/parse.h"
#include "model/client.h"

enum { MESSAGES = 64 };

struct ask {
    int argc;
    char **argv;
    struct loop *loop;
    struct fetcher *fetcher;
    struct model_provider provider;
    struct rehearsal *script;
    struct store *store;
    struct ledger *ledger;
    struct conf_model row;
    bool priced;
    struct model_message messages[MESSAGES];
    size_t count;
    struct model_answer answers[MESSAGES]; /* kept: messages point into them */
    size_t answer_count;
    uint64_t turn, seen;
    struct model_call *call;
    struct arena arena;
    int exit_code;
};

static const char *setting(const struct ask *a, const char *name, const char *otherwise) {
    size_t n = strlen(name);
    for (int i = 2; i < a->argc; i++)
        if (strncmp(a->argv[i], name, n) == 0 && a->argv[i][n] == '=')
            return a->argv[i] + n + 1;
    return otherwise;
}

static uint64_t number(const struct ask *a, const char *name, const char *otherwise) {
    uint64_t n = 0;
    (void)parse_u64(setting(a, name, otherwise), 0, 1ull << 40, &n, NULL);
    return n;
}

/* ---- One line each ---- */

static void line_begin(struct buf *b, struct jot *j, const char *event) {
    *b = BUF(64 << 20);
    *j = JOT(b);
    jot_object(j, NULL);
    jot_string(j, "event", event);
}

static void line_end(struct buf *b, struct jot *j) {
    jot_end(j, '}');
    printf("%s\n", b->data);
    fflush(stdout);
    buf_done(b);
}

static void print_err(struct jot *j, const struct err *err) {
    jot_string(j, "code", err_code_name(err->code));
    jot_string(j, "text", err->text);
    jot_string(j, "remedy", err->remedy);
}

static void print_account(const struct ask *a, struct jot *j) {
    struct account_row row;
    if (!a->store || store_account_get(a->store, "run:r", &row, NULL) < 0)
        return;
    jot_u64(j, "spent_tokens", row.spent_tokens);
    jot_u64(j, "spent_micro", row.spent_micro);
    jot_u64(j, "held_tokens", row.held_tokens);
}

static void print_answer(const struct ask *a, const struct model_answer *answer) {
    struct buf b;
    struct jot j;
    line_begin(&b, &j, "answer");
    jot_u64(&j, "turn", a->turn);
    jot_string(&j, "stop", model_stop_name(answer->stop));
    jot_string(&j, "model", answer->model);
    jot_array(&j, "parts");
    for (size_t i = 0; i < answer->count; i++) {
        const struct model_part *p = &answer->parts[i];
        jot_object(&j, NULL);
        jot_bytes(&j, p->kind == MODEL_CALL ? "arguments" : "text", p->text, p->n);
        if (p->kind == MODEL_CALL)
            jot_string(&j, "tool", p->name);
        if (p->bad)
            jot_string(&j, "bad", p->bad);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    if (answer->has_usage)
        jot_u64(&j, "tokens", model_usage_total(&answer->usage));
    print_account(a, &j);
    line_end(&b, &j);
}

static void print_failure(const struct ask *a, enum model_failure failure, const struct err *err) {
    struct buf b;
    struct jot j;
    line_begin(&b, &j, "failed");
    jot_string(&j, "failure", model_failure_row(failure)->name);
    print_err(&j, err);
    print_account(a, &j);
    line_end(&b, &j);
}

/* ---- The conversation ---- */

static void ask(struct ask *a);

static void add_message(struct ask *a, enum model_role role, const struct model_part *parts,
                        size_t count) {
    if (a->count == MESSAGES)
        abort();
    a->messages[a->count++] = (struct model_message){role, parts, count};
}

static void add_results(struct ask *a, const struct model_answer *answer) {
    struct model_part *results = arena_alloc(&a->arena, answer->count * sizeof(*results));
    size_t n = 0;
    for (size_t i = 0; i < answer->count; i++) {
        const struct model_part *p = &answer->parts[i];
        if (p->kind != MODEL_CALL)
            continue;
        char *text = p->bad ? arena_printf(&a->arena, "%s", p->bad)
                            : arena_printf(&a->arena, "ran %s %s", p->name, p->text);
        results[n++] = (struct model_part){.kind = MODEL_RESULT,
                                           .id = p->id,
                                           .text = text,
                                           .n = strlen(text),
                                           .failed = p->bad != NULL};
    }
    add_message(a, MODEL_USER, results, n);
}

static void on_seen(void *arg, const struct model_seen *seen) {
    struct ask *a = arg;
    (void)seen;
    uint64_t after = number(a, "cancel_after", "0");
    if (++a->seen != after)
        return;
    model_call_cancel(a->call);
    a->call = NULL;
    print_failure(a, MODEL_FAIL_CANCELLED, &(struct err){.code = ERR_GONE});
    a->exit_code = 3;
}

static void on_retry(void *arg, unsigned attempt, uint64_t wait_ms, const struct err *why) {
    struct buf b;
    struct jot j;
    (void)arg;
    line_begin(&b, &j, "retry");
    jot_u64(&j, "attempt", attempt);
    jot_u64(&j, "wait_ms", wait_ms);
    print_err(&j, why);
    line_end(&b, &j);
}

static void on_done(void *arg, struct model_answer *answer, enum model_failure failure,
                    const struct err *err) {
    struct ask *a = arg;
    a->call = NULL;
    if (!answer) {
        print_failure(a, failure, err);
        a->exit_code = 2;
        return;
    }
    print_answer(a, answer);
    struct model_answer *kept = &a->answers[a->answer_count++];
    *kept = *answer;
    *answer = (struct model_answer){0};
    if (kept->stop != MODEL_STOP_CALLS || ++a->turn >= number(a, "turns", "20"))
        return;
    add_message(a, MODEL_ASSISTANT, kept->parts, kept->count);
    add_results(a, kept);
    ask(a);
}

static void ask(struct ask *a) {
    static const struct model_call_events events = {on_seen, on_retry, on_done};
    static const struct model_tool tools[] = {{"exec", "Run a command.", "{\"type\":\"object\"}"},
                                              {"read", "Read a file.", "{\"type\":\"object\"}"}};
    struct err err = {0};
    struct model_request r = {.model = "set by the provider",
                              .system = "You are rehearsing.",
                              .tools = tools,
                              .tool_count = 2,
                              .messages = a->messages,
                              .message_count = a->count,
                              .max_tokens = number(a, "max_tokens", "1000"),
                              .cache_key = "run-r",
                              .stream = number(a, "stream", "1")};
    struct model_call_options o = {
        .provider = &a->provider,
        .rehearsal = a->script,
        .turn = a->turn,
        .tells_turn = true,
        .ledger = a->ledger,
        .account = "run:r",
        .row = a->priced ? &a->row : NULL,
        .attempts_max = (unsigned)number(a, "attempts", "4"),
        .back_off_ms = number(a, "back_off_ms", "20"),
        .deadline_ms = number(a, "deadline_ms", "0"),
        .connect_ms = 2000,
        .idle_ms = (unsigned)number(a, "idle_ms", "5000"),
    };
    if (model_call_start(a->loop, a->fetcher, &r, &o, &events, a, &a->call, &err) < 0) {
        print_failure(a, MODEL_FAIL_INVALID, &err);
        a->exit_code = 2;
    }
}

/* ---- Setting up ---- */

static int open_ledger(struct ask *a, const char *home, struct err *err) {
    struct store_options options = {.home = home, .journal = {.segment_bytes = 1 << 20}};
    struct account_row owner = {.id = "owner:o"}, run = {.id = "run:r", .parent = "owner:o"};
    run.limit_tokens = number(a, "limit_tokens", "0");
    run.limit_micro = number(a, "limit_micro", "0");
    if (!home)
        return 0;
    if (store_open(&options, &a->store, err) < 0 || store_holds_charge(a->store, NULL, err) < 0)
        return -1;
    a->ledger = ledger_new(a->loop, a->store, NULL);
    return store_account_put(a->store, &owner, err) < 0 ? -1
                                                        : store_account_put(a->store, &run, err);
}

static int read_script(struct ask *a, const char *path, struct err *err) {
    char *text DEFER_FREE = malloc(REHEARSAL_BYTES_MAX + 2);
    if (!path)
        return 0;
    ssize_t n = text ? read_file_at(AT_FDCWD, path, text, REHEARSAL_BYTES_MAX + 2) : -1;
    return n < 0 ? err_num(err, (int)n, "read '%s'", path)
                 : rehearsal_parse(text, (size_t)n, &a->script, err);
}

static int set_up(struct ask *a, struct err *err) {
    const char *price = setting(a, "price", NULL);
    struct fetcher_config config = {.proxy = setting(a, "proxy", NULL),
                                    .ca_file = setting(a, "ca", NULL)};
    static const struct model_part task = {.kind = MODEL_TEXT, .text = "do the task", .n = 11};
    a->priced = price != NULL;
    if (price && conf_model_parse(price, &a->row, err) < 0)
        return -1;
    a->loop = loop_new(err);
    a->fetcher = a->loop ? fetcher_new(a->loop, &config, err) : NULL;
    if (!a->fetcher || open_ledger(a, setting(a, "home", NULL), err) < 0 ||
        read_script(a, setting(a, "script", NULL), err) < 0)
        return -1;
    add_message(a, MODEL_USER, &task, 1);
    return model_provider_find(NULL, a->argv[1], model_env_process, NULL, &a->provider, err);
}

static void tear_down(struct ask *a) {
    for (size_t i = 0; i < a->answer_count; i++)
        model_answer_done(&a->answers[i]);
    model_provider_done(&a->provider);
    rehearsal_free(a->script);
    fetcher_free(a->fetcher);
    ledger_free(a->ledger);
    loop_free(a->loop);
    store_close(a->store);
    arena_done(&a->arena);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct ask a = {.argc = argc, .argv = argv};
    if (argc < 2)
        return 64;
    if (set_up(&a, &err) < 0) {
        print_failure(&a, MODEL_FAIL_INVALID, &err);
        a.exit_code = 2;
    } else {
        ask(&a);
        loop_run(a.loop);
    }
    tear_down(&a);
    return a.exit_code;
}
