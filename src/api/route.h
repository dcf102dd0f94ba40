/*
 * The table of routes: a row per route, for dispatch, OpenAPI and docs/reference/api.md.
 *
 * "{}" in a path is one parameter. A handler ends its call exactly once (call.h) and never blocks.
 */
#pragma once

#include "api/call.h"

/* A query parameter. */
struct query {
    const char *name;
    const char *type; /* type of JSON Schema: string, integer, boolean */
    const char *doc;
    bool required;
    const char *const *choices; /* allowed values, NULL-terminated */
};

enum body {
    BODY_NONE,
    BODY_JSON,   /* JSON of the schema route->request */
    BODY_STREAM, /* bytes; the handler reads them with call_body() */
};

struct route {
    const char *method;
    const char *path;
    const char *id; /* operationId, and the name in metrics */
    enum token_scope scope;
    enum body body;
    const struct schema *request;
    const struct schema *response; /* NULL: bytes, or nothing */
    int status;                    /* status of a success */
    const char *type;              /* media type of the response; NULL: application/json */
    const char *summary;
    const char
        *example; /* arguments of `curl` in docs/reference/api.md, which defines $M and others */
    void (*handle)(struct call *c);
    const struct query *queries; /* ends with a row without a name */
};

extern const struct route routes[];
extern const size_t route_count;

/* Finds the row for a method and path. NULL: ret_allow holds the methods of the path, such as "GET,
 * HEAD, OPTIONS", or "" for an unknown path.
 */
enum { ROUTE_ALLOW_SIZE = 64 };
const struct route *route_find(struct http_text method, struct http_text path,
                               char params[CALL_PARAMS][CALL_PARAM_SIZE],
                               char ret_allow[ROUTE_ALLOW_SIZE]);

/* The name of the component schema of each event that the route streams; NULL: it streams none.
 * The stream is `type` of the route, or what the client asks for if the route can send both. */
const char *route_events(const struct route *r, bool *ret_both);

/* Writes the path with named parameters: "/v1/machines/{machine}/execs/{exec}". */
enum { ROUTE_PATH_SIZE = 160 };
void route_path_named(const struct route *r, char ret[ROUTE_PATH_SIZE]);

/* machines.c */
void api_machine_create(struct call *c);
void api_machine_list(struct call *c);
void api_machine_show(struct call *c);
void api_machine_update(struct call *c);
void api_machine_pause(struct call *c);
void api_machine_resume(struct call *c);
void api_machine_stop(struct call *c);
void api_machine_hibernate(struct call *c);
void api_machine_move(struct call *c);
void api_machine_reinstall(struct call *c);
void api_machine_destroy(struct call *c);
void api_machine_stats(struct call *c);
void api_stats(struct call *c);
void api_machine_health(struct call *c);
void api_machine_changes(struct call *c);
/* execs.c */
void api_run(struct call *c);
void api_exec(struct call *c);
void api_exec_list(struct call *c);
void api_exec_show(struct call *c);
void api_exec_output(struct call *c);
void api_exec_events(struct call *c);
void api_exec_stdin(struct call *c);
void api_exec_signal(struct call *c);
void api_exec_resize(struct call *c);
void api_exec_kill(struct call *c);
/* Parses "TERM", "SIGTERM" or "15". */
int signal_number(const char *text, int *ret, struct err *err);
/* files.c */
void api_file_read(struct call *c);
void api_file_write(struct call *c);
void api_file_remove(struct call *c);
void api_file_stat(struct call *c);
void api_file_list(struct call *c);
void api_file_mkdir(struct call *c);
void api_file_move(struct call *c);
void api_file_chmod(struct call *c);
void api_file_chown(struct call *c);
void api_file_symlink(struct call *c);
void api_tar_read(struct call *c);
void api_tar_write(struct call *c);
void api_file_watch(struct call *c);
/* tickets.c */
void api_ticket_read(struct call *c);
void api_ticket_write(struct call *c);
/* forward.c */
void api_forward(struct call *c);
void api_serial(struct call *c);
void api_desktop_start(struct call *c);
void api_desktop_screenshot(struct call *c);
void api_desktop_input(struct call *c);
/* desktop_watch.c */
void api_desktop_watch(struct call *c);
/* net.c */
void api_net_show(struct call *c);
void api_net_add(struct call *c);
void api_net_guard(struct call *c);
void api_net_remove(struct call *c);
/* steps.c */
void api_snap(struct call *c);
void api_step_name(struct call *c);
void api_rewind(struct call *c);
void api_fork(struct call *c);
void api_step_list(struct call *c);
void api_step_show(struct call *c);
/* store.c */
void api_store_check(struct call *c);
void api_store_boxes(struct call *c);
void api_store_adopt(struct call *c);
/* diff.c */
void api_diff(struct call *c);
/* changesets.c */
void api_freeze(struct call *c);
void api_changeset_list(struct call *c);
void api_changeset_show(struct call *c);
void api_changeset_archive(struct call *c);
void api_changeset_base(struct call *c);
void api_changeset_database(struct call *c);
void api_changeset_ship(struct call *c);
/* runs.c */
void api_run_start(struct call *c);
void api_run_list(struct call *c);
void api_run_export(struct call *c);
void api_run_show(struct call *c);
void api_run_events(struct call *c);
void api_run_transcript(struct call *c);
void api_run_answer(struct call *c);
void api_run_resume(struct call *c);
void api_run_cancel(struct call *c);
/* images.c */
void api_image_list(struct call *c);
void api_image_import(struct call *c);
void api_image_show(struct call *c);
void api_image_remove(struct call *c);
void api_image_tag(struct call *c);
void api_image_prune(struct call *c);
void api_image_layers(struct call *c);
void api_package_list(struct call *c);
void api_package_clear(struct call *c);
void api_image_export(struct call *c);
void api_image_snap(struct call *c);

/* builds.c */
void api_build_start(struct call *c);
void api_build_list(struct call *c);
void api_build_show(struct call *c);
void api_build_files(struct call *c);
void api_build_log(struct call *c);
void api_build_cancel(struct call *c);
/* timers.c */
void api_timer_list(struct call *c);
void api_timer_add(struct call *c);
void api_timer_remove(struct call *c);

/* approvals.c */
void api_expose(struct call *c);
void api_expose_list(struct call *c);
void api_expose_remove(struct call *c);
void api_secret_list(struct call *c);
void api_secret_set(struct call *c);
void api_secret_remove(struct call *c);
void api_backup_take(struct call *c);
void api_backup_list(struct call *c);
void api_backup_verify(struct call *c);
void api_backup_forget(struct call *c);
void api_backup_export(struct call *c);
void api_backup_import(struct call *c);
void api_backup_prune(struct call *c);
void api_backup_restore(struct call *c);
void api_volume_list(struct call *c);
void api_volume_create(struct call *c);
void api_volume_show(struct call *c);
void api_volume_snap(struct call *c);
void api_volume_remove(struct call *c);
/* grants.c */
void api_grant_list(struct call *c);
void api_grant_add(struct call *c);
void api_grant_diff(struct call *c);
void api_grant_revoke(struct call *c);
/* approvals.c */
void api_pending_list(struct call *c);
void api_pending_decide(struct call *c);
/* terminal.c */
void api_terminal(struct call *c);
/* host.c */
void api_events(struct call *c);
void api_audit(struct call *c);
void api_audit_verify(struct call *c);
void api_token_new(struct call *c);
void api_token_list(struct call *c);
void api_token_revoke(struct call *c);
void api_status(struct call *c);
void api_agent_list(struct call *c);
void api_login_list(struct call *c);
void api_login_set(struct call *c);
void api_login_remove(struct call *c);
void api_model_list(struct call *c);
void api_model_usage(struct call *c);
void api_metrics(struct call *c);
void api_health(struct call *c);
void api_openapi(struct call *c);
