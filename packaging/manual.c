/*
 * carrel-manual: the reference of the command line and the man pages, from the tables that the
 * program itself parses with.
 *
 *   carrel-manual page             print the generated part of docs/reference/cli.md
 *   carrel-manual check FILE       fail unless FILE ends with that part
 *   carrel-manual man DIR NAME...  write NAME.1 into DIR; the names are those of all pages
 *
 * It is run by the build and never installed.
 */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cell/options.h"
#include "cli/cli.h"

enum { TEXT_MAX = 1 << 20, NAME_SIZE = 64 };

#define GENERATED "## Commands\n"
#define REMEDY "run scripts/cli-docs"

/* ---- facts that are in no table of the program ---- */

#define EXIT_CARREL "125: Carrel itself failed; one line on standard error says why."

static const struct {
    const char *command, *text;
} exits[] = {
    {"run", "The exit status of the command; 128+N if signal N ended it; 124 if --timeout or --ttl "
            "ended it. " EXIT_CARREL},
    {"exec", "The exit status of the command; 128+N if signal N ended it; 124 if --timeout ended "
             "it. " EXIT_CARREL},
    {"sh", "The exit status of the shell; 128+N if signal N ended it. " EXIT_CARREL},
    {"do", "0: the task is done. 1: the run ended in another way. 2: the run was interrupted. "
           "" EXIT_CARREL},
    {"ship", "0: no change was refused. 1: a change was refused. " EXIT_CARREL},
    {"audit", "0: success. 1: the journal, or a receipt of carrel ship, could not be "
              "verified. " EXIT_CARREL},
    {"store",
     "0: success. 1: check found missing files (layers) of a step, or a missing or changed "
     "image. " EXIT_CARREL},
    {"serve", "0: a signal ended the daemon. 1: the daemon could not start, or its disk "
              "failed. " EXIT_CARREL},
    {"doctor", "0: machines can start on this host. 1: machines cannot start. " EXIT_CARREL},
};

static const struct {
    const char *name, *text;
} variables[] = {
    {"CARREL_URL", "URL of a daemon on another host or port: http://ADDRESS:PORT."},
    {"CARREL_TOKEN", "Token for the daemon at CARREL_URL (see carrel token)."},
    {"CARREL_RUN", "Run directory of the daemon: sockets, locks and logs."},
    {"CARREL_HOME", "Directory of the store: machines, images, secrets and the journal."},
    {"CARREL_WAIT", "Seconds to wait for a daemon that went away (default: 30)."},
    {"CARREL_PAGER, PAGER", "Pager for long output on a terminal (default: less)."},
    {"NO_COLOR", "Print no colours if this variable is set and not empty."},
};

static const struct {
    const char *name, *text;
} places[] = {
    {"/run/carrel, $XDG_RUNTIME_DIR/carrel", "Run directory, of root and of ordinary users."},
    {"/var/lib/carrel, ~/.local/share/carrel",
     "Directory of the store, of root and of ordinary users."},
    {"/etc/carrel/carrel.conf, ~/.config/carrel/carrel.conf",
     "Settings of the daemon, of root and of ordinary users."},
};

static const char *exit_text(const struct command *c) {
    for (size_t i = 0; i < sizeof(exits) / sizeof(*exits); i++)
        if (strcmp(exits[i].command, c->name) == 0)
            return exits[i].text;
    return c->options ? "0: success. " EXIT_CARREL : NULL;
}

/* ---- commands of the cell worker, whose table is its own ---- */

static void copy_cell_usage(FILE *to, const char *verb) {
    char text[8192];
    int fd DEFER_CLOSE = memfd_create("usage", MFD_CLOEXEC);
    cell_usage(verb, fd);
    ssize_t n = pread(fd, text, sizeof(text), 0);
    if (n <= 0 || n == sizeof(text))
        abort();
    fwrite(text, 1, (size_t)n, to);
}

static void copy_cell_usages(FILE *to, const struct command *c) {
    static const char *const verbs[] = {"run", "check", "fuel", "replay"};
    if (strcmp(c->name, "wast") == 0) {
        copy_cell_usage(to, "wast");
        return;
    }
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++) {
        if (i)
            fputc('\n', to);
        copy_cell_usage(to, verbs[i]);
    }
}

/* ---- Markdown ---- */

/* In tables a bar is escaped, also inside code. */
static void page_code(FILE *to, const char *text) {
    for (; *text; text++)
        fprintf(to, *text == '|' ? "\\|" : "%c", *text);
}

/* What is between backquotes stays as it is. */
static void page_text(FILE *to, const char *text) {
    bool code = false;
    for (; *text; text++) {
        code ^= *text == '`';
        if (*text == '|' || (!code && strchr("*<_", *text)))
            fputc('\\', to);
        fputc(*text, to);
    }
}

static void page_sentence(FILE *to, const char *text) {
    fputc(toupper((unsigned char)*text), to);
    page_text(to, text + 1);
}

static void page_options(FILE *to, const struct option_row *rows) {
    fputs("\n| option | meaning |\n|---|---|\n", to);
    for (const struct option_row *r = rows; r->name; r++) {
        fputs("| ", to);
        if (r->letter)
            fprintf(to, "`-%c`, ", r->letter);
        fprintf(to, "`--%s%s", r->name, r->value ? " " : "");
        page_code(to, r->value ? r->value : "");
        fputs("` | ", to);
        page_text(to, r->help);
        fputs(" |\n", to);
    }
}

static void page_forms(FILE *to, const struct command *c) {
    fputs("\n| form | meaning |\n|---|---|\n", to);
    for (const struct form *f = c->forms; f->usage; f++) {
        fprintf(to, "| `carrel %s ", c->name);
        page_code(to, f->usage);
        fputs("` | ", to);
        page_text(to, f->summary);
        fputs(" |\n", to);
    }
}

static void page_command(FILE *to, const struct command *c) {
    fprintf(to, "\n#### carrel %s\n\n", c->name);
    page_sentence(to, c->summary);
    fprintf(to, ".\n\n```\ncarrel %s%s%s\n```\n", c->name, *c->usage ? " " : "", c->usage);
    if (c->forms)
        page_forms(to, c);
    if (c->notes) {
        fputc('\n', to);
        page_text(to, c->notes);
        fputc('\n', to);
    }
    if (c->options) {
        page_options(to, c->options);
    } else {
        fputs("\n```\n", to);
        copy_cell_usages(to, c);
        fputs("```\n", to);
    }
}

/* One line per sentence, so that lines stay short. */
static void page_exit(FILE *to, const char *text) {
    for (const char *end; (end = strstr(text, ". ")); text = end + 2)
        fprintf(to, "%.*s<br>", (int)(end + 1 - text), text);
    fputs(text, to);
}

static void page_exits(FILE *to) {
    fputs("\n### Exit status\n\n| command | exit status |\n|---|---|\n", to);
    for (size_t i = 0; i < sizeof(exits) / sizeof(*exits); i++) {
        fprintf(to, "| `%s` | ", exits[i].command);
        page_exit(to, exits[i].text);
        fputs(" |\n", to);
    }
    fputs("| `cell`, `wast` | see their help above |\n| all others | ", to);
    page_exit(to, "0: success. " EXIT_CARREL);
    fputs(" |\n", to);
}

static void page_variables(FILE *to) {
    fputs("\n### Environment\n\n| variable | meaning |\n|---|---|\n", to);
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        fprintf(to, "| `%s` | %s |\n", variables[i].name, variables[i].text);
}

static void page(FILE *to) {
    fputs(GENERATED "\n`scripts/cli-docs` writes this part from the tables of the program.\n", to);
    for (const struct command *c = commands; c->name; c++) {
        if (c->group)
            fprintf(to, "\n### %s\n", c->group);
        page_command(to, c);
    }
    page_exits(to);
    page_variables(to);
}

static int page_check(const char *path) {
    char *text DEFER_FREE = NULL, *wanted DEFER_FREE = NULL;
    size_t size;
    FILE *to = open_memstream(&wanted, &size);
    text = calloc(1, TEXT_MAX);
    if (!to || !text)
        abort();
    page(to);
    fclose(to);
    read_file_at(AT_FDCWD, path, text, TEXT_MAX);
    const char *is = strstr(text, GENERATED);
    if (is && strcmp(is, wanted) == 0)
        return 0;
    fprintf(stderr, "%s is not up to date: " REMEDY "\n", path);
    return 1;
}

/* ---- man pages ---- */

static void man_char(FILE *to, char c) {
    static const struct {
        char plain;
        const char *roff;
    } special[] = {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++)
        if (special[i].plain == c) {
            fputs(special[i].roff, to);
            return;
        }
    fputc(c, to);
}

#define ELLIPSIS "…" /* roff reads bytes, not UTF-8 */

/* What is between backquotes is bold. A dot at the start of a line is not a request. */
static void man_text(FILE *to, const char *text) {
    bool code = false, starts = true;
    for (; *text; text++) {
        bool ellipsis = strncmp(text, ELLIPSIS, strlen(ELLIPSIS)) == 0;
        if (starts && *text == '.')
            fputs("\\&", to);
        starts = *text == '\n';
        if (*text == '`')
            fputs((code = !code) ? "\\fB" : "\\fR", to);
        else if (ellipsis)
            fputs("...", to);
        else
            man_char(to, *text);
        text += ellipsis ? strlen(ELLIPSIS) - 1 : 0;
    }
}

/* Words in capitals are names of values: in italics. */
static void man_usage(FILE *to, const char *text) {
    while (*text) {
        size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        bool value = n > 1 || (n == 1 && strcmp(text, "N") == 0);
        if (value)
            fputs("\\fI", to);
        for (size_t i = 0; i < (n ? n : 1); i++)
            man_char(to, text[i]);
        if (value)
            fputs("\\fR", to);
        text += n ? n : 1;
    }
}

static void man_heading(FILE *to, const char *name, const char *summary) {
    fputs(".TH ", to);
    for (const char *p = name; *p; p++)
        man_char(to, (char)toupper((unsigned char)*p));
    fprintf(to, " 1 \"\" \"Carrel %s\" \"Carrel manual\"\n.SH NAME\n", CARREL_VERSION);
    man_text(to, name);
    fputs(" \\- ", to);
    man_text(to, summary);
    fputs("\n.SH SYNOPSIS\n", to);
}

static void man_forms(FILE *to, const struct command *c) {
    for (const struct form *f = c->forms; f && f->usage; f++) {
        fprintf(to, ".TP\n\\fBcarrel %s\\fR ", c->name);
        man_usage(to, f->usage);
        fputc('\n', to);
        man_text(to, f->summary);
        fputc('\n', to);
    }
}

static void man_options(FILE *to, const struct option_row *rows) {
    fputs(".SH OPTIONS\n", to);
    for (const struct option_row *r = rows; r->name; r++) {
        fputs(".TP\n", to);
        if (r->letter)
            fprintf(to, "\\fB\\-%c\\fR, ", r->letter);
        fputs("\\fB\\-\\-", to);
        for (const char *p = r->name; *p; p++)
            man_char(to, *p);
        fputs("\\fR", to);
        if (r->value) {
            fputc(' ', to);
            man_usage(to, r->value);
        }
        fputc('\n', to);
        man_text(to, r->help);
        fputc('\n', to);
    }
}

static void man_command(FILE *to, const struct command *c) {
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "carrel-%s", c->name);
    man_heading(to, name, c->summary);
    fprintf(to, "\\fBcarrel %s\\fR ", c->name);
    man_usage(to, c->usage);
    fputs("\n.SH DESCRIPTION\n", to);
    fputc(toupper((unsigned char)*c->summary), to);
    man_text(to, c->summary + 1);
    fputs(".\n", to);
    man_forms(to, c);
    if (c->notes) {
        fputs(".PP\n", to);
        man_text(to, c->notes);
        fputc('\n', to);
    }
    if (c->options) {
        man_options(to, c->options);
    } else {
        char *text DEFER_FREE = NULL;
        size_t size;
        FILE *usage = open_memstream(&text, &size);
        if (!usage)
            abort();
        copy_cell_usages(usage, c);
        fclose(usage);
        fputs(".SH OPTIONS\n.nf\n", to);
        man_text(to, text);
        fputs(".fi\n", to);
    }
    if (exit_text(c)) {
        fputs(".SH EXIT STATUS\n", to);
        man_text(to, exit_text(c));
        fputc('\n', to);
    }
    fputs(".SH SEE ALSO\n.BR carrel (1)\n", to);
}

static void man_overview(FILE *to) {
    man_heading(to, "carrel", "a computer of its own for every AI agent");
    fputs(
        "\\fBcarrel\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
        "Carrel runs commands of agents in machines: sandboxes with their own files, network and\n"
        "limits. Unless you say otherwise, their changes reach the host only after a review. A\n"
        "daemon keeps the machines; the first command starts it.\n",
        to);
    for (const struct command *c = commands; c->name; c++) {
        if (c->group)
            fprintf(to, ".SH %s\n", c->group);
        fprintf(to, ".TP\n\\fBcarrel\\-%s\\fR(1)\n", c->name);
        man_text(to, c->summary);
        fputc('\n', to);
    }
    fputs(".SH EXIT STATUS\n", to);
    man_text(to, "0: success. " EXIT_CARREL " Commands with other statuses say so on their pages.");
    fputs("\n.SH ENVIRONMENT\n", to);
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        fprintf(to, ".TP\n\\fB%s\\fR\n", variables[i].name);
        man_text(to, variables[i].text);
        fputc('\n', to);
    }
    fputs(".SH FILES\n", to);
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        fputs(".TP\n", to);
        man_text(to, places[i].name);
        fputc('\n', to);
        man_text(to, places[i].text);
        fputc('\n', to);
    }
}

static bool man_write(const char *dir, const char *name) {
    char path[4096];
    const struct command *c = strncmp(name, "carrel-", 7) == 0 ? cli_find(name + 7) : NULL;
    if (!c && strcmp(name, "carrel") != 0) {
        fprintf(stderr, "%s: there is no such command\n", name);
        return false;
    }
    snprintf(path, sizeof(path), "%s/%s.1", dir, name);
    FILE *to = fopen(path, "we");
    if (!to) {
        perror(path);
        return false;
    }
    if (c)
        man_command(to, c);
    else
        man_overview(to);
    return fclose(to) == 0;
}

/* Names in meson.build, as the build must know what it makes. */
static bool man_is_listed(const struct command *c, char **names) {
    for (; *names; names++)
        if (strncmp(*names, "carrel-", 7) == 0 && strcmp(*names + 7, c->name) == 0)
            return true;
    fprintf(stderr, "carrel-%s.1: add '%s' to man_commands in packaging/meson.build\n", c->name,
            c->name);
    return false;
}

static int man(const char *dir, char **names) {
    bool ok = true;
    for (const struct command *c = commands; c->name; c++)
        ok &= man_is_listed(c, names);
    for (; ok && *names; names++)
        ok = man_write(dir, *names);
    return ok ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "page") == 0) {
        page(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (argc == 3 && strcmp(argv[1], "check") == 0)
        return page_check(argv[2]);
    if (argc > 3 && strcmp(argv[1], "man") == 0)
        return man(argv[2], argv + 3);
    fputs("usage: carrel-manual page | check FILE | man DIR NAME...\n", stderr);
    return 64;
}
