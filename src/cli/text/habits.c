#include "cli/text/habits.h"

#include <string.h>

struct habit {
    const char *word, *ours;
};

static const struct habit commands_of_others[] = {
    {"attach", "carrel sh MACHINE"},
    {"build", "carrel image build RECIPE"},
    {"checkpoint", "carrel hibernate MACHINE"},
    {"commit", "carrel snap MACHINE --image IMAGE"},
    {"create", "carrel new"},
    {"delete", "carrel rm MACHINE"},
    {"destroy", "carrel rm MACHINE"},
    {"events", "carrel audit"},
    {"export", "carrel image export IMAGE"},
    {"history", "carrel steps MACHINE"},
    {"images", "carrel image ls"},
    {"import", "carrel image import FILE"},
    {"info", "carrel doctor"},
    {"kill", "carrel stop MACHINE"},
    {"list", "carrel ls"},
    {"load", "carrel image import FILE"},
    {"log", "carrel steps MACHINE, or carrel logs MACHINE"},
    {"login", "carrel token new"},
    {"network", "carrel net MACHINE"},
    {"port", "carrel expose MACHINE PORT"},
    {"pull", "carrel image pull REFERENCE"},
    {"remove", "carrel rm MACHINE"},
    {"restart", "carrel stop MACHINE, then carrel resume MACHINE"},
    {"rmi", "carrel image rm IMAGE"},
    {"save", "carrel image export IMAGE"},
    {"shell", "carrel sh MACHINE"},
    {"snapshot", "carrel snap MACHINE"},
    {"ssh", "carrel sh MACHINE"},
    {"start", "carrel resume MACHINE"},
    {"tag", "carrel image tag IMAGE NAME"},
    {"unpause", "carrel resume MACHINE"},
    {"update", "carrel set MACHINE"},
};

static const struct habit options_of_others[] = {
    {"--apply", "carrel ship -y, or carrel run --apply"},
    {"--detach", "carrel new, then carrel exec"},
    {"--lifetime", "--ttl"},
    {"--list", "--ls"},
    {"--memory", "--mem"},
    {"--mount", "--dir HOST:GUEST"},
    {"--network", "--net"},
    {"--pids-limit", "--pids"},
    {"--privileged", "nothing: a machine never gets rights on the host"},
    {"--publish", "carrel expose MACHINE PORT"},
    {"--workdir", "--cwd"},
    {"-p", "carrel expose MACHINE PORT"},
};

#define FIND(table, word) habit_find(table, sizeof(table) / sizeof(*(table)), word)

static const char *habit_find(const struct habit *table, size_t count, const char *word) {
    size_t len = strcspn(word, "=");
    for (size_t i = 0; i < count; i++)
        if (strlen(table[i].word) == len && strncmp(table[i].word, word, len) == 0)
            return table[i].ours;
    return NULL;
}

const char *habit_command(const char *word, bool *ret_json) {
    *ret_json = strcmp(word, "inspect") == 0;
    return *ret_json ? "show" : strcmp(word, "ps") == 0 ? "ls" : NULL;
}

const char *habit_answer(const char *word) {
    return FIND(commands_of_others, word);
}

const char *habit_option(const char *word) {
    return FIND(options_of_others, word);
}
