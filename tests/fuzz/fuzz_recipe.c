/* Property: a recipe that is read has its base first and once, and every word lies in its text. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "cli/image/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct recipe r DEFER(recipe_done) = {0};
    unsigned before = 0;
    if (recipe_read((const char *)data, size, &r, NULL) < 0)
        return 0;
    assert(r.count > 0 && r.count <= RECIPE_LINES_MAX);
    for (size_t i = 0; i < r.count; i++) {
        const struct recipe_line *l = &r.lines[i];
        assert((l->verb == RECIPE_BASE) == (i == 0) && *recipe_verb_name(l->verb));
        assert(l->number > before && l->count > 0 && l->count <= RECIPE_WORDS_MAX);
        assert(l->text >= r.bytes && l->text <= r.bytes + size && !strchr(l->text, '\n'));
        for (size_t k = 0; k < l->count && l->words[k]; k++)
            assert(*l->words[k] && !strpbrk(l->words[k], " \t\n"));
        before = l->number;
    }
    return 0;
}
