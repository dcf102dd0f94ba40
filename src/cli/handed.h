/*
 * Grants besides directories: files, repositories, databases, identities and secrets, as options of
 * `new`, `run` and `grant add`.
 *
 * The CLI opens files with the caller's rights and passes their descriptors to the daemon.
 */
#pragma once

#include "base/err.h"
#include "base/jot.h"
#include "cli/options.h"

struct handed_options {
    struct option_list files, repos, dbs, identities, secrets;
    struct option_list logins; /* no option: `carrel agent` sets it */
    uint64_t expires_ms;       /* 0: never */
};

/* Rows of an option table; `member` is the struct handed_options in `type`. */
#define HANDED_OPTIONS(type, member)                                                            \
    {0,                                                                                         \
     "file",                                                                                    \
     "HOST[:/GUEST]",                                                                           \
     OPTION_LIST,                                                                               \
     offsetof(type, member.files),                                                              \
     "copy a file into the machine (default: to the same path)"},                               \
        {0,                                                                                     \
         "repo",                                                                                \
         "PATH[@REF][:/GUEST][:dirty]",                                                         \
         OPTION_LIST,                                                                           \
         offsetof(type, member.repos),                                                          \
         "clone a git repository into the machine; dirty: with uncommitted changes"},           \
        {0,                                                                                     \
         "db",                                                                                  \
         "sqlite:FILE[:/GUEST]|postgres:NAME",                                                  \
         OPTION_LIST,                                                                           \
         offsetof(type, member.dbs),                                                            \
         "copy a SQLite file, or create a database on the server whose URL is in secret NAME"}, \
        {0,                                                                                     \
         "identity",                                                                            \
         "NAME[<MAIL>]",                                                                        \
         OPTION_LIST,                                                                           \
         offsetof(type, member.identities),                                                     \
         "set the machine's git author, and create an SSH key (carrel grants shows it)"},       \
        {0,                                                                                     \
         "secret",                                                                              \
         "NAME@HOST[:header|basic|query]",                                                      \
         OPTION_LIST,                                                                           \
         offsetof(type, member.secrets),                                                        \
         "replace placeholder $NAME by the secret in requests to HOST (default: in headers)"},  \
    {                                                                                           \
        0, "expires", "TIME", OPTION_DURATION, offsetof(type, member.expires_ms),               \
            "revoke granted directories, files and secrets after this time, such as 2h"         \
    }

enum { HANDED_MAX = 16 };

/* Descriptors of the request, in the order of the grants that they belong to. */
struct handed {
    int fds[HANDED_MAX];
    size_t count;
    bool quiet; /* do not tell which files of a repository stay out */
};
void handed_close(struct handed *h);

/* Writes one grant. `kind` is the name of its option; its value may end with ":untrusted". */
int handed_put_words(struct jot *j, const char *kind, const char *whole, struct handed *h,
                     struct err *err);
/* Writes the members "grants" and "expires" of a request for a machine. */
int handed_put(struct jot *j, const struct handed_options *o, struct handed *h, struct err *err);
