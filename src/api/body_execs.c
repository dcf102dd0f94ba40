/* Commands. */
#include "api/body_fields.h"
#include "service/view.h"

static const struct field pty_request[] = {
    {"rows", FIELD_NUMBER, AT(struct pty_request, rows), "default 24", .min = 1, .max = 1000},
    {"cols", FIELD_NUMBER, AT(struct pty_request, cols), "default 80", .min = 1, .max = 1000},
};
const struct schema resize_request_schema = SCHEMA("Size", struct pty_request, pty_request);

#define EXEC_FIELDS(type, base)                                                              \
    {"argv", FIELD_TEXTS, AT(type, base argv), "the command, word by word", .max = 4096},    \
        {"command", FIELD_TEXT, AT(type, base command), "or as a line for /bin/sh",          \
         .max = TEXT_MAX_BYTES},                                                             \
        {"env", FIELD_MAP, AT(type, base env), "on top of the machine's", .max = 256},       \
        {"cwd", FIELD_TEXT, AT(type, base cwd), "default: the user's home",                  \
         .max = PATH_MAX_BYTES},                                                             \
        {"user", FIELD_TEXT, AT(type, base user), "user (default), root, or a number",       \
         .max = NAME_MAX_BYTES},                                                             \
        {"stdin", FIELD_TEXT, AT(type, base stdin_text), "its standard input",               \
         .max = TEXT_MAX_BYTES},                                                             \
        {"stdin_base64", FIELD_TEXT, AT(type, base stdin_base64), "the same as base64",      \
         .max = TEXT_MAX_BYTES * 2},                                                         \
        {"stdin_open", FIELD_FLAG, AT(type, base stdin_open),                                \
         "more input will be written; without it and stdin there is none"},                  \
        {"timeout", FIELD_DURATION, AT(type, base timeout), "then its whole tree is killed", \
         .max = DAYS(3650)},                                                                 \
        {"terminal", FIELD_FLAG, AT(type, base terminal), "give it one"},                    \
        {"size", FIELD_OBJECT, AT(type, base pty), "of the terminal",                        \
         .sub = &resize_request_schema},                                                     \
        {"stdio", FIELD_TEXTS, AT(type, base stdio),                                         \
         "over the unix socket: null or fd for each stream; pipes come with the request",    \
         .max = 3},                                                                          \
        {"kill_left", FIELD_FLAG, AT(type, base kill_left),                                  \
         "when it ends, kill what it left behind"},                                          \
        {"background", FIELD_FLAG, AT(type, base background),                                \
         "answer when it has started, not when it has ended"},                               \
        {"output_max", FIELD_SIZE, AT(type, base output_max),                                \
         "bytes of each stream in the answer (default 1 MiB); the log has them all",         \
         .max = 16 << 20},                                                                   \
    {                                                                                        \
        "key", FIELD_TEXT, AT(type, base key), "idempotency key: it runs at most once",      \
            .max = KEY_MAX_BYTES                                                             \
    }

static const struct field exec_request[] = {EXEC_FIELDS(struct exec_request, )};
const struct schema exec_request_schema = SCHEMA("ExecRequest", struct exec_request, exec_request);

static const struct field run_request[] = {
    {"machine", FIELD_OBJECT, AT(struct run_request, machine), "made for this and thrown away",
     .sub = &machine_request_schema},
    {"exec", FIELD_OBJECT, AT(struct run_request, exec), "what runs in it", .required = true,
     .sub = &exec_request_schema},
};
const struct schema run_request_schema = SCHEMA("RunRequest", struct run_request, run_request);

static const struct field signal_request[] = {
    {"signal", FIELD_TEXT, AT(struct signal_request, signal), "TERM, SIGTERM or 15",
     .required = true, .max = KIND_MAX},
    {"main_only", FIELD_FLAG, AT(struct signal_request, main_only),
     "to its first process alone, not to its group"},
};
const struct schema signal_request_schema =
    SCHEMA("SignalRequest", struct signal_request, signal_request);

static const struct field usage_view[] = {
    {"user_us", SHOW_NUMBER, AT(struct usage_view, user_us), NULL, .required = true},
    {"system_us", SHOW_NUMBER, AT(struct usage_view, system_us), NULL, .required = true},
    {"max_rss_kb", SHOW_NUMBER, AT(struct usage_view, max_rss_kb), NULL, .required = true},
    {"wall_us", SHOW_NUMBER, AT(struct usage_view, wall_us), NULL, .required = true},
};
const struct schema usage_schema = SCHEMA("Usage", struct usage_view, usage_view);

static const struct field exec_view[] = {
    {"id", SHOW_TEXT, AT(struct exec_view, id), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct exec_view, machine), NULL, .required = true},
    {"argv", SHOW_JSON, AT(struct exec_view, argv), NULL, .required = true},
    {"cwd", SHOW_TEXT, AT(struct exec_view, cwd), NULL},
    {"user", SHOW_TEXT, AT(struct exec_view, user), NULL},
    {"state", SHOW_TEXT, AT(struct exec_view, state),
     "starting, running, exited, failed (it never began) or unknown", .required = true},
    {"reason", SHOW_TEXT, AT(struct exec_view, reason),
     "exit, signal, timeout, memory, killed, or why it never began"},
    {"status", SHOW_SIGNED, AT(struct exec_view, status),
     "as a shell shows it; -1 while it is not known", .required = true},
    {"signal", SHOW_NUMBER, AT(struct exec_view, signal), "that ended it, or 0", .required = true},
    {"started", SHOW_TIME, AT(struct exec_view, started_ms), NULL},
    {"ended", SHOW_TIME, AT(struct exec_view, ended_ms), NULL},
    {"stdout_bytes", SHOW_NUMBER, AT(struct exec_view, stdout_bytes), NULL, .required = true},
    {"stderr_bytes", SHOW_NUMBER, AT(struct exec_view, stderr_bytes), NULL, .required = true},
    {"usage", SHOW_OBJECT, AT(struct exec_view, usage), NULL, .required = true,
     .sub = &usage_schema},
    {"error", SHOW_TEXT, AT(struct exec_view, error), "why it never began"},
    {"terminal", SHOW_FLAG, AT(struct exec_view, terminal), NULL, .required = true},
};
const struct schema exec_schema = SCHEMA("Exec", struct exec_view, exec_view);

static const struct field execs_view[] = {
    {"execs", SHOW_JSON, 0, NULL, .required = true, .sub = &exec_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent at the end"},
};
const struct schema execs_schema = SCHEMA("Execs", char *, execs_view);

static const struct field result_view[] = {
    {"exec", SHOW_OBJECT, 0, NULL, .required = true, .sub = &exec_schema},
    {"stdout", SHOW_TEXT, 0, "when it is text"},
    {"stdout_base64", SHOW_TEXT, 0, "when it is not"},
    {"stdout_left_out", SHOW_NUMBER, 0, "bytes between head and tail that are not in the answer"},
    {"stderr", SHOW_TEXT, 0, NULL},
    {"stderr_base64", SHOW_TEXT, 0, NULL},
    {"stderr_left_out", SHOW_NUMBER, 0, NULL},
};
const struct schema result_schema = SCHEMA("Result", struct exec_view, result_view);
