/*
 * Limits and directories of a new machine, as options and as members of the API request.
 *
 * Values out of range are refused here, so that the error names the option.
 */
#pragma once

#include "base/jot.h"
#include "cli/grants.h"

struct spec {
    uint64_t mem, cpu_milli, pids, disk, ttl_ms; /* 0: not given */
    uint64_t fuel, fuel_rate;                    /* of a cell; 0: not given */
    struct option_list dirs, volumes;
    const char *allow; /* capabilities of programs in a cell; NULL: not given */
    bool unreviewed, guard;
};

#define SPEC_TTL_HELP "delete the machine and its files after this time, such as 2h"
#define ON_TTL_HELP "action after --ttl (default: destroy)"

/* Rows of an option table; `member` is the struct spec in `type`. */
#define SPEC_OPTIONS(type, member)                                                                 \
    {'m', "mem", "SIZE", OPTION_SIZE, offsetof(type, member.mem), "memory limit (default: 2G)"},   \
        {'c',                                                                                      \
         "cpus",                                                                                   \
         "N",                                                                                      \
         OPTION_MILLI,                                                                             \
         offsetof(type, member.cpu_milli),                                                         \
         "cpu limit, such as 0.5 (default: unlimited)"},                                           \
        {0,                                                                                        \
         "pids",                                                                                   \
         "N",                                                                                      \
         OPTION_NUMBER,                                                                            \
         offsetof(type, member.pids),                                                              \
         "limit of processes and threads (default: 1024)"},                                        \
        {0, "disk", "SIZE", OPTION_SIZE, offsetof(type, member.disk), "disk limit (default: 1G)"}, \
        {'d',                                                                                      \
         "dir",                                                                                    \
         "HOST[:GUEST][:ro|cow|rw][:untrusted]",                                                   \
         OPTION_LIST,                                                                              \
         offsetof(type, member.dirs),                                                              \
         "give the machine a directory: read-only (ro), a copy (cow, default), writable (rw)"},    \
        {0,                                                                                        \
         "volume",                                                                                 \
         "VOLUME:/GUEST[:ro|cow|rw]",                                                              \
         OPTION_LIST,                                                                              \
         offsetof(type, member.volumes),                                                           \
         "attach a volume: writable (rw, default, by one machine), read-only (ro), a copy (cow)"}, \
        {0,                                                                                        \
         "guard",                                                                                  \
         NULL,                                                                                     \
         OPTION_FLAG,                                                                              \
         offsetof(type, member.guard),                                                             \
         "close its network after it has read untrusted data (see carrel net --help)"},            \
    {                                                                                              \
        0, "unreviewed", NULL, OPTION_FLAG, offsetof(type, member.unreviewed),                     \
            "allow --dir HOST:rw, whose changes reach the host without review"                     \
    }

/* Writes members into an open JSON object. Refuses a limit out of range, so that no daemon is
 * started for it. */
int spec_put(struct jot *j, const struct spec *s, const struct grants *g, const struct plan *plan,
             struct err *err);
void spec_put_duration(struct jot *j, const char *name,
                       uint64_t ms); /* writes nothing if ms is 0 */
