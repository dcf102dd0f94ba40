#include "spawn/disk/upkeep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/parse.h"
#include "spawn/disk/btrfs.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/merge.h"
#include "spawn/disk/saved.h"
#include "spawn/disk/wipe.h"
#include "spawn/spawner.h"

enum { KEEP_MAX = 4096 };

/* ---- deletion of layers ---- */

struct range {
    uint32_t first, last;
};

/* Parses a list of layer numbers and ranges, such as "3 7-9 12". */
static int parse_ranges(const char *text, struct range *ret, size_t *count, struct err *err) {
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (end == text || *count == KEEP_MAX)
            return err_set(
                err, ERR_INVALID,
                "the daemon's request is malformed: its list of layer numbers cannot be parsed");
        if (*end == '-') {
            text = end + 1;
            last = strtoul(text, &end, 10);
        }
        if (end == text || (*end && *end != ' ') || last < first || last > LAYER_NUMBER_MAX)
            return err_set(
                err, ERR_INVALID,
                "the daemon's request is malformed: its list of layer numbers cannot be parsed");
        ret[(*count)++] = (struct range){(uint32_t)first, (uint32_t)last};
        text = end + (*end == ' ');
    }
    return 0;
}

static bool in_ranges(const struct range *ranges, size_t count, uint32_t number) {
    for (size_t i = 0; i < count; i++)
        if (number >= ranges[i].first && number <= ranges[i].last)
            return true;
    return false;
}

/* Returns the layer number if `name` is the directory name of a layer, else 0. */
static uint32_t layer_number(const char *name) {
    uint64_t number;
    return parse_name(name, LAYER_NUMBER_MAX, &number) ? (uint32_t)number : 0;
}

/*
 * Returns the layer number if `name` is the directory name of an unfinished layer ("7.new"), else
 * 0.
 */
static uint32_t half_number(const char *name) {
    char number[16];
    size_t n = strspn(name, "0123456789");
    if (n >= sizeof(number) || strcmp(name + n, ".new") != 0)
        return 0;
    snprintf(number, sizeof(number), "%.*s", (int)n, name);
    return layer_number(number);
}

static bool is_used(const struct shed *plan, uint32_t number) {
    for (size_t i = 0; i < SHED_USED; i++)
        if (plan->used[i] == number)
            return true;
    return false;
}

/*
 * Moves a layer to the trash directory. If a full disk prevents creating that directory, the layer
 * is renamed to be the trash. If that fails too, a snapshot can still be destroyed at once.
 */
static int throw_one(int disk, const char *name) {
    int r = trash_put(disk, name, name);
    if (r == 0 || renameat(disk, name, disk, "trash") == 0)
        return 0;
    return btrfs_destroy(disk, name) == 0 ? 0 : r;
}

/*
 * Moves unused layers to the trash directory, which is deleted in the background. Returns the
 * number of moved layers, or -errno if none could be moved.
 */
static int throw_out(int disk, const struct shed *plan, const struct range *keep, size_t count) {
    DIR *d DEFER(dir_close) = dir_list(disk, ".");
    int thrown = 0, first = 0;
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        uint32_t number = layer_number(e->d_name);
        uint32_t half = plan->halves ? half_number(e->d_name) : 0;
        if ((!number && !half) || is_used(plan, number ? number : half) ||
            (number && in_ranges(keep, count, number)))
            continue;
        int r = throw_one(disk, e->d_name);
        thrown += r == 0;
        first = first ? first : r;
    }
    return thrown ? thrown : first;
}

/*
 * True if the trash directory exists: its layers are still to be deleted, also after an interrupted
 * earlier deletion.
 */
static bool has_trash(int disk) {
    return faccessat(disk, "trash", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void upkeep_resume(struct spawner *s, struct undertaker *u) {
    int saved DEFER_CLOSE = openat(s->maker.store, "saved", O_PATH | O_DIRECTORY | O_CLOEXEC);
    const int places[] = {s->store, saved};
    for (size_t i = 0; i < 2; i++)
        if (places[i] >= 0 && has_trash(places[i]))
            undertaker_wipe(u, places[i]);
}

int upkeep_shed(int disk, const struct shed *plan, struct undertaker *u, struct err *err) {
    static struct range keep[KEEP_MAX];
    size_t count = 0;
    if (parse_ranges(plan->keep, keep, &count, err) < 0)
        return -1;
    int r = throw_out(disk, plan, keep, count);
    if (r < 0)
        return err_num(err, r, "cannot delete unused layers of the disk");
    /*
     * If the undertaker (the process that deletes files) is busy or dies, the next request deletes
     * the rest.
     */
    if (has_trash(disk))
        undertaker_wipe(u, disk);
    return 0;
}

int upkeep_keep(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err) {
    struct box *box = layers_live_box(s, m->plan.id, err);
    if (!box)
        return -1;
    int disk DEFER_CLOSE = layers_own_disk(s, box);
    const struct shed plan = {.keep = m->text,
                              .used = {box->layer, box->next_layer, box->chores[CHORE_MERGE].number,
                                       box->chores[CHORE_COPY].number},
                              .halves = true};
    int r =
        disk < 0 ? err_num(err, disk, "cannot open its disk") : upkeep_shed(disk, &plan, u, err);
    m->type = PLAN_DONE;
    return r < 0 ? err_wrap(err, "machine '%s'", box->id) : 0;
}

/* ---- machine.json ---- */

/*
 * Replaces everything in machine.json from `,"grants":` on. The spawner wrote the file and escapes
 * quotes in strings, so this cannot match inside a string.
 */
static int exchange_tail(const char *old, const char *json, struct buf *ret) {
    const char *at = strstr(old, ",\"grants\":");
    if (!at || json[0] != '{')
        return -EINVAL;
    return buf_add(ret, old, (size_t)(at - old)) && buf_addf(ret, ",%s\n", json + 1) ? 0 : -EFBIG;
}

/*
 * Writes a new machine.json and renames it, so that a reader sees the complete old or the complete
 * new content.
 */
static int write_meta(int dir, const struct buf *text) {
    static const char name[] = "machine.json", beside[] = "machine.json.new";
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (unlinkat(dir, beside, 0) < 0 && errno != ENOENT)
        return -errno;
    int fd DEFER_CLOSE =
        openat(dir, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    int r = fd < 0 ? -errno : write_all(fd, text->data, text->len);
    if (r == 0 && (fchown(fd, st.st_uid, st.st_gid) < 0 || fchmod(fd, 0444) < 0 ||
                   renameat(dir, beside, dir, name) < 0))
        r = -errno;
    return r;
}

int upkeep_tell(struct spawner *s, struct plan_message *m, struct err *err) {
    enum { META_MAX = 65536 };
    struct buf text DEFER(buf_done) = BUF(META_MAX + PLAN_TEXT_SIZE);
    char *old DEFER_FREE = malloc(META_MAX);
    struct box *box = layers_live_box(s, m->plan.id, err);
    if (!box || !old)
        return box ? err_set(err, ERR_LIMIT,
                             "cannot write machine.json: the spawner is out of memory")
                   : -1;
    int dir DEFER_CLOSE = layers_own_meta(s, box), r = 0;
    ssize_t n = dir < 0 ? dir : read_file_at(dir, "machine.json", old, META_MAX);
    if (n >= 0)
        r = exchange_tail(old, m->text, &text);
    if (n >= 0 && r == 0)
        r = write_meta(dir, &text);
    if (n < 0 || r < 0)
        return err_num(err, n < 0 ? (int)n : r, "cannot write machine.json of machine '%s'",
                       box->id);
    m->type = PLAN_DONE;
    return 0;
}

/* ---- merging, and work of the undertaker ---- */

void chore_done(struct chore_state *c, const struct undertaker_word *word) {
    if (word->result < 0) {
        c->failed = c->number;
        c->error = word->result;
    } else {
        c->done = c->number;
        c->way = word->way;
        *(c->number == CHORE_SYNC_ONLY ? &c->synced : &c->copied) = word->generation;
    }
    c->number = 0;
}

int chore_ask(struct box *box, enum chore chore, uint32_t number, const char *what,
              struct err *err) {
    struct chore_state *c = &box->chores[chore];
    if (c->number)
        return err_set(err, ERR_BUSY, "cannot %s machine '%s': this is already in progress", what,
                       box->id);
    if (c->failed != number)
        return 0;
    c->failed = 0;
    if (c->error == -ELOOP) /* DEPTH_MAX of merge.c and duplicate.c */
        return err_set(err, ERR_LIMIT,
                       "cannot %s machine '%s': directories are nested more than 200 deep", what,
                       box->id);
    return err_num(err, c->error, "cannot %s machine '%s'", what, box->id);
}

static int plan_merge(const struct box *box, const struct plan_message *m, struct merge_plan *plan,
                      char ret_disk[ID_SIZE], struct err *err) {
    struct layers layers;
    if (layers_parse(m->plan.stack, &layers, err) < 0)
        return -1;
    const char *disk = layers.count ? layers.v[0].machine : box->id;
    plan->saved = saved_is_name(disk);
    for (size_t i = 0; i < layers.count; i++) {
        if (strcmp(layers.v[i].machine, plan->saved ? disk : box->id) != 0)
            return err_set(err, ERR_INVALID,
                           "the daemon's request to merge layers is malformed: it names layers of "
                           "another machine");
        plan->from[plan->count++] = layers.v[i].number;
    }
    plan->into = (uint32_t)m->layer;
    plan->home = m->type == PLAN_MERGE_HOME;
    if (plan->saved)
        snprintf(ret_disk, ID_SIZE, "%s", disk);
    if (plan->count < (plan->home ? 1 : 2) || (!plan->saved && plan->into <= box->layer))
        return err_set(err, ERR_INVALID,
                       "the daemon's request to merge layers is malformed: it must name two or "
                       "more layers and an unused layer number");
    return 0;
}

static int begin_merge(struct spawner *s, struct box *box, struct merge_plan *plan,
                       const char *name, struct undertaker *u, struct err *err) {
    int disk DEFER_CLOSE = plan->saved ? saved_open(s, name) : layers_own_disk(s, box);
    plan->disk = disk;
    int r = disk < 0 ? disk : merge_done(plan);
    if (r < 0)
        return err_num(err, r, "cannot merge layers of machine '%s'", box->id);
    if (r == 1)
        return 0;
    if (undertaker_merge(u, box->id, plan))
        box->chores[CHORE_MERGE].number = plan->into;
    return err_set(err, ERR_BUSY, "layers of machine '%s' are being merged", box->id);
}

int upkeep_merge(struct spawner *s, struct plan_message *m, struct undertaker *u, struct err *err) {
    struct box *box = layers_live_box(s, m->plan.id, err);
    struct merge_plan plan = {.userxattr = s->rootless, .disk = -1};
    char disk[ID_SIZE];
    if (!box || plan_merge(box, m, &plan, disk, err) < 0)
        return -1;
    if (chore_ask(box, CHORE_MERGE, plan.into, "merge layers of", err) < 0)
        return -1;
    return begin_merge(s, box, &plan, disk, u, err);
}
