/*
 * carrel-image unpack|tar|tar.zst|oci|packs|erofs|layer|backup [view|lent|sealed] [ids=FIRST]
 * [disk=BYTES] [as=ID] [on=ID] [uppers=COUNT] [layers=COUNT] [more=COUNT]: reads or writes one
 * archive, then exits.
 *
 * The spawner starts this program, never a person. Its descriptors: 0 the archive to unpack; 1 the
 * archive to write; 3 the directory of the image (root/, image.json; for unpack also spool/); 4 the
 * reports to the daemon. With `view`, 3 is the tree itself, and 5, if it is open, is the directory
 * to use as its /usr. With `sealed`, 5 is the tree of the image; with layers=COUNT, its layers are
 * from 5 on, topmost first. For erofs, 1 is an empty file, and
 * as=ID is the image id.
 *
 * For layer, which writes what a machine changed in an image, 3 is the tree of the machine, 5 that
 * of the image, and from 6 on COUNT layers of the machine, topmost first. For unpack with on=ID the
 * archive is a layer above that image, whose tree is 7. more=COUNT is the number of descriptors
 * from 5 on, or for unpack from 7 on: the last of them are locks, which this program only keeps
 * open. For backup, 0 is the
 * record of the backup before, or an empty file; with `lent`, 6 is the host's /usr, and from 7 on
 * are COUNT layers of the machine's /usr, topmost first: of /usr only what differs is written. For
 * unpack with on=host the archive is such a backup.
 */
#include <fcntl.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/background.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/jot.h"
#include "base/parse.h"
#include "image/apart.h"
#include "image/erofs.h"
#include "image/fit.h"
#include "image/jail.h"
#include "image/over.h"
#include "image/pack.h"
#include "image/reader.h"
#include "image/seal.h"
#include "image/to_packs.h"

enum { FD_DIR = 3, FD_REPORT = 4, FD_USR = 5, FD_TREE = 5, FD_BASE = 5, FD_UPPERS = 6 };
enum { FD_LENT = 6, FD_LENT_UPPERS = 7 };
enum { MORE_MAX = 256, THREADS_MAX = 8 };

struct work {
    const char *verb;
    bool view, lent, sealed;
    const char *id; /* image id, for erofs */
    const char *on; /* image that the archive is a layer above; NULL: none */
    uint64_t uppers, layers, more;
    struct image_ids ids;
    uint64_t disk; /* bytes that the image may take; 0: no limit */
    struct report report;
};

/* ---- unpack ---- */

/* Writes the image's configuration, and the ids, name and home of the user of its programs. */
static int main_describe(int root, int below, const struct image_config *c, struct buf *ret,
                         struct err *err) {
    struct image_user user;
    struct jot j = JOT(ret);
    struct buf own DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    if (image_user_find(root, below, c->user ? c->user : "", &user, err) < 0 ||
        image_config_print(c, &own, err) < 0)
        return -1;
    jot_object(&j, NULL);
    jot_raw(&j, "image", own.data);
    jot_u64(&j, "uid", user.uid);
    jot_u64(&j, "gid", user.gid);
    jot_string(&j, "name", user.name);
    jot_string(&j, "home", user.home);
    jot_end(&j, '}');
    return j.failed ? err_set(err, ERR_LIMIT, "the image's configuration is too large") : 0;
}

/* True if the layer contains only its top directory, as the image below has it. */
static bool changes_nothing(int root, int below, const struct seal *seal) {
    struct stat a, b;
    return seal->entries == 1 && fstat(root, &a) == 0 && fstat(below, &b) == 0 &&
           a.st_mode == b.st_mode && a.st_uid == b.st_uid && a.st_gid == b.st_gid &&
           a.st_mtim.tv_sec == b.st_mtim.tv_sec;
}

static int seal_tree(struct work *w, const char *text, size_t len, struct err *err) {
    struct image_config config DEFER(image_config_done) = {0};
    struct buf canonical DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    struct buf described DEFER(buf_done) = BUF(2 * CONFIG_BYTES_MAX);
    struct seal seal;
    int root DEFER_CLOSE = image_dir("root", err), below = -1;
    bool is_lent = w->on && strcmp(w->on, "host") == 0;
    if (w->on && !is_lent)
        below = APART_FD_BELOW;
    if (root < 0 || image_config_read(text, len, &config, err) < 0 ||
        image_config_print(&config, &canonical, err) < 0 ||
        (below >= 0 ? image_fit_layer(root, err) : image_fit(root, &w->ids, err)) < 0 ||
        main_describe(root, below, &config, &described, err) < 0 ||
        image_seal(root, w->ids, w->on, canonical.data, &w->report, &seal, err) < 0)
        return -1;
    report_image(&w->report, &(struct report_of_image){
                                 .id = seal.id,
                                 .config = described.data,
                                 .entries = seal.entries,
                                 .bytes = seal.bytes,
                                 .disk = seal.disk,
                                 .same = below >= 0 && changes_nothing(root, below, &seal)});
    return 0;
}

static int do_unpack(struct work *w, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CONFIG_BYTES_MAX + 1);
    struct reading r = {.ids = w->ids, .disk = w->disk, .is_layer = w->on != NULL};
    r.has_below = w->on && strcmp(w->on, "host") != 0;
    int last = APART_FD_BELOW + (w->more ? (int)w->more - 1 : 0);
    return apart_read(FD_DIR, last, &w->report, read_archive, &r, &text, err) < 0
               ? -1
               : seal_tree(w, text.data ? text.data : "", text.len, err);
}

/* ---- export and seal ---- */

static const struct {
    const char *verb;
    enum pack_form form;
} forms[] = {{"tar", PACK_TAR},
             {"tar.zst", PACK_TAR_ZST},
             {"oci", PACK_OCI},
             {"oci.zst", PACK_OCI_ZST},
             {"packs", PACK_PACKS}};

static int form_of(const char *verb) {
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++)
        if (strcmp(forms[i].verb, verb) == 0)
            return (int)forms[i].form;
    return -1;
}

/* Reads image.json, which contains the text that main_describe() wrote. */
static int load_config(struct image_config *ret, struct err *err) {
    char text[2 * CONFIG_BYTES_MAX];
    ssize_t n = read_file_at(AT_FDCWD, "image.json", text, sizeof(text));
    if (n < 0)
        return err_num(err, (int)n, "cannot read the image's configuration");
    json_error_t why;
    json_t *json = json_loadb(text, (size_t)n, 0, &why);
    char *own DEFER_FREE = json_dumps(json_object_get(json, "image"), JSON_COMPACT);
    json_decref(json);
    return own ? image_config_read(own, strlen(own), ret, err)
               : err_set(err, ERR_INTERNAL,
                         "image.json, the stored configuration of the image, is damaged");
}

/* Opens the tree of an image, or the view of a machine. */
static int open_root(const struct work *w, struct err *err) {
    return w->sealed ? FD_TREE : image_dir(w->view ? "." : "root", err);
}

/* One thread per processor that this process may use. More than 8 gain little and cost memory. */
static unsigned threads_allowed(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : CPU_COUNT(&set);
    return count < 1 ? 1 : count > THREADS_MAX ? THREADS_MAX : (unsigned)count;
}

static int do_pack(struct work *w, struct err *err) {
    struct image_config config DEFER(image_config_done) = {0};
    bool has_usr = w->view && fcntl(FD_USR, F_GETFD) >= 0;
    unsigned threads = threads_allowed();
    if (jail_enter_threads(FD_DIR, FD_REPORT + (int)w->more, false, err) < 0 ||
        (!w->view && load_config(&config, err) < 0))
        return -1;
    int layers[IMAGE_LAYERS_MAX];
    for (size_t i = 0; i < w->layers; i++)
        layers[i] = FD_TREE + (int)(w->layers - 1 - i);
    int root DEFER_CLOSE = open_root(w, err);
    if (root < 0)
        return -1;
    struct pack p = {.out = 1,
                     .layers = layers,
                     .layer_count = (size_t)w->layers,
                     .root = root,
                     .usr = has_usr ? FD_USR : -1,
                     .ids = w->ids,
                     .config = w->view ? NULL : &config,
                     .threads = threads,
                     .report = &w->report};
    if (image_pack(&p, (enum pack_form)form_of(w->verb), err) < 0)
        return -1;
    report_done(&w->report);
    return 0;
}

/* Writes what a machine changed in its image, as a tar with whiteouts. */
static int do_layer(struct work *w, struct err *err) {
    struct over over = {.base = FD_BASE,
                        .count = (size_t)w->uppers,
                        .marks = w->ids.shared ? "user.overlay." : "trusted.overlay."};
    for (size_t i = 0; i < over.count; i++)
        over.uppers[i] = FD_UPPERS + (int)i;
    if (jail_enter_reading(FD_DIR, FD_REPORT + (int)w->more, !w->ids.shared, err) < 0)
        return -1;
    int root DEFER_CLOSE = image_dir(".", err);
    struct pack p = {
        .out = 1, .root = root, .usr = -1, .ids = w->ids, .over = &over, .report = &w->report};
    if (root < 0 || image_pack(&p, PACK_TAR, err) < 0)
        return -1;
    report_done(&w->report);
    return 0;
}

/* Writes the files of a machine that changed since the backup before. */
static int do_backup(struct work *w, struct err *err) {
    struct backup made;
    bool has_usr = fcntl(FD_USR, F_GETFD) >= 0;
    unsigned threads = threads_allowed();
    const char *marks = w->ids.shared ? "user.overlay." : "trusted.overlay.";
    struct over usr = {.base = FD_LENT, .count = (size_t)w->uppers, .marks = marks};
    for (size_t i = 0; i < usr.count; i++)
        usr.uppers[i] = FD_LENT_UPPERS + (int)i;
    setpriority(PRIO_PROCESS, 0, BACKGROUND_NICE);
    if (jail_enter_threads(FD_DIR, FD_REPORT + (int)w->more, w->lent && !w->ids.shared, err) < 0)
        return -1;
    int root DEFER_CLOSE = image_dir(".", err);
    struct pack p = {.out = 1,
                     .root = root,
                     .over = w->lent ? &usr : NULL,
                     .usr = has_usr ? FD_USR : -1,
                     .ids = w->ids,
                     .threads = threads,
                     .report = &w->report};
    if (root < 0 || image_backup(&p, 0, &made, err) < 0)
        return -1;
    report_backup(&w->report, made.manifest, p.entries, p.bytes, made.read);
    return 0;
}

/* Nobody waits for this conversion, so it runs at low priority. */
static int do_erofs(struct work *w, struct err *err) {
    setpriority(PRIO_PROCESS, 0, BACKGROUND_NICE);
    if (jail_enter(FD_DIR, FD_REPORT, err) < 0)
        return -1;
    int root DEFER_CLOSE = open_root(w, err);
    if (root < 0 || image_erofs(1, root, w->ids, w->id, &w->report, err) < 0)
        return -1;
    report_done(&w->report);
    return 0;
}

static int main_read_words(int argc, char **argv, struct work *w) {
    if (argc < 2)
        return -1;
    w->verb = argv[1];
    for (int i = 2; i < argc; i++) {
        uint64_t first;
        if (strcmp(argv[i], "view") == 0)
            w->view = true;
        else if (strcmp(argv[i], "lent") == 0)
            w->lent = true;
        else if (strcmp(argv[i], "sealed") == 0)
            w->sealed = true;
        else if (strncmp(argv[i], "as=", 3) == 0 && image_id_valid(argv[i] + 3))
            w->id = argv[i] + 3;
        else if (strncmp(argv[i], "on=", 3) == 0 &&
                 (image_id_valid(argv[i] + 3) || strcmp(argv[i] + 3, "host") == 0))
            w->on = argv[i] + 3;
        else if (strncmp(argv[i], "uppers=", 7) == 0 &&
                 parse_u64(argv[i] + 7, 0, OVER_UPPERS_MAX, &w->uppers, NULL) == 0)
            ;
        else if (strncmp(argv[i], "layers=", 7) == 0 &&
                 parse_u64(argv[i] + 7, 0, IMAGE_LAYERS_MAX, &w->layers, NULL) == 0)
            ;
        else if (strncmp(argv[i], "more=", 5) == 0 &&
                 parse_u64(argv[i] + 5, 0, MORE_MAX, &w->more, NULL) == 0)
            ;
        else if (strncmp(argv[i], "ids=", 4) == 0 &&
                 parse_u64(argv[i] + 4, 1, UINT32_MAX - IMAGE_ID_MAX, &first, NULL) == 0)
            w->ids = (struct image_ids){true, (uint32_t)first};
        else if (strncmp(argv[i], "disk=", 5) == 0 &&
                 parse_u64(argv[i] + 5, 1, UINT64_MAX >> 2, &w->disk, NULL) == 0)
            ;
        else
            return -1;
    }
    bool known = strcmp(w->verb, "unpack") == 0 || strcmp(w->verb, "layer") == 0 ||
                 strcmp(w->verb, "backup") == 0 || form_of(w->verb) >= 0 ||
                 (strcmp(w->verb, "erofs") == 0 && w->id);
    return known ? 0 : -1;
}

int main(int argc, char **argv) {
    struct work w = {.report = {.fd = FD_REPORT}};
    struct err err;
    if (main_read_words(argc, argv, &w) < 0) {
        fputs("usage: carrel-image unpack|tar|tar.zst|oci|packs|erofs|layer|backup ...\n"
              "Only the spawner runs this program.\n",
              stderr);
        return 64;
    }
    /* libarchive reads names as UTF-8. Load the locale before the jail hides its files. */
    setlocale(LC_CTYPE, "C.UTF-8");
    signal(SIGPIPE, SIG_DFL); /* the daemon is gone: SIGPIPE ends this process */
    int r = strcmp(w.verb, "unpack") == 0   ? do_unpack(&w, &err)
            : strcmp(w.verb, "erofs") == 0  ? do_erofs(&w, &err)
            : strcmp(w.verb, "layer") == 0  ? do_layer(&w, &err)
            : strcmp(w.verb, "backup") == 0 ? do_backup(&w, &err)
                                            : do_pack(&w, &err);
    if (r < 0)
        report_error(&w.report, &err);
    return r < 0;
}
