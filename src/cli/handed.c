#include "cli/handed.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/utf8.h"
#include "cli/ship/bare_commit.h"
#include "cli/ship/db.h"
#include "cli/ship/dirty.h"
#include "cli/ship/git.h"
#include "cli/spec.h"

enum { WORDS_MAX = 2 * PATH_MAX, AUTHOR_PART = 200 };

void handed_close(struct handed *h) {
    while (h->count)
        close(h->fds[--h->count]);
}

static int keep_fd(struct handed *h, int fd, struct err *err) {
    if (h->count == HANDED_MAX) {
        close(fd);
        return err_set(err, ERR_LIMIT,
                       "--file, --repo and --db can be given at most %d times together",
                       HANDED_MAX);
    }
    h->fds[h->count++] = fd;
    return 0;
}

static int copy_words(const char *text, char words[WORDS_MAX], struct err *err) {
    if ((size_t)snprintf(words, WORDS_MAX, "%s", text) >= WORDS_MAX)
        return err_set(err, ERR_LIMIT, "the value '%.60s...' of an option is too long", text);
    return 0;
}

/* ---- HOST[:/GUEST] ---- */

/* Removes ":/GUEST" from the end of an option's value and returns "/GUEST"; NULL: it is absent. */
static char *cut_guest(char *words) {
    char *guest = strrchr(words, ':');
    if (!guest || guest[1] != '/')
        return NULL;
    *guest = '\0';
    return guest + 1;
}

static int handed_put_file(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX], real[PATH_MAX];
    if (copy_words(text, words, err) < 0)
        return -1;
    const char *guest = cut_guest(words);
    if (!realpath(words, real))
        return err_sys(err, "cannot open file '%s'", words);
    int fd = open(real, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot open file '%s'", real);
    jot_string(j, "what", real);
    if (guest)
        jot_string(j, "at", guest);
    return keep_fd(h, fd, err);
}

/* ---- PATH[@REF][:/GUEST][:dirty] ---- */

/* Finds the full hash of the commit that a revision names. */
static int find_commit(const char *path, const char *words, char ret[256], struct err *err) {
    char commit[PATH_MAX];
    const char *const argv[] = {"-C",   path, "rev-parse", "--verify", "-q", "--end-of-options",
                                commit, NULL};
    struct buf hash DEFER(buf_done) = BUF(GIT_SAID_MAX);
    snprintf(commit, sizeof(commit), "%s^{commit}", words);
    if (git_ask(argv, &hash, err) < 0 || !hash.len || hash.len >= BARE_COMMIT_SIZE)
        return err_set(err, ERR_NOT_FOUND, "repository '%s' has no branch, tag or commit '%s'",
                       path, words);
    snprintf(ret, 256, "%s", hash.data);
    return 0;
}

/* Finds the full name of a branch or tag; for another revision, the hash of the commit. */
static int find_ref(const char *path, const char *ref, char ret[256], struct err *err) {
    const char *const words[] = {
        "-C", path, "rev-parse", "--verify", "--symbolic-full-name", "-q", "--end-of-options",
        ref,  NULL};
    struct buf full DEFER(buf_done) = BUF(GIT_SAID_MAX);
    if (git_ask(words, &full, err) < 0)
        return err_set(err, ERR_NOT_FOUND, "repository '%s' has no branch, tag or commit '%s'",
                       path, ref);
    const char *name = full.data ? full.data : "";
    bool known = strncmp(name, "refs/heads/", 11) == 0 || strncmp(name, "refs/tags/", 10) == 0;
    if (!known || strlen(name) > 200)
        return find_commit(path, ref, ret, err);
    snprintf(ret, 256, "%s", name);
    return 0;
}

/* Only the commit that is checked out has uncommitted work. */
static int bundle_dirty(const char *path, const char *ref, int fd, struct err *err) {
    char head[256], hash[256];
    bool named = strncmp(ref, "refs/", 5) == 0;
    if (find_commit(path, "HEAD", head, err) < 0 || find_commit(path, ref, hash, err) < 0)
        return -1;
    if (strcmp(head, hash) != 0) {
        err_set(err, ERR_INVALID, ":dirty requires the commit that is checked out, not '%s'", ref);
        return err_remedy(err, "use --repo PATH:dirty, or leave out :dirty");
    }
    return dirty_bundle(path, named ? ref : BARE_COMMIT_REF, hash, fd, err);
}

/* Makes a git bundle: it has all objects of the ref, but no configuration of the repository. */
static int make_bundle(const char *path, const char *ref, bool dirty, struct err *err) {
    const char *const words[] = {"-C", path, "bundle", "create", "-q", "-", ref, "--", NULL};
    int fd = memfd_create("bundle", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot create a temporary file for the git bundle");
    bool named = strncmp(ref, "refs/", 5) == 0;
    if ((dirty   ? bundle_dirty(path, ref, fd, err)
         : named ? git_run(words, fd, err)
                 : bare_commit_bundle(path, ref, fd, err)) == 0)
        return fd;
    close(fd);
    return err_wrap(err, "cannot make a git bundle of repository '%s'", path);
}

/* Reads one setting of the owner's git; empty if it is not set or cannot be part of an author. */
static void git_setting(const char *path, const char *name, char ret[AUTHOR_PART]) {
    const char *const words[] = {"-C", path, "config", "--get", name, NULL};
    struct buf text DEFER(buf_done) = BUF(GIT_SAID_MAX);
    struct err none;
    ret[0] = '\0';
    if (git_ask_as_owner(words, NULL, &text, &none) < 0 || !text.data || text.len >= AUTHOR_PART ||
        !utf8_valid(text.data, text.len))
        return;
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] < ' ' || strchr("<>\x7f", text.data[i]))
            return;
    snprintf(ret, AUTHOR_PART, "%s", text.data);
}

/* Commits in the machine have the owner's git identity; without one the daemon has a default. */
static void put_author(struct jot *j, const char *path) {
    char name[AUTHOR_PART], mail[AUTHOR_PART], author[2 * AUTHOR_PART + 4];
    git_setting(path, "user.name", name);
    git_setting(path, "user.email", mail);
    snprintf(author, sizeof(author), "%s <%s>", name, mail);
    if (name[0] && mail[0])
        jot_string(j, "value", author);
}

/* Tells the owner which files of the working tree the machine gets. */
static void tell_dirty(const char *path, bool dirty, const struct handed *h) {
    long count = h->quiet ? 0 : dirty_count(path);
    const char *s = count == 1 ? "" : "s";
    if (count && dirty)
        fprintf(stderr,
                "carrel: %ld changed or untracked file%s of repository '%s' come%s along; ignored "
                "files stay out\n",
                count, s, path, count == 1 ? "s" : "");
    else if (count)
        fprintf(stderr,
                "carrel: %ld changed or untracked file%s of repository '%s' stay%s out; to bring "
                "%s along: --repo %s:dirty\n",
                count, s, path, count == 1 ? "s" : "", count == 1 ? "it" : "them", path);
}

/* Removes ":dirty" from the end of an option's value. */
static bool cut_dirty(char *words) {
    static const char mark[] = ":dirty";
    size_t n = strlen(words), len = sizeof(mark) - 1;
    bool is = n > len && strcmp(words + n - len, mark) == 0;
    if (is)
        words[n - len] = '\0';
    return is;
}

static int put_repo(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX], real[PATH_MAX], name[256];
    const char *ref = "HEAD";
    if (copy_words(text, words, err) < 0)
        return -1;
    bool dirty = cut_dirty(words);
    const char *guest = cut_guest(words);
    char *at = strrchr(words, '@');
    if (at && access(words, F_OK) < 0) {
        *at = '\0';
        ref = at + 1;
    }
    if (!realpath(words, real))
        return err_sys(err, "cannot open repository '%s'", words);
    if (find_ref(real, ref, name, err) < 0)
        return -1;
    int fd = make_bundle(real, name, dirty, err);
    if (fd < 0)
        return -1;
    tell_dirty(real, dirty, h);
    jot_string(j, "what", real);
    if (guest)
        jot_string(j, "at", guest);
    jot_string(j, "mode", strncmp(name, "refs/", 5) == 0 ? strchr(name + 5, '/') + 1 : name);
    put_author(j, real);
    return keep_fd(h, fd, err);
}

/* ---- sqlite:FILE[:/GUEST] ---- */

static int put_sqlite(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX], real[PATH_MAX];
    if (copy_words(text, words, err) < 0)
        return -1;
    const char *guest = cut_guest(words);
    if (!realpath(words, real))
        return err_sys(err, "cannot open database '%s'", words);
    int fd = db_copy(real, err);
    if (fd < 0)
        return -1;
    jot_string(j, "what", real);
    if (guest)
        jot_string(j, "at", guest);
    return keep_fd(h, fd, err);
}

/* ---- postgres:NAME, postgres:DSN ---- */

/* NAME is a secret that holds the URL; DSN is the URL itself. */
static int put_postgres(struct jot *j, const char *text, struct handed *h, struct err *err) {
    (void)h, (void)err;
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    jot_string(j, "what", text[n] ? "postgres" : text);
    if (text[n])
        jot_string(j, "value", text);
    return 0;
}

static const struct {
    const char *begins;
    size_t skip; /* length of the prefix that is not part of the value */
    const char *kind;
    int (*put)(struct jot *j, const char *text, struct handed *h, struct err *err);
} databases[] = {
    {"sqlite:", 7, "sqlite", put_sqlite},
    {"postgres://", 0, "postgres", put_postgres},
    {"postgresql://", 0, "postgres", put_postgres},
    {"postgres:", 9, "postgres", put_postgres},
};

static int put_db(struct jot *j, const char *text, struct handed *h, struct err *err) {
    for (size_t i = 0; i < sizeof(databases) / sizeof(*databases); i++) {
        if (strncmp(text, databases[i].begins, strlen(databases[i].begins)) != 0)
            continue;
        jot_string(j, "kind", databases[i].kind);
        return databases[i].put(j, text + databases[i].skip, h, err);
    }
    /* The rest of the text may hold a password: do not print it. */
    err_set(err, ERR_INVALID, "--db %.*s: unknown kind of database", (int)strcspn(text, ":"), text);
    return err_remedy(err, "write --db sqlite:FILE[:/GUEST], or --db postgres:NAME");
}

/* ---- NAME@HOST[:WAY] ---- */

static int put_secret(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX];
    (void)h;
    if (copy_words(text, words, err) < 0)
        return -1;
    char *host = strchr(words, '@'), *way = host ? strrchr(host, ':') : NULL;
    if (!host || host == words || !host[1]) {
        err_set(err, ERR_INVALID, "--secret %s: no host given", text);
        return err_remedy(err, "write --secret NAME@HOST[:header|basic|query]");
    }
    *host++ = '\0';
    if (way)
        *way++ = '\0';
    jot_string(j, "what", words);
    jot_string(j, "at", host);
    if (way)
        jot_string(j, "mode", way);
    return 0;
}

/* ---- NAME[<MAIL>] ---- */

static int put_identity(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char words[WORDS_MAX];
    (void)h;
    if (copy_words(text, words, err) < 0)
        return -1;
    char *mail = strchr(words, '<'), *end = mail ? strchr(mail, '>') : NULL;
    if (mail && end)
        *end = '\0';
    for (char *c = mail; c && c >= words && (*c == '<' || *c == ' '); c--)
        *c = '\0';
    jot_string(j, "what", words);
    if (mail)
        jot_string(j, "at", mail + 1);
    return 0;
}

/* ---- NAME=VALUE ---- */

static int put_env(struct jot *j, const char *text, struct handed *h, struct err *err) {
    char name[256];
    const char *eq = strchr(text, '=');
    (void)h;
    if (!eq || eq == text || (size_t)(eq - text) >= sizeof(name))
        return err_set(err, ERR_INVALID, "--env %s: write it as NAME=VALUE", text);
    snprintf(name, sizeof(name), "%.*s", (int)(eq - text), text);
    jot_string(j, "what", name);
    jot_string(j, "value", eq + 1);
    return 0;
}

/* ---- NAME of a login ---- */

static int put_login(struct jot *j, const char *text, struct handed *h, struct err *err) {
    (void)h, (void)err;
    jot_string(j, "what", text);
    return 0;
}

static const struct {
    const char *kind;
    int (*put)(struct jot *j, const char *text, struct handed *h, struct err *err);
    size_t offset; /* offset of the option's list in struct handed_options */
    bool listed;
} kinds[] = {
    {"file", handed_put_file, offsetof(struct handed_options, files), true},
    {"repo", put_repo, offsetof(struct handed_options, repos), true},
    {"db", put_db, offsetof(struct handed_options, dbs), true},
    {"identity", put_identity, offsetof(struct handed_options, identities), true},
    {"secret", put_secret, offsetof(struct handed_options, secrets), true},
    {"login", put_login, offsetof(struct handed_options, logins), true},
    {"env", put_env, 0, false},
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

int handed_put_words(struct jot *j, const char *kind, const char *whole, struct handed *h,
                     struct err *err) {
    char text[WORDS_MAX];
    if (copy_words(whole, text, err) < 0)
        return -1;
    if (grants_cut_untrusted(text))
        jot_bool(j, "untrusted", true);
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].kind, kind) == 0) {
            if (kinds[i].put != put_db) /* put_db() writes the kind itself */
                jot_string(j, "kind", kind);
            return kinds[i].put(j, text, h, err);
        }
    return err_set(err, ERR_INTERNAL, "the command line cannot grant kind '%s'", kind);
}

static const struct option_list *list_of(const struct handed_options *o, size_t kind) {
    return (const void *)((const char *)o + kinds[kind].offset);
}

int handed_put(struct jot *j, const struct handed_options *o, struct handed *h, struct err *err) {
    bool any = false;
    for (size_t i = 0; i < KINDS; i++)
        any |= kinds[i].listed && list_of(o, i)->count;
    spec_put_duration(j, "expires", o->expires_ms);
    if (!any)
        return 0;
    jot_array(j, "grants");
    for (size_t i = 0; i < KINDS; i++) {
        const struct option_list *list = list_of(o, i);
        for (size_t k = 0; kinds[i].listed && k < list->count; k++) {
            jot_object(j, NULL);
            if (handed_put_words(j, kinds[i].kind, list->items[k], h, err) < 0)
                return -1;
            jot_end(j, '}');
        }
    }
    jot_end(j, ']');
    return 0;
}
