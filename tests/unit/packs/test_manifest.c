#include "tests/unit/outcome.h"
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "packs/manifest.h"

#define NAMED(text) .name = (text), .name_len = sizeof(text) - 1
#define DIR(at, text) \
    { .type = MANIFEST_DIR, .depth = (at), NAMED(text), .mode = 0755 }
#define FILE_OF(at, text, ...) \
    { .type = MANIFEST_FILE, .depth = (at), NAMED(text), __VA_ARGS__ }
#define ROOT DIR(0, "")

/* Numbers of chunks, as they are in a manifest. */
static const uint8_t first[] = {0, 0, 0, 0}, second[] = {1, 0, 0, 0},
                     both[] = {0, 0, 0, 0, 1, 0, 0, 0}, third[] = {2, 0, 0, 0};

/* Writes the entries without looking at them: a maker of this format that is wrong. */
static int read_kind(const struct manifest_entry *entries, size_t count, uint32_t chunks,
                     bool shared) {
    static const uint8_t hash[SHA256_BYTES] = {1};
    struct manifest_maker m DEFER(manifest_done) = manifest_begin();
    struct buf text DEFER(buf_done) = BUF(MANIFEST_MAX);
    m.shared = shared;
    if (chunks)
        ok(manifest_add_pack(&m, hash, chunks, &err));
    for (size_t i = 0; i < count; i++)
        ok(manifest_add(&m, &entries[i], &err));
    return manifest_end(&m, &text, &err);
}

static int read_of(const struct manifest_entry *entries, size_t count, uint32_t chunks) {
    return read_kind(entries, count, chunks, false);
}

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
#define accept(chunks, ...)                                  \
    do {                                                     \
        const struct manifest_entry list_[] = {__VA_ARGS__}; \
        ok(read_of(list_, COUNT(list_), chunks));            \
    } while (0)
#define refuse(chunks, ...)                                         \
    do {                                                            \
        const struct manifest_entry list_[] = {__VA_ARGS__};        \
        refused(ERR_INVALID, read_of(list_, COUNT(list_), chunks)); \
    } while (0)

static void names_are_sorted_in_each_directory(void **state) {
    (void)state;
    accept(0, ROOT);
    accept(0, ROOT, DIR(1, "a"), FILE_OF(2, "z"), FILE_OF(1, "a-b"), FILE_OF(1, "b"));
    refuse(0, ROOT, FILE_OF(1, "b"), FILE_OF(1, "a"));
    refuse(0, ROOT, FILE_OF(1, "a"), FILE_OF(1, "a"));
    refuse(0, ROOT, DIR(1, "b"), FILE_OF(2, "x"), FILE_OF(1, "a"));
    accept(0, ROOT, FILE_OF(1, "a"), FILE_OF(1, "aa"));
    refuse(0, ROOT, FILE_OF(1, "aa"), FILE_OF(1, "a"));
}

static void entries_are_in_a_directory(void **state) {
    (void)state;
    refuse(0, FILE_OF(0, ""));
    refuse(0, DIR(0, "x"));
    refuse(0, DIR(1, "x"));
    refuse(0, ROOT, ROOT);
    refuse(0, ROOT, FILE_OF(2, "a"));
    refuse(0, ROOT, FILE_OF(1, "a"), FILE_OF(2, "b"));
    refuse(0, ROOT, DIR(1, "a"), FILE_OF(3, "b"));
    refuse(0, ROOT, DIR(1, "a"), FILE_OF(1, "b"), FILE_OF(2, "c"));
    accept(0, ROOT, DIR(1, "a"), DIR(2, "a"), FILE_OF(3, "a"), FILE_OF(1, "b"));
}

static void no_name_leaves_the_tree(void **state) {
    (void)state;
    refuse(0, ROOT, FILE_OF(1, ""));
    refuse(0, ROOT, FILE_OF(1, "."));
    refuse(0, ROOT, FILE_OF(1, ".."));
    refuse(0, ROOT, FILE_OF(1, "a/b"));
    refuse(0, ROOT, FILE_OF(1, "/"));
    refuse(0, ROOT, FILE_OF(1, "a\0b"));
    accept(0, ROOT, FILE_OF(1, "..."));
}

/* Directories of this depth, each with a name of `len` bytes. */
static int read_deep(unsigned depth, size_t len) {
    struct manifest_entry *list DEFER_FREE = calloc(depth + 1, sizeof(*list));
    char name[MANIFEST_NAME_MAX];
    memset(name, 'a', sizeof(name));
    for (unsigned i = 0; i <= depth; i++)
        list[i] = (struct manifest_entry){
            .type = MANIFEST_DIR, .depth = i, .name = name, .name_len = i ? len : 0};
    return read_of(list, depth + 1, 0);
}

static void depth_and_paths_are_limited(void **state) {
    (void)state;
    ok(read_deep(MANIFEST_DEPTH_MAX, 1));
    refused(ERR_INVALID, read_deep(MANIFEST_DEPTH_MAX + 1, 1));
    ok(read_deep(15, 255));
    refused(ERR_INVALID, read_deep(16, 255));
}

static void chunks_are_numbered_by_their_first_use(void **state) {
    (void)state;
    accept(2, ROOT, FILE_OF(1, "a", .size = 2, .chunks = both, .chunk_count = 2),
           FILE_OF(1, "b", .size = 1, .chunks = first, .chunk_count = 1));
    refuse(2, ROOT, FILE_OF(1, "a", .size = 1, .chunks = second, .chunk_count = 1),
           FILE_OF(1, "b", .size = 1, .chunks = first, .chunk_count = 1));
    refuse(2, ROOT, FILE_OF(1, "a", .size = 1, .chunks = first, .chunk_count = 1));
    refuse(2, ROOT, FILE_OF(1, "a", .size = 2, .chunks = both, .chunk_count = 2),
           FILE_OF(1, "b", .size = 1, .chunks = third, .chunk_count = 1));
    refuse(1, ROOT);
}

static void backups_use_chunks_in_any_order(void **state) {
    (void)state;
    const struct manifest_entry late[] = {
        ROOT, FILE_OF(1, "a", .size = 1, .chunks = second, .chunk_count = 1)};
    const struct manifest_entry beyond[] = {
        ROOT, FILE_OF(1, "a", .size = 1, .chunks = third, .chunk_count = 1)};
    ok(read_kind(late, 2, 2, true));
    refused(ERR_INVALID, read_kind(late, 2, 2, false));
    refused(ERR_INVALID, read_kind(beyond, 2, 2, true));
}

static void sizes_fit_chunks(void **state) {
    (void)state;
    refuse(0, ROOT, FILE_OF(1, "a", .size = 1));
    refuse(1, ROOT, FILE_OF(1, "a", .size = 0, .chunks = first, .chunk_count = 1));
    refuse(2, ROOT, FILE_OF(1, "a", .size = 1, .chunks = both, .chunk_count = 2));
    accept(1, ROOT, FILE_OF(1, "a", .size = 1 << 20, .chunks = first, .chunk_count = 1));
    refuse(1, ROOT, FILE_OF(1, "a", .size = (1 << 20) + 1, .chunks = first, .chunk_count = 1));
}

static void hard_links_lead_to_earlier_files(void **state) {
    (void)state;
    accept(0, ROOT, FILE_OF(1, "a"),
           {.type = MANIFEST_HARDLINK, .depth = 1, NAMED("b"), .twin = 1});
    refuse(0, ROOT, DIR(1, "a"), {.type = MANIFEST_HARDLINK, .depth = 1, NAMED("b"), .twin = 1});
    refuse(0, ROOT, FILE_OF(1, "a"),
           {.type = MANIFEST_HARDLINK, .depth = 1, NAMED("b"), .twin = 2});
    refuse(0, ROOT, {.type = MANIFEST_HARDLINK, .depth = 1, NAMED("a"), .twin = 2},
           FILE_OF(1, "b"));
    refuse(0, ROOT, FILE_OF(1, "a"), {.type = MANIFEST_HARDLINK, .depth = 1, NAMED("b"), .twin = 1},
           {.type = MANIFEST_HARDLINK, .depth = 1, NAMED("c"), .twin = 2});
}

#define LINK(text)                                                          \
    {                                                                       \
        .type = MANIFEST_SYMLINK, .depth = 1, NAMED("l"), .target = (text), \
        .target_len = sizeof(text) - 1                                      \
    }

static void symbolic_links_have_targets(void **state) {
    (void)state;
    char long_target[MANIFEST_PATH_MAX + 1];
    memset(long_target, 'a', sizeof(long_target));
    accept(0, ROOT, LINK("../../anywhere"));
    refuse(0, ROOT, LINK(""));
    refuse(0, ROOT, LINK("a\0b"));
    accept(0, ROOT,
           {.type = MANIFEST_SYMLINK,
            .depth = 1,
            NAMED("l"),
            .target = long_target,
            .target_len = MANIFEST_PATH_MAX});
    refuse(0, ROOT,
           {.type = MANIFEST_SYMLINK,
            .depth = 1,
            NAMED("l"),
            .target = long_target,
            .target_len = MANIFEST_PATH_MAX + 1});
}

static void unknown_types_are_refused(void **state) {
    (void)state;
    accept(0, ROOT, {.type = MANIFEST_PIPE, .depth = 1, NAMED("p")},
           {.type = MANIFEST_WHITEOUT, .depth = 1, NAMED("w")});
    refuse(0, ROOT, {.type = (enum manifest_type)7, .depth = 1, NAMED("p")});
    refuse(0, ROOT, {.type = (enum manifest_type)0, .depth = 1, NAMED("p")});
}

/* A file with these attributes. */
static int read_attributes(const char *const *names, size_t count, size_t value) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    uint8_t *bytes DEFER_FREE = calloc(1, value + 1);
    for (size_t i = 0; i < count; i++)
        ok(manifest_put_attribute(
            &text,
            &(struct manifest_attribute){
                .name = names[i], .name_len = strlen(names[i]), .value = bytes, .size = value},
            &err));
    const struct manifest_entry list[] = {
        ROOT, FILE_OF(1, "a", .attribute_count = (uint32_t)count,
                      .attributes = {.at = (const uint8_t *)text.data, .left = text.len})};
    return read_of(list, COUNT(list), 0);
}

static void only_attributes_of_images_are_accepted(void **state) {
    (void)state;
    ok(read_attributes((const char *const[]){"security.capability", "user.a", "user.b"}, 3, 5));
    refused(ERR_INVALID, read_attributes((const char *const[]){"user.b", "user.a"}, 2, 1));
    refused(ERR_INVALID, read_attributes((const char *const[]){"user.a", "user.a"}, 2, 1));
    refused(ERR_INVALID, read_attributes((const char *const[]){"user."}, 1, 1));
    refused(ERR_INVALID, read_attributes((const char *const[]){"user.overlay.opaque"}, 1, 1));
    refused(ERR_INVALID, read_attributes((const char *const[]){"trusted.overlay.opaque"}, 1, 1));
    refused(ERR_INVALID, read_attributes((const char *const[]){"security.selinux"}, 1, 1));
    refused(ERR_INVALID, read_attributes((const char *const[]){"system.posix_acl_access"}, 1, 1));
    ok(read_attributes((const char *const[]){"user.a", "user.b"}, 2, MANIFEST_VALUE_MAX / 2));
    refused(ERR_INVALID, read_attributes((const char *const[]){"user.a", "user.b"}, 2,
                                         MANIFEST_VALUE_MAX / 2 + 1));
    char many[MANIFEST_ATTRIBUTES_MAX + 1][16];
    const char *names[MANIFEST_ATTRIBUTES_MAX + 1];
    for (size_t i = 0; i < COUNT(many); i++) {
        snprintf(many[i], sizeof(many[i]), "user.%03zu", i);
        names[i] = many[i];
    }
    ok(read_attributes(names, MANIFEST_ATTRIBUTES_MAX, 1));
    refused(ERR_INVALID, read_attributes(names, MANIFEST_ATTRIBUTES_MAX + 1, 1));
}

static void owners_and_modes_are_limited(void **state) {
    (void)state;
    struct manifest_maker m DEFER(manifest_done) = manifest_begin();
    refused(ERR_INVALID, manifest_add(&m, &(struct manifest_entry){.uid = 65536}, &err));
    refused(ERR_INVALID, manifest_add(&m, &(struct manifest_entry){.gid = 65536}, &err));
    refused(ERR_INVALID, manifest_add(&m, &(struct manifest_entry){.mode = 010000}, &err));
}

static struct buf sample(void) {
    static const uint8_t hash[SHA256_BYTES] = {7};
    struct manifest_maker m DEFER(manifest_done) = manifest_begin();
    struct buf text = BUF(MANIFEST_MAX), attributes DEFER(buf_done) = BUF(4096);
    const struct manifest_attribute a = {"user.a", 6, (const uint8_t *)"v", 1};
    ok(manifest_put_attribute(&attributes, &a, &err));
    const struct manifest_entry list[] = {
        ROOT,
        FILE_OF(1, "file", .size = 9, .chunks = both, .chunk_count = 2, .mode = 06711, .uid = 65535,
                .gid = 3, .mtime = -5, .attribute_count = 1,
                .attributes = {.at = (const uint8_t *)attributes.data, .left = attributes.len}),
        LINK("x")};
    ok(manifest_add_pack(&m, hash, 2, &err));
    for (size_t i = 0; i < COUNT(list); i++)
        ok(manifest_add(&m, &list[i], &err));
    ok(manifest_end(&m, &text, &err));
    return text;
}

static void entries_come_out_as_they_went_in(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = sample();
    struct manifest m;
    struct manifest_entry e;
    struct manifest_attribute a;
    uint8_t hash[SHA256_BYTES];
    ok(manifest_read(text.data, text.len, &m, &err));
    assert_int_equal(manifest_pack(&m, 0, hash), 2);
    assert_int_equal(hash[0], 7);
    struct bytes left = m.entries;
    assert_true(manifest_next(&left, &e) && e.type == MANIFEST_DIR && e.mode == 0755);
    assert_true(manifest_next(&left, &e) && e.type == MANIFEST_FILE && e.mode == 06711);
    assert_true(e.uid == 65535 && e.gid == 3 && e.mtime == -5 && e.size == 9);
    assert_int_equal(manifest_chunk(&e, 1), 1);
    assert_true(manifest_attribute_next(&e.attributes, &a) && a.size == 1 && *a.value == 'v');
    assert_true(manifest_next(&left, &e) && e.type == MANIFEST_SYMLINK && e.target[0] == 'x');
    assert_false(manifest_next(&left, &e));
}

static void every_shorter_or_longer_manifest_is_refused(void **state) {
    (void)state;
    struct buf text DEFER(buf_done) = sample();
    struct manifest m;
    for (size_t n = 0; n < text.len; n++)
        refused(ERR_INVALID, manifest_read(text.data, n, &m, &err));
    assert_true(buf_add(&text, "x", 1));
    refused(ERR_INVALID, manifest_read(text.data, text.len, &m, &err));
}

/* Counts in the header that the bytes do not have. */
static void wrong_headers_are_refused(void **state) {
    (void)state;
    const struct {
        size_t at;
        uint8_t value;
        enum err_code code;
    } rows[] = {{0, 'X', ERR_INVALID}, {7, 3, ERR_UNSUPPORTED}, {8, 0, ERR_INVALID},
                {8, 2, ERR_INVALID},   {10, 2, ERR_LIMIT},      {12, 0, ERR_INVALID},
                {12, 2, ERR_INVALID},  {12, 4, ERR_INVALID},    {14, 1, ERR_INVALID},
                {15, 1, ERR_LIMIT},    {48, 0, ERR_INVALID},    {48, 3, ERR_INVALID}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf text DEFER(buf_done) = sample();
        struct manifest m;
        text.data[rows[i].at] = (char)rows[i].value;
        refused(rows[i].code, manifest_read(text.data, text.len, &m, &err));
    }
}

UNIT_MAIN(cmocka_unit_test(names_are_sorted_in_each_directory),
          cmocka_unit_test(entries_are_in_a_directory), cmocka_unit_test(no_name_leaves_the_tree),
          cmocka_unit_test(depth_and_paths_are_limited),
          cmocka_unit_test(chunks_are_numbered_by_their_first_use),
          cmocka_unit_test(backups_use_chunks_in_any_order), cmocka_unit_test(sizes_fit_chunks),
          cmocka_unit_test(hard_links_lead_to_earlier_files),
          cmocka_unit_test(symbolic_links_have_targets),
          cmocka_unit_test(unknown_types_are_refused),
          cmocka_unit_test(only_attributes_of_images_are_accepted),
          cmocka_unit_test(owners_and_modes_are_limited),
          cmocka_unit_test(entries_come_out_as_they_went_in),
          cmocka_unit_test(every_shorter_or_longer_manifest_is_refused),
          cmocka_unit_test(wrong_headers_are_refused))
