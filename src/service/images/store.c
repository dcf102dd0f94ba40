#include "service/exec/dumps.h"
#include "service/images/groups.h"
#include "service/images/inner.h"
#include "service/strays.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/fs/erofs.h"
#include "base/log.h"

enum {
    RECORD_MAX = 128 << 10,
    NAMES_MAX = 32 << 10, /* bytes of names of environment variables */
    ID_LAST = 65535,
    AGAIN_MS = 1000
};

int images_open(const struct service *s) {
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/images", s->place->home);
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int open_in_image(int images, const char *id, const char *name) {
    char path[IMAGE_ID_SIZE + 16];
    snprintf(path, sizeof(path), "%s/%s", id, name);
    return dir_open(images, path);
}

/*
 * A layer above another image has no presets if they are those of the image below. Its `root` has
 * only what the layer changed, so only the lowest layer is read itself.
 */
int image_open_presets(const struct service *s, const char *id) {
    struct image_below below;
    int images DEFER_CLOSE = images_open(s);
    int r = images < 0 ? images : image_below_read(images, id, &below);
    int dir = r < 0 ? r : open_in_image(images, id, "presets");
    for (size_t i = 0; r == 0 && dir < 0 && i < below.count; i++)
        dir = open_in_image(images, below.ids[i], "presets");
    if (r == 0 && dir < 0)
        dir = open_in_image(images, below.count ? below.ids[below.count - 1] : id, "root");
    return dir;
}

static bool layer_is_whole(int images, const char *id) {
    char path[IMAGE_ID_SIZE + 16];
    struct stat st;
    snprintf(path, sizeof(path), "%s/root", id);
    if (fstatat(images, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return S_ISDIR(st.st_mode);
    snprintf(path, sizeof(path), "%s/root.erofs", id);
    int file DEFER_CLOSE = openat(images, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return file >= 0 && erofs_file_is_ours(file, id);
}

bool image_is_whole(const struct service *s, const char *id) {
    struct image_below below;
    int images DEFER_CLOSE = images_open(s);
    bool whole =
        images >= 0 && image_below_read(images, id, &below) == 0 && layer_is_whole(images, id);
    for (size_t i = 0; whole && i < below.count; i++)
        whole = layer_is_whole(images, below.ids[i]);
    return whole;
}

bool image_is_step(const char *name) {
    return strncmp(name, "build:", 6) == 0;
}

/* ---- metadata of a tree: image.json ---- */

static json_t *read_record(const struct service *s, const char *id, struct err *err) {
    char path[IMAGE_ID_SIZE + 16], *text DEFER_FREE = malloc(RECORD_MAX);
    int images DEFER_CLOSE = images_open(s);
    snprintf(path, sizeof(path), "%s/image.json", id);
    ssize_t n = images < 0 || !text ? -ENOENT : read_file_at(images, path, text, RECORD_MAX);
    if (n < 0) {
        err_num(err, (int)n, "cannot read the metadata of image '%s'", id);
        return NULL;
    }
    json_t *json = json_loadb(text, (size_t)n, 0, NULL);
    if (!json)
        err_set(err, ERR_INTERNAL, "the metadata of image '%s' is damaged", id);
    return json;
}

json_t *image_record(const struct service *s, const char *id) {
    struct err err;
    return read_record(s, id, &err);
}

static uint32_t id_of(const json_t *json, const char *name) {
    json_int_t n = json_integer_value(json_object_get(json, name));
    return n >= 0 && n <= ID_LAST ? (uint32_t)n : ID_LAST;
}

static const char *text_or(const json_t *json, const char *name, const char *otherwise) {
    const char *text = json_string_value(json_object_get(json, name));
    return text && *text ? text : otherwise;
}

/*
 * Splits each variable "NAME=VALUE" of the configuration. The name is copied, the value points into
 * the JSON.
 */
static void config_load_env(struct image_config *c, const json_t *env) {
    size_t at, used = 0, count = 0;
    json_t *value;
    char *names = xmalloc(NAMES_MAX);
    c->pairs = xcalloc(2 * EXEC_ENV_MAX, sizeof(*c->pairs));
    json_array_foreach(env, at, value) {
        const char *pair = json_string_value(value), *eq = pair ? strchr(pair, '=') : NULL;
        size_t n = eq ? (size_t)(eq - pair) : 0;
        if (!n || used + n + 1 > NAMES_MAX || count + 2 > 2 * EXEC_ENV_MAX)
            continue;
        memcpy(names + used, pair, n);
        names[used + n] = '\0';
        c->pairs[count++] = names + used;
        c->pairs[count++] = eq + 1;
        used += n + 1;
    }
    c->names = names;
    c->defaults.env = (struct texts){c->pairs, count};
}

static struct image_config *config_ref(struct service *s, const char *id, struct err *err) {
    struct image_config *c = map_get(&s->images->configs, id);
    json_t *json = c ? NULL : read_record(s, id, err);
    if (c)
        c->refs++;
    if (c || !json)
        return c;
    c = xnew(struct image_config);
    *c = (struct image_config){
        .of = s->images, .refs = 1, .json = json, .image = json_object_get(json, "image")};
    snprintf(c->id, sizeof(c->id), "%s", id);
    c->defaults = (struct exec_defaults){.uid = id_of(json, "uid"),
                                         .gid = id_of(json, "gid"),
                                         .user = text_or(json, "name", "root"),
                                         .home = text_or(json, "home", "/"),
                                         .cwd = text_or(c->image, "workdir", "/")};
    config_load_env(c, json_object_get(c->image, "env"));
    map_put(&s->images->configs, c->id, c);
    return c;
}

static void config_unref(struct image_config *c) {
    if (--c->refs)
        return;
    if (c->of)
        map_take(&c->of->configs, c->id);
    json_decref(c->json);
    free(c->pairs);
    free(c->names);
    free(c);
}

/* Another owner may have the same image. Its names are not told. */
static void find_name(struct service *s, const char *owner, const char *id,
                      char ret[IMAGE_NAME_SIZE]) {
    struct image_row row;
    struct err err;
    if (store_image_find(s->store, owner, id, &row, &err) == 0)
        snprintf(ret, IMAGE_NAME_SIZE, "%s", row.name);
    else
        snprintf(ret, IMAGE_NAME_SIZE, "%.14s", id);
}

struct live_image *live_image_load(struct service *s, const char *owner, const char *id,
                                   struct err *err) {
    struct image_config *config = config_ref(s, id, err);
    if (!config)
        return NULL;
    struct live_image *i = xnew(struct live_image);
    i->config = config;
    find_name(s, owner, id, i->name);
    return i;
}

struct service_images *service_images_new(void) {
    struct service_images *i = xnew(struct service_images);
    return i;
}

void service_images_free(struct service_images *i) {
    struct image_config *c;
    for (size_t at = 0; (c = map_next(&i->configs, &at));)
        c->of = NULL;
    map_done(&i->configs);
    layer_knowns_done(i);
    builds_free(i);
    free(i);
}

const char *live_image_name(const struct live_image *i) {
    return i->name;
}

const struct exec_defaults *live_image_defaults(const struct live_image *i) {
    return &i->config->defaults;
}

void live_image_free(struct live_image *i) {
    if (!i)
        return;
    config_unref(i->config);
    free(i->made_stack);
    free(i);
}

/* ---- trees ---- */

void images_again(struct service *s) {
    s->images->again_ms = loop_now_ms(s->loop) + AGAIN_MS;
}

/* A box that is ending may still use the image, so its deletion is tried again later. */
static void wiped(void *arg, const struct err *err) {
    struct service *s = arg;
    if (err && err->code == ERR_BUSY)
        images_again(s);
    else if (err)
        log_line(LOG_WARN, "service", "delete an image: %s", err->text);
}

/* The deletion of a tree: of an unfinished one, or of an image above another one. */
struct wiping {
    struct service *service;
    char name[IMAGE_ID_SIZE]; /* the unfinished tree, or the image below; empty: not known */
};

/* When a layer is gone, the image below it may have no use either. */
static void layer_wiped(void *arg, const struct err *err) {
    struct wiping *w = arg;
    wiped(w->service, err);
    if (!err && w->name[0])
        image_release(w->service, w->name);
    else if (!err)
        images_again(w->service);
    free(w);
}

static void tree_wiped(void *arg, const struct err *err) {
    struct wiping *w = arg;
    int images DEFER_CLOSE = images_open(w->service);
    wiped(w->service, err);
    if (!err && faccessat(images, w->name, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        log_line(LOG_WARN, "service", "delete an unfinished image again: it is still there id=%s",
                 w->name);
        images_again(w->service);
    }
    free(w);
}

static struct wiping *wiping_new(struct service *s, const char *name) {
    struct wiping *w = xnew(struct wiping);
    w->service = s;
    snprintf(w->name, sizeof(w->name), "%s", name);
    return w;
}

void image_wipe(struct service *s, const char *name) {
    s->driver->wipe(s->host, name, tree_wiped, wiping_new(s, name));
}

void image_release(struct service *s, const char *id) {
    uint64_t uses = 1;
    struct err err;
    if (!image_id_valid(id))
        return;
    if (store_image_uses(s->store, id, &uses, &err) < 0)
        log_line(LOG_WARN, "service", "%s", err.text);
    if (uses || image_is_below(s, id)) {
        seal_rest(s, id);
        return;
    }
    dumps_forget(s, id);
    struct image_below below;
    int r = image_below_of(s, id, &below);
    if (r < 0 || below.count)
        s->driver->wipe(s->host, id, layer_wiped, wiping_new(s, r < 0 ? "" : below.ids[0]));
    else
        s->driver->wipe(s->host, id, wiped, s);
}

/*
 * Seals images that were imported under a kernel without erofs, or whose sealed file is incomplete.
 */
static void want_seals(struct service *s) {
    struct image_list list DEFER(image_list_done) = {0};
    struct err err;
    if (store_image_list(s->store, NULL, &list, &err) < 0)
        log_line(LOG_WARN, "service", "%s", err.text);
    for (size_t i = 0; i < list.count; i++)
        seal_want(s, list.rows[i].name, list.rows[i].id);
}

/* Deletes unfinished trees that no job has and, unless only_trees, images that nobody uses. */
static void release_all(struct service *s, bool only_trees) {
    DIR *d DEFER(dir_close) = dir_take(images_open(s));
    for (struct dirent *e; d && (e = readdir(d));)
        if (id_valid(e->d_name, strlen(e->d_name), 'n') && !image_job_has_tree(s, e->d_name))
            image_wipe(s, e->d_name);
        else if (!only_trees)
            image_release(s, e->d_name);
}

void images_sweep(struct service *s) {
    release_all(s, true);
    want_seals(s);
    s->images->again_ms = 1; /* images_look() deletes unused images once every box is known */
}

void images_look(struct service *s, uint64_t now) {
    if (!s->images->again_ms || now < s->images->again_ms || !strays_may_sweep(s))
        return;
    s->images->again_ms = 0;
    release_all(s, false);
}

/* ---- names ---- */

/* An image of such a name could not be reached: /v1/images/NAME is another route. */
static bool image_name_is_route(const char *name) {
    static const char *const routes[] = {"builds", "prune"};
    for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++)
        if (strcmp(name, routes[i]) == 0)
            return true;
    return false;
}

int image_name_check(const char *name, struct err *err) {
    if (image_name_is_route(name)) {
        err_set(err, ERR_INVALID, "an image cannot have the name '%s'", name);
        return err_remedy(err, "choose another name: /v1/images/%s is a route of the API", name);
    }
    if (image_name_ok(name))
        return 0;
    err_set(err, ERR_INVALID, "'%.60s' is not a valid image name", name);
    return err_remedy(err, "use letters, digits and ._-:, such as debian:bookworm");
}

int image_find(struct service *s, const struct caller *who, const char *ref, struct image_row *ret,
               struct err *err) {
    if (store_image_find(s->store, who->owner, ref, ret, err) == 0)
        return 0;
    return who->scopes & SCOPE_ADMIN && err->code == ERR_NOT_FOUND
               ? store_image_find(s->store, NULL, ref, ret, err)
               : -1;
}

static void tell_created(struct service *s, const struct image_row *row) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "image", row->id);
    jot_string(&j, "name", row->name);
    jot_string(&j, "origin", row->origin);
    jot_end(&j, '}');
    event_tell(s, row->owner, NULL, "image.created", j.failed ? NULL : text.data);
}

int image_name(struct service *s, const struct image_row *row, struct err *err) {
    struct image_row before;
    struct err none;
    bool replaced = store_image_find(s->store, row->owner, row->name, &before, &none) == 0 &&
                    strcmp(before.name, row->name) == 0;
    if (store_image_put(s->store, row, err) < 0)
        return -1;
    tell_created(s, row);
    if (replaced && strcmp(before.id, row->id) != 0)
        image_release(s, before.id);
    seal_want(s, row->name, row->id);
    return 0;
}

static bool is_file(const struct service *s, const char *id) {
    char path[PLACE_SIZE + IMAGE_ID_SIZE + 32];
    snprintf(path, sizeof(path), "%s/images/%s/root.erofs", s->place->home, id);
    return access(path, F_OK) == 0;
}

void image_view_of(struct service *s, const struct image_row *row, char **config,
                   struct image_view *ret) {
    struct err err;
    struct image_below below;
    json_t *json = read_record(s, row->id, &err);
    image_below_of(s, row->id, &below);
    free(*config);
    *config = json_dumps(json_object_get(json, "image"), JSON_COMPACT);
    json_decref(json);
    *ret = (struct image_view){.id = row->id,
                               .name = row->name,
                               .owner = row->owner,
                               .origin = row->origin,
                               .created_ms = (uint64_t)row->created_ms,
                               .bytes = row->bytes,
                               .entries = row->entries,
                               .stored = is_file(s, row->id) ? "erofs" : "directory",
                               .layers = 1 + below.count,
                               .config = *config ? *config : "{}"};
    if (store_image_machines(s->store, row->owner, row->id, &ret->machines, &err) < 0)
        log_line(LOG_WARN, "service", "%s", err.text);
}
