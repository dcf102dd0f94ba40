/*
 * Private to the codecs: the codec table, and builders for answers and for parsed requests.
 *
 * Providers and machines are both untrusted: the builders count parts, calls and bytes, and fail
 * above the limits.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/jot.h"
#include "io/sse_read.h"
#include "model/codec.h"
#include "model/json.h"

/* ---- Building an answer ---- */

struct maker {
    struct model_answer *answer;
    struct model_part *parts;
    size_t count, calls, bytes;
    bool refused;
    bool failed; /* too many parts, calls or bytes */
};

void make_text(struct maker *m, const char *text, size_t n);
/* Adds a tool call. Empty arguments become {}; `bad` may be NULL. Duplicate or missing ids are
 * replaced. */
void make_call(struct maker *m, const char *id, const char *name, const char *arguments, size_t n,
               const char *bad);
void make_opaque(struct maker *m, const struct model_codec *codec, const json_t *value);
/* Adds a JSON string to the answer as text. */
void make_json_text(struct maker *m, const json_t *string);
/* Finishes the answer: with calls the stop reason is MODEL_STOP_CALLS, and the last call of a cut
 * answer is bad. */
int make_end(struct maker *m, enum model_stop stop, struct err *err);

/* ---- Reading a stream ---- */

/* One block, call or item of a streamed answer. Its key is the number that the stream gives it. */
struct block {
    uint64_t index;
    json_t *start; /* the opening object; for Responses the finished item */
    struct buf text, input, signature;
    char *id, *name;
    bool closed;
};

struct model_stream {
    const struct model_codec *codec;
    struct sse_reader sse;
    model_seen_fn *fn;
    void *arg;
    struct model_answer answer;
    struct maker maker;
    struct block *blocks;
    size_t count;
    struct buf text; /* Chat: the whole content so far */
    enum model_stop stop;
    size_t bytes;
    bool ended;
    bool failed;
    enum model_failure failure;
};

void stream_saw(struct model_stream *s, enum model_seen_kind kind, const json_t *string);
void stream_name(struct model_stream *s, const json_t *object); /* sets the answer's id and model */
/* Finds or adds the block with this number; NULL: too many blocks. */
struct block *stream_block(struct model_stream *s, uint64_t index);
struct block *stream_find(struct model_stream *s, uint64_t index);
/* Appends the string. False: the answer exceeds MODEL_ANSWER_MAX. */
bool stream_append(struct model_stream *s, struct buf *to, const json_t *string);
int stream_fail(struct model_stream *s, enum model_failure failure, const char *detail,
                struct err *err);

/* ---- Building a parsed request ---- */

struct hearing {
    struct model_heard *heard;
    struct model_message *messages;
    size_t count;
    struct model_part *parts; /* parts of the last message */
    size_t part_count;
    struct model_tool *tools;
    size_t tool_count;
    const char *system;
};

/* Adds a part; consecutive messages of one role are merged. NULL with ERR_LIMIT: too many. */
struct model_part *hear(struct hearing *h, enum model_role role, enum model_part_kind kind,
                        struct err *err);
int hear_text(struct hearing *h, enum model_role role, const json_t *string, struct err *err);
int hear_opaque(struct hearing *h, enum model_role role, const struct model_codec *codec,
                const json_t *value, struct err *err);
int hear_image(struct hearing *h, struct model_part *p, const char *media, const char *data);
/* Adds an image to a tool result. */
int hear_result_image(struct hearing *h, struct model_part *result, const char *media,
                      const char *data);
int hear_call(struct hearing *h, const char *id, const char *name, const char *arguments, size_t n,
              struct err *err);
/* Adds the text of a tool result. Removes the prefix that jot_outcome() adds for a failed call. */
void hear_outcome(struct hearing *h, struct model_part *result, const char *text, size_t n);
void hear_system(struct hearing *h, const char *text); /* adds text to the system prompt */
int hear_tool(struct hearing *h, const json_t *tool, const char *schema_name, struct err *err);
int hear_end(struct hearing *h, struct err *err);

/* Splits a URL such as "data:image/png;base64,AAAA". False: another kind of URL. */
bool data_url(struct arena *a, const char *url, const char **ret_media, const char **ret_data);

/* ---- Writing JSON ---- */

void jot_text(struct jot *j, const char *name, const struct model_part *p);
/* Writes the arguments of an earlier tool call, always as a JSON object. */
void jot_arguments(struct jot *j, const char *name, const struct model_part *call, bool as_text);
/* Writes the text of a tool result, with a prefix for failures, for formats without a failure
 * flag. */
#define OUTCOME_FAILED "The call failed.\n"
void jot_outcome(struct jot *j, const char *name, const struct model_part *result);
/* Writes one record of a stream: fill the object between record_begin() and record_end(). */
struct record {
    struct buf body;
    struct jot jot;
};
void record_begin(struct record *r, const char *type);
bool record_end(struct record *r, const char *name, struct buf *to);

/* ---- The functions of a codec ---- */

struct model_codec {
    const char *name, *path;
    void (*put_request)(const struct model_request *r, const struct model_wire *wire,
                        struct jot *j);
    int (*get_request)(const json_t *root, struct hearing *h, struct err *err);
    void (*put_answer)(const struct model_answer *a, struct jot *j);
    int (*get_answer)(const json_t *root, struct maker *m, struct err *err);
    bool (*put_stream)(const struct model_answer *a, struct buf *to);
    void (*put_failure)(enum model_failure failure, const char *message, bool in_band,
                        struct jot *j);
    const char *failure_event; /* name of the record for an error in a stream; NULL: none */
    int (*on_record)(struct model_stream *s, const char *name, const json_t *root, struct err *err);
    int (*on_end)(struct model_stream *s, struct err *err); /* builds the parts of the answer */
    const char *last_word; /* non-JSON data that ends the stream; NULL: none */
};
