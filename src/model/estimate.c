#include "model/estimate.h"

#include <string.h>

#include "base/alloc.h"
#include "model/json.h"

enum {
    ROWS = 256,          /* pairs of account and model that are remembered */
    RECENT = 8,          /* answers that the estimate of output looks at */
    RATES = 2,           /* calls that the estimate of the price of input looks at */
    CLAUDE_BYTES = 2800, /* thousandths of a byte per token, before the first call */
    OTHER_BYTES = 4000,
    LEAST_BYTES = 1000,
    MOST_BYTES = 8000,
    LEARN_FROM = 1024, /* shorter requests consist mostly of what the provider adds */
    AROUND = 16,       /* tokens that a provider adds to every request */
};

struct estimate_row {
    char account[ACCOUNT_ID_SIZE], model[ACCOUNT_MODEL_SIZE];
    uint64_t used;         /* count of calls when the row was used last */
    uint64_t milli_bytes;  /* thousandths of a byte of input per token */
    uint64_t out[RECENT];  /* tokens of the last answers, in a ring */
    uint64_t rates[RATES]; /* price of a million input tokens in the last calls, in a ring */
    size_t calls;
};

struct model_estimates {
    struct estimate_row rows[ROWS];
    uint64_t calls;
};

struct model_estimates *model_estimates_new(void) {
    return xnew(struct model_estimates);
}

void model_estimates_free(struct model_estimates *e) {
    free(e);
}

/* ---- The size of a request ---- */

/*
 * Where a format has images. Only there is data an image: elsewhere the same object or string is
 * text, such as the arguments of a tool, and costs as text.
 */
struct image_place {
    const struct model_codec *codec;
    const char *ways[6];    /* members that lead from the request to the parts of messages */
    const char *types[3];   /* the "type" of a part with an image; none: parts have no type */
    const char *members[3]; /* the member of a part that is the image, or has it ... */
    const char *inner;      /* ... as this member; NULL: it is the image itself */
    const char *media[3];   /* members that name its media type; none: it is a data: URL */
};
static const struct image_place image_places[] = {
    {&model_anthropic,
     {"messages", "content", "source"},
     {"image"},
     {"source"},
     "data",
     {"media_type"}},
    {&model_chat, {"messages", "content"}, {"image_url"}, {"image_url"}, "url", {NULL}},
    {&model_responses,
     {"input", "content", "output"},
     {"input_image", "computer_screenshot"},
     {"image_url"},
     NULL,
     {NULL}},
    {&model_gemini,
     {"contents", "parts", "functionResponse"},
     {NULL},
     {"inlineData", "inline_data"},
     "data",
     {"mimeType", "mime_type"}},
};

static const struct image_place *place_of(const struct model_codec *codec) {
    for (size_t i = 0; i < sizeof(image_places) / sizeof(*image_places); i++)
        if (image_places[i].codec == codec)
            return &image_places[i];
    return NULL;
}

static bool is_listed(const char *const *names, const char *name) {
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

static bool is_image(const struct image_place *p, const json_t *holder, const json_t *data) {
    const char *text = json_string_value(data);
    if (!p->media[0])
        return text && strncmp(text, "data:image/", 11) == 0;
    for (size_t i = 0; p->media[i]; i++)
        if (text && strncmp(json_member_or(holder, p->media[i], ""), "image/", 6) == 0)
            return true;
    return false;
}

/* Returns the string of a part that is the bytes of an image. NULL: none. */
static const json_t *image_of(const struct image_place *p, const json_t *part) {
    if (p->types[0] && !is_listed(p->types, json_member_or(part, "type", "")))
        return NULL;
    for (size_t i = 0; p->members[i]; i++) {
        const json_t *holder = json_object_get(part, p->members[i]);
        const json_t *data = p->inner ? json_object_get(holder, p->inner) : holder;
        if (is_image(p, holder, data))
            return data;
    }
    return NULL;
}

/*
 * place: the value may be a part or lead to one; NULL: it does not. image: the string that is an
 * image. The parser limits how deep values are nested, and so the recursion.
 */
static void size_add(const json_t *value, const struct image_place *place, const json_t *image,
                     struct model_size *s) {
    enum { PLAIN = 5, QUOTES = 3 };
    const char *key;
    json_t *item;
    size_t i;
    if (image && value == image) {
        s->images++;
    } else if (json_is_object(value)) {
        if (place && !image)
            image = image_of(place, value);
        json_object_foreach((json_t *)value, key, item) {
            s->bytes += strlen(key) + QUOTES;
            size_add(item, place && is_listed(place->ways, key) ? place : NULL, image, s);
        }
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, item) size_add(item, place, image, s);
    } else {
        s->bytes += json_is_string(value) ? json_string_length(value) + QUOTES : PLAIN;
    }
}

struct model_size model_size_of(const struct model_codec *codec, const json_t *request) {
    struct model_size s = {0};
    size_add(request, place_of(codec), NULL, &s);
    return s;
}

/* ---- Rows ---- */

static bool row_is(const struct estimate_row *r, const struct model_subject *who) {
    return strcmp(r->account, who->account) == 0 && strcmp(r->model, who->model) == 0;
}

static const struct estimate_row *row_find(const struct model_estimates *e,
                                           const struct model_subject *who) {
    for (size_t i = 0; i < ROWS; i++)
        if (e->rows[i].calls && row_is(&e->rows[i], who))
            return &e->rows[i];
    return NULL;
}

static uint64_t first_bytes(const char *model) {
    return strstr(model, "claude") ? CLAUDE_BYTES : OTHER_BYTES;
}

/* Finds the row, or replaces the one that was not used for the longest time. */
static struct estimate_row *row_take(struct model_estimates *e, const struct model_subject *who) {
    struct estimate_row *r = (struct estimate_row *)row_find(e, who);
    if (r)
        return r;
    r = &e->rows[0];
    for (size_t i = 1; i < ROWS; i++)
        if (e->rows[i].used < r->used)
            r = &e->rows[i];
    *r = (struct estimate_row){.milli_bytes = first_bytes(who->model)};
    snprintf(r->account, sizeof(r->account), "%s", who->account);
    snprintf(r->model, sizeof(r->model), "%s", who->model);
    return r;
}

static uint64_t largest(const uint64_t *ring, size_t size, size_t count) {
    uint64_t most = 0;
    for (size_t i = 0; i < size && i < count; i++)
        if (ring[i] > most)
            most = ring[i];
    return most;
}

/* ---- Estimates ---- */

/* Rounds up. n is at most 2^40 tokens, and a price at most 10^12. */
static uint64_t cost_of(uint64_t n, uint64_t price) {
    const unsigned million = 1000000;
    __extension__ unsigned __int128 sum = (unsigned __int128)n * price;
    sum = (sum + million - 1) / million;
    return sum > STORE_NUMBER_MAX / 4 ? STORE_NUMBER_MAX / 4 : (uint64_t)sum;
}

uint64_t model_estimate_text(const struct model_estimates *e, const struct model_subject *who,
                             uint64_t bytes) {
    const struct estimate_row *r = row_find(e, who);
    uint64_t milli = r ? r->milli_bytes : first_bytes(who->model);
    return (bytes * 1000 + milli - 1) / milli;
}

static uint64_t input_rate(const struct estimate_row *r, const struct conf_model *row) {
    if (!row || !row->priced)
        return 0;
    return r ? largest(r->rates, RATES, r->calls) : model_dearest_input(row);
}

struct cost model_guess_cost(const struct model_guess *g, const struct conf_model *row,
                             uint64_t out) {
    uint64_t price = row && row->priced ? row->out : 0;
    uint64_t input = g->cost.micro - cost_of(g->usage.out, price);
    return (struct cost){.tokens = g->usage.in + out, .micro = input + cost_of(out, price)};
}

struct model_guess model_estimate(const struct model_estimates *e, const struct model_subject *who,
                                  const struct model_size *size, uint64_t max_tokens) {
    const struct estimate_row *r = row_find(e, who);
    const struct conf_model *row = who->row;
    uint64_t in =
        model_estimate_text(e, who, size->bytes) + AROUND + size->images * MODEL_IMAGE_TOKENS;
    uint64_t out = r ? largest(r->out, RECENT, r->calls) : MODEL_FIRST_OUT;
    if (row && row->window && in > row->window)
        in = row->window;
    struct model_guess g = {.usage = {.in = in}};
    g.cost.micro = cost_of(in, input_rate(r, row));
    g.cost = model_guess_cost(&g, row, out < max_tokens ? out : max_tokens);
    g.usage.out = out < max_tokens ? out : max_tokens;
    return g;
}

uint64_t model_guess_fits(const struct model_guess *g, const struct conf_model *row,
                          const struct cost *left) {
    const struct cost input = model_guess_cost(g, row, 0);
    if (input.tokens > left->tokens || input.micro > left->micro)
        return 0;
    uint64_t tokens = left->tokens - input.tokens, micro = left->micro - input.micro;
    if (!row || !row->priced || row->out == 0 || left->micro == UINT64_MAX)
        return tokens;
    __extension__ unsigned __int128 paid = (unsigned __int128)micro * 1000000 / row->out;
    return paid < tokens ? (uint64_t)paid : tokens;
}

/* ---- Learning ---- */

/* Follows a request with fewer bytes per token faster than one with more. */
static uint64_t follow(uint64_t known, uint64_t seen) {
    uint64_t next = seen < known ? (known + seen) / 2 : (3 * known + seen) / 4;
    return next < LEAST_BYTES ? LEAST_BYTES : next > MOST_BYTES ? MOST_BYTES : next;
}

static uint64_t rate_of(const struct conf_model *row, const struct model_usage *u, uint64_t in) {
    struct model_usage input = *u;
    input.out = 0;
    return in ? (model_cost(row, &input).micro * 1000000 + in - 1) / in : 0;
}

void model_estimate_learn(struct model_estimates *e, const struct model_subject *who,
                          const struct model_size *size, const struct model_usage *usage) {
    uint64_t in = model_usage_total(usage) - usage->out;
    struct estimate_row *r = row_take(e, who);
    if (in && size->images == 0 && size->bytes >= LEARN_FROM)
        r->milli_bytes = follow(r->milli_bytes, size->bytes * 1000 / in);
    r->out[r->calls % RECENT] = usage->out;
    r->rates[r->calls % RATES] = rate_of(who->row, usage, in);
    r->calls++;
    r->used = ++e->calls;
}
