#include "base/exec_end.h"

#include <stddef.h>
#include <string.h>

static const char *const exec_end_words[EXEC_END_COUNT] = {
    [EXEC_END_EXIT] = "exit",       [EXEC_END_SIGNAL] = "signal", [EXEC_END_KILLED] = "killed",
    [EXEC_END_TIMEOUT] = "timeout", [EXEC_END_MEMORY] = "memory",
};

const char *exec_end_word(enum exec_end end) {
    return (unsigned)end < EXEC_END_COUNT ? exec_end_words[end] : NULL;
}

enum exec_end exec_end_of(const char *state, const char *reason) {
    if (strcmp(state, "failed") == 0)
        return EXEC_END_FAILED;
    if (strcmp(state, "unknown") == 0)
        return EXEC_END_UNKNOWN;
    if (strcmp(state, "exited") != 0)
        return EXEC_END_NONE;
    for (int end = EXEC_END_SIGNAL; reason && end <= EXEC_END_MEMORY; end++)
        if (strcmp(reason, exec_end_words[end]) == 0)
            return (enum exec_end)end;
    return EXEC_END_EXIT;
}

int64_t exec_end_status(enum exec_end end, uint32_t exit_code, uint32_t signal) {
    switch (end) {
    case EXEC_END_TIMEOUT:
    case EXEC_END_UNANSWERED:
        return EXEC_STATUS_TIMEOUT;
    case EXEC_END_FAILED:
        return exit_code;
    case EXEC_END_EXIT:
    case EXEC_END_SIGNAL:
    case EXEC_END_KILLED:
    case EXEC_END_MEMORY:
        return signal ? 128 + (int64_t)signal : exit_code;
    default:
        return -1;
    }
}
