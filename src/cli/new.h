/*
 * Options and request of commands that create a machine: `new`, and `do` without a machine.
 *
 * All such commands use NEW_OPTIONS, so that an option means the same everywhere.
 */
#pragma once

#include <jansson.h>

#include "cli/client.h"
#include "cli/handed.h"
#include "cli/net.h"
#include "cli/options.h"
#include "cli/spec.h"

struct new_options {
    const char *kind, *image, *from, *name, *on_ttl, *idle_action, *steps, *models;
    struct spec spec;
    uint64_t idle_ms;
    struct option_list env, env_files, meta, net;
    struct handed_options handed;
    bool quiet; /* print only warnings */
};

/*
 * Rows of an option table, for all commands that make a machine; `member` is the struct new_options
 * in `type`.
 */
#define NEW_OPTIONS(type, member)                                                                \
    {0, "name", "NAME", OPTION_TEXT, offsetof(type, member.name), "name of the machine"},        \
        {0,                                                                                      \
         "kind",                                                                                 \
         "KIND",                                                                                 \
         OPTION_TEXT,                                                                            \
         offsetof(type, member.kind),                                                            \
         "kind of machine: box runs Linux programs (default), cell runs WebAssembly"},           \
        {0,                                                                                      \
         "image",                                                                                \
         "IMAGE",                                                                                \
         OPTION_TEXT,                                                                            \
         offsetof(type, member.image),                                                           \
         "image to start from (default: host, the programs of this host)"},                      \
        {0,                                                                                      \
         "from",                                                                                 \
         "MACHINE|MACHINE@STEP|IMAGE",                                                           \
         OPTION_TEXT,                                                                            \
         offsetof(type, member.from),                                                            \
         "start as a copy of a machine or step, with its rules, or from an image"},              \
        SPEC_OPTIONS(type, member.spec),                                                         \
        {0,                                                                                      \
         "fuel",                                                                                 \
         "N",                                                                                    \
         OPTION_NUMBER,                                                                          \
         offsetof(type, member.spec.fuel),                                                       \
         "cell: limit of instructions of each command (default: 100 billion)"},                  \
        {0,                                                                                      \
         "fuel-rate",                                                                            \
         "N",                                                                                    \
         OPTION_NUMBER,                                                                          \
         offsetof(type, member.spec.fuel_rate),                                                  \
         "cell: limit of instructions per second (default: unlimited)"},                         \
        {0,                                                                                      \
         "allow",                                                                                \
         "LIST",                                                                                 \
         OPTION_TEXT,                                                                            \
         offsetof(type, member.spec.allow),                                                      \
         "cell: capabilities of its programs, such as log,args (default: none)"},                \
        {0, "ttl", "TIME", OPTION_DURATION, offsetof(type, member.spec.ttl_ms), SPEC_TTL_HELP},  \
        {0, "on-ttl", "destroy|pause", OPTION_TEXT, offsetof(type, member.on_ttl), ON_TTL_HELP}, \
        {0,                                                                                      \
         "idle",                                                                                 \
         "TIME",                                                                                 \
         OPTION_DURATION,                                                                        \
         offsetof(type, member.idle_ms),                                                         \
         "apply --idle-action after this time without use, such as 30m"},                        \
        {0,                                                                                      \
         "idle-action",                                                                          \
         "pause|stop|destroy|release",                                                           \
         OPTION_TEXT,                                                                            \
         offsetof(type, member.idle_action),                                                     \
         "action after --idle; release: destroy if unchanged, else stop (default: pause, or as " \
         "in carrel.conf)"},                                                                     \
        {0,                                                                                      \
         "net",                                                                                  \
         "[allow:|deny:|ask:]TARGET[,local]",                                                    \
         OPTION_LIST,                                                                            \
         offsetof(type, member.net),                                                             \
         NET_OPTION_HELP},                                                                       \
        HANDED_OPTIONS(type, member.handed),                                                     \
        {0,                                                                                      \
         "models",                                                                               \
         "any|tokens=N|money=X|tokens=N,money=X",                                                \
         OPTION_TEXT,                                                                            \
         offsetof(type, member.models),                                                          \
         MODELS_OPTION_HELP},                                                                    \
        {'e',                                                                                    \
         "env",                                                                                  \
         "NAME[=VALUE]",                                                                         \
         OPTION_LIST,                                                                            \
         offsetof(type, member.env),                                                             \
         "set a variable for all commands, or pass on the caller's value"},                      \
        {0,                                                                                      \
         "env-file",                                                                             \
         "FILE",                                                                                 \
         OPTION_LIST,                                                                            \
         offsetof(type, member.env_files),                                                       \
         "read variables from a file, one per line"},                                            \
        {0,                                                                                      \
         "meta",                                                                                 \
         "NAME=VALUE",                                                                           \
         OPTION_LIST,                                                                            \
         offsetof(type, member.meta),                                                            \
         "attach metadata to the machine, which `carrel ls --meta` can search"},                 \
    {                                                                                            \
        0, "steps", "every|risky|manual", OPTION_TEXT, offsetof(type, member.steps),             \
            "take snapshots after changes, before risky commands or on request (default: every)" \
    }

/* Creates a machine and prints warnings. *ret is the machine as the daemon describes it. */
int new_make(const struct new_options *o, struct client *c, json_t **ret, struct err *err);
