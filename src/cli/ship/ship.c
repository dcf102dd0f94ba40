/* carrel ship: shows the changes of a machine, and copies them to this host. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/id.h"
#include "base/sha256.h"
#include "base/text/textdiff.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/ship/db.h"
#include "cli/ship/ship.h"
#include "cli/ship/ship_show.h"
#include "cli/ship/slices_find.h"
#include "cli/table.h"
#include "review/deliver.h"
#include "review/flags.h"
#include "review/hunks.h"

#define AT(member) offsetof(struct ship_options, member)
const struct option_row ship_rows[] = {
    {'y', "yes", NULL, OPTION_FLAG, AT(yes),
     "copy the changes to this host; without this option they are only shown"},
    {0, "only", "PATH", OPTION_LIST, AT(only),
     "ship only changes of PATH and everything below it (repeatable)"},
    {0, "pick", NULL, OPTION_FLAG, AT(pick),
     "ask for each file and hunk whether to ship it, as git add -p does"},
    {0, "hunk", "PATH:N[,N-M...]", OPTION_LIST, AT(hunks),
     "ship only these hunks of file PATH, counted from 1 (repeatable)"},
    {0, "return", "COMMENT", OPTION_TEXT, AT(comment),
     "ship nothing; send this comment to the model's run, which continues with it"},
    {0, "volume", "NAME", OPTION_TEXT, AT(volume),
     "ship the changes in this volume of the machine to DIRECTORY"},
    {0, "mirror", NULL, OPTION_FLAG, AT(mirror),
     "also delete files in DIRECTORY that the machine does not have"},
    {0, "patch", "FILE", OPTION_TEXT, AT(patch),
     "write the commits of a repository to this patch file, not to a branch"},
    {0, "target", "PATH", OPTION_TEXT, AT(target),
     "refuse any other directory than PATH, which is the target of a review with --json"},
    {0, "uncommitted", NULL, OPTION_FLAG, AT(uncommitted),
     "ship uncommitted changes of a repository too, as one more commit"},
    {0, "undo", NULL, OPTION_FLAG, AT(undo),
     "undo an earlier shipment: carrel ship --undo CHANGESET [DIRECTORY]"},
    {0, "ls", NULL, OPTION_FLAG, AT(list),
     "list the change sets that were neither shipped nor frozen again; MACHINE: only its own"},
    {'a', "all", NULL, OPTION_FLAG, AT(all),
     "with --ls: include those that were shipped, undone, frozen again or deleted"},
    {0, "stat", NULL, OPTION_FLAG, AT(stat), "print one line per changed file"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

void ship_done(struct ship *s) {
    parcel_close(&s->parcel);
    baseline_done(&s->base);
    json_decref(s->set);
    json_decref(s->database);
    s->set = s->database = NULL;
    close_fd(&s->dir);
}

/* ---- the change set ---- */

int ship_freeze(struct ship *s, const struct ship_from *from, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(65536);
    struct jot j = JOT(&body);
    const struct client_request freeze = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    if (from->path)
        jot_string(&j, "path", from->path);
    if (from->slice)
        jot_string(&j, "slice", from->slice);
    if (from->changes_only)
        jot_bool(&j, "changes_only", true);
    jot_end(&j, '}');
    return client_target(target, err, "/v1/machines/%s/changesets", from->machine) < 0
               ? -1
               : client_call_again(s->client, &freeze, &s->set, err);
}

/*
 * True if the target is the directory that was granted at this path of the machine. Then the
 * changes are enough. Another directory may lack the files that the machine did not change.
 */
static bool is_home(const struct ship *s, const char *machine, const char *path) {
    struct slices *found DEFER_FREE = xnew(struct slices);
    struct stat here, home;
    struct err none;
    if (s->dir < 0 || s->options->mirror || fstat(s->dir, &here) < 0 ||
        slices_of(s->client, machine, found, &none) < 0)
        return false;
    for (size_t i = 0; i < found->count; i++) {
        const struct slice *one = &found->list[i];
        if (one->kind == SLICE_DIR && strcmp(one->at, path) == 0)
            return stat(one->home, &home) == 0 && home.st_dev == here.st_dev &&
                   home.st_ino == here.st_ino;
    }
    return false;
}

int ship_find_set(struct ship *s, const char *word, struct err *err) {
    char target[CLIENT_TARGET_SIZE], machine[256];
    const char *colon = strchr(word, ':');
    if (s->set && strcmp(client_text(s->set, "id"), word) == 0)
        return 0;
    if (id_valid(word, strlen(word), 'c')) {
        const struct client_request show = {.method = "GET", .target = target};
        return client_target(target, err, "/v1/changesets/%s", word) < 0
                   ? -1
                   : client_call_again(s->client, &show, &s->set, err);
    }
    snprintf(machine, sizeof(machine), "%.*s", colon ? (int)(colon - word) : 255, word);
    const struct ship_from from = {.machine = machine,
                                   .path = colon ? colon + 1 : NULL,
                                   .changes_only =
                                       s->cow || (colon && is_home(s, machine, colon + 1))};
    return ship_freeze(s, &from, err);
}

/* Downloads a part of the change set, "archive" or "base", into memory. */
static int map_part(struct ship *s, const char *part, char **ret, size_t *ret_size,
                    struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct stat st;
    int fd DEFER_CLOSE = memfd_create("changeset", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "cannot create a temporary file for the change set");
    if (client_target(target, err, "/v1/changesets/%s/%s", client_text(s->set, "id"), part) < 0 ||
        client_fetch_again(s->client, target, fd, err) < 0)
        return -1;
    if (fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the size of the change set");
    *ret_size = (size_t)st.st_size;
    *ret = *ret_size ? mmap(NULL, *ret_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    return *ret == MAP_FAILED ? err_sys(err, "cannot map the change set into memory") : 0;
}

static void unmap(char *map, size_t size) {
    if (map)
        munmap(map, size);
}

int ship_fetch(struct ship *s, char **ret, size_t *ret_size, struct err *err) {
    char hash[SHA256_HEX], *map;
    size_t size;
    if (map_part(s, "archive", &map, &size, err) < 0)
        return -1;
    sha256_hex(map ? map : "", size, hash);
    if (strcmp(hash, client_text(s->set, "sha256")) != 0) {
        unmap(map, size);
        return err_set(err, ERR_INVALID, "the downloaded change set does not match its hash");
    }
    *ret = map;
    *ret_size = size;
    return 0;
}

/* Fetches the baseline (the state of the directory when it was lent), if the daemon has it. */
static int fetch_base(struct ship *s, struct err *err) {
    char *text;
    size_t size;
    if (map_part(s, "base", &text, &size, err) < 0)
        return -1;
    int status = size ? baseline_read(text, size, &s->base, err) : 0;
    if (status < 0) {
        err_wrap(err, "cannot use the daemon's record of the directory");
        err_remedy(err, "copy the files with carrel cp");
    }
    unmap(text, size);
    return status;
}

/* ---- selection ---- */

static bool is_below(const char *path, const char *top) {
    size_t n = strlen(top);
    return strncmp(path, top, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* Returns the hunk numbers that --hunk names for this path; NULL if it names none. */
static const char *hunks_of(const struct ship_options *o, const char *path) {
    for (size_t i = 0; i < o->hunks.count; i++) {
        const char *colon = strrchr(o->hunks.items[i], ':');
        size_t n = colon ? (size_t)(colon - o->hunks.items[i]) : 0;
        if (colon && strlen(path) == n && strncmp(o->hunks.items[i], path, n) == 0)
            return colon + 1;
    }
    return NULL;
}

static bool is_named(const struct ship_options *o, const char *path) {
    if ((!o->only.count && !o->hunks.count) || hunks_of(o, path))
        return true;
    for (size_t i = 0; i < o->only.count; i++)
        if (is_below(path, o->only.items[i]))
            return true;
    return false;
}

/* A renamed file is chosen if its old or its new name is named. */
static bool is_chosen(const struct ship_options *o, const struct parcel_item *i) {
    return is_named(o, i->path) || (i->partner && is_named(o, i->partner));
}

bool ship_is_text(const char *bytes, size_t n) {
    return n <= SHOWN_MAX && !memchr(bytes, 0, n);
}

bool ship_read_here(const struct ship *s, const char *path, struct buf *to) {
    const char *name;
    char bytes[64 << 10];
    int parent DEFER_CLOSE = parcel_parent(s->dir, path, &name);
    int fd DEFER_CLOSE =
        parent < 0 ? -1 : openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    for (ssize_t n; fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) != 0;)
        if (n < 0 || !buf_add(to, bytes, (size_t)n))
            return false;
    return fd >= 0;
}

static bool is_changes(const struct ship *s) {
    return json_is_true(json_object_get(s->set, "changes_only"));
}

/* True if the target has this path. A change set of changes does not list untouched files. */
static bool is_here(const struct ship *s, const char *path) {
    const char *name;
    struct stat st;
    int parent DEFER_CLOSE = s->dir < 0 ? -1 : parcel_parent(s->dir, path, &name);
    return parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Refuses an --only path that matches nothing: a misspelled path would silently ship nothing. */
static int check_named(const struct ship *s, struct err *err) {
    const struct option_list *only = &s->options->only;
    for (size_t n = 0; n < only->count; n++) {
        bool found = false;
        for (size_t i = 0; i < s->parcel.count && !found; i++)
            found = is_below(s->parcel.items[i].path, only->items[n]);
        found = found || (is_changes(s) && is_here(s, only->items[n]));
        if (!found) {
            err_set(err, ERR_NOT_FOUND, "--only '%s': the path does not exist in change set %s",
                    only->items[n], client_text(s->set, "id"));
            return err_remedy(err, "write the path as the list shows it, without a leading ./");
        }
    }
    return 0;
}

static int choose(struct ship *s, struct err *err) {
    bool tainted = *client_text(s->set, "tainted");
    if (!s->among && check_named(s, err) < 0)
        return -1;
    for (size_t i = 0; i < s->parcel.count; i++) {
        struct parcel_item *item = &s->parcel.items[i];
        const char *hunks = hunks_of(s->options, item->path);
        item->wanted = !item->refused && item->change != '=' && is_chosen(s->options, item);
        if (tainted && item->change != 'D')
            item->flags |= FLAG_TAINTED;
        if (hunks && item->wanted && ship_take_hunks(s, item, hunks, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- steps of files ---- */

/* Converts a time such as "2026-01-01T00:00:00.000Z" to seconds since 1970, rounded up. */
static int64_t seconds_of(const char *text) {
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    return end ? (int64_t)timegm(&tm) + (*end == '.') : 0;
}

/*
 * Finds for each file the first step after its modification time. The machine can set that time, so
 * the step is only a hint. It is left out if the machine or its steps no longer exist.
 */
static void find_steps(struct ship *s) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    json_t *answer DEFER(json_decrefp) = NULL, *step;
    struct err err;
    size_t k;
    if (client_target(target, &err, "/v1/machines/%s/steps?limit=500",
                      client_text(s->set, "machine")) < 0 ||
        client_call_again(s->client, &r, &answer, &err) < 0)
        return;
    for (size_t i = 0; i < s->parcel.count; i++) {
        struct parcel_item *item = &s->parcel.items[i];
        json_array_foreach(json_object_get(answer, "steps"), k, step) { /* newest first */
            if (item->change == '=' || item->change == 'D' ||
                seconds_of(client_text(step, "created")) < item->mtime)
                break;
            item->step = (uint64_t)client_number(step, "number");
        }
    }
}

/* ---- shipping ---- */

int ship_note(struct ship *s, const struct ship_words *w, long long *ret_record, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(3 * DELIVER_NOW_MAX);
    struct jot j = JOT(&body);
    json_t *answer DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "action", w->action);
    jot_string(&j, "target", s->target);
    jot_string(&j, "sha256", w->hash);
    jot_u64(&j, "files", (uint64_t)w->files);
    if (w->intent)
        jot_u64(&j, "intent", (uint64_t)w->intent);
    if (w->now)
        jot_string(&j, "now", w->now);
    jot_end(&j, '}');
    /* A retry may send the record twice. That is harmless, but a missing record is not. */
    if (client_target(target, err, "/v1/changesets/%s/ship", client_text(s->set, "id")) < 0 ||
        client_call_again(s->client, &r, &answer, err) < 0)
        return -1;
    *ret_record = client_number(answer, "record");
    return 0;
}

static int note_shipped(void *arg, const struct delivered *what, struct err *err) {
    const struct ship_words words = {.action = "shipped",
                                     .hash = what->files_sha256,
                                     .now = what->now,
                                     .files = what->count,
                                     .intent = what->record};
    struct ship *s = arg;
    long long after;
    if (ship_note(s, &words, &after, err) == 0)
        return 0;
    err_wrap(err, "%ld file%s shipped to '%s', but not yet recorded in the journal", what->count,
             what->count == 1 ? " was" : "s were", s->target);
    return err_remedy(err, "repeat the command to finish: carrel ship -y %s %s",
                      client_text(s->set, "id"), s->target);
}

static void say_left(void *arg, const char *path, const char *kept) {
    struct ship *s = arg;
    s->left++;
    fputs("carrel: '", stderr);
    safe_name(stderr, path);
    fputs("' changed after the review: your file is kept", stderr);
    if (kept)
        fprintf(stderr, ", the machine's file is kept as %s/.carrel-ship-%s/%s", s->target,
                client_text(s->set, "id"), kept);
    fputs("; review the changes again\n", stderr);
}

/* The journal gets a record before the first file is moved, and one after the last. */
static long let_out(struct ship *s, struct err *err) {
    char hash[SHA256_HEX], receipt[DELIVER_NAME];
    long long record;
    const char *id = client_text(s->set, "id");
    long count = delivery_hash(&s->parcel, hash);
    if (!count)
        return 0;
    const struct ship_words words = {.action = "ship", .hash = hash, .files = count};
    if (ship_note(s, &words, &record, err) < 0)
        return -1;
    const struct delivery d = {.dir = s->dir,
                               .id = id,
                               .record = record,
                               .machine = client_text(s->set, "machine"),
                               .archive = client_text(s->set, "sha256"),
                               .files_sha256 = hash};
    if (deliver(&d, &s->parcel, receipt, err) < 0 ||
        (count = deliver_finish(s->dir, id, note_shipped, say_left, s, err)) < 0)
        return -1;
    if (!s->options->json)
        printf("%ld file%s shipped to %s; receipt %s/.carrel-ship-%s/%s, journal record "
               "%lld\nto undo it: carrel ship --undo %s %s\n",
               count, count == 1 ? "" : "s", s->target, s->target, id, receipt, record, id,
               s->target);
    return count;
}

/* Finishes an interrupted shipment of this change set, before its files are compared. */
static int finish_before(struct ship *s, struct err *err) {
    const char *id = client_text(s->set, "id");
    long count = s->options->yes && s->dir >= 0
                     ? deliver_finish(s->dir, id, note_shipped, say_left, s, err)
                     : 0;
    if (count > 0 && !s->options->json)
        printf("%ld file%s of an interrupted shipment %s now in place\n", count,
               count == 1 ? "" : "s", count == 1 ? "is" : "are");
    return count < 0 ? -1 : 0;
}

/* If the owner's file differs, keeps it and stores the machine's version beside the receipt
 * (record of the shipment). */
static int keep_aside(struct ship *s, struct err *err) {
    const char *id = client_text(s->set, "id");
    for (size_t i = 0; i < s->parcel.count; i++) {
        const struct parcel_item *item = &s->parcel.items[i];
        char name[DELIVER_NAME];
        if (!item->differs || item->kind != TAR_FILE || !is_chosen(s->options, item))
            continue;
        if (deliver_aside(s->dir, id, item, name, err) < 0)
            return -1;
        if (s->options->json)
            continue;
        fputs("the machine's ", stdout);
        safe_name(stdout, item->path);
        printf(" is kept as %s/.carrel-ship-%s/%s\n", s->target, id, name);
    }
    return 0;
}

static int ship_take_back(struct ship *s, const char *id, struct err *err) {
    char hash[SHA256_HEX] = "";
    long kept = 0;
    long long record, after;
    const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct buf now DEFER(buf_done) = BUF(DELIVER_NOW_MAX);
    const struct ship_words before = {.action = "undo", .hash = zeros};
    if (ship_find_set(s, id, err) < 0 || ship_db_check(s, err) < 0 ||
        ship_note(s, &before, &record, err) < 0)
        return -1;
    long count = deliver_undo(s->dir, id, &kept, hash, &now, err);
    const struct ship_words words = {
        .action = "undone", .hash = hash, .now = now.data, .files = count, .intent = record};
    if (count < 0)
        return -1;
    if (ship_note(s, &words, &after, err) < 0) {
        err_wrap(err, "%ld changes were undone in '%s', but not recorded in the journal", count,
                 s->target);
        return err_remedy(
            err, "journal record %lld says that the undo began; no record says that it ended",
            record);
    }
    printf("%ld undone", count);
    if (kept)
        printf(", %ld changed since then and kept", kept);
    putchar('\n');
    return kept ? 1 : 0;
}

/* ---- the command ---- */

/* Returns the paths of files that are unchanged since the image, as keys of an object. */
static json_t *image_files(const json_t *set) {
    json_t *paths = json_object(), *path;
    size_t i;
    json_array_foreach(json_object_get(set, "image_files"), i, path) {
        if (json_is_string(path))
            json_object_set_new(paths, json_string_value(path), json_true());
    }
    return paths;
}

static bool is_image_file(const void *paths, const char *path) {
    return json_object_get(paths, path);
}

static int open_set(struct ship *s, const char *what, struct err *err) {
    char *archive = NULL;
    size_t size = 0;
    if (ship_find_set(s, what, err) < 0 || finish_before(s, err) < 0 || fetch_base(s, err) < 0 ||
        ship_db_prepare(s, err) < 0 || ship_fetch(s, &archive, &size, err) < 0)
        return -1;
    json_t *paths DEFER(json_decrefp) = image_files(s->set);
    const struct parcel_side side = {.base = &s->base,
                                     .since_ms = client_number(s->set, "machine_ms"),
                                     .mirror = s->options->mirror && !s->database,
                                     .changes_only = is_changes(s),
                                     .is_image = is_image_file,
                                     .arg = paths};
    if (parcel_open(&s->parcel, archive, size, s->dir, &side, err) < 0)
        return -1;
    ship_db_judge(s);
    return 0;
}

static void say_how(const struct ship *s, size_t wanted, size_t refused) {
    const char *id = client_text(s->set, "id");
    printf("%zu change%s to ship%s: carrel ship -y %s %s\n", wanted, wanted == 1 ? "" : "s",
           refused ? ", the others are refused" : "", id, s->dir < 0 ? "DIRECTORY" : s->target);
}

static int show_and_ship(struct ship *s, const char *what, struct err *err) {
    size_t refused = 0, wanted = 0;
    if (open_set(s, what, err) < 0)
        return -1;
    if (choose(s, err) < 0 || (s->options->pick && ship_pick(s, err) < 0))
        return -1;
    if (is_changes(s) && s->parcel.is_elsewhere)
        fprintf(stderr,
                "carrel: change set %s has only what the machine changed, not the rest of "
                "the %s\n",
                client_text(s->set, "id"), s->options->volume ? "volume" : "granted directory");
    find_steps(s);
    for (size_t i = 0; i < s->parcel.count; i++) {
        const struct parcel_item *item = &s->parcel.items[i];
        refused += item->refused && item->change != '=';
        wanted += item->wanted;
        if (!s->options->json && (item->refused || item->change != '='))
            ship_show_item(s, item);
    }
    if (s->database && !s->options->json && !s->options->stat)
        db_show(s->database);
    long shipped = s->options->yes ? let_out(s, err) : 0;
    if (shipped < 0 || (s->options->yes && keep_aside(s, err) < 0))
        return -1;
    if (s->options->json)
        ship_show_json(s, shipped);
    else if (!s->options->yes && wanted)
        say_how(s, wanted, refused);
    else if (!wanted)
        puts("nothing to ship");
    return refused || s->left ? 1 : 0;
}

int ship_review(struct ship *s, const char *word, struct err *err) {
    int status = ship_repo(s, word, err);
    return status == 1 ? show_and_ship(s, word, err) : status;
}

static int words_of(int argc, char **argv, struct ship_options *o, char *words[2],
                    struct err *err) {
    int count = options_words(ship_rows, argc, argv, o, words, 2, err);
    if (count < 0)
        return -1;
    if (o->all && !o->list)
        return err_set(err, ERR_INVALID, "--all requires --ls");
    if (o->list && count > 1)
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", words[1]);
    if (o->target && (o->list || o->comment))
        return err_set(err, ERR_INVALID, "--target excludes --ls and --return");
    if (count || o->help || o->list)
        return 0;
    err_set(err, ERR_INVALID, "no machine given");
    return err_remedy(err, "use carrel ship MACHINE[:PATH] DIRECTORY");
}

int ship_open(struct ship *s, const char *dir, struct err *err) {
    const char *reviewed = s->options->target;
    char link[40];
    s->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", s->dir);
    ssize_t n = s->dir < 0 ? -1 : readlink(link, s->target, sizeof(s->target) - 1);
    if (n < 0)
        return err_sys(err, "cannot open directory '%s'", dir);
    s->target[n] = '\0';
    if (!reviewed || strcmp(reviewed, s->target) == 0)
        return 0;
    err_set(err, ERR_DENIED, "the directory is now '%s', but '%s' was reviewed", s->target,
            reviewed);
    return err_remedy(err, "review the changes again");
}

static int undo(struct ship *s, const char *id, struct err *err) {
    int status = ship_repo_undo(s, id, err);
    return status == 1 ? ship_take_back(s, id, err) : status;
}

/* Ships one slice (a granted directory, repository or database) to where it was granted from. */
static int ship_slice(const struct ship *like, const struct slice *slice, const char *word,
                      struct err *err) {
    struct ship s DEFER(ship_done) = {.options = like->options,
                                      .client = like->client,
                                      .dir = -1,
                                      .parcel = {.dir = -1},
                                      .among = like->among};
    if (!*slice->home && s.options->undo)
        return err_set(err, ERR_INVALID, "nothing to undo: the work in '%s' was never shipped",
                       word);
    if (!*slice->home && s.options->target)
        return err_set(err, ERR_INVALID, "--target: the work in '%s' has no directory", word);
    if (*slice->home && ship_open(&s, slice->home, err) < 0)
        return -1;
    return s.options->undo ? undo(&s, word, err) : ship_review(&s, word, err);
}

/* Handles a command without DIRECTORY: ships each grant to where it came from. */
static int ship_home(struct ship *like, const char *what, struct err *err) {
    struct slices *found DEFER_FREE = xnew(struct slices);
    char word[SLICE_WORD];
    int worst = 0;
    if (slices_find(like->client, what, found, err) < 0)
        return -1;
    like->among = found->count > 1;
    for (size_t i = 0; i < found->count; i++) {
        slice_word(&found->list[i], what, word);
        int status = ship_slice(like, &found->list[i], word, err);
        if (status < 0)
            return -1;
        worst = status > worst ? status : worst;
    }
    return worst;
}

/*
 * Adds a remedy if the daemon went away (ERR_UNKNOWN). Code that had changed files by then has
 * already set its own.
 */
static int ship_fail(const struct ship *s, struct err *err) {
    if (err->code == ERR_UNKNOWN && !err->remedy[0] && !s->options->comment)
        err_remedy(err, "nothing%s was %s: start the daemon (carrel serve), then ship again",
                   s->among ? " more" : "", s->options->undo ? "undone" : "shipped");
    return cli_fail(err);
}

/* --pick asks, and then ships the answers. */
static int check_pick(struct ship_options *o, struct err *err) {
    if (!o->pick)
        return 0;
    if (o->json || o->undo || o->comment)
        return err_set(err, ERR_INVALID, "--pick excludes --json, --undo and --return");
    if (!isatty(STDIN_FILENO)) {
        err_set(err, ERR_INVALID, "--pick requires a terminal");
        return err_remedy(err, "for scripts: carrel ship -y --only PATH or --hunk PATH:N");
    }
    o->yes = true;
    return 0;
}

int cmd_ship(int argc, char **argv) {
    struct ship_options o = {0};
    struct client c DEFER(client_close) = {0};
    struct ship s DEFER(ship_done) = {
        .options = &o, .client = &c, .dir = -1, .parcel = {.dir = -1}};
    char *words[2] = {0};
    struct err err;
    if (words_of(argc, argv, &o, words, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("ship");
        options_print(ship_rows);
        return 0;
    }
    int status = check_pick(&o, &err) < 0 ? -1 : client_open(&c, CLIENT_IF_MACHINES, NULL, &err);
    if (status < 0 && o.list && !words[0] && err.code == ERR_NOT_FOUND)
        status = ship_list_none(&s);
    else if (status == 0 && o.list)
        status = ship_list(&s, words[0], &err);
    else if (status == 0 && o.volume)
        status = ship_volume(&s, words[0], words[1], &err);
    else if (status == 0 && o.comment)
        status = ship_send_back(&s, words[0], &err);
    else if (status == 0 && !words[1])
        status = ship_home(&s, words[0], &err);
    else if (status == 0)
        status = ship_open(&s, words[1], &err) < 0 ? -1
                 : o.undo                          ? undo(&s, words[0], &err)
                                                   : ship_review(&s, words[0], &err);
    return status < 0 ? ship_fail(&s, &err) : status;
}
