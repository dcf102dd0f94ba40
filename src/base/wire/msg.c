#include "base/wire/msg.h"

#include <assert.h>
#include <string.h>

enum kind {
    END,
    U8,
    U16,
    U32,
    U64,
    STR,     /* u32 n, n bytes without NUL, one NUL */
    STRS,    /* u32 count, u32 n, n bytes: strings with their NULs */
    BYTES,   /* u32 n, n bytes */
    REST,    /* bytes to the end of the payload */
    GROUPS,  /* u32 count, u32 each */
    RLIMITS, /* u32 count, (u32, u64, u64) each */
};

struct field {
    uint8_t kind;
    uint16_t at;
};

#define F(kind, type, member) \
    { kind, (uint16_t)offsetof(struct type, member) }

static const struct field hello_fields[] = {
    F(U32, msg_hello, version), F(U32, msg_hello, features), F(U64, msg_hello, incarnation), {END}};
static const struct field ok_fields[] = {F(U64, msg_ok, value), {END}};
static const struct field error_fields[] = {
    F(U32, msg_error, code), F(U32, msg_error, number), F(STR, msg_error, text), {END}};
static const struct field exec_fields[] = {
    F(U32, msg_exec, flags),     F(U8, msg_exec, stdio[0]),
    F(U8, msg_exec, stdio[1]),   F(U8, msg_exec, stdio[2]),
    F(U16, msg_exec, rows),      F(U16, msg_exec, cols),
    F(U32, msg_exec, window),    F(U32, msg_exec, uid),
    F(U32, msg_exec, gid),       F(U64, msg_exec, timeout_ms),
    F(GROUPS, msg_exec, groups), F(RLIMITS, msg_exec, rlimits),
    F(STR, msg_exec, cwd),       F(STRS, msg_exec, argv),
    F(STRS, msg_exec, env),      {END}};
static const struct field started_fields[] = {
    F(U32, msg_started, pid), F(U32, msg_started, window), {END}};
static const struct field exec_failed_fields[] = {
    F(U32, msg_exec_failed, number), F(U32, msg_exec_failed, step), {END}};
static const struct field data_fields[] = {
    F(U64, msg_data, offset), F(REST, msg_data, data), {END}};
static const struct field credit_fields[] = {
    F(U8, msg_credit, stream), F(U64, msg_credit, consumed), {END}};
static const struct field exit_fields[] = {F(U32, msg_exit, flags),
                                           F(U32, msg_exit, status),
                                           F(U64, msg_exit, user_us),
                                           F(U64, msg_exit, system_us),
                                           F(U64, msg_exit, max_rss_kb),
                                           F(U64, msg_exit, wall_us),
                                           {END}};
static const struct field fuel_fields[] = {F(U64, msg_fuel, used), {END}};
static const struct field pause_fields[] = {F(U64, msg_pause, max), {END}};
static const struct field signal_fields[] = {
    F(U32, msg_signal, number), F(U8, msg_signal, group), {END}};
static const struct field resize_fields[] = {
    F(U16, msg_resize, rows), F(U16, msg_resize, cols), {END}};
static const struct field attach_fields[] = {
    F(U64, msg_attach, consumed[0]), F(U64, msg_attach, consumed[1]), {END}};
static const struct field log_fields[] = {
    F(U64, msg_log, produced[0]), F(U64, msg_log, produced[1]), F(U8, msg_log, ended), {END}};
static const struct field row_fields[] = {F(U32, msg_row, id),
                                          F(U8, msg_row, state),
                                          F(U8, msg_row, attached),
                                          F(U8, msg_row, stdio[0]),
                                          F(U8, msg_row, stdio[1]),
                                          F(U8, msg_row, stdio[2]),
                                          F(U32, msg_row, flags),
                                          F(U32, msg_row, pid),
                                          F(U64, msg_row, age_us),
                                          F(U64, msg_row, stdin_received),
                                          F(U64, msg_row, consumed[0]),
                                          F(U64, msg_row, consumed[1]),
                                          F(U64, msg_row, produced[0]),
                                          F(U64, msg_row, produced[1]),
                                          F(U32, msg_row, exit.flags),
                                          F(U32, msg_row, exit.status),
                                          F(U64, msg_row, exit.user_us),
                                          F(U64, msg_row, exit.system_us),
                                          F(U64, msg_row, exit.max_rss_kb),
                                          F(U64, msg_row, exit.wall_us),
                                          {END}};
static const struct field rows_fields[] = {F(U32, msg_rows, count), F(REST, msg_rows, rows), {END}};
static const struct field busy_fields[] = {F(U8, msg_busy_state, busy),
                                           F(U32, msg_busy_state, commands),
                                           F(U32, msg_busy_state, unacked),
                                           F(U32, msg_busy_state, terminals),
                                           {END}};
static const struct field path_fields[] = {F(U32, msg_path, uid),   F(U32, msg_path, gid),
                                           F(U32, msg_path, flags), F(U32, msg_path, mode),
                                           F(STR, msg_path, path),  {END}};
static const struct field entry_fields[] = {F(U32, msg_entry, mode),   F(U32, msg_entry, uid),
                                            F(U32, msg_entry, gid),    F(U32, msg_entry, nlink),
                                            F(U64, msg_entry, size),   F(U64, msg_entry, mtime_ns),
                                            F(U64, msg_entry, ino),    F(STR, msg_entry, name),
                                            F(STR, msg_entry, target), {END}};
static const struct field list_fields[] = {F(U32, msg_list, uid),    F(U32, msg_list, gid),
                                           F(U64, msg_list, cookie), F(U32, msg_list, max),
                                           F(STR, msg_list, path),   {END}};
static const struct field list_page_fields[] = {F(U64, msg_list_page, next),
                                                F(U32, msg_list_page, count),
                                                F(REST, msg_list_page, entries),
                                                {END}};
static const struct field read_fields[] = {F(U32, msg_read, uid),    F(U32, msg_read, gid),
                                           F(U64, msg_read, offset), F(U32, msg_read, bytes),
                                           F(STR, msg_read, path),   {END}};
static const struct field read_data_fields[] = {
    F(U64, msg_read_data, size), F(U64, msg_read_data, mtime_ns), F(U64, msg_read_data, ino),
    F(U32, msg_read_data, mode), F(REST, msg_read_data, data),    {END}};
static const struct field write_fields[] = {F(U32, msg_write, uid),    F(U32, msg_write, gid),
                                            F(U32, msg_write, flags),  F(U32, msg_write, mode),
                                            F(U64, msg_write, offset), F(STR, msg_write, path),
                                            F(REST, msg_write, data),  {END}};
static const struct field move_fields[] = {F(U32, msg_move, uid),   F(U32, msg_move, gid),
                                           F(U32, msg_move, flags), F(STR, msg_move, from),
                                           F(STR, msg_move, to),    {END}};
static const struct field chown_fields[] = {F(U32, msg_chown, uid),
                                            F(U32, msg_chown, gid),
                                            F(U32, msg_chown, flags),
                                            F(U32, msg_chown, owner),
                                            F(U32, msg_chown, group),
                                            F(STR, msg_chown, path),
                                            {END}};
static const struct field event_fields[] = {
    F(U32, msg_event, mask), F(U32, msg_event, cookie), F(STR, msg_event, name), {END}};
static const struct field call_fields[] = {F(U8, msg_call, left), F(REST, msg_call, words), {END}};
static const struct field call_answer_fields[] = {
    F(U8, msg_call_answer, status), F(REST, msg_call_answer, text), {END}};
static const struct field clone_id_fields[] = {F(STR, msg_clone_id, hostname),
                                               F(STR, msg_clone_id, machine_id),
                                               F(BYTES, msg_clone_id, seed),
                                               {END}};
static const struct field deadline_fields[] = {F(U64, msg_deadline, in_ms), {END}};
static const struct field spares_fields[] = {
    F(U8, msg_spares, count), F(U8, msg_spares, each), {END}};
static const struct field log_read_fields[] = {
    F(U8, msg_log_read, stream), F(U64, msg_log_read, offset), F(U32, msg_log_read, bytes), {END}};
static const struct field log_data_fields[] = {
    F(U64, msg_log_data, offset), F(U64, msg_log_data, produced), F(U64, msg_log_data, lost),
    F(U8, msg_log_data, ended),   F(REST, msg_log_data, data),    {END}};
static const struct field meta_fields[] = {F(STR, msg_meta, name),
                                           F(U64, msg_meta, atime_ns),
                                           F(U64, msg_meta, ctime_ns),
                                           F(STRS, msg_meta, pairs),
                                           {END}};
static const struct field meta_page_fields[] = {F(U64, msg_meta_page, next),
                                                F(U32, msg_meta_page, count),
                                                F(REST, msg_meta_page, entries),
                                                {END}};
static const struct field meta_set_fields[] = {F(U32, msg_meta_set, uid),
                                               F(U32, msg_meta_set, gid),
                                               F(STR, msg_meta_set, path),
                                               F(STRS, msg_meta_set, pairs),
                                               {END}};
static const struct field resumed_fields[] = {
    F(U64, msg_resumed, seconds),  F(U64, msg_resumed, nanoseconds), F(U8, msg_resumed, who),
    F(STR, msg_resumed, hostname), F(BYTES, msg_resumed, seed),      {END}};
static const struct field no_fields[] = {{END}};

static const struct shape {
    const char *name;
    const struct field *fields;
    uint16_t size;
} shapes[] = {
#define SHAPE(type, list, struc) [MSG_##type] = {#type, list##_fields, sizeof(struct struc)}
#define EMPTY(type) [MSG_##type] = {#type, no_fields, 0}
    SHAPE(HELLO, hello, msg_hello),
    SHAPE(OK, ok, msg_ok),
    SHAPE(ERROR, error, msg_error),
    EMPTY(PING),
    EMPTY(SHUTDOWN),
    SHAPE(EXEC, exec, msg_exec),
    SHAPE(EXEC_STARTED, started, msg_started),
    SHAPE(EXEC_FAILED, exec_failed, msg_exec_failed),
    SHAPE(STDIN, data, msg_data),
    SHAPE(STDOUT, data, msg_data),
    SHAPE(STDERR, data, msg_data),
    SHAPE(CREDIT, credit, msg_credit),
    SHAPE(EXIT, exit, msg_exit),
    EMPTY(EXIT_ACK),
    SHAPE(SIGNAL, signal, msg_signal),
    EMPTY(KILL),
    SHAPE(RESIZE, resize, msg_resize),
    SHAPE(ATTACH, attach, msg_attach),
    EMPTY(TABLE),
    SHAPE(TABLE_ROWS, rows, msg_rows),
    EMPTY(BUSY),
    SHAPE(BUSY_STATE, busy, msg_busy_state),
    SHAPE(LOG_WAIT, log, msg_log),
    SHAPE(LOG_GREW, log, msg_log),
    EMPTY(LOG_OPEN),
    SHAPE(FUEL, fuel, msg_fuel),
    SHAPE(PAUSE, pause, msg_pause),
    EMPTY(GO_ON),
    EMPTY(LEAVE),
    SHAPE(STAT, path, msg_path),
    SHAPE(ENTRY, entry, msg_entry),
    SHAPE(LIST, list, msg_list),
    SHAPE(LIST_PAGE, list_page, msg_list_page),
    SHAPE(READ, read, msg_read),
    SHAPE(READ_DATA, read_data, msg_read_data),
    SHAPE(WRITE, write, msg_write),
    SHAPE(MKDIR, path, msg_path),
    SHAPE(MOVE, move, msg_move),
    SHAPE(REMOVE, path, msg_path),
    SHAPE(CHMOD, path, msg_path),
    SHAPE(CHOWN, chown, msg_chown),
    SHAPE(SYMLINK, move, msg_move),
    SHAPE(WATCH, path, msg_path),
    EMPTY(UNWATCH),
    SHAPE(EVENT, event, msg_event),
    SHAPE(CALL, call, msg_call),
    SHAPE(CALL_ANSWER, call_answer, msg_call_answer),
    SHAPE(CLONE_ID, clone_id, msg_clone_id),
    SHAPE(DEADLINE, deadline, msg_deadline),
    SHAPE(SPARES_WANT, spares, msg_spares),
    SHAPE(SPARES, spares, msg_spares),
    EMPTY(SWITCH_ROOT),
    EMPTY(LINGER),
    SHAPE(LOG_READ, log_read, msg_log_read),
    SHAPE(LOG_DATA, log_data, msg_log_data),
    SHAPE(META, list, msg_list),
    SHAPE(META_PAGE, meta_page, msg_meta_page),
    SHAPE(META_SET, meta_set, msg_meta_set),
    SHAPE(FILE_ROOT, path, msg_path),
    SHAPE(RESUMED, resumed, msg_resumed),
};

static const struct shape *shape_of(uint16_t type) {
    if (type >= sizeof(shapes) / sizeof(*shapes) || !shapes[type].name)
        return NULL;
    return &shapes[type];
}

const char *msg_type_name(uint16_t type) {
    const struct shape *shape = shape_of(type);
    return shape ? shape->name : "?";
}

/* The reply to each request that OK does not answer. */
static const struct {
    uint16_t request, reply;
} replies[] = {
    {MSG_EXEC, MSG_EXEC_STARTED}, {MSG_EXEC, MSG_EXEC_FAILED},  {MSG_TABLE, MSG_TABLE_ROWS},
    {MSG_BUSY, MSG_BUSY_STATE},   {MSG_LOG_WAIT, MSG_LOG_GREW}, {MSG_STAT, MSG_ENTRY},
    {MSG_LIST, MSG_LIST_PAGE},    {MSG_READ, MSG_READ_DATA},    {MSG_LOG_READ, MSG_LOG_DATA},
    {MSG_META, MSG_META_PAGE},
};

bool msg_answers(uint16_t request, uint16_t reply) {
    bool has_own = false;
    for (size_t i = 0; i < sizeof(replies) / sizeof(*replies); i++) {
        if (replies[i].request != request)
            continue;
        has_own = true;
        if (replies[i].reply == reply)
            return true;
    }
    return reply == MSG_ERROR || (reply == MSG_OK && !has_own);
}

/* Writing. `ok` becomes false, and stays so, at the first value that does not fit. */

struct writer {
    uint8_t *at;
    size_t left;
    bool ok;
};

static void put_raw(struct writer *w, const void *bytes, size_t n) {
    if (!w->ok || n > w->left) {
        w->ok = false;
        return;
    }
    if (n)
        memcpy(w->at, bytes, n);
    w->at += n;
    w->left -= n;
}

static void put_int(struct writer *w, uint64_t v, size_t width) {
    uint8_t bytes[8];
    for (size_t i = 0; i < width; i++)
        bytes[i] = (uint8_t)(v >> (8 * i));
    put_raw(w, bytes, width);
}

static void put_str(struct writer *w, const struct msg_str *str) {
    put_int(w, str->n, 4);
    put_raw(w, str->s, str->n);
    put_int(w, 0, 1);
}

static void put_array(struct writer *w, const char *const *v) {
    struct writer head = *w;
    put_int(w, 0, 8);
    const uint8_t *first = w->at;
    uint32_t count = 0;
    for (; v[count]; count++)
        put_raw(w, v[count], strlen(v[count]) + 1);
    if (!w->ok)
        return;
    put_int(&head, count, 4);
    put_int(&head, (uint64_t)(w->at - first), 4);
}

static void put_strs(struct writer *w, const struct msg_strs *strs) {
    if (strs->v) {
        put_array(w, strs->v);
        return;
    }
    put_int(w, strs->count, 4);
    put_int(w, strs->n, 4);
    put_raw(w, strs->s, strs->n);
}

static void put_groups(struct writer *w, const struct msg_groups *groups) {
    w->ok = w->ok && groups->count <= MSG_GROUPS_MAX;
    put_int(w, groups->count, 4);
    for (uint32_t i = 0; w->ok && i < groups->count; i++)
        put_int(w, groups->v[i], 4);
}

static void put_rlimits(struct writer *w, const struct msg_rlimits *limits) {
    w->ok = w->ok && limits->count <= MSG_RLIMITS_MAX;
    put_int(w, limits->count, 4);
    for (uint32_t i = 0; w->ok && i < limits->count; i++) {
        put_int(w, limits->v[i].resource, 4);
        put_int(w, limits->v[i].soft, 8);
        put_int(w, limits->v[i].hard, 8);
    }
}

static void put_field(struct writer *w, enum kind kind, const void *from) {
    const struct msg_bytes *bytes = from;
    switch (kind) {
    case END:
        break;
    case U8:
        put_int(w, *(const uint8_t *)from, 1);
        break;
    case U16:
        put_int(w, *(const uint16_t *)from, 2);
        break;
    case U32:
        put_int(w, *(const uint32_t *)from, 4);
        break;
    case U64:
        put_int(w, *(const uint64_t *)from, 8);
        break;
    case STR:
        put_str(w, from);
        break;
    case STRS:
        put_strs(w, from);
        break;
    case BYTES:
        put_int(w, bytes->n, 4);
        put_raw(w, bytes->p, bytes->n);
        break;
    case REST:
        put_raw(w, bytes->p, bytes->n);
        break;
    case GROUPS:
        put_groups(w, from);
        break;
    case RLIMITS:
        put_rlimits(w, from);
        break;
    }
}

static size_t put_fields(uint8_t *to, size_t cap, const struct field *fields, const void *msg) {
    struct writer w = {.at = to, .left = cap, .ok = true};
    for (; fields->kind != END; fields++)
        put_field(&w, fields->kind, (const uint8_t *)msg + fields->at);
    return w.ok ? cap - w.left : 0;
}

size_t msg_encode_before(uint8_t *to, size_t cap, const struct frame_head *head, const void *msg,
                         uint32_t tail) {
    const struct shape *shape = shape_of(head->type);
    assert(shape && (shape->size == 0 || msg));
    if (cap < FRAME_HEAD_BYTES)
        return 0;
    size_t bytes = put_fields(to + FRAME_HEAD_BYTES, cap - FRAME_HEAD_BYTES, shape->fields, msg);
    if ((bytes == 0 && shape->size > 0) || bytes + tail > FRAME_PAYLOAD_MAX)
        return 0;

    struct frame_head full = *head;
    full.bytes = (uint32_t)(bytes + tail);
    frame_head_put(to, &full);
    return FRAME_HEAD_BYTES + bytes;
}

size_t msg_encode(uint8_t *to, size_t cap, const struct frame_head *head, const void *msg) {
    return msg_encode_before(to, cap, head, msg, 0);
}

size_t msg_row_put(uint8_t *to, size_t cap, const struct msg_row *row) {
    return put_fields(to, cap, row_fields, row);
}

size_t msg_entry_put(uint8_t *to, size_t cap, const struct msg_entry *entry) {
    return put_fields(to, cap, entry_fields, entry);
}

size_t msg_meta_put(uint8_t *to, size_t cap, const struct msg_meta *meta) {
    return put_fields(to, cap, meta_fields, meta);
}

/* Reading. `ok` becomes false, and stays so, at the first value that is missing or malformed. */

struct reader {
    const uint8_t *at;
    size_t left;
    bool ok;
};

static const uint8_t *get_raw(struct reader *r, size_t n) {
    if (!r->ok || n > r->left) {
        r->ok = false;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += n;
    r->left -= n;
    return at;
}

static uint64_t get_int(struct reader *r, size_t width) {
    const uint8_t *bytes = get_raw(r, width);
    uint64_t v = 0;
    for (size_t i = 0; bytes && i < width; i++)
        v |= (uint64_t)bytes[i] << (8 * i);
    return v;
}

static void get_str(struct reader *r, struct msg_str *ret) {
    ret->n = (uint32_t)get_int(r, 4);
    ret->s = (const char *)get_raw(r, (size_t)ret->n + 1);
    r->ok = r->ok && strnlen(ret->s, (size_t)ret->n + 1) == ret->n;
}

/* The count must be exact: receivers size their pointer arrays by it. */
static void get_strs(struct reader *r, struct msg_strs *ret) {
    ret->count = (uint32_t)get_int(r, 4);
    ret->n = (uint32_t)get_int(r, 4);
    ret->s = (const char *)get_raw(r, ret->n);
    ret->v = NULL;
    if (!r->ok)
        return;
    uint32_t seen = 0;
    const char *end = ret->s + ret->n;
    for (const char *s = ret->s; s < end; seen++) {
        const char *nul = memchr(s, '\0', (size_t)(end - s));
        if (!nul || seen == MSG_STRINGS_MAX) {
            r->ok = false;
            return;
        }
        s = nul + 1;
    }
    r->ok = seen == ret->count;
}

static void get_bytes(struct reader *r, struct msg_bytes *ret, size_t n) {
    ret->n = (uint32_t)n;
    ret->p = get_raw(r, n);
}

static void get_groups(struct reader *r, struct msg_groups *ret) {
    ret->count = (uint32_t)get_int(r, 4);
    r->ok = r->ok && ret->count <= MSG_GROUPS_MAX;
    for (uint32_t i = 0; r->ok && i < ret->count; i++)
        ret->v[i] = (uint32_t)get_int(r, 4);
}

static void get_rlimits(struct reader *r, struct msg_rlimits *ret) {
    ret->count = (uint32_t)get_int(r, 4);
    r->ok = r->ok && ret->count <= MSG_RLIMITS_MAX;
    for (uint32_t i = 0; r->ok && i < ret->count; i++) {
        ret->v[i].resource = (uint32_t)get_int(r, 4);
        ret->v[i].soft = get_int(r, 8);
        ret->v[i].hard = get_int(r, 8);
    }
}

static void get_field(struct reader *r, enum kind kind, void *to) {
    switch (kind) {
    case END:
        break;
    case U8:
        *(uint8_t *)to = (uint8_t)get_int(r, 1);
        break;
    case U16:
        *(uint16_t *)to = (uint16_t)get_int(r, 2);
        break;
    case U32:
        *(uint32_t *)to = (uint32_t)get_int(r, 4);
        break;
    case U64:
        *(uint64_t *)to = get_int(r, 8);
        break;
    case STR:
        get_str(r, to);
        break;
    case STRS:
        get_strs(r, to);
        break;
    case BYTES:
        get_bytes(r, to, get_int(r, 4));
        break;
    case REST:
        get_bytes(r, to, r->left);
        break;
    case GROUPS:
        get_groups(r, to);
        break;
    case RLIMITS:
        get_rlimits(r, to);
        break;
    }
}

static void get_fields(struct reader *r, const struct field *fields, void *msg) {
    for (; fields->kind != END; fields++)
        get_field(r, fields->kind, (uint8_t *)msg + fields->at);
}

int msg_decode(const struct frame *frame, enum msg_type kind, void *ret, size_t size) {
    const struct shape *shape = shape_of((uint16_t)kind);
    if (frame->head.type != kind || !shape || shape->size != size)
        return -1;
    struct reader r = {.at = frame->payload, .left = frame->head.bytes, .ok = true};
    get_fields(&r, shape->fields, ret);
    return r.ok && r.left == 0 ? 0 : -1;
}

static int next_of(struct msg_bytes *list, const struct field *fields, void *ret) {
    if (list->n == 0)
        return 0;
    struct reader r = {.at = list->p, .left = list->n, .ok = true};
    get_fields(&r, fields, ret);
    if (!r.ok)
        return -1;
    *list = (struct msg_bytes){.p = r.at, .n = (uint32_t)r.left};
    return 1;
}

int msg_row_next(struct msg_bytes *rows, struct msg_row *ret) {
    return next_of(rows, row_fields, ret);
}

int msg_entry_next(struct msg_bytes *entries, struct msg_entry *ret) {
    return next_of(entries, entry_fields, ret);
}

int msg_meta_next(struct msg_bytes *entries, struct msg_meta *ret) {
    return next_of(entries, meta_fields, ret);
}
