/*
 * Requests as plain structs. Every front end (REST, MCP, operator) fills these for the service.
 *
 * Strings belong to the front end and live as long as its call. Zero means "not given".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number that may be absent. */
struct given {
    uint64_t value;
    bool is;
};

struct texts {
    const char **v; /* NULL: not given */
    size_t count;
};

/* An array of structs. */
struct rows {
    void *v;
    size_t count;
};

struct limits_request {
    struct given mem, cpus, pids, disk;
    struct given fuel, fuel_rate; /* of a cell machine: per command, per second */
};

struct dir_request {
    const char *path; /* path on the host: opened by the caller, or below a root of carrel.conf */
    const char *at;   /* path in the machine; NULL: the same path */
    const char *mode; /* read-only (ro), copy-on-write (cow) or writable (rw) */
    bool untrusted;   /* may contain untrusted data: taints the machine */
};

/* A volume that a new machine gets. */
struct volume_use_request {
    const char *name; /* NAME or NAME@SNAPSHOT */
    const char *at;   /* path in the machine */
    const char *mode; /* ro, cow or rw; NULL: rw, or ro for a snapshot */
    bool door;        /* of a machine that serves its files, for volumes/doors.c only */
};

struct volume_request {
    const char *name;
    struct given size; /* bytes; not with `from` */
    const char *from;  /* volume or snapshot to copy; NULL: the volume is empty */
};

struct volume_snap_request {
    const char *name; /* name of the snapshot; NULL: the time */
};

struct backup_prune_request {
    struct given keep; /* number of backups */
};

struct backup_restore_request {
    const char *as; /* name of the new machine; NULL: none */
};

/* A network rule of a machine, or a preset. */
struct net_request {
    const char *action;  /* default: allow */
    const char *target;  /* host or URL as in gate/policy.h, or the name of a preset */
    const char *from;    /* as in gate/policy.h; NULL: the owner */
    const char *methods; /* "GET,POST" */
    bool local, trusted, tainted;
    struct given bytes, rate, hold, ttl; /* ms */
};

/* A placeholder for a secret of the owner, valid for one host. */
struct secret_grant_request {
    const char *name, *host;
    const char *as; /* how the gate sends the secret: header (default), basic, query */
};

/* A grant of any kind. */
struct grant_request {
    const char *kind; /* file, env, secret, ... */
    const char *what; /* path or name on the host */
    const char *at;   /* place in the machine; for a secret: the host it is sent to */
    const char *mode;
    const char *value; /* env: value of the variable; repo: default author of commits */
    struct given expires;
    bool untrusted; /* as in dir_request */
};

/* Access of the machine to models at http://models.carrel. */
struct models_request {
    bool allow;                 /* allow access; a limit implies it */
    struct given tokens, money; /* limits; money in millionths; 0: no limit */
};

struct machine_request {
    const char *kind, *image, *name, *hostname, *key;
    struct limits_request limits;
    struct given ttl, idle; /* ms */
    const char *on_ttl, *idle_action;
    struct texts metadata, env;
    struct rows dirs;    /* struct dir_request */
    struct rows volumes; /* struct volume_use_request */
    struct rows net;     /* struct net_request */
    struct models_request models;
    struct rows secrets;  /* struct secret_grant_request */
    struct rows grants;   /* struct grant_request */
    struct given expires; /* time after which all grants of this request are revoked */
    const char *steps;    /* when steps are taken: every, risky, manual; NULL: as configured */
    const char *allow;    /* cell: capabilities of its programs, such as "log,args" */
    bool unreviewed;
    bool guard; /* see service_net_guard() */
    struct {
        const char *stack; /* layers of the source; NULL: only the image */
        const char *machine, *step;
        const char *allowed; /* capabilities of the source */
        size_t env;          /* texts of `env` that the source had too */
        bool drifted;        /* accept that the host's packages have changed */
        const char *memory;  /* file with the memory of a vm, in which the fork goes on; or NULL */
    } from;                  /* source of a fork */
    const char *source;      /* a machine, MACHINE@STEP or an image, for service_create_from() */
    /* Set by the front end, not part of the body. */
    struct rows allowed_net; /* like `net`: rules that carrel.conf allows to every caller. They
                                replace those of the source that have `from` */
    bool ephemeral;          /* ends with the daemon at the latest */
    bool early;              /* answered before the guest is ready: a command follows at once */
};

struct update_request {
    const char *name;
    struct limits_request limits;
    struct given ttl, idle;
    const char *on_ttl, *idle_action;
    const char *steps;
    const char *allow; /* as in machine_request; empty: none */
    struct texts metadata;
    struct models_request models; /* only its limits; money already spent still counts */
};

struct pty_request {
    struct given rows, cols;
};

/* Limits of a program that is not a file of its cell machine, at most those of the machine. */
struct exec_module {
    uint64_t fuel, pages;
    uint32_t allowed; /* capabilities: bits of base/capability.h */
};

struct exec_request {
    struct texts argv;
    const char *command; /* a shell string, instead of argv */
    struct texts env;
    const char *cwd, *user, *stdin_text, *stdin_base64, *key, *name;
    struct given timeout; /* ms */
    struct pty_request pty;
    struct texts stdio; /* "null" or "fd" for each of the three streams; unix socket only */
    bool terminal, stdin_open, background, kill_left;
    bool paced; /* its output waits for a follower that needs it, or for exec_needs_no_reader() */
    bool lazy;  /* the command waits for its caller: it does not keep its machine from being idle */
    bool no_step;
    struct given output_max;
    const struct exec_module *module; /* only for programs.h: standard input has the program */
};
