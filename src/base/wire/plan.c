#include "base/wire/plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bits that say which messages may carry a field. */
enum {
    CREATE = 1,
    BY_ID = 2,
    FACTS = 4,
    TEXT = 8,
    ERROR = 16,
    LIMITS = 32,
    DEADLINE = 64,
    FROZEN = 128,
    CURSOR = 256,
    ROWS = 512,
    STACK = 1024,
    LAYER = 2048,
    CHANGED = 4096,
    ALL = 8192,
    PORT = 16384,
    STORE = 32768,
    GATE = 65536,
};

static const struct {
    enum plan_type type;
    unsigned carries;
} types[] = {
    {PLAN_CREATE, CREATE | BY_ID | STACK | STORE},
    {PLAN_FACTS, BY_ID},
    {PLAN_DESTROY, BY_ID | STORE},
    {PLAN_STATUS, 0},
    {PLAN_STOP, 0},
    {PLAN_LIST, CURSOR},
    {PLAN_STATS, ROWS},
    {PLAN_FREEZE, BY_ID | FROZEN},
    {PLAN_LIMITS, BY_ID | LIMITS},
    {PLAN_DEADLINE, BY_ID | DEADLINE},
    {PLAN_LISTEN, BY_ID},
    {PLAN_UPPERS, BY_ID},
    {PLAN_ROOT, BY_ID | STACK | LAYER | CHANGED},
    {PLAN_VIEW, BY_ID | STACK},
    {PLAN_DISK, BY_ID | TEXT},
    {PLAN_KEEP, BY_ID | TEXT},
    {PLAN_MERGE, BY_ID | STACK | LAYER},
    {PLAN_TELL, BY_ID | TEXT},
    {PLAN_UNPACK, TEXT},
    {PLAN_PACK, TEXT},
    {PLAN_DRAW, BY_ID | STACK | LAYER | TEXT},
    {PLAN_WIPE, TEXT},
    {PLAN_DIAL, BY_ID | PORT},
    {PLAN_LEND, BY_ID | TEXT},
    {PLAN_SAVE, BY_ID | STACK | LAYER | TEXT},
    {PLAN_SHED, TEXT},
    {PLAN_COPY, BY_ID | LAYER},
    {PLAN_HELLO, 0},
    {PLAN_CLAIM, BY_ID | STORE},
    {PLAN_VOLUME, TEXT},
    {PLAN_PEEK, BY_ID | TEXT},
    {PLAN_BOOT, BY_ID | TEXT | LIMITS | GATE | CHANGED},
    {PLAN_HALT, BY_ID | CHANGED},
    {PLAN_MERGE_HOME, BY_ID | STACK | LAYER},
    {PLAN_MEMORY, BY_ID | CHANGED | LIMITS},
    {PLAN_CREATED, TEXT},
    {PLAN_FACTS_ARE, FACTS},
    {PLAN_DONE, 0},
    {PLAN_TEXT, TEXT},
    {PLAN_ERROR, ERROR},
    {PLAN_IDS, CURSOR | TEXT},
    {PLAN_STATS_ARE, ROWS},
    {PLAN_ROOT_IS, CHANGED},
    {PLAN_VIEW_IS, 0},
};

/* The reply to each request that DONE does not answer. */
static const struct {
    enum plan_type request, reply;
} replies[] = {
    {PLAN_CREATE, PLAN_CREATED}, {PLAN_FACTS, PLAN_FACTS_ARE}, {PLAN_STATUS, PLAN_TEXT},
    {PLAN_LIST, PLAN_IDS},       {PLAN_STATS, PLAN_STATS_ARE}, {PLAN_UPPERS, PLAN_TEXT},
    {PLAN_ROOT, PLAN_ROOT_IS},   {PLAN_VIEW, PLAN_VIEW_IS},    {PLAN_DISK, PLAN_VIEW_IS},
    {PLAN_LEND, PLAN_TEXT},      {PLAN_COPY, PLAN_TEXT},       {PLAN_HELLO, PLAN_TEXT},
    {PLAN_CLAIM, PLAN_TEXT},     {PLAN_PEEK, PLAN_VIEW_IS},    {PLAN_BOOT, PLAN_TEXT},
};

static const char *const modes[] = {
    [PLAN_GRANT_RO] = "ro", [PLAN_GRANT_COW] = "cow", [PLAN_GRANT_RW] = "rw"};

const char *plan_mode_name(enum plan_grant_mode mode) {
    return modes[mode];
}

bool plan_mode_by_name(const char *name, enum plan_grant_mode *ret) {
    for (size_t i = PLAN_GRANT_RO; i < sizeof(modes) / sizeof(*modes); i++)
        if (strcmp(modes[i], name) == 0) {
            *ret = (enum plan_grant_mode)i;
            return true;
        }
    return false;
}

enum kind { KIND_U64 = 1, KIND_TEXT, KIND_GRANT, KIND_ROW };
enum { GRANT_PRIVATE = 0x40, GRANT_VOLUME = 0x20 }; /* bits beside the mode */

#define AT(member) offsetof(struct plan_message, member), sizeof(((struct plan_message *)0)->member)

static const struct field {
    uint16_t tag;
    enum kind kind;
    unsigned in;
    size_t offset, size;
} fields[] = {
    {12, KIND_U64, ALL, AT(tag)},
    {1, KIND_TEXT, BY_ID, AT(plan.id)},
    {2, KIND_TEXT, CREATE, AT(plan.image)},
    {3, KIND_TEXT, CREATE, AT(plan.hostname)},
    {4, KIND_U64, CREATE | LIMITS, AT(plan.mem_bytes)},
    {5, KIND_U64, CREATE | LIMITS, AT(plan.cpu_milli)},
    {6, KIND_U64, CREATE | LIMITS, AT(plan.pids)},
    {7, KIND_U64, CREATE | LIMITS, AT(plan.disk_bytes)},
    {8, KIND_U64, CREATE | DEADLINE, AT(plan.deadline_ms)},
    {9, KIND_U64, CREATE, AT(plan.linger)},
    {10, KIND_U64, CREATE | GATE, AT(plan.gate)},
    {19, KIND_U64, CREATE, AT(plan.same)},
    {29, KIND_U64, CREATE, AT(plan.cell)},
    {17, KIND_TEXT, STACK, AT(plan.stack)},
    {27, KIND_TEXT, CREATE, AT(plan.undrifted)},
    {28, KIND_TEXT, STORE, AT(plan.store)},
    {11, KIND_GRANT, CREATE, AT(plan.grants)},
    {13, KIND_U64, FROZEN, AT(frozen)},
    {14, KIND_U64, CURSOR, AT(cursor)},
    {15, KIND_U64, LAYER, AT(layer)},
    {18, KIND_U64, PORT, AT(port)},
    {16, KIND_U64, CHANGED, AT(changed)},
    {20, KIND_U64, FACTS, AT(facts.oom_kills)},
    {21, KIND_U64, FACTS, AT(facts.pids_refused)},
    {22, KIND_U64, FACTS, AT(facts.mem_peak_bytes)},
    {23, KIND_U64, FACTS, AT(facts.cpu_us)},
    {24, KIND_U64, FACTS, AT(facts.mem_limit_bytes)},
    {25, KIND_U64, FACTS, AT(facts.drifted)},
    {26, KIND_U64, FACTS, AT(facts.lookups_refused)},
    {30, KIND_U64, ERROR, AT(error_code)},
    {31, KIND_TEXT, ERROR, AT(error.text)},
    {32, KIND_TEXT, ERROR, AT(error.remedy)},
    {40, KIND_TEXT, TEXT, AT(text)},
    {50, KIND_ROW, ROWS, AT(rows)},
};

enum { STATS_COUNT = sizeof(struct plan_stats) / sizeof(uint64_t), ID_LEN = ID_SIZE - 1 };

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static bool carried(enum plan_type type, unsigned *ret) {
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i].type == type) {
            *ret = types[i].carries | ALL;
            return true;
        }
    return false;
}

static const struct field *field_by_tag(unsigned tag) {
    for (size_t i = 0; i < COUNT(fields); i++)
        if (fields[i].tag == tag)
            return &fields[i];
    return NULL;
}

static void put_le(char *p, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)(value >> (8 * i));
}

static uint64_t get_le(const char *p, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return value;
}

/*
 * Writes a field: tag, length, bytes. The limits of struct plan_message keep the sum below
 * PLAN_MAX_BYTES.
 */
static size_t put_field(char *at, unsigned tag, const void *bytes, size_t len) {
    put_le(at, tag, 2);
    put_le(at + 2, len, 2);
    memcpy(at + 4, bytes, len);
    return 4 + len;
}

static size_t put_grants(char *at, unsigned tag, const struct plan *plan) {
    size_t n = 0;
    for (size_t i = 0; i < plan->grant_count; i++) {
        char bytes[1 + PLAN_PATH_SIZE];
        size_t len = strlen(plan->grants[i].path);
        bytes[0] = (char)(plan->grants[i].mode | (plan->grants[i].private ? GRANT_PRIVATE : 0) |
                          (plan->grants[i].volume ? GRANT_VOLUME : 0));
        memcpy(bytes + 1, plan->grants[i].path, len);
        n += put_field(at + n, tag, bytes, 1 + len);
    }
    return n;
}

static size_t put_rows(char *at, unsigned tag, const struct plan_message *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->row_count; i++) {
        char bytes[ID_LEN + 8 * STATS_COUNT];
        uint64_t numbers[STATS_COUNT];
        memcpy(bytes, m->rows[i].id, ID_LEN);
        memcpy(numbers, &m->rows[i].stats, sizeof(numbers));
        for (size_t k = 0; k < STATS_COUNT; k++)
            put_le(bytes + ID_LEN + 8 * k, numbers[k], 8);
        n += put_field(at + n, tag, bytes, sizeof(bytes));
    }
    return n;
}

enum plan_type plan_reply(enum plan_type request) {
    unsigned carries;
    if (request >= PLAN_CREATED || !carried(request, &carries))
        return 0;
    for (size_t i = 0; i < COUNT(replies); i++)
        if (replies[i].request == request)
            return replies[i].reply;
    return PLAN_DONE;
}

/* ---- lines of the answer to LIST ---- */

size_t plan_found_print(const struct plan_found *f, char to[PLAN_FOUND_SIZE]) {
    int n = snprintf(to, PLAN_FOUND_SIZE,
                     "%s %s %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                     " %" PRIu64 "\n",
                     f->id, f->store[0] ? f->store : "-", f->image[0] ? f->image : "-", f->layer,
                     f->mem_bytes, f->cpu_milli, f->pids, f->disk_bytes, f->left_ms, f->vm);
    assert(n > 0 && n < PLAN_FOUND_SIZE);
    return (size_t)n;
}

bool plan_found_parse(const char *line, struct plan_found *ret) {
    struct plan_found f = {.id = ""};
    char id[32] = "", store[32] = "-", image[PLAN_NAME_SIZE] = "-";
    static_assert(PLAN_NAME_SIZE == 64, "the width in the format below");
    int n = sscanf(line,
                   "%31s %31s %63s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64,
                   id, store, image, &f.layer, &f.mem_bytes, &f.cpu_milli, &f.pids, &f.disk_bytes,
                   &f.left_ms, &f.vm);
    if ((n != 1 && n != 9 && n != 10) || !id_valid(id, strlen(id), 'm') ||
        (strcmp(store, "-") != 0 && !id_valid(store, strlen(store), 's')))
        return false;
    memcpy(f.id, id, sizeof(f.id));
    if (store[0] != '-')
        memcpy(f.store, store, sizeof(f.store));
    if (image[0] != '-')
        memcpy(f.image, image, sizeof(f.image));
    *ret = f;
    return true;
}

void plan_error(struct plan_message *m, const struct err *err) {
    m->type = PLAN_ERROR;
    m->error = *err;
    m->error_code = err->code;
}

size_t plan_encode(const struct plan_message *m, char *buf) {
    static_assert(sizeof(struct plan) < PLAN_MAX_BYTES && PLAN_TEXT_SIZE < PLAN_MAX_BYTES &&
                      PLAN_ROWS_MAX * sizeof(struct plan_row) < PLAN_MAX_BYTES / 2,
                  "fits");
    static_assert(COUNT(fields) <= 64, "each field needs one bit");
    unsigned carries = 0;
    bool known = carried(m->type, &carries);
    assert(known);
    (void)known;
    put_le(buf, PLAN_VERSION, 2);
    put_le(buf + 2, m->type, 2);
    size_t n = 4;
    for (const struct field *f = fields; f < fields + COUNT(fields); f++) {
        const char *value = (const char *)m + f->offset;
        char number[8];
        if (!(carries & f->in))
            continue;
        if (f->kind == KIND_GRANT) {
            n += put_grants(buf + n, f->tag, &m->plan);
        } else if (f->kind == KIND_ROW) {
            n += put_rows(buf + n, f->tag, m);
        } else if (f->kind == KIND_TEXT) {
            n += put_field(buf + n, f->tag, value, strnlen(value, f->size - 1));
        } else {
            uint64_t u;
            memcpy(&u, value, sizeof(u));
            put_le(number, u, 8);
            n += put_field(buf + n, f->tag, number, 8);
        }
    }
    return n;
}

static int get_grant(const char *bytes, size_t len, struct plan *plan, struct err *err) {
    if (plan->grant_count == PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "more than %d directories are granted", PLAN_MAX_GRANTS);
    struct plan_grant *g = &plan->grants[plan->grant_count];
    int mode = len ? bytes[0] & ~(GRANT_PRIVATE | GRANT_VOLUME) : 0;
    if (len < 2 || len > PLAN_PATH_SIZE || mode < PLAN_GRANT_RO || mode > PLAN_GRANT_RW ||
        bytes[1] != '/' || memchr(bytes + 1, '\0', len - 1))
        return err_set(err, ERR_INVALID,
                       "malformed grant (shared directory) in a message to or from the spawner");
    g->mode = (enum plan_grant_mode)mode;
    g->private = bytes[0] & GRANT_PRIVATE;
    g->volume = bytes[0] & GRANT_VOLUME;
    memcpy(g->path, bytes + 1, len - 1);
    g->path[len - 1] = '\0';
    plan->grant_count++;
    return 0;
}

static int get_row(const char *bytes, size_t len, struct plan_message *m, struct err *err) {
    if (m->row_count == PLAN_ROWS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d machines in one request to the spawner",
                       PLAN_ROWS_MAX);
    if (len != ID_LEN + 8 * STATS_COUNT || !id_valid(bytes, ID_LEN, 'm'))
        return err_set(err, ERR_INVALID,
                       "malformed machine row in a message to or from the spawner");
    struct plan_row *row = &m->rows[m->row_count++];
    uint64_t numbers[STATS_COUNT];
    for (size_t k = 0; k < STATS_COUNT; k++)
        numbers[k] = get_le(bytes + ID_LEN + 8 * k, 8);
    memcpy(row->id, bytes, ID_LEN);
    memcpy(&row->stats, numbers, sizeof(numbers));
    return 0;
}

static int get_field(const struct field *f, const char *bytes, size_t len, struct plan_message *m,
                     struct err *err) {
    char *value = (char *)m + f->offset;
    switch (f->kind) {
    case KIND_GRANT:
        return get_grant(bytes, len, &m->plan, err);
    case KIND_ROW:
        return get_row(bytes, len, m, err);
    case KIND_TEXT:
        if (len >= f->size || memchr(bytes, '\0', len))
            return err_set(err, ERR_INVALID,
                           "malformed text in field %u of a message to or from the spawner",
                           f->tag);
        memcpy(value, bytes, len);
        value[len] = '\0';
        return 0;
    default:
        if (len != 8)
            return err_set(err, ERR_INVALID,
                           "malformed number in field %u of a message to or from the spawner",
                           f->tag);
        memcpy(value, &(uint64_t){get_le(bytes, 8)}, 8);
        return 0;
    }
}

static int get_fields(const char *bytes, size_t len, unsigned carries, struct plan_message *m,
                      struct err *err) {
    uint64_t seen = 0;
    for (size_t at = 4; at < len;) {
        if (len - at < 4)
            return err_set(err, ERR_INVALID, "a message to or from the spawner is cut off");
        const struct field *f = field_by_tag((unsigned)get_le(bytes + at, 2));
        size_t n = (size_t)get_le(bytes + at + 2, 2);
        at += 4;
        if (!f || !(carries & f->in))
            return err_set(err, ERR_INVALID, "unknown field in a message to or from the spawner");
        if (n > len - at)
            return err_set(err, ERR_INVALID, "a message to or from the spawner is cut off");
        uint64_t bit = 1ull << (f - fields);
        if (seen & bit && f->kind != KIND_GRANT && f->kind != KIND_ROW)
            return err_set(err, ERR_INVALID,
                           "duplicate field %u in a message to or from the spawner", f->tag);
        seen |= bit;
        if (get_field(f, bytes + at, n, m, err) < 0)
            return -1;
        at += n;
    }
    return 0;
}

int plan_decode(const char *bytes, size_t len, struct plan_message *ret, struct err *err) {
    unsigned carries;
    memset(ret, 0, sizeof(*ret));
    if (len < 4 || len > PLAN_MAX_BYTES)
        return err_set(err, ERR_INVALID,
                       "a message to or from the spawner has a wrong size: %zu bytes", len);
    if (get_le(bytes, 2) != PLAN_VERSION)
        return err_set(
            err, ERR_UNSUPPORTED,
            "a message of the spawner protocol has version %u; this program reads only version %d",
            (unsigned)get_le(bytes, 2), PLAN_VERSION);
    ret->type = (enum plan_type)get_le(bytes + 2, 2);
    if (!carried(ret->type, &carries))
        return err_set(err, ERR_INVALID, "unknown type %d of a message to or from the spawner",
                       ret->type);
    if (get_fields(bytes, len, carries, ret, err) < 0)
        return -1;
    if ((carries & BY_ID) && !id_valid(ret->plan.id, strlen(ret->plan.id), 'm'))
        return err_set(err, ERR_INVALID,
                       "malformed machine id in a message to or from the spawner");
    if (ret->plan.store[0] && !id_valid(ret->plan.store, strlen(ret->plan.store), 's'))
        return err_set(err, ERR_INVALID, "malformed store id in a message to or from the spawner");
    struct layers stack;
    if ((carries & STACK) && layers_parse(ret->plan.stack, &stack, err) < 0)
        return err_wrap(err, "malformed list of layers in a message to or from the spawner");
    if (ret->layer > LAYER_NUMBER_MAX)
        return err_set(err, ERR_INVALID,
                       "layer number out of range in a message to or from the spawner");
    bool is_code = ret->error_code > 0 && ret->error_code <= ERR_TIMEOUT;
    if (ret->type == PLAN_ERROR)
        ret->error.code = is_code ? (enum err_code)ret->error_code : ERR_INTERNAL;
    return 0;
}
