/* What the files of the data plane share: a request, the user that it acts as, and its answers. */
#pragma once

#include <jansson.h>

#include "api/e2b/connect.h"
#include "api/e2b/envd.h"
#include "base/jot.h"
#include "base/wire/msg.h"

enum {
    ENVD_BODY_MAX = 16 << 20,
    ENVD_ANSWER_MAX = 64 << 20,
    ENVD_PATH_SIZE = 4096,
    ENVD_NAME_SIZE = 64,
};

struct envd_call;

/*
 * PLAIN and REST are not procedures, and their errors have a number. The handler of the former
 * reads the body; the latter have a body of JSON, and may answer with a stream of lines.
 */
enum envd_kind { ENVD_UNARY, ENVD_STREAM, ENVD_PLAIN, ENVD_REST };

struct envd_method {
    const char *path;
    enum envd_kind kind;
    bool needs_user; /* call->user must be known, and the names of users and groups */
    void (*handle)(struct envd_call *c);
    bool takes_many; /* a stream of messages: call->json is a list of them */
};

/* The user of the machine that a request acts as. */
struct envd_user {
    char name[ENVD_NAME_SIZE];
    uint32_t uid, gid;
    char home[ENVD_PATH_SIZE];
    bool is_given; /* named by the request */
};

struct envd_call {
    struct envd *envd;
    struct service *service;
    struct http_exchange *http;
    const struct envd_method *method;
    struct caller who;
    char machine[ID_SIZE];
    char used[ID_SIZE]; /* machine that stays awake until the call ends */
    bool is_volume;     /* the machine serves a volume, and is left when the call ends */
    bool keeps_files;   /* an upload replaces no file that exists */
    bool as_image;      /* the user and directory of its image are the default ones */
    json_t *json;       /* the message of a procedure */
    struct envd_user user;
    struct buf passwd, group; /* the files of the machine; hostile */
    bool begun;               /* the head of a stream was sent */
    uint64_t quiet_since_ms, keepalive_ms;
    const char *keepalive; /* message that is sent in a silent stream */
    /* Set by the handler. */
    void *state;
    void (*on_gone)(struct envd_call *c);  /* the client left: must end the call, now or later */
    void (*on_drain)(struct envd_call *c); /* there is room again in the stream */
    void (*then)(struct envd_call *c);     /* private to users.c */
    void (*uploaded)(struct envd_call *c); /* answers in place of envd_upload(), if it went well */
    struct envd_call *next, **at;
};

/* ---- envd.c: each of these ends the call ---- */

/* The answer of a procedure without a stream. */
void envd_answer(struct envd_call *c, const struct jot *j, const struct buf *text);
void envd_done(struct envd_call *c); /* {} */
/* The error of a procedure, or the end of its stream by an error. */
void envd_fail(struct envd_call *c, enum connect_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void envd_fail_with(struct envd_call *c, const struct err *err);
/* The same for requests that are not procedures: {"code": STATUS, "message": ...}. */
void envd_refuse(struct envd_call *c, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Any other answer; NULL fields: none. */
void envd_reply(struct envd_call *c, int status, const struct http_pair *fields, const void *body,
                size_t n);
void envd_drop(struct envd_call *c);  /* cuts the connection */
void envd_close(struct envd_call *c); /* the end of an answer begun with http_begin() */
void envd_end(struct envd_call *c);   /* the end of a stream */
void envd_end_with(struct envd_call *c, const char *message); /* a stream of one message */

/* A stream. envd_send() returns false when the client does not keep up: wait for on_drain. */
void envd_begin(struct envd_call *c);
bool envd_send(struct envd_call *c, const struct jot *j, const struct buf *text);
bool envd_line(struct envd_call *c, const char *message, size_t n); /* a line of JSON, for REST */

/* Sends a file message; path: for the journal, or NULL. Both must stay valid until `done`. */
void envd_file(struct envd_call *c, uint16_t type, const void *msg, const char *path,
               void (*done)(void *arg, const struct frame *frame, const struct err *err),
               void *arg);

/* ---- users.c ---- */

/*
 * Reads the users of the machine, sets c->user, and calls then(c). name: NULL for the default user.
 * If the machine has no such user it ends the call instead.
 */
void envd_as_user(struct envd_call *c, const char *name, void (*then)(struct envd_call *c));
/* Writes the name of a user or a group; a number if it has none. */
void envd_user_name(const struct envd_call *c, uint32_t uid, char ret[ENVD_NAME_SIZE]);
void envd_group_name(const struct envd_call *c, uint32_t gid, char ret[ENVD_NAME_SIZE]);

/*
 * Makes a path absolute and removes "." and ".." from it: "" and "~" are the home directory, and
 * other relative paths start there. -1 with *err: another user's home, or too long.
 */
int envd_path(const char *given, const char *home, char ret[ENVD_PATH_SIZE], struct err *err);

/* ---- process.c, process_verbs.c ---- */

void envd_process_start(struct envd_call *c);
void envd_process_connect(struct envd_call *c);
void envd_process_list(struct envd_call *c);
void envd_process_input(struct envd_call *c);
void envd_process_stream_input(struct envd_call *c);
void envd_process_close_stdin(struct envd_call *c);
void envd_process_signal(struct envd_call *c);
void envd_process_update(struct envd_call *c);
/* Finds the command that the member `process` names. ended: one that has ended will do, too. */
struct exec;
struct exec *envd_process_find(struct envd_call *c, bool ended, struct err *err);

/* ---- filesystem.c ---- */

void envd_files_stat(struct envd_call *c);
void envd_files_list(struct envd_call *c);
void envd_files_make_dir(struct envd_call *c);
void envd_files_move(struct envd_call *c);
void envd_files_remove(struct envd_call *c);

/* ---- watches.c ---- */

void envd_files_watch(struct envd_call *c);
void envd_files_watcher_new(struct envd_call *c);
void envd_files_watcher_poll(struct envd_call *c);
void envd_files_watcher_remove(struct envd_call *c);
