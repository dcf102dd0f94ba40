#include "store/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <string.h>
#include <strings.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/parse.h"
#include "store/machines.h"

enum conf_type {
    CONF_ADDRESS,
    CONF_PATH,
    CONF_PATHS,
    CONF_COUNT,
    CONF_SIZE,
    CONF_CPUS,
    CONF_MONEY,
    CONF_TIME,
    CONF_ACTION,
    CONF_INTERNET,
    CONF_DOMAIN,
    CONF_CERTIFICATE,
    CONF_STEPS,
    CONF_WORD,
    CONF_LOGIN_URL,
    CONF_PROVIDER,
    CONF_MODEL,
    CONF_ALIAS,
    CONF_AGENT
};

struct key {
    const char *section;
    const char *name;
    enum conf_type type;
    size_t offset;
    const char *normal; /* the default, as written in carrel.conf */
    uint64_t min;       /* in the unit of the key's member of struct conf */
    uint64_t max;
    const char *about;
};

#define AT(member) offsetof(struct conf, member)
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)
#define DAY_MS 86400000ull

/* Section of an agent; NAME stands for its name. */
#define AGENT_SECTION "agent NAME"
enum { AGENT_PREFIX = sizeof("agent ") - 1 };

static const struct key keys[] = {
    {"daemon", "listen", CONF_ADDRESS, AT(listen), "", 0, 0,
     "address and port for TCP clients; default: none, only the unix socket"},
    {"daemon", "roots", CONF_PATHS, AT(roots), "", 0, 0,
     "directories below which pages of the console and TCP clients may use paths of this host, as "
     "PATH or OWNER:PATH; PATH alone is for the user that runs the daemon; one per line, up to 32; "
     "a change counts without a restart"},
    {"daemon", "group", CONF_WORD, AT(group), "", 0, 0,
     "group whose members may use root's daemon; default: every user of the host may"},
    {"daemon", "max_machines", CONF_COUNT, AT(max_machines), "1000", 1, 100000,
     "maximum number of machines of all owners"},
    {"daemon", "machines_per_owner", CONF_COUNT, AT(machines_per_owner), "0", 1, 100000,
     "maximum number of machines of one owner; 0: no limit but max_machines. A quota of the owner "
     "can be lower"},
    {"daemon", "execs_per_machine", CONF_COUNT, AT(execs_per_machine), "128", 1, 900,
     "maximum number of commands that run in one machine at once; their output is in the host's "
     "memory"},
    {"daemon", "execs_per_owner", CONF_COUNT, AT(execs_per_owner), "1024", 1, 100000,
     "maximum number of commands that run in all machines of one owner at once"},
    {"daemon", "ended_keep", CONF_TIME, AT(ended_keep_ms), "7d", 1000, 3650 * DAY_MS,
     "how long an ended machine is kept in the list, with its commands and their output"},
    {"defaults", "mem", CONF_SIZE, AT(mem_bytes), "0", 4 * MIB, 16 * TIB,
     "memory of a new machine; 0: the default of its kind"},
    {"defaults", "cpus", CONF_CPUS, AT(cpu_milli), "0", 10, 4096000,
     "CPUs of a new machine; 0: no limit"},
    {"defaults", "pids", CONF_COUNT, AT(pids), "0", 4, 1 << 22,
     "maximum number of processes of a new machine; 0: the default of its kind"},
    {"defaults", "disk", CONF_SIZE, AT(disk_bytes), "0", MIB, 64 * TIB,
     "disk of a new machine; 0: the default of its kind"},
    {"defaults", "ttl", CONF_TIME, AT(ttl_ms), "0", 1000, 3650 * DAY_MS,
     "total lifetime of a new machine; 0: no limit"},
    {"defaults", "idle", CONF_TIME, AT(idle_ms), "0", 1000, 3650 * DAY_MS,
     "time without work after which a machine is idle; 0: never"},
    {"defaults", "idle_action", CONF_ACTION, AT(idle_action), "pause", 0, 0,
     "action on an idle machine: pause, stop, destroy, or release (destroy if it has no changes, "
     "else stop)"},
    {"defaults", "steps", CONF_STEPS, AT(steps), "every", 0, 0,
     "when steps (snapshots) of a new machine are taken: every, risky or manual"},
    {"vm", "kernel", CONF_PATH, AT(vm_kernel), "", 0, 0,
     "kernel that vms boot, with its modules in ../lib/modules; empty: choose one of /boot"},
    {"steps", "keep", CONF_COUNT, AT(steps_keep), "1000", 1, 100000,
     "number of steps to keep per machine; the oldest steps without a name are deleted first"},
    {"steps", "keep_age", CONF_TIME, AT(steps_keep_ms), "0", 1000, 3650 * DAY_MS,
     "delete steps without a name that are older than this; 0: never"},
    {"steps", "keep_bytes", CONF_SIZE, AT(steps_keep_bytes), "0", MIB, 64 * TIB,
     "disk space of a machine with its history, above which layers are merged, and if that is not "
     "enough, the oldest quarter of its steps is deleted; 0: 80 % of its disk limit"},
    {"steps", "durable_after", CONF_TIME, AT(durable_after_ms), "1s", 1000, DAY_MS,
     "delay after a step until its layers are copied to the store, so that it survives a restart "
     "of the host; 0: never"},
    {"output", "log_bytes", CONF_SIZE, AT(log_bytes), "64M", 64 * KIB, 2 * GIB,
     "output to keep per command; of longer output the beginning and the end are kept"},
    {"output", "keep_bytes", CONF_SIZE, AT(output_keep_bytes), "1G", MIB, 64 * TIB,
     "disk space for kept output per machine, above which the output of its oldest commands is "
     "deleted; 0: no limit"},
    {"output", "owner_bytes", CONF_SIZE, AT(output_owner_bytes), "8G", MIB, 64 * TIB,
     "disk space for kept output of all machines of one owner; 0: no limit"},
    {"output", "keep_age", CONF_TIME, AT(output_keep_ms), "0", 1000, 3650 * DAY_MS,
     "delete output of commands whose last output is older than this; 0: never"},
    {"journal", "segment_bytes", CONF_SIZE, AT(journal_segment_bytes), "4M", 64 * KIB, GIB,
     "size of one journal file; the last file is read completely at each start"},
    {"journal", "keep", CONF_TIME, AT(journal_keep_ms), "0", 1000, 36500 * DAY_MS,
     "delete journal files that ended before this time; 0: never"},
    {"journal", "keep_bytes", CONF_SIZE, AT(journal_keep_bytes), "1G", MIB, 64 * TIB,
     "size of the whole journal, above which its oldest files are deleted; 0: no limit"},
    {"journal", "refusals", CONF_COUNT, AT(journal_refusals), "10", 1, 100000,
     "refused network requests per machine and minute that get an explanation and a journal "
     "record; further ones are reset and counted"},
    {"boxes", "uid_base", CONF_COUNT, AT(uid_base), "0", 65536, 0xf0000000,
     "first user id for boxes; 0: chosen by the spawner"},
    {"gate", "hosts", CONF_PATH, AT(gate_hosts), "", 0, 0,
     "file in the format of /etc/hosts that overrides the host's resolver for machines; read when "
     "the daemon starts"},
    {"gate", "ca", CONF_PATH, AT(gate_ca), "", 0, 0,
     "file of CA certificates, in addition to the system's, for TLS connections of the gate to "
     "servers"},
    {"gate", "package_cache", CONF_SIZE, AT(package_cache_bytes), "1G", 16 * MIB, 64 * TIB,
     "disk space for downloaded packages of one owner, which are delivered again to new machines; "
     "0: keep no packages"},
    {"gate", "package_keyring", CONF_PATH, AT(package_keyring),
     "/usr/share/keyrings/debian-archive-keyring.gpg", 0, 0,
     "file of keys, readable by everybody, whose signatures make package lists of apt count for "
     "the "
     "package cache"},
    {"gate", "ingress", CONF_ADDRESS, AT(ingress), "", 0, 0,
     "address on which exposed ports of machines are served (`carrel expose`); default: "
     "127.0.0.1:7071, or the next free port if it is taken"},
    {"gate", "domain", CONF_DOMAIN, AT(domain), "", 0, 0,
     "domain below which exposed ports have host names, PORT-MACHINE.DOMAIN, for clients on other "
     "hosts; its names must lead to the address of `ingress`"},
    {"gate", "certificate", CONF_CERTIFICATE, AT(certificate), "", 0, 0,
     "file in PEM with a certificate for the names of exposed ports, such as *.DOMAIN, and its "
     "chain: they are served with TLS; read again once it is changed; own: by an authority of "
     "Carrel's own, see docs/reference/tls.md"},
    {"gate", "certificate_key", CONF_PATH, AT(certificate_key), "", 0, 0,
     "file in PEM with the private key of `certificate`"},
    {"e2b", "image", CONF_WORD, AT(e2b_image), "host", 0, 0,
     "image of the templates `base` and `code-interpreter-v1` of E2B clients, unless the owner has "
     "an image of that name"},
    {"e2b", "internet", CONF_INTERNET, AT(e2b_internet), "ask", 0, 0,
     "access of E2B sandboxes to the network, unless their client asks for less: deny, ask (each "
     "host needs an approval, see `carrel pending`) or allow"},
    {"notify", "command", CONF_PATH, AT(notify_command), "", 0, 0,
     "program that the daemon runs for each event of `events`, with the event as JSON on standard "
     "input and an empty environment; one at a time, at most 30 seconds each"},
    {"notify", "webhook", CONF_WORD, AT(notify_webhook), "", 0, 0,
     "URL to which the daemon posts each event of `events` as JSON; a failed call is repeated "
     "twice"},
    {"notify", "events", CONF_WORD, AT(notify_events), "net.held,run.ask,run.end,machine.ask", 0, 0,
     "types of events to notify of, separated by commas: requests that wait for approval, "
     "questions and ends of runs; see carrel events for more"},
    {"models", "default", CONF_WORD, AT(model), "", 0, 0,
     "default model, as PROVIDER/MODEL; see docs/reference/models.md for this section"},
    {"models", "proxy", CONF_WORD, AT(proxy), "", 0, 0,
     "proxy for calls to model providers, as http://HOST:PORT; default: none"},
    {"models", "currency", CONF_WORD, AT(currency), "USD", 0, 0,
     "name of the currency of prices and budgets, for messages"},
    {"models", "owner_tokens", CONF_COUNT, AT(owner_tokens), "0", 1, 1ull << 50,
     "token budget of all machines and runs of one owner together; 0: no limit"},
    {"models", "owner_money", CONF_MONEY, AT(owner_micro), "0", 1, 1ull << 50,
     "money budget of all machines and runs of one owner together, in the currency of the prices; "
     "0: no limit"},
    {"models", "provider", CONF_PROVIDER, AT(providers), "", 0, 0,
     "provider of models: NAME format=F url=URL and options such as key_env=VARIABLE; one per "
     "line, up to 16"},
    {"models", "alias", CONF_ALIAS, AT(aliases), "", 0, 0,
     "another name for models: NAME PROVIDER/MODEL..., tried in this order; one per line, up to "
     "16"},
    {"models", "model", CONF_MODEL, AT(known), "", 0, 0,
     "prices of a model: NAME in=PRICE out=PRICE window=TOKENS, prices per million tokens; one per "
     "line, up to 64"},
    {"logins", "claude_url", CONF_LOGIN_URL, AT(login_claude_url), "https://api.anthropic.com", 0,
     0, "base URL that gets the token of `carrel login claude`"},
    {"logins", "codex_url", CONF_LOGIN_URL, AT(login_codex_url),
     "https://chatgpt.com/backend-api/codex", 0, 0,
     "base URL that gets the token of `carrel login codex`"},
    {"logins", "codex_token_url", CONF_LOGIN_URL, AT(login_codex_token_url),
     "https://auth.openai.com/oauth/token", 0, 0,
     "URL that renews the token of `carrel login codex`"},
    {"agents", "tokens", CONF_COUNT, AT(agent_tokens), "5000000", 1, 1ull << 50,
     "token budget of a new machine of `carrel agent` without --budget; 0: no limit"},
    {"agents", "money", CONF_MONEY, AT(agent_micro), "0", 1, 1ull << 50,
     "money budget of a new machine of `carrel agent` without --budget; 0: no limit"},
    {AGENT_SECTION, "image", CONF_AGENT, AT(agents), "", 0, 0,
     "image of the machines of agent NAME; default: host, the programs of this host"},
    {AGENT_SECTION, "start", CONF_AGENT, AT(agents), "", 0, 0,
     "command that starts agent NAME on a terminal, run by the shell of the machine; $task is the "
     "task or empty, $@ are the further arguments"},
    {AGENT_SECTION, "once", CONF_AGENT, AT(agents), "", 0, 0,
     "command that carries out $task without a terminal (`carrel agent NAME -p TASK`)"},
    {AGENT_SECTION, "resume", CONF_AGENT, AT(agents), "", 0, 0,
     "command that continues the last session on a terminal (`carrel agent NAME --resume`)"},
    {AGENT_SECTION, "env", CONF_AGENT, AT(agents), "", 0, 0,
     "variable of agent NAME: NAME=VALUE; one per line, up to 16"},
};
enum { KEY_COUNT = sizeof(keys) / sizeof(*keys) };
_Static_assert(KEY_COUNT <= 64, "struct parse has a bit for each key");

/* ---- Values ---- */

static int set_text(char *to, const char *value, struct err *err) {
    if (strlen(value) >= CONF_TEXT_SIZE)
        return err_set(err, ERR_LIMIT, "the value of the key is longer than %d bytes",
                       CONF_TEXT_SIZE - 1);
    memcpy(to, value, strlen(value) + 1);
    return 0;
}

/*
 * Accepts HOST:PORT or [HOST]:PORT. Whether the host exists is checked later, when the daemon
 * listens on it.
 */
static int set_address(char *to, const char *value, struct err *err) {
    uint64_t port;
    const char *colon = strrchr(value, ':');
    bool bracketed = value[0] == '[' && colon && colon > value + 1 && colon[-1] == ']';
    if (!colon || colon == value || parse_u64(colon + 1, 1, 65535, &port, NULL) < 0 ||
        (!bracketed && strchr(value, ':') != colon)) {
        err_set(err, ERR_INVALID, "'%s' is not an address and a port", value);
        return err_remedy(err, "write it as 127.0.0.1:7070 or [::1]:7070");
    }
    return set_text(to, value, err);
}

static int set_path(char *to, const char *value, struct err *err) {
    if (value[0] != '/')
        return err_set(err, ERR_INVALID, "'%s' is not an absolute path", value);
    return set_text(to, value, err);
}

/* Such a URL gets the tokens of a login: http:// is only for a server on this host. */
static int set_login_url(char *to, const char *value, struct err *err) {
    static const char local[] = "http://127.0.0.1:";
    size_t n = strlen(value);
    bool is_safe = strncmp(value, "https://", 8) == 0 || strncmp(value, local, strlen(local)) == 0;
    if (!is_safe || strpbrk(value, " \t?#@") || value[n - 1] == '/') {
        err_set(err, ERR_INVALID, "'%s' is not a URL that may get a login", value);
        return err_remedy(err, "write https://HOST[/PATH], without ?, # and @, and without / at "
                               "the end");
    }
    return set_text(to, value, err);
}

static int add_root(struct conf *c, const char *value, struct err *err) {
    if (c->root_count == CONF_ROOTS_MAX)
        return err_set(err, ERR_LIMIT, "section [daemon] has more than %d lines 'roots = ...'",
                       CONF_ROOTS_MAX);
    const char *colon = value[0] == '/' ? NULL : strstr(value, ":/");
    /* The owner's name fits: a line of carrel.conf is shorter than CONF_TEXT_SIZE. */
    int owner = colon ? (int)(colon - value) : 0;
    if (set_path(c->roots[c->root_count], colon ? colon + 1 : value, err) < 0)
        return -1;
    snprintf(c->root_owners[c->root_count], CONF_TEXT_SIZE, "%.*s", owner, value);
    c->root_count++;
    return 0;
}

static int add_provider(struct conf *c, const char *value, struct err *err) {
    if (c->provider_count == CONF_PROVIDERS_MAX)
        return err_set(err, ERR_LIMIT, "section [models] has more than %d lines 'provider = ...'",
                       CONF_PROVIDERS_MAX);
    struct conf_provider *p = &c->providers[c->provider_count];
    if (conf_provider_parse(value, p, err) < 0)
        return -1;
    for (size_t i = 0; i < c->provider_count; i++)
        if (strcmp(c->providers[i].name, p->name) == 0)
            return err_set(err, ERR_INVALID, "provider '%s' is given twice", p->name);
    c->provider_count++;
    return 0;
}

static int add_alias(struct conf *c, const char *value, struct err *err) {
    if (c->alias_count == CONF_ALIASES_MAX)
        return err_set(err, ERR_LIMIT, "section [models] has more than %d lines 'alias = ...'",
                       CONF_ALIASES_MAX);
    struct conf_alias *a = &c->aliases[c->alias_count];
    if (conf_alias_parse(value, a, err) < 0)
        return -1;
    for (size_t i = 0; i < c->alias_count; i++)
        if (strcmp(c->aliases[i].name, a->name) == 0)
            return err_set(err, ERR_INVALID, "alias '%s' is given twice", a->name);
    c->alias_count++;
    return 0;
}

static int add_model(struct conf *c, const char *value, struct err *err) {
    if (c->known_count == CONF_MODELS_MAX)
        return err_set(err, ERR_LIMIT, "section [models] has more than %d lines 'model = ...'",
                       CONF_MODELS_MAX);
    struct conf_model *m = &c->known[c->known_count];
    if (conf_model_parse(value, m, err) < 0)
        return -1;
    for (size_t i = 0; i < c->known_count; i++)
        if (strcmp(c->known[i].name, m->name) == 0)
            return err_set(err, ERR_INVALID, "model '%s' is given twice", m->name);
    c->known_count++;
    return 0;
}

static int parse_number(const struct key *k, const char *value, uint64_t *ret, struct err *err) {
    switch (k->type) {
    case CONF_SIZE:
        return parse_size(value, ret, err);
    case CONF_CPUS:
        return parse_milli(value, ret, err);
    case CONF_MONEY:
        return parse_micro(value, ret, err);
    case CONF_TIME:
        return parse_duration(value, ret, err);
    default:
        return parse_u64(value, 0, UINT64_MAX >> 3, ret, err);
    }
}

/* The value 0 is allowed outside the range if it is the default or k->about says what 0 means. */
static bool takes_zero(const struct key *k) {
    return strcmp(k->normal, "0") == 0 || strstr(k->about, "; 0: ");
}

static void range_of(const struct key *k, char ret_min[AMOUNT_SIZE], char ret_max[AMOUNT_SIZE]) {
    static const enum amount_unit units[] = {[CONF_SIZE] = AMOUNT_BYTES,
                                             [CONF_CPUS] = AMOUNT_MILLIS,
                                             [CONF_MONEY] = AMOUNT_MICROS,
                                             [CONF_TIME] = AMOUNT_MS,
                                             [CONF_MODEL] = AMOUNT_ONES};
    amount_show(units[k->type], k->min, ret_min);
    amount_show(units[k->type], k->max, ret_max);
}

static int conf_out_of_range(const struct key *k, const char *value, struct err *err) {
    char min[AMOUNT_SIZE], max[AMOUNT_SIZE];
    range_of(k, min, max);
    return err_set(err, ERR_INVALID, "'%s' is out of range: must be between %s and %s", value, min,
                   max);
}

static int set_number(const struct key *k, struct conf *c, const char *value, struct err *err) {
    uint64_t n;
    if (parse_number(k, value, &n, err) < 0)
        return -1;
    bool unset = n == 0 && takes_zero(k);
    if (!unset && (n < k->min || n > k->max))
        return conf_out_of_range(k, value, err);
    memcpy((char *)c + k->offset, &n, sizeof(n));
    return 0;
}

/* A name in lower case whose labels are not empty: "sandboxes.example.com". */
static int set_domain(char *to, const char *value, struct err *err) {
    static const char label[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    for (const char *at = value; *value;) {
        size_t n = strspn(at, label);
        if (!n || n > 63 || at[0] == '-' || at[n - 1] == '-' || (at[n] && at[n] != '.'))
            return err_set(err, ERR_INVALID,
                           "'%.60s' is not a domain in lower case, such as sandboxes.example.com",
                           value);
        if (!at[n])
            break;
        at += n + 1;
    }
    return set_text(to, value, err);
}

static int set_value(const struct key *k, struct conf *c, const char *value, struct err *err) {
    enum idle_action action;
    enum step_policy policy;
    char *text = (char *)c + k->offset;
    switch (k->type) {
    case CONF_ADDRESS:
        return set_address(text, value, err);
    case CONF_PATH:
        return set_path(text, value, err);
    case CONF_PATHS:
        return add_root(c, value, err);
    case CONF_ACTION:
        if (idle_action_parse(value, &action, err) < 0)
            return -1;
        c->idle_action = (uint32_t)action;
        return 0;
    case CONF_STEPS:
        if (step_policy_parse(value, &policy, err) < 0)
            return -1;
        c->steps = (uint32_t)policy;
        return 0;
    case CONF_INTERNET:
        if (strcmp(value, "deny") != 0 && strcmp(value, "ask") != 0 && strcmp(value, "allow") != 0)
            return err_set(err, ERR_INVALID, "'%.40s' must be deny, ask or allow", value);
        return set_text(text, value, err);
    case CONF_CERTIFICATE:
        return strcmp(value, "own") == 0 ? set_text(text, value, err) : set_path(text, value, err);
    case CONF_DOMAIN:
        return set_domain(text, value, err);
    case CONF_WORD:
        return set_text(text, value, err);
    case CONF_LOGIN_URL:
        return set_login_url(text, value, err);
    case CONF_PROVIDER:
        return add_provider(c, value, err);
    case CONF_MODEL:
        return add_model(c, value, err);
    case CONF_ALIAS:
        return add_alias(c, value, err);
    case CONF_AGENT: /* handle() knows the section, and sets it */
    case CONF_COUNT:
    case CONF_SIZE:
    case CONF_CPUS:
    case CONF_MONEY:
    case CONF_TIME:
        break;
    }
    return set_number(k, c, value, err);
}

void conf_defaults(struct conf *ret) {
    *ret = (struct conf){0};
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (keys[i].normal[0])
            (void)set_value(&keys[i], ret, keys[i].normal, NULL);
}

/* ---- Keys ---- */

static size_t smallest(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Returns the edit distance of two words; words longer than MOST bytes are MOST apart. */
static size_t distance(const char *a, const char *b) {
    enum { MOST = 48 };
    size_t row[MOST + 1], n = strlen(b);
    if (n > MOST || strlen(a) > MOST)
        return MOST;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            row[j] = smallest(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

static const struct key *nearest(const char *section, const char *name) {
    const struct key *best = &keys[0];
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < KEY_COUNT; i++) {
        size_t d = 2 * distance(name, keys[i].name) + (strcmp(section, keys[i].section) != 0);
        if (d < least) {
            least = d;
            best = &keys[i];
        }
    }
    return best;
}

static const struct key *find_key(const char *section, const char *name, struct err *err) {
    if (strncmp(section, AGENT_SECTION, AGENT_PREFIX) == 0)
        section = AGENT_SECTION;
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (strcmp(section, keys[i].section) == 0 && strcmp(name, keys[i].name) == 0)
            return &keys[i];
    const struct key *k = nearest(section, name);
    err_set(err, ERR_INVALID, "unknown key '%.40s' in section [%.40s]", name, section);
    err_remedy(err, "did you mean '%s' in [%s]? docs/reference/conf.md lists all keys", k->name,
               k->section);
    return NULL;
}

/* ---- The file ---- */

struct parse {
    const char *at;
    const char *end;
    size_t line;
    uint64_t seen; /* a bit per key that was read: only the key of a list may be given twice */
    struct conf conf;
    struct err *err;
    bool failed;
};

/* inih, the INI parser, reads lines from here. So handle() is called for line p->line. */
static char *next_line(char *to, int size, void *arg) {
    struct parse *p = arg;
    if (p->at == p->end || p->failed)
        return NULL;
    const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
    size_t n = (size_t)((newline ? newline + 1 : p->end) - p->at);
    if (n >= (size_t)size) /* cannot happen: check_bytes() refuses long lines */
        n = (size_t)size - 1;
    memcpy(to, p->at, n);
    to[n] = '\0';
    p->at += n;
    p->line++;
    return to;
}

static int at_line(struct parse *p) {
    p->failed = true;
    err_wrap(p->err, "line %zu", p->line);
    p->err->code = ERR_INVALID;
    return 0;
}

static bool is_list(enum conf_type type) {
    return type == CONF_PATHS || type == CONF_PROVIDER || type == CONF_MODEL ||
           type == CONF_ALIAS || type == CONF_AGENT;
}

/* inih calls this for each key. As inih requires, 0 means failure and 1 success. */
static int handle(void *arg, const char *section, const char *name, const char *value) {
    struct parse *p = arg;
    const struct key *k = find_key(section, name, p->err);
    if (!k)
        return at_line(p);
    uint64_t bit = 1ull << (k - keys);
    if (p->seen & bit && !is_list(k->type)) {
        err_set(p->err, ERR_INVALID, "key '%s' is given twice", k->name);
        return at_line(p);
    }
    p->seen |= bit;
    int r = k->type == CONF_AGENT
                ? conf_agent_set(&p->conf.agents, section + AGENT_PREFIX, name, value, p->err)
                : set_value(k, &p->conf, value, p->err);
    if (r == 0)
        return 1;
    err_wrap(p->err, "%s", k->name);
    return at_line(p);
}

static int check_bytes(const char *text, size_t len, struct err *err) {
    size_t line = 1, start = 0;
    if (len > CONF_FILE_MAX)
        return err_set(err, ERR_LIMIT, "the configuration file is larger than %d KiB",
                       CONF_FILE_MAX >> 10);
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\0')
            return err_set(err, ERR_INVALID, "line %zu of the configuration contains a NUL byte",
                           line);
        if (text[i] == '\n') {
            line++;
            start = i + 1;
        } else if (i - start >= CONF_LINE_MAX) {
            return err_set(err, ERR_LIMIT, "line %zu of the configuration is longer than %d bytes",
                           line, CONF_LINE_MAX);
        }
    }
    return 0;
}

int conf_parse(const char *text, size_t len, struct conf *ret, struct err *err) {
    struct err own;
    struct parse p = {.at = text, .end = text + len, .err = err ? err : &own};
    if (check_bytes(text, len, err) < 0)
        return -1;
    conf_defaults(&p.conf);
    int line = ini_parse_stream(next_line, &p, handle, &p);
    if (p.failed)
        return -1;
    if (line != 0) {
        err_set(err, ERR_INVALID, "line %d of the configuration is not [section] or key = value",
                line);
        return err_remedy(err, "comments start with # or ;");
    }
    if (conf_agents_check(&p.conf.agents, err) < 0)
        return -1;
    *ret = p.conf;
    return 0;
}

int conf_read(const char *path, struct conf *ret, struct err *err) {
    static const char *const remedy = "correct the file; docs/reference/conf.md lists all keys";
    char *text DEFER_FREE = malloc(CONF_FILE_MAX + 2);
    if (!text)
        return err_set(err, ERR_LIMIT, "out of memory");
    ssize_t n = read_file_at(AT_FDCWD, path, text, CONF_FILE_MAX + 2);
    if (n == -ENOENT) {
        conf_defaults(ret);
        return 0;
    }
    if (n < 0)
        return err_num(err, (int)n, "cannot read the configuration file '%s'", path);
    if (conf_parse(text, (size_t)n, ret, err) == 0)
        return 0;
    err_wrap(err, "%s", path);
    return err && !err->remedy[0] ? err_remedy(err, "%s", remedy) : -1;
}

/* ---- The table in docs/reference/conf.md ---- */

static const char *const type_names[] = {
    [CONF_ADDRESS] = "address:port", [CONF_PATH] = "path",     [CONF_PATHS] = "paths",
    [CONF_COUNT] = "number",         [CONF_SIZE] = "size",     [CONF_CPUS] = "number",
    [CONF_MONEY] = "number",         [CONF_TIME] = "time",     [CONF_ACTION] = "word",
    [CONF_STEPS] = "word",           [CONF_WORD] = "text",     [CONF_PROVIDER] = "lines",
    [CONF_LOGIN_URL] = "text",       [CONF_MODEL] = "lines",   [CONF_ALIAS] = "lines",
    [CONF_AGENT] = "text",           [CONF_INTERNET] = "word", [CONF_DOMAIN] = "domain",
    [CONF_CERTIFICATE] = "path",
};

static bool put_range(const struct key *k, struct buf *ret) {
    char min[AMOUNT_SIZE], max[AMOUNT_SIZE];
    if (k->max == 0)
        return true;
    range_of(k, min, max);
    return buf_addf(ret, "%s to %s", min, max);
}

bool conf_describe(struct buf *ret) {
    bool ok = buf_addf(ret, "| section | key | type | default | range | meaning |\n"
                            "|---|---|---|---|---|---|\n");
    for (size_t i = 0; ok && i < KEY_COUNT; i++) {
        const struct key *k = &keys[i];
        ok = buf_addf(ret, "| `[%s]` | `%s` | %s | %s | ", k->section, k->name, type_names[k->type],
                      k->normal) &&
             put_range(k, ret) && buf_addf(ret, " | %s |\n", k->about);
    }
    return ok;
}
