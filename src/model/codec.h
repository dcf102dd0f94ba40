/*
 * Three wire formats for one conversation: Anthropic Messages, OpenAI Chat Completions, OpenAI
 * Responses; both ends of each.
 *
 * Pure: bytes to structs and back, no I/O. As a client we write requests and read answers, whole or
 * as a stream; as a server (rehearsal, gateway) we read requests and write answers. A message is
 * written the same whatever follows it, so requests of one conversation share their beginning byte
 * for byte (but for the marks that tell an Anthropic server where to cache).
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "model/failure.h"
#include "model/talk.h"

struct model_codec;
extern const struct model_codec model_anthropic, model_chat, model_responses;

/* "anthropic", "chat", "responses"; NULL for another name. */
const struct model_codec *model_codec_named(const char *name);
const char *model_codec_name(const struct model_codec *codec);
/* Where requests go, below the base URL: "/v1/messages", "/chat/completions", "/responses". */
const char *model_codec_path(const struct model_codec *codec);

struct model_wire {
    bool old_max_tokens; /* Chat servers that know only "max_tokens" */
};

/* `limit` when it does not fit into the buffer, `invalid` when the request makes no sense. */
int model_put_request(const struct model_codec *codec, const struct model_request *request,
                      const struct model_wire *wire, struct buf *to, struct err *err);

/* Tools that are no functions are left out; parts of kinds that only this format has are opaque. */
int model_get_request(const struct model_codec *codec, const char *bytes, size_t n,
                      struct model_heard *ret, struct err *err);

int model_put_answer(const struct model_codec *codec, const struct model_answer *answer,
                     struct buf *to, struct err *err);
/* *ret_failure (may be NULL) says what kind of failure it is. */
int model_get_answer(const struct model_codec *codec, const char *bytes, size_t n,
                     struct model_answer *ret, enum model_failure *ret_failure, struct err *err);

/* The answer as a whole stream of server-sent events. */
int model_put_stream(const struct model_codec *codec, const struct model_answer *answer,
                     struct buf *to, struct err *err);

/* The body of an error in this format; in_band: as a record of a stream that has begun. */
int model_put_failure(const struct model_codec *codec, enum model_failure failure,
                      const char *message, bool in_band, struct buf *to);

/* ---- An answer that comes as a stream ---- */

enum model_seen_kind { MODEL_SEEN_TEXT, MODEL_SEEN_REASONING, MODEL_SEEN_CALL };

/* For display only: nothing here is to be acted on. Of a call, the text is the tool's name. */
struct model_seen {
    enum model_seen_kind kind;
    const char *text;
    size_t n;
};
typedef void model_seen_fn(void *arg, const struct model_seen *seen);

struct model_stream;
/* fn may be NULL. */
struct model_stream *model_stream_new(const struct model_codec *codec, model_seen_fn *fn,
                                      void *arg);
void model_stream_free(struct model_stream *s);
void model_stream_freep(struct model_stream **s);

/* -1, for good: an error that the provider sent, something malformed, something too large. */
int model_stream_feed(struct model_stream *s, const char *bytes, size_t n, struct err *err);

/*
 * The bytes have ended. 0 and the whole answer only if the stream came to its proper end: of a
 * stream that was cut nothing is handed out.
 */
int model_stream_end(struct model_stream *s, struct model_answer *ret, struct err *err);

/* After -1: which. */
enum model_failure model_stream_failure(const struct model_stream *s);
/* What the stream has said of usage so far, also when it failed later; false: nothing. */
bool model_stream_usage(const struct model_stream *s, struct model_usage *ret);
