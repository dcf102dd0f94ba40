/*
 * A conversation with a model, independent of the provider: messages made of parts, tools, and the
 * answer with its usage and stop reason.
 *
 * Plain values with borrowed strings: a request points to its maker's memory; an answer and a
 * parsed request own theirs in an arena. Codecs (model/codec.h) convert these to and from the wire.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct model_codec;

enum {
    MODEL_NAME_MAX = 64,          /* bytes of a tool's name; all three formats allow as many */
    MODEL_CALLS_MAX = 256,        /* calls in one answer */
    MODEL_PARTS_MAX = 4096,       /* parts in one answer or message */
    MODEL_MESSAGES_MAX = 20000,   /* messages in one request */
    MODEL_TOOLS_MAX = 512,        /* tools in one request */
    MODEL_ANSWER_MAX = 8 << 20,   /* bytes of texts and arguments in one answer */
    MODEL_REQUEST_MAX = 64 << 20, /* bytes of a request on the wire */
};

enum model_part_kind {
    MODEL_TEXT,
    MODEL_IMAGE,  /* an image; text is base64 */
    MODEL_CALL,   /* a tool call; text is a JSON object, the arguments */
    MODEL_RESULT, /* the result of a tool call: text, and perhaps images */
    MODEL_OPAQUE, /* a part that only one codec understands; text is JSON, sent back unchanged */
};

struct model_part {
    enum model_part_kind kind;
    const char *text; /* n bytes, which may include NULs; a final NUL follows */
    size_t n;
    const char *id;                  /* id of a call; in a result, the id of its call */
    const char *name;                /* name of the called tool */
    const char *media;               /* media type of an image: "image/png" */
    const char *bad;                 /* of a call: why it must not be made; else NULL */
    bool failed;                     /* of a result: the call failed */
    const struct model_codec *codec; /* the codec that understands an opaque part */
    const struct model_part *images; /* images of a result */
    size_t image_count;
};

enum model_role { MODEL_USER, MODEL_ASSISTANT, MODEL_SYSTEM };

struct model_message {
    enum model_role role;
    const struct model_part *parts;
    size_t count;
};

struct model_tool {
    const char *name;
    const char *description;
    const char *schema; /* JSON: an object that describes the arguments */
};

enum model_choice { MODEL_CHOICE_AUTO, MODEL_CHOICE_ANY, MODEL_CHOICE_NONE, MODEL_CHOICE_NAMED };

struct model_request {
    const char *model;
    const char *system; /* NULL: none */
    const struct model_tool *tools;
    size_t tool_count;
    enum model_choice choice;
    const char *choice_name; /* name of the tool for MODEL_CHOICE_NAMED */
    const struct model_message *messages;
    size_t message_count;
    uint64_t max_tokens;   /* token limit of the answer; 0 (none) only in parsed requests */
    const char *cache_key; /* key of the provider's cache: the same for requests that begin with the
                              same messages; NULL: none */
    const char *effort;    /* reasoning effort, as the provider names it; NULL: the default */
    bool stream;
};

/* A parsed request with its memory. */
struct model_heard {
    struct model_request request;
    struct arena arena;
};
void model_heard_done(struct model_heard *h);

enum model_stop {
    MODEL_STOP_DONE = 1,
    MODEL_STOP_CALLS,        /* the model wants tools to be called */
    MODEL_STOP_LENGTH,       /* max_tokens was reached: the last part may be cut */
    MODEL_STOP_REFUSED,      /* the model or its provider refused to answer */
    MODEL_STOP_CONTEXT_FULL, /* the conversation is longer than the model's window */
    MODEL_STOP_PAUSED,       /* the model paused: send the same conversation again to continue */
};
const char *model_stop_name(enum model_stop stop);

/* Token counts. The kinds of input are disjoint, whatever the provider reports. */
struct model_usage {
    uint64_t in; /* input tokens that were neither read from nor written to a cache */
    uint64_t cache_read;
    uint64_t cache_write;      /* written to a cache for minutes */
    uint64_t cache_write_long; /* written to a cache for an hour */
    uint64_t out;
    uint64_t reasoning; /* output tokens for reasoning; included in `out` */
};
uint64_t model_usage_total(const struct model_usage *u);

struct model_answer {
    const char *id, *model; /* as the provider reported them; "" if it did not */
    enum model_stop stop;
    const struct model_part *parts;
    size_t count;
    size_t calls; /* number of call parts, including bad ones */
    struct model_usage usage;
    bool has_usage;
    struct arena arena;
};
void model_answer_done(struct model_answer *a);

/*
 * NULL if text is one JSON object and can be the arguments of a call; else the reason, in the
 * arena, written for the model.
 */
const char *model_arguments_fault(struct arena *a, const char *text, size_t n);
