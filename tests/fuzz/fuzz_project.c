/*
 * Property: what is accepted is within its limits, and a package or target has only characters that
 * are safe in a shell command and in a network rule. A refused file leaves the result unchanged.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/agent/project.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_words(char list[][PROJECT_WORD_SIZE], size_t count, const char *never) {
    assert(count <= PROJECT_LIST_MAX);
    for (size_t i = 0; i < count; i++) {
        assert(memchr(list[i], 0, PROJECT_WORD_SIZE) && list[i][0]);
        assert(!strpbrk(list[i], never));
    }
}

static void check_pairs(const struct project_pair *list, size_t count) {
    assert(count <= PROJECT_LIST_MAX);
    for (size_t i = 0; i < count; i++)
        assert(list[i].name[0] && !strpbrk(list[i].name, "= \t\n") &&
               !strpbrk(list[i].text, "\n\x1b"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct project *p = calloc(1, sizeof(*p));
    struct err err = {0};
    assert(p);
    p->tokens = 77;
    if (project_parse((const char *)data, size, p, &err) < 0) {
        assert(p->tokens == 77 && (err.code == ERR_INVALID || err.code == ERR_LIMIT));
    } else {
        assert(size <= PROJECT_FILE_MAX && p->note_count <= PROJECT_LIST_MAX);
        assert(p->setup[0] != '/' && strncmp(p->setup, "../", 3) != 0);
        check_words(p->packages, p->package_count, " \t\n'\"$`\\;&|<>()");
        check_words(p->allow, p->allow_count, " \t\n,");
        check_pairs(p->env, p->env_count);
        check_pairs(p->prompts, p->prompt_count);
    }
    free(p);
    return 0;
}
