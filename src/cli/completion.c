/*
 * carrel completion: scripts for shells, and the candidates that these scripts ask for.
 *
 * On every Tab a script runs `carrel completion words WORD...`; the last word is being typed. The
 * tables of commands, subcommands and options say what each word is. Values (machines, images,
 * steps, ...) come from a daemon that runs already; none is started. The answer has one candidate
 * per line, then a tab and its description. The lines ":files" and ":commands" tell the shell to
 * offer files or programs.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/table.h"

enum { PATIENCE_MS = 1000, KIND_SIZE = 128, OPERANDS_MAX = 16 };

/* ---- words of a usage line ---- */

/* Reads the next word of a usage line, without brackets and dots; false at the end of the line. */
static bool next_kind(const char **at, char ret[KIND_SIZE], bool *ret_repeats) {
    *at += strspn(*at, " ");
    size_t n = strcspn(*at, " ");
    const char *from = *at, *end = from + n;
    *at = end;
    from += strspn(from, "[") < n ? strspn(from, "[") : n;
    while (end > from && strchr("].", end[-1]))
        *ret_repeats |= *--end == '.';
    snprintf(ret, KIND_SIZE, "%.*s", (int)(end - from), from);
    return n > 0;
}

static bool is_options(const char *kind) {
    return strcmp(kind, "OPTIONS") == 0 || strncmp(kind, "--json", 6) == 0;
}

static bool is_operand(const char *kind) {
    return *kind && *kind != '-' && !is_options(kind);
}

/* Returns how many operands may stand before an option. */
static size_t operands_before_options(const char *usage) {
    char kind[KIND_SIZE];
    bool repeats = false;
    size_t count = 0;
    for (const char *at = usage; next_kind(&at, kind, &repeats);) {
        if (is_options(kind))
            return count;
        count += is_operand(kind);
    }
    return 0;
}

/* Gets the name of operand `index` in the usage line, such as MACHINE; empty: no such operand. */
static void operand_kind(const char *usage, size_t index, char ret[KIND_SIZE]) {
    char kind[KIND_SIZE];
    bool repeats = false;
    size_t count = 0;
    *ret = 0;
    for (const char *at = usage; next_kind(&at, kind, &repeats);)
        if (is_operand(kind) && count++ <= index)
            snprintf(ret, KIND_SIZE, "%s", kind);
    if (count <= index && !repeats)
        *ret = 0;
}

/* ---- candidates ---- */

/* The word being typed. `lead` is its complete part, such as "--name="; `rest` is completed. */
struct typed {
    const char *lead;
    int lead_len;
    const char *rest;
    const char *machine; /* machine that the line names before this word; NULL: none */
};

static void offer(const struct typed *t, const char *word, const char *tail, const char *about) {
    if (strncmp(word, t->rest, strlen(t->rest)) == 0)
        printf("%.*s%s%s\t%s\n", t->lead_len, t->lead, word, tail, about);
}

static void offer_commands(const struct typed *t) {
    for (const struct command *c = commands; c->name; c++)
        offer(t, c->name, "", c->summary);
}

static void offer_options(const struct typed *t, const struct option_row *rows) {
    for (const struct option_row *r = rows; r && r->name; r++) {
        char name[KIND_SIZE];
        snprintf(name, sizeof(name), "--%s", r->name);
        offer(t, name, "", r->help);
    }
}

/* Offers each word of "one|other". */
static void offer_choices(const struct typed *t, const char *choices) {
    while (*choices) {
        char word[KIND_SIZE];
        size_t n = strcspn(choices, "|");
        snprintf(word, sizeof(word), "%.*s", (int)n, choices);
        offer(t, word, "", "");
        choices += n + (choices[n] != 0);
    }
}

static void completion_give_up(int signal_number) {
    (void)signal_number;
    _exit(0);
}

/* Exits after PATIENCE_MS, so that the user's shell does not wait for a daemon that hangs. */
static void limit_patience(void) {
    const struct itimerval limit = {
        .it_value = {.tv_sec = PATIENCE_MS / 1000, .tv_usec = PATIENCE_MS % 1000 * 1000}};
    fflush(stdout);
    signal(SIGALRM, completion_give_up);
    setitimer(ITIMER_REAL, &limit, NULL);
}

/* True if the word is safe in a shell. Other words of the daemon are not offered, because somebody
 * else may have chosen them. */
static bool is_plain(const char *word) {
    return *word && !strchr("-:", *word) && word[strlen(word) - 1] != ':' &&
           !word[strspn(word,
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/")];
}

static void offer_machine(const struct typed *t, const json_t *m, const char *tail) {
    const char *id = client_text(m, "id"), *name = client_text(m, "name");
    const char *state = is_plain(client_text(m, "state")) ? client_text(m, "state") : "";
    if (is_plain(name))
        offer(t, name, tail, state);
    if (is_plain(id) && (!is_plain(name) || t->rest[0]))
        offer(t, id, tail, is_plain(name) ? name : state);
}

static void offer_machines(const struct typed *t, const char *tail) {
    struct client c DEFER(client_close) = {0};
    json_t *list DEFER(json_decrefp) = NULL;
    struct err err;
    size_t i;
    json_t *m;
    limit_patience();
    if (client_open(&c, CLIENT_NEVER, NULL, &err) < 0 || machines_list(&c, &list, &err) < 0)
        return;
    json_array_foreach(json_object_get(list, "machines"), i, m) {
        offer_machine(t, m, tail);
    }
}

static void offer_machine_names(const struct typed *t) {
    offer_machines(t, "");
}

/* Lists that the daemon returns: the name of the value in usage lines, the target of the request,
 * the members to offer. */
static const struct source {
    const char *kind;
    const char *target; /* %s: the machine */
    const char *list, *word, *about;
} sources[] = {
    {"IMAGE", "/v1/images", "images", "name", "origin"},
    {"BUILD", "/v1/images/builds", "builds", "id", "state"},
    {"ITEM", "/v1/pending", "pending", "id", "host"},
    {"SECRET", "/v1/secrets", "secrets", "name", ""},
    {"LOGIN", "/v1/logins", "logins", "name", ""},
    {"VOLUME", "/v1/volumes", "volumes", "name", "id"},
    {"BACKUP", "/v1/backups", "backups", "id", "name"},
    {"TOKEN", "/v1/tokens", "tokens", "id", "owner"},
    {"BOX", "/v1/store/boxes", "boxes", "id", "store"},
    {"STEP", "/v1/machines/%s/steps", "steps", "number", "kind"},
    {"FROM", "/v1/machines/%s/steps", "steps", "number", "kind"},
    {"TO", "/v1/machines/%s/steps", "steps", "number", "kind"},
    {"GRANT", "/v1/machines/%s/grants", "grants", "id", "kind"},
    {"RULE", "/v1/machines/%s/net", "rules", "id", "action"},
    {"EXEC", "/v1/machines/%s/execs", "execs", "id", "state"},
};

static const struct source *source_of(const char *kind) {
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++)
        if (strcmp(kind, sources[i].kind) == 0)
            return &sources[i];
    return NULL;
}

static void offer_row(const struct typed *t, const struct source *s, const json_t *row,
                      const char *tail) {
    char number[24];
    const char *word = client_text(row, s->word), *about = client_text(row, s->about);
    if (json_is_integer(json_object_get(row, s->word))) {
        snprintf(number, sizeof(number), "%lld", client_number(row, s->word));
        word = number;
    }
    /* Intermediate images of builds are many, and nobody types their names. */
    if (is_plain(word) && strncmp(word, "build:", 6) != 0)
        offer(t, word, tail, is_plain(about) ? about : "");
    if (strcmp(s->list, "steps") == 0 && is_plain(client_text(row, "name")))
        offer(t, client_text(row, "name"), tail, word);
}

static void offer_source(const struct typed *t, const struct source *s, const char *tail) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL, *row;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    struct err err;
    size_t i;
    if (strchr(s->target, '%') && !t->machine)
        return;
    limit_patience();
    if (client_target(target, &err, s->target, t->machine) < 0 ||
        client_open(&c, CLIENT_NEVER, NULL, &err) < 0 || client_call(&c, &r, &answer, &err) < 0)
        return;
    json_array_foreach(json_object_get(answer, s->list), i, row) {
        offer_row(t, s, row, tail);
    }
}

/* Offers names of secrets for NAME@HOST of --secret. */
static void offer_secrets_at(const struct typed *t) {
    if (!strchr(t->rest, '@'))
        offer_source(t, source_of("SECRET"), "@");
}

/* Offers names of volumes for VOLUME:/GUEST of --volume. */
static void offer_volumes_at(const struct typed *t) {
    if (!strchr(t->rest, ':'))
        offer_source(t, source_of("VOLUME"), ":");
}

/* Offers presets of network rules. The network gate defines the rules of each preset. */
static void offer_presets(const struct typed *t) {
    static const char *const presets[] = {"apt", "npm", "pip", "cargo", "go"};
    for (size_t i = 0; i < sizeof(presets) / sizeof(*presets); i++)
        offer(t, presets[i], "", "preset");
}

/* Offers a SOURCE or DESTINATION of `cp`: a file of this host, or MACHINE:PATH. */
static void offer_places(const struct typed *t) {
    if (strchr(t->rest, ':'))
        return;
    puts(":files");
    if (!strchr(t->rest, '/'))
        offer_machines(t, ":");
}

static void offer_files(const struct typed *t) {
    (void)t;
    puts(":files");
}

static void offer_programs(const struct typed *t) {
    (void)t;
    puts(":commands");
}

/* Words of usage lines and option tables. A row applies to all words that begin with `kind`. */
static const struct {
    const char *kind;
    void (*offer)(const struct typed *t);
} kinds[] = {
    {"MACHINE", offer_machine_names},
    {"SOURCE", offer_places},
    {"DESTINATION", offer_places},
    {"COMMAND", offer_programs},
    {"ARG", offer_files},
    {"FILE", offer_files},
    {"HOST", offer_files},
    {"RECEIPT", offer_files},
    {"VERB", offer_commands},
    {"NAME@HOST", offer_secrets_at},
    {"VOLUME:", offer_volumes_at},
};

static void offer_kind(const struct typed *t, const char *kind) {
    if (source_of(kind))
        offer_source(t, source_of(kind), "");
    if (strstr(kind, "TARGET"))
        offer_presets(t);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strncmp(kind, kinds[i].kind, strlen(kinds[i].kind)) == 0) {
            kinds[i].offer(t);
            return;
        }
    if (!kind[strspn(kind, "abcdefghijklmnopqrstuvwxyz-|")])
        offer_choices(t, kind);
}

/* ---- the typed command line ---- */

struct line {
    const struct option_row *awaiting; /* option whose value is the next word, or NULL */
    size_t operands;
    const char *words[OPERANDS_MAX]; /* the first operands (arguments that are not options) */
    bool options;                    /* options may still follow */
};

static struct line read_line(const struct command *c, char **words, int count) {
    size_t before = operands_before_options(c->usage);
    struct line line = {.options = c->options};
    for (int i = 0; i < count; i++) {
        if (line.awaiting) {
            line.awaiting = NULL;
        } else if (line.options && strcmp(words[i], "--") == 0) {
            line.options = false;
        } else if (line.options && words[i][0] == '-' && words[i][1]) {
            line.awaiting = options_awaiting(c->options, words[i]);
        } else if (strcmp(words[i], "--") != 0) {
            if (line.operands < OPERANDS_MAX)
                line.words[line.operands] = words[i];
            line.operands++;
            line.options &= line.operands <= before;
        }
    }
    return line;
}

static bool is_literal(const char *kind) {
    return *kind >= 'a' && *kind <= 'z' && !strchr(kind, '|');
}

/* True if the typed words match this usage line and include the name of its subcommand. */
static bool form_fits(const char *usage, const struct line *line) {
    char kind[KIND_SIZE];
    bool repeats = false, named = false;
    size_t i = 0;
    for (const char *at = usage; i < line->operands && next_kind(&at, kind, &repeats);) {
        if (!is_operand(kind))
            continue;
        if (is_literal(kind) && (i >= OPERANDS_MAX || strcmp(kind, line->words[i]) != 0))
            return false;
        named |= is_literal(kind);
        i++;
    }
    return named && (i == line->operands || repeats);
}

/* Returns the usage line of the typed subcommand, else that of the command. */
static const char *usage_of(const struct command *c, const struct line *line) {
    const char *found = c->usage;
    for (const struct form *f = c->forms; f && f->usage; f++)
        if (form_fits(f->usage, line))
            found = f->usage;
    return found;
}

/* Returns the machine that was typed; NULL: none. */
static const char *machine_of(const char *usage, const struct line *line) {
    char kind[KIND_SIZE];
    bool repeats = false;
    size_t i = 0;
    for (const char *at = usage; next_kind(&at, kind, &repeats);) {
        if (!is_operand(kind))
            continue;
        if (strcmp(kind, "MACHINE") == 0)
            return i < line->operands && i < OPERANDS_MAX ? line->words[i] : NULL;
        i++;
    }
    return NULL;
}

/* Completes the last of `words`, which follow the name of the command. */
static void complete_word(const struct command *c, char **words, int count) {
    struct typed t = {.lead = "", .rest = words[count - 1]};
    const struct line line = read_line(c, words, count - 1);
    const struct option_row *given = line.options ? options_given(c->options, t.rest) : NULL;
    const char *usage = usage_of(c, &line);
    char kind[KIND_SIZE];
    t.machine = machine_of(usage, &line);
    if (line.awaiting) {
        offer_kind(&t, line.awaiting->value);
    } else if (given) {
        t.lead = t.rest;
        t.rest = strchr(t.rest, '=') + 1;
        t.lead_len = (int)(t.rest - t.lead);
        offer_kind(&t, given->value);
    } else if (line.options && t.rest[0] == '-') {
        offer_options(&t, c->options);
    } else {
        operand_kind(usage, line.operands, kind);
        offer_kind(&t, kind);
    }
}

static int complete(char **words, int count) {
    const struct command *c = count > 1 ? cli_find(words[0]) : NULL;
    if (c)
        complete_word(c, words + 1, count - 1);
    else if (count == 1)
        offer_commands(&(struct typed){.lead = "", .rest = words[0]});
    return 0;
}

/* ---- shell scripts ---- */

/*
 * bash splits words at ':' and '=' too. The script joins parts that no blank separates. `lead` is
 * the part that readline does not replace, so it is removed from each candidate.
 */
static const char bash_script[] =
    "# carrel(1) completion for bash: `source <(carrel completion bash)`\n"
    "_carrel() {\n"
    "    local line=$COMP_LINE lead='' word i current=${COMP_WORDS[COMP_CWORD]}\n"
    "    local -a words=() other=()\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((i > 1)) && [[ -n $line && $line != [[:space:]]* ]]; then\n"
    "            lead=${words[-1]}\n"
    "            words[-1]+=$word\n"
    "        elif ((i > 0)); then\n"
    "            lead=\n"
    "            words+=(\"$word\")\n"
    "        fi\n"
    "        line=${line#*\"$word\"}\n"
    "    done\n"
    "    if [[ $current == [=:] ]]; then\n"
    "        lead=${words[-1]}\n"
    "        current=\n"
    "    fi\n"
    "    COMPREPLY=()\n"
    "    while IFS=$'\\t' read -r word _; do\n"
    "        case $word in\n"
    "        :files) mapfile -t other < <(compgen -f -- \"$current\") ;;\n"
    "        :commands) mapfile -t other < <(compgen -c -- \"$current\" | sort -u) ;;\n"
    "        *) COMPREPLY+=(\"${word#\"$lead\"}\") ;;\n"
    "        esac\n"
    "    done < <(command carrel completion words \"${words[@]}\" 2>/dev/null)\n"
    "    if ((!${#COMPREPLY[@]})); then\n"
    "        ((!${#other[@]})) || compopt -o filenames\n"
    "    elif ((${#COMPREPLY[@]} + ${#other[@]} == 1)) && [[ ${COMPREPLY[0]} == *[:@] ]]; then\n"
    "        compopt -o nospace\n"
    "    fi\n"
    "    COMPREPLY+=(\"${other[@]}\")\n"
    "}\n"
    "complete -F _carrel carrel\n";

static const char zsh_script[] =
    "#compdef carrel\n"
    "# carrel(1) completion for zsh: in a folder of $fpath as _carrel, or\n"
    "# `source <(carrel completion zsh)` after compinit\n"
    "_carrel() {\n"
    "    local word about other=\n"
    "    local -a plain plain_shown open\n"
    "    command carrel completion words \"${(@Q)words[2,CURRENT]}\" 2>/dev/null |\n"
    "        while IFS=$'\\t' read -r word about; do\n"
    "            case $word in\n"
    "                (:*) other=${word#:} ;;\n"
    "                (*[:@]) open+=(\"$word\") ;;\n"
    "                (*) plain+=(\"$word\")\n"
    "                    plain_shown+=(\"${(r:14:)word}${about:+  $about}\") ;;\n"
    "            esac\n"
    "        done\n"
    "    local found=1\n"
    "    (( $#open )) && compadd -S '' -a open && found=0\n"
    "    (( $#plain )) && compadd -l -d plain_shown -a plain && found=0\n"
    "    case $other in\n"
    "        (files) _files && found=0 ;;\n"
    "        (commands) _command_names -e && found=0 ;;\n"
    "    esac\n"
    "    return found\n"
    "}\n"
    "if [[ $funcstack[1] == _carrel ]]; then\n"
    "    _carrel \"$@\"\n"
    "else\n"
    "    compdef _carrel carrel\n"
    "fi\n";

/*
 * fish adds no blank after a candidate that ends with ':', '@', '=' or '/'. The option -x of
 * `complete` stops fish from offering files by itself.
 */
static const char fish_script[] =
    "# carrel(1) completion for fish: `carrel completion fish | source`\n"
    "function __carrel_words\n"
    "    set -l current (commandline -ct)\n"
    "    set -l words (commandline -opc)\n"
    "    set -e words[1]\n"
    "    for line in (command carrel completion words $words \"$current\" 2>/dev/null)\n"
    "        switch $line\n"
    "            case :files\n"
    "                __fish_complete_path \"$current\"\n"
    "            case :commands\n"
    "                __fish_complete_command\n"
    "            case '*'\n"
    "                echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c carrel -x -a '(__carrel_words)'\n";

static const struct {
    const char *name, *text;
} scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};

int cmd_completion(int argc, char **argv) {
    struct err err;
    int status;
    if (argc > 2 && strcmp(argv[1], "words") == 0)
        return complete(argv + 2, argc - 2);
    if (cli_words(argc, argv, 1, NULL, &status) < 0)
        return status;
    for (size_t i = 0; argc > 1 && i < sizeof(scripts) / sizeof(*scripts); i++)
        if (strcmp(argv[1], scripts[i].name) == 0) {
            fputs(scripts[i].text, stdout);
            return 0;
        }
    if (argc > 1)
        err_set(&err, ERR_INVALID, "unknown shell '%s'", argv[1]);
    else
        err_set(&err, ERR_INVALID, "no shell given");
    err_remedy(&err, "use carrel completion bash, zsh or fish");
    return cli_fail(&err);
}
