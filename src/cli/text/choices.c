#include "cli/text/choices.h"

#include <stdio.h>
#include <string.h>

bool choices_are(const char *value) {
    return strchr(value, '|') && !value[strspn(value, "abcdefghijklmnopqrstuvwxyz-|")];
}

bool choices_have(const char *choices, const char *word) {
    for (size_t n, len = strlen(word); *choices; choices += n + (choices[n] != 0)) {
        n = strcspn(choices, "|");
        if (n == len && strncmp(choices, word, n) == 0)
            return true;
    }
    return false;
}

void choices_say(const char *choices, char *to, size_t size) {
    size_t at = 0;
    to[0] = '\0';
    while (*choices && at < size) {
        size_t n = strcspn(choices, "|");
        bool is_last = !choices[n];
        at += (size_t)snprintf(to + at, size - at, "%s%.*s",
                               at == 0   ? ""
                               : is_last ? " or "
                                         : ", ",
                               (int)n, choices);
        choices += n + !is_last;
    }
}
