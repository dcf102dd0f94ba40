#include "store/conf/agents.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool is_agent_name(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < sizeof(((struct conf_agent *)0)->name) && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* Subcommands of `carrel agent`. */
static bool is_taken_name(const char *name) {
    static const char *const taken[] = {"ls", "update", "import-settings", "accept"};
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        if (strcmp(name, taken[i]) == 0)
            return true;
    return false;
}

static struct conf_agent *agent_of(struct conf_agents *agents, const char *name, struct err *err) {
    for (size_t i = 0; i < agents->count; i++)
        if (strcmp(agents->list[i].name, name) == 0)
            return &agents->list[i];
    if (!is_agent_name(name) || is_taken_name(name)) {
        err_set(err, ERR_INVALID, "'%.40s' cannot be the name of an agent", name);
        err_remedy(err, "use lower-case letters, digits and -, at most 31; not a subcommand");
        return NULL;
    }
    if (agents->count == CONF_AGENTS_MAX) {
        err_set(err, ERR_LIMIT, "there are more than %d sections [agent NAME]", CONF_AGENTS_MAX);
        return NULL;
    }
    struct conf_agent *a = &agents->list[agents->count++];
    *a = (struct conf_agent){.env_count = 0};
    snprintf(a->name, sizeof(a->name), "%s", name);
    return a;
}

static int agent_add_env(struct conf_agent *a, const char *value, struct err *err) {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value)
        return err_set(err, ERR_INVALID, "'%.60s' is not NAME=VALUE", value);
    if (a->env_count == CONF_AGENT_ENV_MAX)
        return err_set(err, ERR_LIMIT, "an agent has more than %d variables", CONF_AGENT_ENV_MAX);
    snprintf(a->env[a->env_count++], CONF_AGENT_LINE, "%s", value);
    return 0;
}

int conf_agent_set(struct conf_agents *agents, const char *name, const char *key, const char *value,
                   struct err *err) {
    static const struct {
        const char *key;
        size_t offset, size;
    } texts[] = {
#define TEXT(m) {#m, offsetof(struct conf_agent, m), sizeof(((struct conf_agent *)0)->m)}
        TEXT(image),
        TEXT(start),
        TEXT(once),
        TEXT(resume),
#undef TEXT
    };
    struct conf_agent *a = agent_of(agents, name, err);
    if (!a)
        return -1;
    if (strcmp(key, "env") == 0)
        return agent_add_env(a, value, err);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char *to = (char *)a + texts[i].offset;
        if (strcmp(key, texts[i].key) != 0)
            continue;
        if (*to)
            return err_set(err, ERR_INVALID, "key '%s' is given twice", key);
        if (!*value || strlen(value) >= texts[i].size)
            return err_set(err, ERR_INVALID, "the value is empty or longer than %zu bytes",
                           texts[i].size - 1);
        memcpy(to, value, strlen(value) + 1);
        return 0;
    }
    return err_set(err, ERR_INTERNAL, "key '%s' of an agent has no member", key);
}

int conf_agents_check(const struct conf_agents *agents, struct err *err) {
    for (size_t i = 0; i < agents->count; i++)
        if (!agents->list[i].start[0] && !agents->list[i].once[0]) {
            err_set(err, ERR_INVALID, "section [agent %s] has neither start nor once",
                    agents->list[i].name);
            return err_remedy(err, "add the command that starts the agent: start = COMMAND");
        }
    return 0;
}
