/*
 * The agents that are known without configuration: package, configuration files, environment and
 * commands. Versions are pinned, because each version has its own first-run questions.
 */
#include <stdio.h>
#include <string.h>

#include "base/login.h"
#include "cli/agent/agent.h"
#include "cli/cli.h"
#include "cli/text/nearest.h"

#define GATEWAY "http://models.carrel"
#define KEY "carrel-placeholder"
#define ARM "aarch64"
#define X86 "x86_64"

/* ---- claude ---- */

static const struct agent_package claude_packages[] = {
    {ARM, "@anthropic-ai/claude-code-linux-arm64@2.1.325", "",
     "342bd070ec6bebce58e26918523413f25fcebb3c34936c5696859ecb37ec52d5"
     "a239e747a2c3e4696e97092a73025d5d32ebc334117deeaa568150eb49d2b657"},
    {X86, "@anthropic-ai/claude-code-linux-x64@2.1.325", "",
     "06a67332f3ffce02cb2f7e12fbb3b36c6f9cca8169ee0c161d4e64a15c2cc8c9"
     "53033fb4cd90266d8f94933bed376457c69e8070c7a76d8223409c685df518df"},
    {NULL, NULL, NULL, NULL},
};
/* Without these files it asks about a login, the folder and its permissions. */
static const struct agent_file claude_files[] = {
    {".claude.json", "{\"hasCompletedOnboarding\":true,"
                     "\"projects\":{\"{dir}\":{\"hasTrustDialogAccepted\":true}}}\n"},
    {".claude/settings.json", "{\"skipDangerousModePermissionPrompt\":true}\n"},
    {NULL, NULL},
};
static const char *const claude_env[] = {
    "IS_SANDBOX=1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL=1",
    "DISABLE_AUTOUPDATER=1",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK=1",
    NULL,
};
static const struct agent_setting claude_settings[] = {
    {.path = ".claude/CLAUDE.md"},
    {.path = ".claude/settings.json",
     .kind = AGENT_SETTING_JSON,
     .drop = {"env", "apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "otelHeadersHelper",
              "forceLoginMethod", "forceLoginOrgUUID"}},
    {.path = ".claude.json", .kind = AGENT_SETTING_JSON, .only = "mcpServers"},
    {.path = ".claude/commands", .kind = AGENT_SETTING_DIR},
    {.path = ".claude/agents", .kind = AGENT_SETTING_DIR},
    {.path = NULL},
};
static const char *const claude_login_env[] = {"CLAUDE_CODE_OAUTH_TOKEN=" LOGIN_CLAUDE_PLACEHOLDER,
                                               NULL};
static const struct agent_login claude_login = {.name = LOGIN_CLAUDE, .env = claude_login_env};
/* It would prefer the variables for keys to those of a login. */
#define CLAUDE                                                                              \
    "[ -z \"$CLAUDE_CODE_OAUTH_TOKEN\" ] || unset ANTHROPIC_AUTH_TOKEN ANTHROPIC_API_KEY\n" \
    "exec \"$agent/claude\" --dangerously-skip-permissions "

/* ---- codex ---- */

static const struct agent_package codex_packages[] = {
    {ARM, "@openai/codex@0.166.0-linux-arm64", "",
     "c3449c02c06bf5a64ab4816b87a1cde8a536ca328a7920b361f6dbec307409c8"
     "f80583f3799b54790a6b6f270b0b0b97dc015075b7636a998b868da2a2def88d"},
    {X86, "@openai/codex@0.166.0-linux-x64", "",
     "0b10e6dfe0f57296c625e1eb77320da06fb7c27f4156770fe2aa5969a3589317"
     "bc88fb5124e6320899e73e8563591201bc8f6f3ca6d1a227ec312039c43694a7"},
    {NULL, NULL, NULL, NULL},
};
/* It ignores OPENAI_BASE_URL. plugins and apps would call hosts of the vendor. */
static const struct agent_file codex_files[] = {
    {".codex/config.toml",
     "model_provider = \"carrel\"\n"
     "check_for_update_on_startup = false\n"
     "\n[model_providers.carrel]\n"
     "name = \"Carrel\"\nbase_url = \"" GATEWAY "/v1\"\nenv_key = \"OPENAI_API_KEY\"\n"
     "wire_api = \"responses\"\nsupports_websockets = false\n"
     "\n[features]\nplugins = false\napps = false\n"
     "\n[analytics]\nenabled = false\n"},
    {NULL, NULL},
};
/* config.toml is not copied: Carrel writes it, and TOML cannot be merged here. */
static const struct agent_setting codex_settings[] = {
    {.path = ".codex/AGENTS.md"},
    {.path = ".codex/prompts", .kind = AGENT_SETTING_DIR},
    {.path = NULL},
};
static const char *const codex_env[] = {"OPENAI_API_KEY=" KEY, NULL};
/* The provider is an option, because the home may have a config.toml of a machine before. */
#define CODEX_LOGIN(name, value) " -c model_providers.carrel-login." name "=" value
static const char *const codex_login_env[] = {
    "CODEX_LOGIN=-c model_provider=carrel-login -c chatgpt_base_url=" GATEWAY "/backend-api/" //
    CODEX_LOGIN("name", "Carrel") CODEX_LOGIN("base_url", GATEWAY "/backend-api/codex")       //
    CODEX_LOGIN("wire_api", "responses") CODEX_LOGIN("requires_openai_auth", "true")          //
    CODEX_LOGIN("supports_websockets", "false"),
    NULL};
static const struct agent_file codex_login_files[] = {
    {".codex/auth.json",
     "{\"auth_mode\":\"chatgpt\",\"OPENAI_API_KEY\":null,\"tokens\":{"
     "\"id_token\":\"" LOGIN_CODEX_PLACEHOLDER "\",\"access_token\":\"" LOGIN_CODEX_PLACEHOLDER
     "\",\"refresh_token\":\"" KEY "\",\"account_id\":\"" LOGIN_CODEX_ACCOUNT
     "\"},\"last_refresh\":\"2099-01-01T00:00:00Z\"}\n"},
    {NULL, NULL},
};
static const struct agent_login codex_login = {
    .name = LOGIN_CODEX, .files = codex_login_files, .env = codex_login_env};
#define CODEX                                             \
    "PATH=$PATH:$(echo \"$agent\"/vendor/*/codex-path)\n" \
    "[ -z \"$CODEX_LOGIN\" ] || unset OPENAI_API_KEY\n"   \
    "exec \"$agent\"/vendor/*/bin/codex $CODEX_LOGIN "
#define CODEX_FREE "--dangerously-bypass-approvals-and-sandbox "

/* ---- opencode ---- */

static const struct agent_package opencode_packages[] = {
    {ARM, "opencode-linux-arm64@1.18.18", "",
     "7bc0f7834a89108cdac04836fb2816def9198c060bdacb32031e066e2863c17c"
     "1916f959672e734565b3773e4a2c1a07493974141ef7bcdb6735e5ce3721e955"},
    {X86, "opencode-linux-x64-baseline@1.18.18", "",
     "e86bc56ab84fd290e25dc13d02ef0f5a8a9bf7e64b04818aae1671795026389a"
     "7f809f252cbd449e8f0ed6aa6a45bd4a8ce7ce68e0fbd631eef7135aaa68c4b7"},
    {NULL, NULL, NULL, NULL},
};
#define OPENCODE_PROVIDER(name, base) \
    "\"" name "\":{\"options\":{\"baseURL\":\"" GATEWAY base "\",\"apiKey\":\"" KEY "\"}}"
static const struct agent_file opencode_files[] = {
    {".config/opencode/opencode.json",
     "{\"autoupdate\":false,\"share\":\"disabled\","
     "\"enabled_providers\":[\"anthropic\",\"openai\",\"google\"],"
     "\"provider\":{" OPENCODE_PROVIDER("anthropic", "/v1") "," OPENCODE_PROVIDER("openai",
                                                                                  "/v1") //
     "," OPENCODE_PROVIDER("google", "/v1beta") "}}\n"},
    {NULL, NULL},
};
static const struct agent_setting opencode_settings[] = {
    {.path = ".config/opencode/AGENTS.md"},
    {.path = ".config/opencode/opencode.json",
     .kind = AGENT_SETTING_JSON,
     .drop = {"provider", "enabled_providers", "disabled_providers", "share", "autoupdate"}},
    {.path = ".config/opencode/agent", .kind = AGENT_SETTING_DIR},
    {.path = ".config/opencode/command", .kind = AGENT_SETTING_DIR},
    {.path = NULL},
};
static const char *const opencode_env[] = {"OPENCODE_DISABLE_MODELS_FETCH=1",
                                           "OPENCODE_DISABLE_AUTOUPDATE=1",
                                           "OPENCODE_DISABLE_LSP_DOWNLOAD=1", NULL};
#define OPENCODE "exec \"$agent/bin/opencode\" "

/* ---- gemini ---- */

#define NODE "node-linux-"
static const struct agent_package gemini_packages[] = {
    {NULL, "@google/gemini-cli@0.61.0", "cli",
     "75b43d034a81b4524d8ba5c1907bdf67a033a67e8f3601ff3fc876319ebb44b9"
     "57f21480563ba9dfd0915aa751c59bfb61722e86b15acadafccb48ca9e4a319d"},
    {ARM, NODE "arm64@22.23.3", "node",
     "9770c01d9adeca5a3ea7d4170edb0eae31b625726a5736179c01a621034e50d0"
     "1170ca694ced9c99ec1540ffb7ead8c99d213e773a4c36d816f9cde8883bd7b4"},
    {X86, NODE "x64@22.23.3", "node",
     "a879f3e6d16c1e88ff58cfae4443558d638d8b9855be6c2b82af00e15efa2a9b"
     "95340738fa3c0af31e20c1ba1b13d06d1cd83f00a476e7cdde628acb17f73b9e"},
    {NULL, NULL, NULL, NULL},
};
/* Variables alone are not enough: it ends with "Invalid auth method selected". */
static const struct agent_file gemini_files[] = {
    {".gemini/settings.json",
     "{\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"},"
     "\"folderTrust\":{\"enabled\":false}},\"general\":{\"enableAutoUpdate\":false},"
     "\"privacy\":{\"usageStatisticsEnabled\":false},\"tools\":{\"sandbox\":false}}\n"},
    {NULL, NULL},
};
static const struct agent_setting gemini_settings[] = {
    {.path = ".gemini/GEMINI.md"},
    {.path = ".gemini/settings.json",
     .kind = AGENT_SETTING_JSON,
     .drop = {"security", "telemetry", "privacy"}},
    {.path = ".gemini/commands", .kind = AGENT_SETTING_DIR},
    {.path = NULL},
};
#define GEMINI "exec \"$agent/node/bin/node\" \"$agent/cli/bundle/gemini.js\" -y "

#define TASK "${task:+\"$task\"} \"$@\""
const struct agent_row agent_table[] = {
    {.name = "claude",
     .version = "2.1.325",
     .format = "anthropic",
     .packages = claude_packages,
     .files = claude_files,
     .settings = claude_settings,
     .memory = ".claude/CLAUDE.md",
     .env = claude_env,
     .login = &claude_login,
     .start = CLAUDE TASK,
     .resume = CLAUDE "-c " TASK,
     .once = CLAUDE "-p \"$task\" \"$@\"",
     .once_resume = CLAUDE "-c -p \"$task\" \"$@\""},
    {.name = "codex",
     .version = "0.166.0",
     .format = "responses",
     .packages = codex_packages,
     .files = codex_files,
     .settings = codex_settings,
     .memory = ".codex/AGENTS.md",
     .env = codex_env,
     .login = &codex_login,
     .start = CODEX "--no-daemon " CODEX_FREE TASK,
     .resume = CODEX "resume --last --no-daemon " CODEX_FREE TASK,
     .once = CODEX "exec --skip-git-repo-check " CODEX_FREE "\"$@\" -- \"$task\"",
     .once_resume =
         CODEX "exec --skip-git-repo-check " CODEX_FREE "\"$@\" resume --last -- \"$task\""},
    {.name = "opencode",
     .version = "1.18.18",
     .packages = opencode_packages,
     .files = opencode_files,
     .settings = opencode_settings,
     .memory = ".config/opencode/AGENTS.md",
     .env = opencode_env,
     .start = OPENCODE "--auto ${task:+\"--prompt=$task\"} \"$@\"",
     .resume = OPENCODE "--auto -c ${task:+\"--prompt=$task\"} \"$@\"",
     .once = OPENCODE "run --auto \"$@\" -- \"$task\"",
     .once_resume = OPENCODE "run --auto -c \"$@\" -- \"$task\""},
    {.name = "gemini",
     .version = "0.61.0",
     .format = "gemini",
     .packages = gemini_packages,
     .files = gemini_files,
     .settings = gemini_settings,
     .memory = ".gemini/GEMINI.md",
     .start = GEMINI "${task:+\"--prompt-interactive=$task\"} \"$@\"",
     .resume = GEMINI "-r latest ${task:+\"--prompt-interactive=$task\"} \"$@\"",
     .once = GEMINI "\"$@\" --prompt=\"$task\"",
     .once_resume = GEMINI "-r latest \"$@\" --prompt=\"$task\""},
};
const size_t agent_count = sizeof(agent_table) / sizeof(*agent_table);

/* ---- rows of carrel.conf ---- */

static const char *text_or_null(const json_t *row, const char *name) {
    const char *text = client_text(row, name);
    return *text ? text : NULL;
}

static const struct agent_row *row_of_conf(struct agent *a, const json_t *row) {
    enum { MAX = sizeof(a->own_env) / sizeof(*a->own_env) - 1 };
    const json_t *env = json_object_get(row, "env");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(env) && n < MAX; i++)
        if (json_is_string(json_array_get(env, i)))
            a->own_env[n++] = json_string_value(json_array_get(env, i));
    a->own_env[n] = NULL;
    a->own = (struct agent_row){.name = client_text(row, "name"),
                                .env = a->own_env,
                                .image = text_or_null(row, "image"),
                                .start = text_or_null(row, "start"),
                                .resume = text_or_null(row, "resume"),
                                .once = text_or_null(row, "once")};
    return &a->own;
}

int agent_find(struct agent *a, const char *name, struct err *err) {
    const struct client_request r = {.method = "GET", .target = "/v1/agents"};
    struct nearest near = NEAREST(name);
    size_t i;
    json_t *row;
    if (!a->conf && client_call(a->client, &r, &a->conf, err) < 0)
        return -1;
    json_array_foreach(json_object_get(a->conf, "agents"), i, row) {
        nearest_try(&near, client_text(row, "name"));
        if (strcmp(client_text(row, "name"), name) == 0)
            a->row = row_of_conf(a, row);
    }
    for (i = 0; i < agent_count && !a->row; i++) {
        nearest_try(&near, agent_table[i].name);
        if (strcmp(agent_table[i].name, name) == 0)
            a->row = &agent_table[i];
    }
    if (a->row)
        return 0;
    err_set(err, ERR_NOT_FOUND, "agent '%s' does not exist", name);
    if (near.best)
        return err_remedy(err, "did you mean '%s'?", near.best);
    return err_remedy(err,
                      "use claude, codex, opencode or gemini, or add a section [agent %s] to "
                      "carrel.conf",
                      name);
}

/* True if the daemon can call models of this format; NULL: of any format. */
static bool has_models(const struct agent *a, const char *format) {
    const json_t *formats = json_object_get(a->conf, "formats");
    size_t i;
    json_t *ready;
    json_array_foreach(formats, i, ready) {
        if (!format || (json_is_string(ready) && strcmp(json_string_value(ready), format) == 0))
            return true;
    }
    return false;
}

int agent_check_models(const struct agent *a, struct err *err) {
    static const char *const variables[][2] = {{"anthropic", "ANTHROPIC_API_KEY"},
                                               {"responses", "OPENAI_API_KEY"},
                                               {"gemini", "GEMINI_API_KEY"}};
    const char *variable = "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY";
    bool may_need_none = !a->row->format && !a->row->packages; /* an agent of carrel.conf */
    if (may_need_none || has_models(a, a->row->format))
        return 0;
    err_set(err, ERR_DENIED, "the daemon has no key for the models of agent '%s' (%s%s)",
            a->row->name, a->row->format ? "format " : "any format",
            a->row->format ? a->row->format : "");
    for (size_t i = 0; a->row->format && i < sizeof(variables) / sizeof(*variables); i++)
        if (strcmp(variables[i][0], a->row->format) == 0)
            variable = variables[i][1];
    return err_remedy(err,
                      "start the daemon with %s, or add a provider with key_secret=NAME to "
                      "[models] of carrel.conf%s",
                      variable, a->row->login ? "; or use a subscription: --login" : "");
}
