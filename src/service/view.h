/*
 * Views of machines, commands and other objects as plain structs; every front end prints these.
 *
 * Strings live as long as the callback that received the view.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/exec_end.h"
#include "base/id.h"

struct limits_view {
    uint64_t mem, cpus, pids, disk; /* mem and disk in bytes, cpus in thousandths */
    uint64_t fuel, fuel_rate;       /* SHOW_UNCOUNTED: not a cell machine, or no limit */
};

struct machine_view {
    const char *id, *name, *owner, *kind, *image;
    const char *image_id;   /* content id; NULL: the host's image */
    const char *home;       /* of the user that commands run as; NULL: it has ended */
    const char *cwd;        /* where its commands start; NULL: it has ended */
    const char *state;      /* creating running paused stopped ended */
    const char *paused_in;  /* where a paused machine has its programs: memory disk */
    const char *paused_why; /* why they are in memory */
    const char *state_by;   /* who paused or stopped it: idle owner admin; NULL: not known */
    const char *reason;     /* why it ended; NULL if it has not ended */
    uint64_t created_ms, ended_ms, expires_ms;
    struct limits_view limits;
    const char *on_ttl; /* NULL: it has no ttl */
    uint64_t idle_ms;
    const char *idle_action;
    const char *steps;    /* when a step is taken: every, risky, manual */
    const char *allow;    /* cell: capabilities of its programs, such as "log,args"; NULL: none */
    const char *metadata; /* JSON object */
    const char *start;    /* vm: how it started: boot, clone, memory; NULL: not known */
    const char *accel;    /* vm: what runs its code: kvm, tcg; NULL: not known */
    const char *volumes;  /* JSON array, if one machine is shown; NULL: it has none */
    const char *warnings;
    const char *unreached; /* why its guest cannot be reached; NULL: it is reachable */
    const char *undurable; /* why its newest step is not durable; NULL: see the step */
    uint64_t commands;     /* number of running commands */
    uint64_t disk_bytes;   /* used by its own files and steps, without shared layers */
    uint64_t step_count;
    bool drifted;
};

struct stats_view {
    /* SHOW_UNCOUNTED: this host does not count it */
    uint64_t cpu_us, mem_bytes, mem_peak_bytes, mem_limit_bytes, pids, io_bytes, disk_bytes;
    uint64_t oom_kills, pids_refused, lookups_refused;
    bool frozen;
    const char *models; /* JSON: model budget, spent and left; NULL: it never used a model */
    const char *tools;  /* JSON: calls of each tool; NULL: none since the daemon started */
};

struct usage_view {
    uint64_t user_us, system_us, max_rss_kb, wall_us;
    uint64_t fuel; /* SHOW_UNCOUNTED: not a command of a cell machine */
};

struct exec_view {
    const char *id, *machine;
    const char *name; /* NULL: none */
    const char *argv; /* JSON array */
    const char *cwd, *user;
    const char *state;  /* starting running exited failed unknown */
    enum exec_end end;  /* not in the response, which has state and reason */
    const char *reason; /* exit, signal, timeout, memory, killed, ...; NULL while it runs */
    int64_t status;     /* exec_end_status(): 0 only if it exited with 0, -1 if it has none */
    uint64_t signal;
    uint64_t pid; /* process id in the machine; 0: not reported */
    uint64_t started_ms, ended_ms;
    uint64_t stdout_bytes, stderr_bytes;
    struct usage_view usage;
    const char *error; /* why it never started */
    bool terminal;
    bool copied;     /* its output goes to pipes of the caller, too; they end with it */
    bool check_step; /* other processes ran at its end: its step may have no restore point */
};

struct entry_view {
    const char *name, *type; /* type: file directory symlink other */
    char mode[8];            /* octal */
    uint64_t size, uid, gid, mtime_ms;
    const char *target;
};

struct token_view {
    const char *id, *owner, *note;
    const char *secret; /* only in the response to its creation */
    char scopes[32];
    uint64_t created_ms, used_ms, revoked_ms;
    uint64_t machines, cpus, mem, disk, max_ttl_ms; /* 0: no limit */
};
