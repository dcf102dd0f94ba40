/*
 * carrel ship for repositories: git in the machine makes a bundle, which is frozen as a change set.
 * git on this host checks every object of the bundle in a temporary repository, and fetches one
 * branch from there. git on this host never opens a repository that a machine wrote.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/folder.h"
#include "base/id.h"
#include "base/sha256.h"
#include "cli/safe.h"
#include "cli/ship/commits_read.h"
#include "cli/ship/git.h"
#include "cli/ship/repo_pack.h"
#include "cli/ship/repo_pick.h"
#include "cli/ship/ship.h"
#include "cli/ship/ship_show.h"
#include "cli/ship/slices_find.h"
#include "cli/table.h"
#include "review/bundle.h"
#include "review/deliver.h"
#include "review/flags.h"

#define WORK "refs/heads/carrel" /* in quarantine: the commits that are shipped */

enum { COMMIT_SIZE = 128, RECEIPT_PATH = 4096, SMALL_PACK = 1 << 20 };

/* The temporary repository made from the bundle, and the branch that receives the commits. */
struct quarantine {
    char dir[64], repo[96]; /* paths of the directory and of the repository in it */
    char base[128], branch[128];
    char work[BUNDLE_HASH + 1], uncommitted[BUNDLE_HASH]; /* commits to ship, and left out; or "" */
    char objects[RECEIPT_PATH];                           /* of the owner's repository */
    char commit[COMMIT_SIZE], before[COMMIT_SIZE];        /* new and old commit of the branch */
    long commits;
    struct commits changes;
    struct commits rest; /* uncommitted changes that are left out */
};

static const struct parcel_item *frozen_file(const struct ship *s, const char *name) {
    for (size_t i = 0; i < s->parcel.count; i++) {
        const struct parcel_item *item = &s->parcel.items[i];
        if (strcmp(item->path, name) == 0 && item->kind == TAR_FILE && !item->refused)
            return item;
    }
    return NULL;
}

/* ---- on the host ---- */

static int write_synced(int fd, const char *bytes, size_t n) {
    int status = write_all(fd, bytes, n);
    return status < 0 ? status : fsync(fd) < 0 ? -errno : 0;
}

static int write_file(const char *path, const char *bytes, size_t n, struct err *err) {
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, bytes, n);
    return status < 0 ? err_num(err, status, "cannot write file '%s'", path) : 0;
}

static void quarantine_done(struct quarantine *q) {
    commits_done(&q->changes);
    commits_done(&q->rest);
    if (q->dir[0])
        git_temp_remove(q->dir);
}

/*
 * Makes a bare repository that uses the objects of the owner's repository, which the bundle leaves
 * out. `git init` would do the same with one more process.
 */
static int make_repo(const struct quarantine *q, struct err *err) {
    static const char *const dirs[] = {"", "/objects", "/objects/info", "/objects/pack", "/refs"};
    bool is_sha256 = strlen(q->base) == BUNDLE_HASH - 1;
    char format[96];
    snprintf(format, sizeof(format), "[core]\n\tbare = true\n\trepositoryformatversion = %s",
             is_sha256 ? "1\n[extensions]\n\tobjectFormat = sha256\n" : "0\n");
    const char *const files[][2] = {{"/HEAD", "ref: " WORK "\n"},
                                    {"/config", format},
                                    {"/objects/info/alternates", q->objects}};
    char path[160];
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
        snprintf(path, sizeof(path), "%s%s", q->repo, dirs[i]);
        if (mkdir(path, 0700) < 0)
            return err_sys(err, "cannot create directory '%s'", path);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        snprintf(path, sizeof(path), "%s%s", q->repo, files[i][0]);
        if (write_file(path, files[i][1], strlen(files[i][1]), err) < 0)
            return -1;
    }
    return 0;
}

static int fetch_from(const char *repo, const char *from, const char *refs, struct err *err) {
    const char *const words[] = {
        "-C", repo, "fetch", "-q", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head",
        from, refs, NULL};
    return git_run(words, -1, err);
}

/*
 * Stores the objects of the bundle. git checks each of them, and that what they refer to exists
 * (--strict); it would not check them if it fetched from the bundle. The repository is temporary,
 * so nothing is synced to the disk.
 */
static int take_objects(const struct quarantine *q, const struct bundle *b, struct err *err) {
    bool small = b->pack_size < SMALL_PACK; /* then more threads would only cost time */
    const char *const words[] = {"-c",         "core.fsync=none", "-C",
                                 q->repo,      "index-pack",      "--strict",
                                 "--fix-thin", "--stdin",         small ? "--threads=1" : NULL,
                                 NULL};
    int in DEFER_CLOSE = memfd_create("pack", MFD_CLOEXEC);
    int status = in < 0 ? -errno : write_all(in, b->pack, b->pack_size);
    if (status == 0 && lseek(in, 0, SEEK_SET) < 0)
        status = -errno;
    return status < 0 ? err_num(err, status, "cannot create a temporary file for git objects")
                      : git_feed(words, in, -1, err);
}

/* The bundle has no HEAD if the owner has that commit; then it is the parent of the uncommitted
 * changes. */
static int take_bundle(const struct ship *s, const struct parcel_item *item, struct quarantine *q,
                       struct err *err) {
    struct bundle b;
    char work[BUNDLE_HASH], rest[BUNDLE_HASH];
    if (!bundle_parse(item->bytes, item->n, &b))
        return err_set(err, ERR_INVALID, "the file is not a git bundle");
    bool head = bundle_find(&b, "HEAD", work), more = bundle_find(&b, REPO_UNCOMMITTED, rest);
    bool all = s->options->uncommitted && more;
    if (!head && !more)
        return err_set(err, ERR_INVALID, "the git bundle has no commit");
    snprintf(q->work, sizeof(q->work), "%s%s", head && !all ? work : rest, head || all ? "" : "^");
    snprintf(q->uncommitted, sizeof(q->uncommitted), "%s", more && !all ? rest : "");
    return take_objects(q, &b, err);
}

static int take_in(const struct ship *s, const struct parcel_item *item, struct quarantine *q,
                   struct err *err) {
    snprintf(q->repo, sizeof(q->repo), "%s/checked", q->dir);
    if (make_repo(q, err) < 0)
        return -1;
    if (take_bundle(s, item, q, err) < 0)
        return err_wrap(err, "the repository of the machine is refused");
    return 0;
}

/* Finds the present commit of the granted branch or tag `ref`, and where its objects are. */
static int find_base(const struct ship *s, const char *ref, struct quarantine *q, struct err *err) {
    char from[256];
    struct buf said DEFER(buf_done) = BUF(GIT_SAID_MAX);
    snprintf(from, sizeof(from), "%s^{commit}", ref);
    const char *const parse[] = {"-C",
                                 s->target,
                                 "rev-parse",
                                 "--path-format=absolute",
                                 "--git-common-dir",
                                 "--end-of-options",
                                 from,
                                 NULL};
    /* The first line is the directory, the last one the commit; some versions of git also print
     * --end-of-options. */
    const char *base =
        git_ask(parse, &said, err) == 0 && said.len ? strrchr(said.data, '\n') : NULL;
    if (!base)
        return err_set(err, ERR_NOT_FOUND, "branch or tag '%s' no longer exists in repository '%s'",
                       ref, s->target);
    snprintf(q->base, sizeof(q->base), "%s", base + 1);
    if (snprintf(q->objects, sizeof(q->objects), "%.*s/objects\n", (int)strcspn(said.data, "\n"),
                 said.data) >= (int)sizeof(q->objects))
        return err_set(err, ERR_LIMIT, "the path of repository '%s' is too long", s->target);
    return 0;
}

/*
 * True if the uncommitted changes are the only commit above the granted branch or tag, which is
 * the usual case. One question answers then what count_commits() and commits_read() would ask.
 */
static bool is_only_rest(const struct quarantine *q) {
    char range[300], expected[300];
    struct buf list DEFER(buf_done) = BUF(GIT_SAID_MAX);
    struct err none;
    snprintf(range, sizeof(range), "%s..%s", q->base, q->uncommitted);
    snprintf(expected, sizeof(expected), "%s %s", q->uncommitted, q->base);
    const char *const words[] = {"-C",  q->repo, "rev-list", "--parents", "--max-count=2",
                                 range, NULL};
    bool has_head = !strchr(q->work, '^'); /* see take_bundle() */
    return *q->uncommitted && !has_head && git_ask(words, &list, &none) == 0 && list.len &&
           strcmp(list.data, expected) == 0;
}

/* Counts the commits that the machine added to the granted branch or tag. */
static int count_commits(struct quarantine *q, struct err *err) {
    char range[300];
    struct buf count DEFER(buf_done) = BUF(GIT_SAID_MAX);
    snprintf(range, sizeof(range), "%s..%s", q->base, q->work);
    const char *const log[] = {"-C", q->repo, "rev-list", "--count", range, NULL};
    if (git_ask(log, &count, err) < 0)
        return -1;
    q->commits = strtol(count.data ? count.data : "0", NULL, 10);
    return 0;
}

static int open_quarantine(const struct ship *s, const struct parcel_item *bundle, const char *ref,
                           struct quarantine *q, struct err *err) {
    snprintf(q->dir, sizeof(q->dir), "/tmp/carrel-ship-XXXXXX");
    if (!mkdtemp(q->dir)) {
        q->dir[0] = '\0';
        return err_sys(err, "cannot create a temporary directory in /tmp");
    }
    unsigned more = *client_text(s->set, "tainted") ? FLAG_TAINTED : 0;
    if (find_base(s, ref, q, err) < 0 || take_in(s, bundle, q, err) < 0)
        return -1;
    if (is_only_rest(q))
        return commits_read(q->repo, q->base, q->uncommitted, true, more, &q->rest, err);
    if (count_commits(q, err) < 0 ||
        (*q->uncommitted &&
         commits_read(q->repo, q->work, q->uncommitted, false, more, &q->rest, err) < 0))
        return -1;
    return q->commits ? commits_read(q->repo, q->base, q->work, false, more, &q->changes, err) : 0;
}

static size_t hex_length(const char *bytes, size_t n) {
    size_t len = 0;
    while (len < n && strchr("0123456789abcdef", bytes[len]) && bytes[len])
        len++;
    return len;
}

/* True if the machine says that its HEAD is a commit of the granted branch or tag, and it is. */
static bool is_unchanged(const struct ship *s, struct quarantine *q) {
    const struct parcel_item *item = frozen_file(s, REPO_UNCHANGED);
    char head[COMMIT_SIZE];
    struct err none;
    size_t n = item ? hex_length(item->bytes, item->n) : 0;
    if (n < 40 || n > 64 || find_base(s, client_text(s->set, "ref"), q, &none) < 0)
        return false;
    snprintf(head, sizeof(head), "%.*s", (int)n, item->bytes);
    const char *const words[] = {"-C", s->target, "merge-base", "--is-ancestor",
                                 head, q->base,   NULL};
    return git_run(words, -1, &none) == 0;
}

/* Prints the output of git in full: a machine must not hide a change behind many others. */
static int print_of(const char *const *words, struct err *err) {
    int out DEFER_CLOSE = memfd_create("git", MFD_CLOEXEC);
    if (out < 0 || git_run(words, out, err) < 0)
        return out < 0 ? err_sys(err, "cannot create a temporary file for the output of git") : -1;
    off_t size = lseek(out, 0, SEEK_END);
    char *text = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, out, 0) : NULL;
    if (text == MAP_FAILED)
        return err_sys(err, "cannot read the output of git");
    if (text) {
        safe_text(stdout, text, (size_t)size - (text[size - 1] == '\n'));
        munmap(text, (size_t)size);
    }
    putchar('\n');
    return 0;
}

/* Shows the mode, in the form of git, only if it changed. */
static void show_file(const struct commits_file *f) {
    char flags[FLAGS_TEXT], size[16];
    flags_text(f->flags, flags);
    table_bytes((long long)f->size, size);
    printf("%c  ", f->change);
    safe_name(stdout, f->path);
    if (f->change != 'D')
        printf("  %s", size);
    if (f->before && f->after && f->before != f->after)
        printf("  mode %06o -> %06o", f->before, f->after);
    if (*flags)
        printf("  [%s]", flags);
    if (*flags_why(f->path))
        printf("  %s", flags_why(f->path));
    puts(f->change == 'C' ? "  in a commit before the last" : "");
}

/* A git command about the fetched commits. The arguments point to the texts beside them. */
struct repo_words {
    char range[300], since[300];
    const char *log[8], *diff[10];
};

/* A file above 1 MiB is shown without a diff, as for shipped directories. */
static void repo_words(const struct quarantine *q, struct repo_words *w) {
    const char *const log[] = {
        "-C", q->repo, "log", "--no-color", "--no-decorate", "--format=%h %an: %s", w->range};
    const char *const diff[] = {"-c",
                                "core.bigFileThreshold=1m",
                                "-C",
                                q->repo,
                                "diff",
                                "--no-color",
                                "--no-ext-diff",
                                "--no-textconv",
                                w->since};
    snprintf(w->range, sizeof(w->range), "%s..%s", q->base, q->work);
    snprintf(w->since, sizeof(w->since), "%s...%s", q->base, q->work);
    memcpy(w->log, log, sizeof(log));
    memcpy(w->diff, diff, sizeof(diff));
}

static int ship_repo_show(const struct ship *s, const struct quarantine *q, struct err *err) {
    struct repo_words words = {.log = {NULL}, .diff = {NULL}};
    repo_words(q, &words);
    if (print_of(words.log, err) < 0)
        return -1;
    for (size_t i = 0; i < q->changes.count; i++)
        show_file(&q->changes.files[i]);
    if (q->changes.cut)
        puts("... the rest of the files is not shown");
    return s->options->stat ? 0 : print_of(words.diff, err);
}

/* ---- receipt and journal ---- */

/* Receipts (records of shipments) are in the .git directory, not among the owner's files. A change
 * set can become several patches, so the receipt of a patch has a number; a branch has 0. */
static int receipt_path(const struct ship *s, const char *id, long long number, bool make,
                        char ret[RECEIPT_PATH], struct err *err) {
    const char *const words[] = {
        "-C", s->target, "rev-parse", "--path-format=absolute", "--git-common-dir", NULL};
    struct buf common DEFER(buf_done) = BUF(GIT_SAID_MAX);
    char dir[RECEIPT_PATH];
    if (git_ask(words, &common, err) < 0)
        return -1;
    if (snprintf(dir, sizeof(dir), "%s/carrel", common.data) + 64 > (int)sizeof(dir))
        return err_set(err, ERR_LIMIT, "the path of the repository is too long");
    int status = make ? folder_make(dir) : 0;
    if (status < 0)
        return err_num(err, status, "cannot create directory '%s'", dir);
    if (number)
        snprintf(ret, RECEIPT_PATH, "%.*s/receipt-%s-%lld.json", RECEIPT_PATH - 64, dir, id,
                 number);
    else
        snprintf(ret, RECEIPT_PATH, "%.*s/receipt-%s.json", RECEIPT_PATH - 64, dir, id);
    return 0;
}

/* Describes the branch or the patch as one file, for the receipt and the journal. */
static struct parcel_item item_of(const struct quarantine *q, const char *path, const char *hash) {
    struct parcel_item i = {
        .path = (char *)path, .change = q->before[0] ? 'M' : 'A', .wanted = true};
    snprintf(i.sha256, sizeof(i.sha256), "%s", hash);
    return i;
}

static int write_receipt(const struct ship *s, const struct quarantine *q,
                         const struct parcel_item *i, const char *list_hash, long long record,
                         const char *path, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(65536);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "changeset", client_text(s->set, "id"));
    jot_string(&j, "machine", client_text(s->set, "machine"));
    jot_string(&j, "archive_sha256", client_text(s->set, "sha256"));
    jot_string(&j, "files_sha256", list_hash);
    jot_u64(&j, "approver_uid", getuid());
    jot_u64(&j, "journal_record", (uint64_t)record);
    jot_string(&j, "commit", q->commit);
    jot_string(&j, "before", q->before);
    jot_array(&j, "files");
    jot_object(&j, NULL);
    jot_string(&j, "path", i->path);
    jot_bytes(&j, "change", &i->change, 1);
    jot_string(&j, "sha256", i->sha256);
    jot_end(&j, '}');
    jot_end(&j, ']');
    jot_end(&j, '}');
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the receipt of this shipment is too long");
    int status = fd < 0 ? -errno : write_synced(fd, text.data, text.len);
    if (status == 0)
        status = folder_sync_above(path);
    return status < 0 ? err_num(err, status, "cannot write receipt '%s'", path) : 0;
}

/* Finds the commit of a ref; empty if the ref does not exist. */
static void commit_of(const char *repo, const char *ref, char ret[COMMIT_SIZE]) {
    const char *const words[] = {"-C", repo, "rev-parse", "--verify", "-q", ref, NULL};
    struct buf text DEFER(buf_done) = BUF(GIT_SAID_MAX);
    struct err none;
    ret[0] = '\0';
    if (git_ask(words, &text, &none) == 0 && text.data)
        snprintf(ret, COMMIT_SIZE, "%s", text.data);
}

/* ---- shipping ---- */

static int make_branch(const struct ship *s, const struct quarantine *q, const char *ref,
                       struct err *err) {
    char refs[256];
    snprintf(refs, sizeof(refs), "+" WORK ":%s", ref);
    return fetch_from(s->target, q->repo, refs, err);
}

static int make_patch(const struct ship *s, const struct quarantine *q, struct err *err) {
    char range[300];
    struct buf text DEFER(buf_done) = BUF(64 << 20);
    snprintf(range, sizeof(range), "%s.." WORK, q->base);
    const char *const words[] = {"-C",       q->repo,          "format-patch", "--stdout",
                                 "--binary", "--no-signature", range,          NULL};
    if (git_ask(words, &text, err) < 0)
        return -1;
    if (!buf_add(&text, "\n", 1))
        return err_set(err, ERR_LIMIT, "the patch is larger than 64 MiB");
    int fd DEFER_CLOSE = open(s->options->patch, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_synced(fd, text.data, text.len);
    if (status == 0)
        status = folder_sync_above(s->options->patch);
    return status < 0 ? err_num(err, status, "cannot write patch '%s'", s->options->patch) : 0;
}

/* If an earlier attempt already moved the branch, the receipt has the old commit of the branch. */
static void before_first(const struct ship *s, const char *id, char ret[COMMIT_SIZE]) {
    char path[RECEIPT_PATH];
    struct err none;
    if (receipt_path(s, id, 0, false, path, &none) < 0)
        return;
    json_t *receipt DEFER(json_decrefp) = json_load_file(path, 0, NULL);
    if (receipt)
        snprintf(ret, COMMIT_SIZE, "%s", client_text(receipt, "before"));
}

/* Names the commits in the repository, because git fetches refs. */
static int set_work(const struct quarantine *q, struct err *err) {
    const char *const words[] = {"-C", q->repo, "update-ref", WORK, q->work, NULL};
    return git_run(words, -1, err);
}

/* Writes in this order: a journal record, the branch or patch, the receipt, a journal record. */
static int let_in(struct ship *s, struct quarantine *q, const char *hash, struct err *err) {
    char ref[160], list_hash[SHA256_HEX], receipt[RECEIPT_PATH];
    const char *id = client_text(s->set, "id"), *patch = s->options->patch;
    long long record, after;
    snprintf(ref, sizeof(ref), "refs/heads/%s", q->branch);
    if (set_work(q, err) < 0)
        return -1;
    commit_of(q->repo, WORK, q->commit);
    if (!patch)
        commit_of(s->target, ref, q->before);
    if (!patch && strcmp(q->before, q->commit) == 0)
        before_first(s, id, q->before);
    struct parcel_item item = item_of(q, patch ? patch : ref, hash);
    const struct parcel one = {.items = &item, .count = 1};
    delivery_hash(&one, list_hash);
    const struct ship_words before = {.action = "ship", .hash = list_hash, .files = 1};
    if (receipt_path(s, id, 0, true, receipt, err) < 0 || ship_note(s, &before, &record, err) < 0 ||
        (patch && receipt_path(s, id, record, false, receipt, err) < 0) ||
        (patch ? make_patch(s, q, err) : make_branch(s, q, ref, err)) < 0 ||
        write_receipt(s, q, &item, list_hash, record, receipt, err) < 0)
        return -1;
    const struct ship_words words = {
        .action = "shipped", .hash = list_hash, .files = 1, .intent = record};
    if (ship_note(s, &words, &after, err) < 0) {
        err_wrap(err, "%s '%s' was written, but this is not yet recorded in the journal",
                 patch ? "patch" : "branch", patch ? patch : q->branch);
        return patch ? err_remedy(err, "delete the patch file, then ship change set %s again", id)
                     : err_remedy(err, "repeat the command to finish: carrel ship -y %s %s", id,
                                  s->target);
    }
    if (!s->options->json)
        printf("%ld commit%s in %s%s of %s; receipt %s, journal record %lld\n", q->commits,
               q->commits == 1 ? "" : "s", patch ? "" : "branch ", patch ? patch : q->branch,
               s->target, receipt, record);
    if (!s->options->json && !patch)
        printf("to undo it: carrel ship --undo %s %s\n", id, s->target);
    return 0;
}

/* git refuses the undo if the branch has moved on from the shipped commit. */
int ship_repo_undo(struct ship *s, const char *id, struct err *err) {
    char path[RECEIPT_PATH];
    struct err none;
    if (!id_valid(id, strlen(id), 'c') || receipt_path(s, id, 0, false, path, &none) < 0)
        return 1;
    json_t *receipt DEFER(json_decrefp) = json_load_file(path, 0, NULL);
    const json_t *file = json_array_get(json_object_get(receipt, "files"), 0);
    const char *ref = client_text(file, "path"), *hash = client_text(receipt, "files_sha256"),
               *before = client_text(receipt, "before");
    if (strncmp(ref, "refs/heads/carrel/", 18) != 0)
        return 1;
    const char *const words[] = {"-C",
                                 s->target,
                                 "update-ref",
                                 *before ? ref : "-d",
                                 *before ? before : ref,
                                 client_text(receipt, "commit"),
                                 NULL};
    const struct ship_words first = {.action = "undo", .hash = hash};
    long long record, after;
    if (ship_find_set(s, id, err) < 0 || ship_note(s, &first, &record, err) < 0)
        return -1;
    if (git_run(words, -1, err) < 0)
        return err_wrap(err, "branch '%s' is no longer at the shipped commit", ref + 11);
    const struct ship_words last = {.action = "undone", .hash = hash, .files = 1, .intent = record};
    if (ship_note(s, &last, &after, err) < 0) {
        err_wrap(err, "branch '%s' is %s, but that is not recorded in the journal", ref + 11,
                 *before ? "restored" : "deleted");
        return err_remedy(
            err, "journal record %lld says that the undo began; no record says that it ended",
            record);
    }
    unlink(path);
    printf("branch %s is %s\n", ref + 11, *before ? "restored" : "deleted");
    return 0;
}

static void put_files(struct jot *j, const char *name, const struct commits *c) {
    jot_array(j, name);
    for (size_t i = 0; i < c->count; i++) {
        const struct commits_file *f = &c->files[i];
        char flags[FLAGS_TEXT];
        flags_text(f->flags, flags);
        jot_object(j, NULL);
        jot_string(j, "path", f->path);
        jot_bytes(j, "change", &f->change, 1);
        jot_u64(j, "size", f->size);
        jot_string(j, "flags", flags);
        if (*flags_why(f->path))
            jot_string(j, "why", flags_why(f->path));
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_output(struct jot *j, const char *name, const char *const *words) {
    struct buf text DEFER(buf_done) = BUF(SHOWN_DIFFS_MAX);
    struct err err;
    if (git_ask(words, &text, &err) == 0)
        jot_bytes(j, name, text.data ? text.data : "", text.len);
    else
        jot_bool(j, "diff_left_out", true);
}

/* What the commits are and change. git_ask() refuses an output that does not fit. */
static void put_commits(struct jot *j, const struct quarantine *q) {
    struct repo_words words = {.log = {NULL}, .diff = {NULL}};
    repo_words(q, &words);
    put_output(j, "log", words.log);
    put_output(j, "diff", words.diff);
}

static void show_json(const struct ship *s, const struct quarantine *q, bool shipped) {
    struct buf text DEFER(buf_done) = BUF(64 << 20);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "changeset", client_text(s->set, "id"));
    jot_string(&j, "machine", client_text(s->set, "machine"));
    jot_string(&j, "target", s->target);
    jot_string(&j, "slice", client_text(s->set, "slice"));
    jot_string(&j, "branch", q->branch);
    jot_i64(&j, "commits", q->commits);
    jot_bool(&j, "shipped", shipped);
    put_files(&j, "files", &q->changes);
    if (q->commits && !shipped && !s->options->stat && !s->options->pick)
        put_commits(&j, q);
    if (q->rest.count)
        put_files(&j, "uncommitted", &q->rest);
    jot_end(&j, '}');
    if (s->told)
        *s->told = j.failed ? json_object() : json_loads(text.data, 0, NULL);
    else
        safe_json_line(j.failed ? "{}" : text.data);
}

/* ---- the command ---- */

/* Finds the clone of the target in the machine; its path is empty if there is none. */
static int find_clone(struct ship *s, const char *machine, struct slice *ret, struct err *err) {
    struct slices *found DEFER_FREE = xnew(struct slices);
    ret->at[0] = '\0';
    if (slices_of(s->client, machine, found, err) < 0)
        return -1;
    for (size_t i = found->count; i-- > 0;)
        if (found->list[i].kind == SLICE_REPO && strcmp(found->list[i].home, s->target) == 0)
            *ret = found->list[i];
    return 0;
}

/* Names the branch "carrel/NAME", where NAME is the name or else the id of the machine. */
static void name_branch(const struct ship *s, char ret[128]) {
    const char *name = client_text(s->set, "machine_name");
    snprintf(ret, 128, "carrel/%s", *name ? name : client_text(s->set, "machine"));
}

static void say_how(const struct ship *s, const struct quarantine *q) {
    printf("%ld commit%s to ship: carrel ship -y %s%s %s\n", q->commits, q->commits == 1 ? "" : "s",
           s->options->uncommitted ? "--uncommitted " : "", client_text(s->set, "id"), s->target);
}

/* Lists the uncommitted changes, and tells how to ship them. */
static void offer_rest(const struct ship *s, const struct quarantine *q) {
    if (!q->rest.count)
        return;
    puts("uncommitted changes are not shipped:");
    for (size_t i = 0; i < q->rest.count; i++)
        show_file(&q->rest.files[i]);
    printf("to review and ship them too, as one more commit: carrel ship --uncommitted %s %s\n",
           client_text(s->set, "id"), s->target);
}

/* Asks what to ship, and makes one commit of it; sha256 receives its hash for the journal. */
static int pick_commits(const struct ship *s, struct quarantine *q, char sha256[SHA256_HEX],
                        struct err *err) {
    char commit[REPO_PICK_HASH];
    const struct repo_pick_from from = {.repo = q->repo,
                                        .base = q->base,
                                        .work = q->work,
                                        .machine = client_text(s->set, "machine"),
                                        .changes = &q->changes};
    if (repo_pick(&from, commit, err) < 0)
        return -1;
    q->commits = *commit ? 1 : 0;
    snprintf(q->work, sizeof(q->work), "%.*s", BUNDLE_HASH - 1, commit);
    sha256_hex(q->work, strlen(q->work), sha256);
    return 0;
}

static int ship_it(struct ship *s, struct err *err) {
    struct quarantine q DEFER(quarantine_done) = {.commits = 0};
    const struct parcel_side side = {.since_ms = 0};
    char *archive = NULL;
    size_t size = 0;
    name_branch(s, q.branch);
    if (ship_fetch(s, &archive, &size, err) < 0 ||
        parcel_open(&s->parcel, archive, size, -1, &side, err) < 0)
        return -1;
    const struct parcel_item *bundle = frozen_file(s, REPO_BUNDLE);
    if (!bundle && !is_unchanged(s, &q))
        return err_set(err, ERR_INVALID, "git in the machine made no bundle");
    if (bundle && open_quarantine(s, bundle, client_text(s->set, "ref"), &q, err) < 0)
        return -1;
    char picked[SHA256_HEX] = "";
    bool picks = q.commits && s->options->pick;
    if (picks && pick_commits(s, &q, picked, err) < 0)
        return -1;
    if (q.commits && !picks && !s->options->json && ship_repo_show(s, &q, err) < 0)
        return -1;
    bool ships = q.commits && s->options->yes;
    if (ships && let_in(s, &q, picks ? picked : bundle->sha256, err) < 0)
        return -1;
    if (s->options->json)
        show_json(s, &q, ships);
    else if (!q.commits && !q.rest.count)
        puts("nothing to ship");
    else if (q.commits && !ships)
        say_how(s, &q);
    if (!s->options->json)
        offer_rest(s, &q);
    return 0;
}

int ship_repo(struct ship *s, const char *word, struct err *err) {
    struct slice *clone DEFER_FREE = xnew(struct slice);
    bool frozen = id_valid(word, strlen(word), 'c');
    if (strchr(word, ':') || s->dir < 0)
        return 1;
    if (frozen && ship_find_set(s, word, err) < 0)
        return -1;
    if (frozen)
        return strcmp(client_text(s->set, "kind"), "repo") == 0 ? ship_it(s, err) : 1;
    if (find_clone(s, word, clone, err) < 0)
        return -1;
    if (!*clone->at)
        return 1;
    return repo_pack(s, word, clone, err) < 0 ? -1 : ship_it(s, err);
}
