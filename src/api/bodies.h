/*
 * Schemas and structs of request and response bodies. A schema is the only description of a body:
 * parsing, checks, OpenAPI and docs/reference/api.md follow it.
 */
#pragma once

#include "operator/operator.h"
#include "service/images/builds.h"
#include "service/schema.h"

extern const struct schema machine_request_schema, update_request_schema, kind_request_schema,
    exec_request_schema, run_request_schema, signal_request_schema, resize_request_schema,
    mkdir_request_schema, move_request_schema, chmod_request_schema, chown_request_schema,
    symlink_request_schema, token_request_schema, net_request_schema, secret_request_schema,
    grant_request_schema, approval_request_schema, snap_request_schema, step_name_schema,
    rewind_request_schema, reinstall_request_schema, hibernate_request_schema, fork_request_schema,
    expose_request_schema, image_request_schema, tag_request_schema, layers_request_schema,
    login_request_schema, timer_request_schema, volume_request_schema, volume_snap_request_schema,
    desktop_request_schema, desktop_input_schema, backup_prune_request_schema,
    backup_restore_request_schema;

extern const struct schema machine_schema, machines_schema, stats_schema, sample_schema,
    samples_schema, health_schema, health_check_schema, exec_schema, execs_schema, result_schema,
    entry_schema, entries_schema, written_schema, token_schema, tokens_schema, event_schema,
    record_schema, verify_schema, status_schema, agents_schema, models_schema, model_usage_schema,
    logins_schema, error_schema, done_schema, network_schema, secrets_schema, grants_schema,
    grant_diff_schema, exposures_schema, exposure_schema, pendings_schema, decided_schema,
    step_schema, steps_schema, diff_schema, store_problem_schema, store_check_schema, stray_schema,
    strays_schema, image_schema, images_schema, pruned_schema, layers_schema, package_schema,
    packages_schema, cleared_schema, build_schema, builds_schema, volume_schema, volumes_schema,
    timer_schema, timers_schema, desktop_schema, backup_schema, backups_schema,
    backup_verified_schema, backup_forgotten_schema;

extern const struct schema run_start_request_schema, run_resume_request_schema,
    run_answer_request_schema, run_schema, runs_schema, freeze_request_schema, changeset_schema,
    changesets_schema, ship_request_schema, ship_schema;

/* An event of a stream is one of several objects, told apart by the value of one member. */
struct event_kind {
    const char *value;
    const struct schema *schema;
};
struct event_union {
    const char *name;   /* name in the OpenAPI document */
    const char *member; /* the member that tells the objects apart */
    const struct event_kind *kinds;
    size_t count;
};
extern const struct event_union event_unions[];
extern const size_t event_union_count;

extern const struct schema exec_event_start_schema, exec_event_output_schema, exec_event_gap_schema,
    exec_event_exit_schema, build_line_step_schema, build_line_output_schema, build_line_end_schema,
    file_event_schema, run_event_schema;

/* Every schema of the OpenAPI document, NULL-terminated. */
extern const struct schema *const all_schemas[];

struct tag_request {
    const char *name;
};

struct layers_request {
    struct texts digests;
};

struct run_request {
    struct machine_request machine;
    struct exec_request exec;
};

struct run_resume_request {
    struct texts keys;
    struct run_return back;
};

struct signal_request {
    const char *signal;
    bool main_only;
};

struct mkdir_request {
    const char *path, *user;
    struct given mode;
    bool exact; /* do not create parents; fail if the directory exists */
};

struct move_request {
    const char *from, *to, *user;
    bool no_replace;
};

struct chmod_request {
    const char *path, *mode, *user;
};

struct chown_request {
    const char *path, *user;
    struct given owner, group;
};

struct symlink_request {
    const char *target, *path, *user;
};
