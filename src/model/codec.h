/*
 * Three wire formats for one conversation: Anthropic Messages, OpenAI Chat Completions and OpenAI
 * Responses, for client and server.
 *
 * Pure: bytes to structs and back, no I/O. A client writes requests and reads answers, whole or as
 * a stream; a server (rehearsal, gateway) reads requests and writes answers. A message is always
 * written the same way, so the requests of one conversation share their first bytes (except for
 * Anthropic cache marks).
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "model/failure.h"
#include "model/talk.h"

struct model_codec;
extern const struct model_codec model_anthropic, model_chat, model_responses;
extern const struct model_codec model_gemini; /* reads answers and writes errors only */

/* Finds a codec by its name: "anthropic", "chat", "responses" or "gemini"; NULL if unknown. */
const struct model_codec *model_codec_named(const char *name);
const char *model_codec_name(const struct model_codec *codec);
/* Returns the path below the base URL: "/v1/messages", "/chat/completions" or "/responses". */
const char *model_codec_path(const struct model_codec *codec);

struct model_wire {
    bool old_max_tokens; /* the Chat server accepts only the older member "max_tokens" */
};

/* Writes a request. ERR_LIMIT: the request does not fit in the buffer. ERR_INVALID: it is
 * malformed. */
int model_put_request(const struct model_codec *codec, const struct model_request *request,
                      const struct model_wire *wire, struct buf *to, struct err *err);

/* Parses a request. Skips tools that are not functions; parts that only this format has become
 * MODEL_OPAQUE. */
int model_get_request(const struct model_codec *codec, const char *bytes, size_t n,
                      struct model_heard *ret, struct err *err);

int model_put_answer(const struct model_codec *codec, const struct model_answer *answer,
                     struct buf *to, struct err *err);
/* Parses an answer. *ret_failure (may be NULL) gets the kind of failure. */
int model_get_answer(const struct model_codec *codec, const char *bytes, size_t n,
                     struct model_answer *ret, enum model_failure *ret_failure, struct err *err);

/* Writes the answer as a complete stream of server-sent events. */
int model_put_stream(const struct model_codec *codec, const struct model_answer *answer,
                     struct buf *to, struct err *err);

/* Writes the body of an error; in_band: as a record of a stream that has begun. */
int model_put_failure(const struct model_codec *codec, enum model_failure failure,
                      const char *message, bool in_band, struct buf *to);

/* ---- Reading an answer that arrives as a stream ---- */

enum model_seen_kind { MODEL_SEEN_TEXT, MODEL_SEEN_REASONING, MODEL_SEEN_CALL };

/* A piece of an unfinished answer, for display only: never run a call from it. The text of a call
 * is the name of the tool. */
struct model_seen {
    enum model_seen_kind kind;
    const char *text;
    size_t n;
};
typedef void model_seen_fn(void *arg, const struct model_seen *seen);

struct model_stream;
/* Creates a reader of a streamed answer; fn may be NULL. */
struct model_stream *model_stream_new(const struct model_codec *codec, model_seen_fn *fn,
                                      void *arg);
void model_stream_free(struct model_stream *s);
void model_stream_freep(struct model_stream **s);

/* Reads more bytes of the stream. -1 is final: an error from the provider, malformed data, or too
 * much data. */
int model_stream_feed(struct model_stream *s, const char *bytes, size_t n, struct err *err);

/*
 * Called at the end of the bytes. Returns 0 and the answer only if the stream is complete; a cut
 * stream gives no answer.
 */
int model_stream_end(struct model_stream *s, struct model_answer *ret, struct err *err);

/* Returns the kind of failure, after -1. */
enum model_failure model_stream_failure(const struct model_stream *s);
/* Gets the usage that was reported so far, also after a failure; false: none. */
bool model_stream_usage(const struct model_stream *s, struct model_usage *ret);
/* Returns the bytes of texts and arguments that arrived so far. */
size_t model_stream_bytes(const struct model_stream *s);
