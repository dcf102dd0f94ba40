/*
 * Property: a Dockerfile that is translated gives a recipe with its base first and once, lines in
 * the order of the file, and absolute destinations. Patterns of .dockerignore match no path if
 * there are none.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "cli/image/dockerfile.h"
#include "cli/image/dockerignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const struct recipe_line *l, bool first) {
    assert((l->verb == RECIPE_BASE) == first);
    assert(l->number > 0 && l->shown && l->text && l->count <= RECIPE_WORDS_MAX);
    if (l->verb == RECIPE_COPY || l->verb == RECIPE_DIR) {
        assert(l->count > 0 && l->words[l->count - 1][0] == '/');
        assert(!strstr(l->words[l->count - 1], "//") && !strstr(l->words[l->count - 1], "/../"));
    }
    if (l->verb == RECIPE_ENV || l->verb == RECIPE_ARG)
        assert(strchr(l->text, '='));
    for (size_t i = 0; l->verb == RECIPE_EXEC && i < l->count; i++)
        assert(l->words[i]);
}

static void check_ignore(const char *bytes, size_t size) {
    struct dockerignore d DEFER(dockerignore_done) = {0};
    if (dockerignore_read(bytes, size, &d, NULL) < 0)
        return;
    for (size_t i = 0; i < d.count && i < 16; i++)
        (void)dockerignore_matches(&d, d.patterns[i]);
    assert(!dockerignore_matches(&d, "a") || d.count > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const args[] = {"A=1"}, *const env[] = {"PATH=/bin"};
    const struct dockerfile_input in = {args, 1, env, 1, "", "/w"};
    struct recipe r DEFER(recipe_done) = {0};
    struct buf notes DEFER(buf_done) = BUF(4096);
    unsigned before = 0;
    check_ignore((const char *)data, size);
    if (dockerfile_read((const char *)data, size, &in, &r, &notes, NULL) < 0)
        return 0;
    assert(r.count > 0 && r.count <= RECIPE_LINES_MAX && dockerfile_is((const char *)data, size));
    for (size_t i = 0; i < r.count; i++) {
        check_line(&r.lines[i], i == 0);
        assert(r.lines[i].number >= before);
        before = r.lines[i].number;
    }
    return 0;
}
