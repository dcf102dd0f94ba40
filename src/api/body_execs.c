/* Schemas of commands: requests that start and control them, and their results. */
#include "api/body_fields.h"
#include "service/view.h"

static const struct field pty_request[] = {
    {"rows", FIELD_NUMBER, AT(struct pty_request, rows), "rows of the terminal (default 24)",
     .min = 1, .max = 1000},
    {"cols", FIELD_NUMBER, AT(struct pty_request, cols), "columns of the terminal (default 80)",
     .min = 1, .max = 1000},
};
const struct schema resize_request_schema = SCHEMA("Size", struct pty_request, pty_request);

#define EXEC_FIELDS(type, base)                                                                   \
    {"argv", FIELD_TEXTS, AT(type, base argv), "program and arguments; exclusive with `command`", \
     .max = 4096},                                                                                \
        {"command", FIELD_TEXT, AT(type, base command),                                           \
         "command line for bash, or for /bin/sh if the machine has no /bin/bash; exclusive with " \
         "`argv`",                                                                                \
         .max = TEXT_MAX_BYTES},                                                                  \
        {"env", FIELD_MAP, AT(type, base env), "variables added to those of the machine",         \
         .max = 256},                                                                             \
        {"cwd", FIELD_TEXT, AT(type, base cwd),                                                   \
         "working directory (default: the first directory or "                                    \
         "repository that the machine was created with, or home)",                                \
         .max = PATH_MAX_BYTES},                                                                  \
        {"user", FIELD_TEXT, AT(type, base user),                                                 \
         "run the command as this user of the machine: a name or a uid (default user)",           \
         .max = NAME_MAX_BYTES},                                                                  \
        {"stdin", FIELD_TEXT, AT(type, base stdin_text), "complete standard input, as text",      \
         .max = TEXT_MAX_BYTES},                                                                  \
        {"stdin_base64", FIELD_TEXT, AT(type, base stdin_base64),                                 \
         "complete standard input, as base64", .max = TEXT_MAX_BYTES * 2},                        \
        {"stdin_open", FIELD_FLAG, AT(type, base stdin_open),                                     \
         "keep standard input open for requests to /stdin (default: close it)"},                  \
        {"timeout", FIELD_DURATION, AT(type, base timeout),                                       \
         "kill the command and its descendants after this time", .max = DAYS(3650)},              \
        {"terminal", FIELD_FLAG, AT(type, base terminal), "run the command in a terminal"},       \
        {"size", FIELD_OBJECT, AT(type, base pty), "size of the terminal",                        \
         .sub = &resize_request_schema},                                                          \
        {"stdio", FIELD_TEXTS, AT(type, base stdio),                                              \
         "unix socket only: null or fd (a pipe) for each stream; the fds come with the request. " \
         "Output is also kept (unless kill_left), and the pipes end with the command",            \
         .max = 3},                                                                               \
        {"kill_left", FIELD_FLAG, AT(type, base kill_left),                                       \
         "kill the remaining descendants of the command when it ends"},                           \
        {"name", FIELD_TEXT, AT(type, base name),                                                 \
         "name of the command; no other running command of the machine may have it",              \
         .max = NAME_MAX_BYTES},                                                                  \
        {"background", FIELD_FLAG, AT(type, base background),                                     \
         "respond when the command has started, not when it has ended"},                          \
        {"no_step", FIELD_FLAG, AT(type, base no_step),                                           \
         "the command is part of another action, such as a review: take no step for it, and "     \
         "leave "                                                                                 \
         "it out of lists and events; the next step has its changes, if it leaves any"},          \
        {"output_max", FIELD_SIZE, AT(type, base output_max),                                     \
         "maximum bytes of each stream in the response (default 1 MiB)", .max = 16 << 20},        \
    {                                                                                             \
        "key", FIELD_TEXT, AT(type, base key), "idempotency key: the command runs at most once",  \
            .max = KEY_MAX_BYTES                                                                  \
    }

static const struct field exec_request[] = {EXEC_FIELDS(struct exec_request, )};
const struct schema exec_request_schema = SCHEMA("ExecRequest", struct exec_request, exec_request);

static const struct field run_request[] = {
    {"machine", FIELD_OBJECT, AT(struct run_request, machine),
     "machine to create; it is destroyed afterwards", .sub = &machine_request_schema},
    {"exec", FIELD_OBJECT, AT(struct run_request, exec), "command to run in the machine",
     .required = true, .sub = &exec_request_schema},
};
const struct schema run_request_schema = SCHEMA("RunRequest", struct run_request, run_request);

static const struct field signal_request[] = {
    {"signal", FIELD_TEXT, AT(struct signal_request, signal),
     "signal to send, such as TERM, SIGTERM or 15", .required = true, .max = KIND_MAX},
    {"main_only", FIELD_FLAG, AT(struct signal_request, main_only),
     "signal only the first process, not its process group"},
};
const struct schema signal_request_schema =
    SCHEMA("SignalRequest", struct signal_request, signal_request);

static const struct field usage_view[] = {
    {"user_us", SHOW_NUMBER, AT(struct usage_view, user_us), NULL, .required = true},
    {"system_us", SHOW_NUMBER, AT(struct usage_view, system_us), NULL, .required = true},
    {"max_rss_kb", SHOW_NUMBER, AT(struct usage_view, max_rss_kb), NULL, .required = true},
    {"wall_us", SHOW_NUMBER, AT(struct usage_view, wall_us), NULL, .required = true},
    {"fuel", SHOW_COUNT, AT(struct usage_view, fuel), "fuel that the command used; only in a cell"},
};
const struct schema usage_schema = SCHEMA("Usage", struct usage_view, usage_view);

static const char *const exec_states[] = {"starting", "running", "exited",
                                          "failed",   "unknown", NULL};
static const struct field exec_view[] = {
    {"id", SHOW_TEXT, AT(struct exec_view, id), NULL, .required = true},
    {"machine", SHOW_TEXT, AT(struct exec_view, machine), NULL, .required = true},
    {"name", SHOW_TEXT, AT(struct exec_view, name), "name of the command, if it has one"},
    {"argv", SHOW_JSON, AT(struct exec_view, argv), NULL, .required = true, .shape = SHAPE_TEXTS},
    {"cwd", SHOW_TEXT, AT(struct exec_view, cwd), NULL},
    {"user", SHOW_TEXT, AT(struct exec_view, user), NULL},
    {"state", SHOW_TEXT, AT(struct exec_view, state),
     "failed: the command did not start; unknown: its end was not seen", .required = true,
     .choices = exec_states},
    {"reason", SHOW_TEXT, AT(struct exec_view, reason),
     "how the command ended (exit, signal, timeout, memory, killed), or why it did not start"},
    {"status", SHOW_SIGNED, AT(struct exec_view, status),
     "exit status as a shell shows it; -1: not known yet", .required = true},
    {"signal", SHOW_NUMBER, AT(struct exec_view, signal), "signal that ended the command, or 0",
     .required = true},
    {"pid", SHOW_NUMBER, AT(struct exec_view, pid),
     "process id in the machine; 0: not known, as of commands in the foreground", .required = true},
    {"started", SHOW_TIME, AT(struct exec_view, started_ms), NULL},
    {"ended", SHOW_TIME, AT(struct exec_view, ended_ms), NULL},
    {"stdout_bytes", SHOW_NUMBER, AT(struct exec_view, stdout_bytes), NULL, .required = true},
    {"stderr_bytes", SHOW_NUMBER, AT(struct exec_view, stderr_bytes), NULL, .required = true},
    {"usage", SHOW_OBJECT, AT(struct exec_view, usage), NULL, .required = true,
     .sub = &usage_schema},
    {"error", SHOW_TEXT, AT(struct exec_view, error), "why the command did not start"},
    {"terminal", SHOW_FLAG, AT(struct exec_view, terminal), NULL, .required = true},
    {"check_step", SHOW_FLAG, AT(struct exec_view, check_step),
     "the first command since the last restore point that ended beside other processes: its step "
     "may not be restorable",
     .required = true},
};
const struct schema exec_schema = SCHEMA("Exec", struct exec_view, exec_view);

static const struct field execs_view[] = {
    {"execs", SHOW_JSON, 0, NULL, .required = true, .sub = &exec_schema},
    {"next", SHOW_TEXT, 0, "cursor of the next page; absent on the last page"},
};
const struct schema execs_schema = SCHEMA("Execs", char *, execs_view);

static const struct field result_view[] = {
    {"exec", SHOW_OBJECT, 0, NULL, .required = true, .sub = &exec_schema},
    {"stdout", SHOW_TEXT, 0, "standard output, if it is UTF-8 text"},
    {"stdout_base64", SHOW_TEXT, 0, "standard output as base64, if it is not UTF-8 text"},
    {"stdout_left_out", SHOW_NUMBER, 0, "number of bytes of standard output that are left out"},
    {"stderr", SHOW_TEXT, 0, NULL},
    {"stderr_base64", SHOW_TEXT, 0, NULL},
    {"stderr_left_out", SHOW_NUMBER, 0, NULL},
};
const struct schema result_schema = SCHEMA("Result", struct exec_view, result_view);
