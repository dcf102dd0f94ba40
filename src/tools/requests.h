/*
 * Inputs and outputs of the tools as plain structs; tables.c describes their fields.
 *
 * Strings point into the arguments of the call and are valid until it ends.
 */
#pragma once

#include "base/err.h"
#include "service/desktop/desktop.h"
#include "service/request.h"
#include "service/view.h"

enum {
    YIELD_DEFAULT_MS = 10000,
    YIELD_MAX_MS = 50000, /* less than a minute, after which common clients give up */
    TIMEOUT_DEFAULT_MS = 120000,
    TIMEOUT_MAX_MS = 24 * 3600 * 1000,
    OUTPUT_DEFAULT = 10000,
    OUTPUT_MAX = 1000000,
    TYPE_MAX = 64 << 10,
    READ_LINES = 2000,
    READ_BYTES = 50000,
    IMAGE_MAX = 4 << 20,
    EDIT_FILE_MAX = 2 << 20,
    EDITS_MAX = 50,
    INSTALL_MAX = 50,
    INSTALL_TIMEOUT_MS = 20 * 60 * 1000,
    SEARCH_DEFAULT = 200,
    SEARCH_MAX = 1000,
    LIST_DEPTH = 2,
    LIST_DEPTH_MAX = 8,
    LIST_DEFAULT = 500,
    LIST_MAX = 2000,
    FORKS_MAX = 16,
    PYTHON_CODE_MAX = 256 << 10,
    PYTHON_TIMEOUT_MS = 30000,
    PYTHON_TIMEOUT_MAX_MS = 600 * 1000,
    PYTHON_OUTPUT_MAX = 200000,
    PYTHON_IMAGES = 4,
};

struct exec_input {
    const char *machine;
    const char *cmd;
    struct texts argv, env;
    const char *cwd, *user, *stdin_text;
    struct given timeout_ms, yield_ms, max_output;
    bool tty, interactive;
};

extern const char *const install_managers[]; /* NULL-terminated */

struct install_input {
    const char *machine;
    const char *manager, *cwd;
    struct texts packages;
    struct given yield_ms;
};

struct session_input {
    const char *machine;
    const char *session, *type, *signal, *stream;
    struct given wait_ms, max_output, offset;
    bool eof;
};

extern const char *const session_signals[]; /* NULL-terminated */

struct exec_output {
    const char *machine, *session, *status, *reason;
    const char *exit_json; /* exit status as a number, or NULL while the command runs */
    const char *stdout_text, *stderr_text, *log;
    uint64_t stdout_bytes, stderr_bytes, left_out;
    uint64_t wall_ms, cpu_ms, max_rss_kb;
};

struct read_input {
    const char *machine;
    const char *path, *user;
    struct given from_line, lines;
};

struct read_output {
    const char *machine, *path, *content;
    uint64_t from_line, lines, size;
    const char *sha256, *media;
    bool more;
};

struct write_input {
    const char *machine;
    const char *path, *content, *content_base64, *mode, *if_hash, *user;
};

struct write_output {
    const char *machine, *path, *sha256;
    uint64_t size;
};

struct edit_row {
    const char *old_text, *new_text;
    struct given count;
};

struct edit_input {
    const char *machine;
    const char *path, *if_hash, *user;
    struct rows edits; /* elements: struct edit_row */
};

struct edit_output {
    const char *machine, *path, *sha256, *diff;
    uint64_t replaced;
};

struct search_input {
    const char *machine;
    const char *pattern, *path, *glob, *kind;
    struct given max;
    bool ignore_case;
};

struct search_output {
    const char *machine;
    const char *matches; /* JSON array */
    uint64_t count;
    bool more;
};

struct patch_input {
    const char *machine;
    const char *patch, *cwd, *user;
};

struct patch_output {
    const char *machine;
    const char *files; /* JSON array */
    uint64_t count;
};

struct list_input {
    const char *machine;
    const char *path, *user;
    struct given depth, max;
};

struct list_output {
    const char *machine, *path;
    const char *entries; /* JSON array */
    uint64_t count;
    bool more;
};

struct fetch_input {
    const char *machine;
    const char *url;
    struct given max_output;
};

struct fetch_output {
    const char *status, *type, *url, *body, *session, *machine;
    uint64_t bytes, left_out;
};

struct python_input {
    const char *machine;
    const char *code, *session;
    struct given timeout_ms, max_output;
    bool restart;
};

struct python_output {
    const char *machine, *session, *status, *value, *error;
    const char *stdout_text, *stderr_text;
    const char *tables; /* JSON array */
    uint64_t stdout_bytes, stderr_bytes, left_out, images, wall_ms;
    bool fresh;
};

struct joined_input {
    const char *machine; /* NULL: always the client's own machine */
};

struct joined_output {
    const char *machine, *server, *tool, *text;
    const char *structured; /* JSON object, or NULL */
    uint64_t images;
};

struct transfer_input {
    const char *machine;
    const char *path, *way, *user;
    struct given life_s;
};

struct transfer_output {
    const char *url, *method, *socket, *command, *path, *machine;
    uint64_t life_s;
};

struct preview_input {
    const char *machine;
    struct given port;
};

struct preview_output {
    const char *machine, *url;
    uint64_t port;
};

struct checkpoint_input {
    const char *machine;
    const char *name;
};

struct rewind_input {
    const char *machine;
    const char *to;
};

struct step_output {
    const char *machine, *step, *name, *reason;
    uint64_t number;
    bool restorable;
};

struct diff_input {
    const char *machine;
    const char *from, *to, *path;
    struct given max_output;
    bool brief;
};

struct diff_output {
    const char *machine, *from, *to;
    const char *changes; /* JSON array */
    const char *cut;
    uint64_t added, modified, deleted, left_out;
    bool more;
};

struct fork_input {
    const char *machine;
    const char *step;
    struct given count;
};

struct plan_row {
    const char *text, *status;
};

struct plan_input {
    struct rows items; /* elements: struct plan_row */
};

struct plan_output {
    const char *items; /* JSON array */
    uint64_t left;
};

struct ask_input {
    const char *question;
    struct texts options;
};

struct ask_output {
    const char *action, *answer;
};

struct finish_input {
    const char *status, *summary;
    struct texts evidence, outputs, open_issues;
};

/* `done` needs evidence, any other status needs open issues. */
int finish_check(const struct finish_input *in, struct err *err);

struct finish_output {
    const char *status, *machine;
};

/* For all tools of the desktop; each has its own table of fields. */
struct desktop_tool_input {
    const char *machine;
    struct desktop_input in; /* without the action */
};

struct desktop_output {
    const char *machine, *display;
    uint64_t width, height;
};

enum { BROWSER_URL_MAX = 2000, BROWSER_TEXT_MAX = 64 << 10, BROWSER_OUTPUT_MAX = 200000 };

extern const char *const browser_actions[]; /* NULL-terminated */

struct browser_input {
    const char *machine;
    const char *action, *url, *name, *text;
    struct given nth, max_output;
    bool enter;
};

struct browser_output {
    const char *machine, *url, *title, *text, *dialogs;
    uint64_t left_out;
    bool whole, loading, fresh;
};

struct program_input {
    const char *wat, *text, *invoke, *input; /* text: an older name of wat */
    const char *python, *javascript;
    const char *machine;
    struct texts args, allow;
    struct given fuel, memory_pages;
};

struct program_output {
    const char *outcome, *output, *trap, *log;
    const char *result, *exit_code; /* JSON */
    const char *results, *frames;   /* JSON arrays */
    uint64_t fuel;
};

struct machine_create_input {
    const char *image, *name;
    struct given mem_mb, disk_mb, cpu_percent, pids;
};

struct machine_list_output {
    const char *machines; /* JSON array */
};

struct machine_destroy_input {
    const char *machine;
};

struct machine_output {
    const char *machine, *name, *state, *image;
    uint64_t mem_mb, disk_mb, pids;
};
