/* carrel desktop: looks at the desktop of a machine and drives it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"

enum { DESKTOP_WORDS = 32, BODY_MAX = 64 << 10, SIDE_MAX = 65535, STEPS_MAX = 65535 };

struct desktop_options {
    const char *size, *button, *hold, *to;
    uint64_t count;
    bool quiet, help;
};

#define AT(member) offsetof(struct desktop_options, member)

const struct option_row desktop_rows[] = {
    {0, "size", "WxH", OPTION_TEXT, AT(size),
     "start: pixels of a desktop that does not run yet (default: 1280x800)"},
    {0, "button", "left|middle|right", OPTION_TEXT, AT(button), "click: button (default: left)"},
    {0, "count", "N", OPTION_NUMBER, AT(count), "click: number of clicks, up to 3 (default: 1)"},
    {0, "to", "X,Y", OPTION_TEXT, AT(to), "click: drag to this point"},
    {0, "hold", "KEYS", OPTION_TEXT, AT(hold),
     "click, scroll: hold keys down meanwhile, such as ctrl+shift"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print nothing on success"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct desktop_call {
    struct client client;
    const char *machine;
    char **words; /* after the subcommand */
    int count;
    const struct desktop_options *o;
};

static int desktop_number(struct jot *j, const char *name, const char *text, uint64_t max,
                          struct err *err) {
    uint64_t n;
    if (parse_u64(text, 0, max, &n, err) < 0)
        return err_wrap(err, "%s '%.20s'", name, text);
    jot_u64(j, name, n);
    return 0;
}

/* Writes two numbers that a character separates, such as "1280x800". */
static int desktop_pair(struct jot *j, const char *first, const char *second, char between,
                        const char *text, struct err *err) {
    char one[16];
    const char *at = strchr(text, between);
    if (!at || (size_t)(at - text) >= sizeof(one))
        return err_set(err, ERR_INVALID, "'%.30s' is not two numbers with '%c' between them", text,
                       between);
    memcpy(one, text, (size_t)(at - text));
    one[at - text] = '\0';
    if (desktop_number(j, first, one, SIDE_MAX, err) < 0)
        return -1;
    return desktop_number(j, second, at + 1, SIDE_MAX, err);
}

static int desktop_post(struct desktop_call *d, const char *path, struct jot *j, struct buf *body,
                        json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = body};
    jot_end(j, '}');
    if (j->failed)
        return err_set(err, ERR_LIMIT, "the text is too long");
    if (client_target(target, err, "/v1/machines/%s", d->machine) < 0)
        return -1;
    size_t n = strlen(target);
    snprintf(target + n, sizeof(target) - n, "/desktop%s", path);
    return client_call(&d->client, &r, ret, err);
}

static int desktop_start(struct desktop_call *d, const char *verb, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(BODY_MAX);
    struct jot j = JOT(&body);
    json_t *answer DEFER(json_decrefp) = NULL;
    (void)verb;
    jot_object(&j, NULL);
    if (d->o->size && desktop_pair(&j, "width", "height", 'x', d->o->size, err) < 0)
        return err_wrap(err, "--size");
    if (desktop_post(d, "", &j, &body, &answer, err) < 0)
        return -1;
    cli_done(d->o->quiet, "the desktop of machine '%s' runs: %llux%llu pixels, DISPLAY=%s",
             d->machine, (unsigned long long)client_number(answer, "width"),
             (unsigned long long)client_number(answer, "height"), client_text(answer, "display"));
    return 0;
}

/* Copies the image from its beginning. Returns 0 or -errno. */
static int desktop_copy(int from, int to) {
    char bytes[64 << 10];
    ssize_t n;
    off_t at = 0;
    while ((n = pread(from, bytes, sizeof(bytes), at)) > 0) {
        int status = write_all(to, bytes, (size_t)n);
        if (status < 0)
            return status;
        at += n;
    }
    return n < 0 ? -errno : 0;
}

/* The file is replaced only once the whole image is here. */
static int desktop_screenshot(struct desktop_call *d, const char *verb, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const char *file = d->words[0];
    bool is_stdout = strcmp(file, "-") == 0;
    int image DEFER_CLOSE = memfd_create("screenshot", MFD_CLOEXEC);
    (void)verb;
    if (client_target(target, err, "/v1/machines/%s/desktop/screenshot", d->machine) < 0 ||
        client_fetch_again(&d->client, target, image, err) < 0)
        return -1;
    int fd DEFER_CLOSE = is_stdout ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                                   : open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int status = fd < 0 ? -errno : desktop_copy(image, fd);
    if (status < 0)
        return err_num(err, status, "cannot write '%.200s'", file);
    cli_done(d->o->quiet || is_stdout, "wrote '%s'", file);
    return 0;
}

/* Joins the words with a space, as a shell separated them. */
static int desktop_join(struct desktop_call *d, struct buf *ret, struct err *err) {
    for (int i = 0; i < d->count; i++)
        if (!buf_addf(ret, "%s%s", i ? " " : "", d->words[i]))
            return err_set(err, ERR_LIMIT, "the text is too long");
    return 0;
}

static int desktop_words(struct desktop_call *d, const char *verb, struct jot *j, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(BODY_MAX / 8);
    if (strcmp(verb, "type") == 0 || strcmp(verb, "key") == 0) {
        if (desktop_join(d, &text, err) < 0)
            return -1;
        jot_string(j, "text", text.data ? text.data : "");
        return 0;
    }
    if (desktop_number(j, "x", d->words[0], SIDE_MAX, err) < 0 ||
        desktop_number(j, "y", d->words[1], SIDE_MAX, err) < 0)
        return -1;
    if (d->count > 2)
        jot_string(j, "direction", d->words[2]);
    return d->count > 3 ? desktop_number(j, "amount", d->words[3], STEPS_MAX, err) : 0;
}

static int desktop_input(struct desktop_call *d, const char *verb, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(BODY_MAX);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "action", verb);
    if (desktop_words(d, verb, &j, err) < 0)
        return -1;
    if (d->o->to && desktop_pair(&j, "to_x", "to_y", ',', d->o->to, err) < 0)
        return err_wrap(err, "--to");
    if (d->o->button)
        jot_string(&j, "button", d->o->button);
    if (d->o->hold)
        jot_string(&j, "hold", d->o->hold);
    if (d->o->count)
        jot_u64(&j, "count", d->o->count);
    return desktop_post(d, "/input", &j, &body, NULL, err);
}

static const struct desktop_verb {
    const char *name;
    int least, most; /* arguments */
    const char *usage;
    int (*run)(struct desktop_call *d, const char *verb, struct err *err);
} verbs[] = {
    {"start", 0, 0, "no argument", desktop_start},
    {"screenshot", 1, 1, "FILE", desktop_screenshot},
    {"click", 2, 2, "X Y", desktop_input},
    {"move", 2, 2, "X Y", desktop_input},
    {"scroll", 2, 4, "X Y [WAY [STEPS]]", desktop_input},
    {"type", 1, DESKTOP_WORDS, "TEXT", desktop_input},
    {"key", 1, DESKTOP_WORDS, "KEYS", desktop_input},
};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

static const struct desktop_verb *desktop_verb_of(char **words, int count, struct err *err) {
    size_t i = 0;
    while (i < VERBS && (count < 2 || strcmp(verbs[i].name, words[1]) != 0))
        i++;
    if (i == VERBS) {
        cli_unknown_subcommand("desktop", count < 2 ? "" : words[1], err);
        return NULL;
    }
    if (count - 2 < verbs[i].least || count - 2 > verbs[i].most) {
        err_set(err, ERR_INVALID, "carrel desktop MACHINE %s takes %s", verbs[i].name,
                verbs[i].usage);
        err_remedy(err, "see carrel desktop --help");
        return NULL;
    }
    return &verbs[i];
}

int cmd_desktop(int argc, char **argv) {
    struct desktop_options o = {.quiet = false};
    struct desktop_call d = {.o = &o};
    char *words[DESKTOP_WORDS + 1] = {NULL};
    struct err err;
    int count = options_words(desktop_rows, argc, argv, &o, words, DESKTOP_WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("desktop");
        return 0;
    }
    const struct desktop_verb *v = desktop_verb_of(words, count, &err);
    if (!v)
        return cli_fail(&err);
    d.machine = words[0];
    d.words = words + 2;
    d.count = count - 2;
    int r = client_open(&d.client, CLIENT_START, NULL, &err) < 0 ? -1 : v->run(&d, v->name, &err);
    client_close(&d.client);
    return r < 0 ? cli_fail(&err) : 0;
}
