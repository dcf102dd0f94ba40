/* carrel image: lists, imports, exports, builds and deletes images. */
#include "cli/image/image.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "cli/cli.h"
#include "cli/image/arrange.h"
#include "cli/image/build_watch.h"
#include "cli/image/packs_dir.h"
#include "cli/layout.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/text/units.h"

enum { BLOCK = 256 << 10, WORDS_MAX = 16 };

struct image_options {
    const char *name, *oci, *packs, *tar, *file;
    struct option_list args, net;
    bool all, json, quiet, no_cache, detach, follow, insecure, zstd, help;
};

#define AT(member) offsetof(struct image_options, member)

const struct option_row image_rows[] = {
    {0, "name", "NAME", OPTION_TEXT, AT(name), "import, build, pull: name of the image"},
    {0, "oci", "DIR", OPTION_TEXT, AT(oci), "export: write an OCI layout to a new directory"},
    {0, "zstd", NULL, OPTION_FLAG, AT(zstd), "export: compress the layers of --oci with zstd"},
    {0, "packs", "DIR", OPTION_TEXT, AT(packs),
     "export: add the image to a directory of packs; import: read it there"},
    {0, "tar", "FILE", OPTION_TEXT, AT(tar),
     "export: write the image to a .tar or .tar.zst file; - is standard output"},
    {'f', "recipe", "FILE", OPTION_TEXT, AT(file),
     "build: the recipe or Dockerfile (default: recipe or Dockerfile in DIR)"},
    {0, "build-arg", "NAME=VALUE", OPTION_LIST, AT(args),
     "build: value of an ARG of the Dockerfile; may be repeated"},
    {0, "net", "TARGET[,local]", OPTION_LIST, AT(net),
     "build: host or preset (apt, pip, npm, cargo, go) that commands may reach; local: also at "
     "private addresses"},
    {0, "no-cache", NULL, OPTION_FLAG, AT(no_cache),
     "build: run every line of the recipe again, also those with a cached result"},
    {0, "detach", NULL, OPTION_FLAG, AT(detach),
     "build: print the id of the build and do not wait for it"},
    {0, "follow", NULL, OPTION_FLAG, AT(follow), "log: wait until the build has ended"},
    {0, "insecure", NULL, OPTION_FLAG, AT(insecure),
     "pull, push: use http, without encryption (the default only for this host)"},
    {'a', "all", NULL, OPTION_FLAG, AT(all), "ls: include the intermediate images of builds"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only ids, and no progress"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct words {
    const char *v[WORDS_MAX];
    size_t count;
};

/* ---- list, show, tag and delete images ---- */

static bool is_build_step(const json_t *image) {
    return strncmp(client_text(image, "name"), "build:", 6) == 0;
}

static void print_image(const json_t *image) {
    char size[16], age[16], id[20], machines[24];
    table_bytes(client_number(image, "bytes"), size);
    table_age(client_text(image, "created"), age);
    snprintf(id, sizeof(id), "%.14s", client_text(image, "id"));
    snprintf(machines, sizeof(machines), "%lld", client_number(image, "machines"));
    table_cell(client_text(image, "name"), 24);
    table_cell(id, 14);
    table_cell(size, 7);
    table_cell(age, 4);
    table_cell(machines, 8);
    table_cell(client_text(image, "origin"), 0);
    putchar('\n');
}

/* A list of the daemon, as a table. */
struct image_table {
    const char *target, *rows, *head;
    void (*print)(const json_t *row);
    bool (*is_extra)(const json_t *row); /* shown only with --all; NULL: none is */
};

static int print_table(struct client *c, const struct image_options *o, const struct image_table *t,
                       struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL, *row;
    const struct client_request r = {.method = "GET", .target = t->target};
    size_t i;
    if (client_call(c, &r, &answer, err) < 0)
        return -1;
    if (o->json) {
        print_json(answer);
        return 0;
    }
    if (!o->quiet)
        puts(t->head);
    json_array_foreach(json_object_get(answer, t->rows), i, row) {
        if (!o->all && t->is_extra && t->is_extra(row))
            continue;
        if (o->quiet)
            puts(client_text(row, "id"));
        else
            t->print(row);
    }
    return 0;
}

static int image_list(struct client *c, const struct image_options *o, const struct words *w,
                      struct err *err) {
    static const struct image_table images = {
        "/v1/images", "images",
        "NAME                      ID              SIZE     AGE   MACHINES  ORIGIN", print_image,
        is_build_step};
    (void)w;
    return print_table(c, o, &images, err);
}

static int about(struct client *c, const char *method, const char *name, json_t **ret,
                 struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = method, .target = target};
    return client_target(target, err, "/v1/images/%s", name) < 0 ? -1
                                                                 : client_call(c, &r, ret, err);
}

int image_show(struct client *c, const char *name, json_t **ret, struct err *err) {
    return about(c, "GET", name, ret, err);
}

static int image_cmd_show(struct client *c, const struct image_options *o, const struct words *w,
                          struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    if (about(c, "GET", w->v[0], &image, err) < 0)
        return -1;
    if (o->json)
        print_json(image);
    else
        units_print(image, 0);
    return 0;
}

static int remove_all(struct client *c, const struct image_options *o, const struct words *w,
                      struct err *err) {
    json_t *deleted DEFER(json_decrefp) = json_pack("{s:[]}", "images");
    for (size_t i = 0; i < w->count; i++) {
        json_t *image DEFER(json_decrefp) = NULL;
        if (about(c, "DELETE", w->v[i], &image, err) < 0)
            return -1;
        long long machines = client_number(image, "machines");
        json_array_append(json_object_get(deleted, "images"), image);
        if (!o->json && machines)
            printf("%s: name deleted; its files are kept while %lld machine%s them\n",
                   client_text(image, "name"), machines, machines == 1 ? " uses" : "s use");
        else
            cli_done(o->quiet || o->json, "deleted image '%s'", w->v[i]);
    }
    if (o->json)
        print_json(deleted);
    return 0;
}

static int prune(struct client *c, const struct image_options *o, const struct words *w,
                 struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "POST", .target = "/v1/images/prune"};
    char size[16];
    (void)w;
    if (client_call(c, &r, &answer, err) < 0)
        return -1;
    table_bytes(client_number(answer, "bytes"), size);
    if (o->json)
        print_json(answer);
    else
        printf("%lld intermediate images deleted (%s)\n", client_number(answer, "removed"), size);
    return 0;
}

/* ---- the package cache ---- */

static void print_packages(const json_t *answer, bool quiet) {
    size_t i;
    const json_t *package, *packages = json_object_get(answer, "packages");
    char size[16], limit[16];
    if (!quiet)
        puts("SIZE     URL");
    json_array_foreach(packages, i, package) {
        table_bytes(client_number(package, "bytes"), size);
        if (!quiet)
            table_cell(size, 7);
        table_cell(client_text(package, "url"), 0);
        putchar('\n');
    }
    table_bytes(client_number(answer, "bytes"), size);
    table_bytes(client_number(answer, "max_bytes"), limit);
    cli_done(quiet, "the package cache uses %s of %s", size, limit);
}

static int image_cache(struct client *c, const struct image_options *o, const struct words *w,
                       struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL;
    bool clears = strcmp(w->v[0], "clear") == 0;
    const struct client_request r = {.method = clears ? "DELETE" : "GET", .target = "/v1/packages"};
    char size[16];
    if (!clears && strcmp(w->v[0], "ls") != 0) {
        err_set(err, ERR_INVALID, "unknown subcommand 'cache %.40s'", w->v[0]);
        return err_remedy(err, "use `carrel image cache ls` or `carrel image cache clear`");
    }
    if (client_call(c, &r, &answer, err) < 0)
        return -1;
    if (o->json) {
        print_json(answer);
    } else if (clears) {
        table_bytes(client_number(answer, "bytes"), size);
        printf("%lld packages deleted (%s)\n", client_number(answer, "removed"), size);
    } else {
        print_packages(answer, o->quiet);
    }
    return 0;
}

/* ---- import and build ---- */

/* A request body that is being sent, with its progress. */
struct upload {
    struct client *client;
    struct progress progress;
};

static int image_put_bytes(void *arg, const void *bytes, size_t n, struct err *err) {
    struct upload *u = arg;
    progress_add(&u->progress, n);
    return n ? http_client_write(u->client->http, bytes, n, err) : 0;
}

static int upload_begin(struct upload *u, struct client *c, const struct upload_source *from,
                        const char *name, bool quiet, struct err *err) {
    char target[CLIENT_TARGET_SIZE] = "/v1/images";
    const struct client_request r = {.method = "POST", .target = target, .streamed = true};
    *u = (struct upload){c, progress_begin(from->what, from->size, quiet)};
    return client_query(target, "name", name, err) < 0 ||
                   client_query(target, "form", from->layered ? "layers" : NULL, err) < 0
               ? -1
               : client_send(c, c->http, &r, err);
}

static int upload_end(struct upload *u, json_t **ret, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    const struct http_head *head;
    progress_end(&u->progress);
    if (http_client_finish(u->client->http, err) < 0 ||
        client_answer(u->client->http, &head, err) < 0 ||
        http_client_collect(u->client->http, &text, err) < 0)
        return -1;
    *ret = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
    return *ret ? 0
                : err_set(err, ERR_INTERNAL,
                          "the daemon's answer to the import of an image is not JSON");
}

static int put_fd(struct upload *u, int fd, const char *what, struct err *err) {
    char *block DEFER_FREE = xmalloc(BLOCK);
    ssize_t n;
    while ((n = read(fd, block, BLOCK)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0 && image_put_bytes(u, block, (size_t)n, err) < 0)
            return -1;
    return n < 0 ? err_sys(err, "cannot read image archive '%s'", what) : 0;
}

int image_upload_from(struct client *c, const struct upload_source *from, const char *name,
                      bool quiet, json_t **ret, struct err *err) {
    struct upload u;
    return upload_begin(&u, c, from, name, quiet, err) < 0 ||
                   put_fd(&u, from->fd, from->what, err) < 0 ||
                   (from->is_complete && from->is_complete(from->arg, err) < 0)
               ? -1
               : upload_end(&u, ret, err);
}

int image_upload(struct client *c, int fd, const char *what, uint64_t size, const char *name,
                 bool quiet, json_t **ret, struct err *err) {
    const struct upload_source from = {.fd = fd, .what = what, .size = size};
    return image_upload_from(c, &from, name, quiet, ret, err);
}

/* Sends an OCI layout layer by layer. */
static int import_arranged(struct client *c, const struct image_options *o, const char *path,
                           const struct arranged *a, json_t **ret, struct err *err) {
    const struct upload_source from = {.what = path, .size = arranged_bytes(a), .layered = true};
    struct upload u;
    return upload_begin(&u, c, &from, o->name, o->quiet, err) < 0 ||
                   arranged_send(a, image_put_bytes, &u, err) < 0
               ? -1
               : upload_end(&u, ret, err);
}

static int import_layout(struct client *c, const struct image_options *o, const char *dir,
                         json_t **ret, struct err *err) {
    const struct upload_source from = {.what = dir};
    struct upload u;
    int fd DEFER_CLOSE = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct arranged *a DEFER(arranged_free) = fd < 0 ? NULL : arrange_open(fd, true);
    if (a)
        return import_arranged(c, o, dir, a, ret, err);
    return upload_begin(&u, c, &from, o->name, o->quiet, err) < 0 ||
                   layout_send(dir, image_put_bytes, &u, err) < 0
               ? -1
               : upload_end(&u, ret, err);
}

/* name: of the image in the directory; also its new name, unless --name says another one. */
static int import_packs(struct client *c, const struct image_options *o, const char *name,
                        json_t **ret, struct err *err) {
    const struct upload_source from = {.what = name};
    struct upload u;
    return upload_begin(&u, c, &from, o->name ? o->name : name, o->quiet, err) < 0 ||
                   packs_dir_send(o->packs, name, image_put_bytes, &u, err) < 0
               ? -1
               : upload_end(&u, ret, err);
}

static int print_made(const struct image_options *o, const json_t *image) {
    if (o->json)
        print_json(image);
    else
        printf("%s%s%s\n", o->quiet ? "" : client_text(image, "name"), o->quiet ? "" : " ",
               client_text(image, "id"));
    return 0;
}

static int import(struct client *c, const struct image_options *o, const struct words *w,
                  struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    const char *path = w->v[0];
    bool stream = strcmp(path, "-") == 0;
    struct stat st = {0};
    if (o->packs)
        return import_packs(c, o, path, &image, err) < 0 ? -1 : print_made(o, image);
    if (!stream && stat(path, &st) < 0)
        return err_sys(err, "cannot open image archive or OCI layout '%s'", path);
    int r;
    if (S_ISDIR(st.st_mode)) {
        r = import_layout(c, o, path, &image, err);
    } else {
        int fd DEFER_CLOSE =
            stream ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return err_sys(err, "cannot open image archive '%s'", path);
        struct arranged *a DEFER(arranged_free) = arrange_open(fd, false);
        r = a ? import_arranged(c, o, path, a, &image, err)
              : image_upload(c, fd, path, (uint64_t)st.st_size, o->name, o->quiet, &image, err);
    }
    return r < 0 ? -1 : print_made(o, image);
}

static int build(struct client *c, const struct image_options *o, const struct words *w,
                 struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    const struct build_options options = {
        .name = o->name,
        .file = o->file,
        .args = o->args.items,
        .arg_count = o->args.count,
        .net = o->net.items,
        .net_count = o->net.count,
        .quiet = o->quiet,
        .no_cache = o->no_cache,
        .detach = o->detach,
    };
    for (size_t i = 0; i < o->args.count; i++)
        if (!strchr(o->args.items[i], '='))
            return err_set(err, ERR_INVALID, "--build-arg %.60s: must be NAME=VALUE",
                           o->args.items[i]);
    if (image_build(c, w->v[0], &options, &image, err) < 0)
        return -1;
    if (!o->detach || o->json)
        return print_made(o, image);
    puts(client_text(image, "id"));
    return 0;
}

static int tag(struct client *c, const struct image_options *o, const struct words *w,
               struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&body);
    json_t *image DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "name", w->v[1]);
    jot_end(&j, '}');
    if (client_target(target, err, "/v1/images/%s/names", w->v[0]) < 0 ||
        client_call(c, &r, &image, err) < 0)
        return -1;
    return print_made(o, image);
}

/* ---- builds ---- */

static void print_build(const json_t *b) {
    char age[16], step[48];
    table_age(client_text(b, "started"), age);
    snprintf(step, sizeof(step), "%lld/%lld", client_number(b, "step"), client_number(b, "steps"));
    table_cell(client_text(b, "id"), 14);
    table_cell(client_text(b, "state"), 9);
    table_cell(step, 7);
    table_cell(age, 4);
    table_cell(client_text(b, "name"), 20);
    const char *error = client_text(b, "error");
    table_cell(*error ? error : client_text(b, "what"), 0);
    putchar('\n');
}

static int image_builds(struct client *c, const struct image_options *o, const struct words *w,
                        struct err *err) {
    static const struct image_table builds = {
        "/v1/images/builds", "builds",
        "ID              STATE      STEP     AGE   NAME                  NOW", print_build, NULL};
    (void)w;
    return print_table(c, o, &builds, err);
}

static int image_log(struct client *c, const struct image_options *o, const struct words *w,
                     struct err *err) {
    return build_log_print(c, w->v[0], o->follow, err);
}

static int image_cancel(struct client *c, const struct image_options *o, const struct words *w,
                        struct err *err) {
    json_t *b DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    if (client_target(target, err, "/v1/images/builds/%s", w->v[0]) < 0 ||
        client_call(c, &r, &b, err) < 0)
        return -1;
    if (o->json)
        print_json(b);
    bool ended = *client_text(b, "ended");
    cli_done(o->quiet || o->json, ended ? "build '%s' has ended (%s)" : "cancelled build '%s'",
             w->v[0], client_text(b, "state"));
    return 0;
}

/* ---- export ---- */

/* Where an exported image goes: a file, or a directory with an OCI layout. */
struct sink {
    int fd;
    struct layout_reader *layout; /* NULL: into fd */
    const char *what;
};

static int put_sink(struct sink *s, const void *bytes, size_t n, struct err *err) {
    if (s->layout)
        return layout_take(s->layout, bytes, n, err);
    int r = write_all(s->fd, bytes, n);
    return r < 0 ? err_num(err, r, "cannot write image archive '%s'", s->what) : 0;
}

static int download(struct client *c, const char *name, const char *form, bool quiet,
                    struct sink *to, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct progress p = progress_begin(name, 0, quiet);
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct http_head *head;
    const char *bytes;
    size_t n;
    int more;
    if (client_target(target, err, "/v1/images/%s/archive?form=%s", name, form) < 0 ||
        client_send(c, c->http, &r, err) < 0 || client_answer(c->http, &head, err) < 0)
        return -1;
    while ((more = http_client_read(c->http, &bytes, &n, err)) > 0) {
        if (put_sink(to, bytes, n, err) < 0)
            return -1;
        progress_add(&p, n);
    }
    progress_end(&p);
    return more;
}

int image_download(struct client *c, const char *name, const char *form, bool quiet, int fd,
                   const char *what, struct err *err) {
    struct sink to = {.fd = fd, .what = what};
    return download(c, name, form, quiet, &to, err);
}

/* The daemon is asked for the image first, so that a wrong name creates no directory. */
static int export_layout(struct client *c, const struct image_options *o, const char *name,
                         struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    struct layout_reader layout DEFER(layout_done) = {.dir = -1, .file = -1};
    struct sink to = {.fd = -1, .layout = &layout, .what = o->oci};
    return about(c, "GET", name, &image, err) < 0 || layout_open(&layout, o->oci, err) < 0 ||
                   download(c, name, o->zstd ? "oci.zst" : "oci", o->quiet, &to, err) < 0
               ? -1
               : layout_finish(&layout, err);
}

static int export_packs(struct client *c, const struct image_options *o, const char *name,
                        struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    struct packs_dir packs DEFER(packs_dir_done) = {.layout = {.dir = -1, .file = -1}};
    struct sink to = {.fd = -1, .layout = &packs.layout, .what = o->packs};
    return about(c, "GET", name, &image, err) < 0 ||
                   packs_dir_open(&packs, o->packs, client_text(image, "name"), err) < 0 ||
                   download(c, name, "packs", o->quiet, &to, err) < 0
               ? -1
               : packs_dir_finish(&packs, err);
}

static const char *form_of(const char *path) {
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".zst") == 0 ? "tar.zst" : "tar";
}

/* Writes the file under a temporary name, and renames it once it is complete. */
static int export_file(struct client *c, const struct image_options *o, const char *name,
                       struct err *err) {
    char aside[4096];
    struct sink to = {.fd = STDOUT_FILENO, .what = o->tar};
    if (strcmp(o->tar, "-") == 0)
        return download(c, name, "tar", o->quiet, &to, err);
    snprintf(aside, sizeof(aside), "%s.carrel-%d", o->tar, (int)getpid());
    int fd DEFER_CLOSE = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, "cannot create temporary file '%s'", aside);
    to.fd = fd;
    int r = download(c, name, form_of(o->tar), o->quiet, &to, err);
    if (r == 0 && rename(aside, o->tar) < 0)
        r = err_sys(err, "cannot write image archive '%s'", o->tar);
    if (r < 0)
        unlink(aside);
    return r;
}

static int export(struct client *c, const struct image_options *o, const struct words *w,
                  struct err *err) {
    const char *form = o->oci ? "oci" : o->packs ? "packs" : "tar";
    const char *to = o->oci ? o->oci : o->packs ? o->packs : o->tar;
    if (!!o->oci + !!o->packs + !!o->tar != 1) {
        err_set(err, ERR_INVALID,
                "carrel image export requires --oci DIR, --packs DIR or --tar FILE");
        return err_remedy(err, "use --tar FILE.tar, or FILE.tar.zst to compress it");
    }
    if (o->zstd && !o->oci) {
        err_set(err, ERR_INVALID, "--zstd works only with --oci DIR");
        return err_remedy(err, "use --tar FILE.tar.zst to compress a tar; packs are always "
                               "compressed");
    }
    if ((o->oci     ? export_layout(c, o, w->v[0], err)
         : o->packs ? export_packs(c, o, w->v[0], err)
                    : export_file(c, o, w->v[0], err)) < 0)
        return -1;
    json_t *told DEFER(json_decrefp) = json_pack("{s:s, s:s}", "image", w->v[0], form, to);
    if (o->json && strcmp(to, "-") != 0)
        print_json(told);
    cli_done(o->quiet || o->json, "wrote image '%s' to '%s'", w->v[0], to);
    return 0;
}

/* ---- registries ---- */

static int pull(struct client *c, const struct image_options *o, const struct words *w,
                struct err *err) {
    json_t *image DEFER(json_decrefp) = NULL;
    const struct registry_options from = {
        .reference = w->v[0], .name = o->name, .insecure = o->insecure, .quiet = o->quiet};
    return image_pull(c, &from, &image, err) < 0 ? -1 : print_made(o, image);
}

static int push(struct client *c, const struct image_options *o, const struct words *w,
                struct err *err) {
    json_t *told DEFER(json_decrefp) = NULL;
    const struct registry_options to = {
        .reference = w->v[1], .insecure = o->insecure, .quiet = o->quiet};
    if (image_push(c, w->v[0], &to, &told, err) < 0)
        return -1;
    if (o->json)
        print_json(told);
    cli_done(o->quiet || o->json, "pushed image '%s' to '%s' (%s)", w->v[0], w->v[1],
             client_text(told, "digest"));
    return 0;
}

/* ---- subcommands ---- */

static const struct {
    const char *name;
    size_t least, most;
    const char *what; /* names of its arguments, for errors */
    int (*run)(struct client *c, const struct image_options *o, const struct words *w,
               struct err *err);
} verbs[] = {
    {"ls", 0, 0, "", image_list},
    {"show", 1, 1, "image", image_cmd_show},
    {"rm", 1, WORDS_MAX, "image", remove_all},
    {"prune", 0, 0, "", prune},
    {"cache", 1, 1, "ls or clear", image_cache},
    {"import", 1, 1, "file", import},
    {"export", 1, 1, "image", export},
    {"build", 1, 1, "recipe, Dockerfile or directory", build},
    {"builds", 0, 0, "", image_builds},
    {"log", 1, 1, "build", image_log},
    {"cancel", 1, 1, "build", image_cancel},
    {"tag", 2, 2, "image and name", tag},
    {"pull", 1, 1, "name of an image in a registry", pull},
    {"push", 2, 2, "image, and its name in a registry", push},
};

static int run_verb(size_t i, const struct image_options *o, const struct words *w,
                    struct err *err) {
    struct client c DEFER(client_close) = {0};
    if (w->count > verbs[i].most)
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", w->v[verbs[i].most]);
    if (w->count < verbs[i].least) {
        err_set(err, ERR_INVALID, "missing argument: %s", verbs[i].what);
        return err_remedy(err, "see `carrel image --help`");
    }
    return client_open(&c, CLIENT_START, NULL, err) < 0 ? -1 : verbs[i].run(&c, o, w, err);
}

int cmd_image(int argc, char **argv) {
    struct image_options o = {0};
    struct words w = {.count = 0};
    struct err err = {0};
    char *words[1 + WORDS_MAX] = {NULL};
    int count = options_words(image_rows, argc, argv, &o, words, 1 + WORDS_MAX, &err);
    if (count < 0)
        return cli_fail(&err);
    const char *verb = count ? words[0] : "";
    for (int i = 1; i < count; i++)
        w.v[w.count++] = words[i];
    if (o.help) {
        cli_usage("image");
        options_print(image_rows);
        return 0;
    }
    for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
        if (strcmp(verbs[i].name, verb) == 0)
            return run_verb(i, &o, &w, &err) < 0 ? cli_fail(&err) : 0;
    cli_unknown_subcommand("image", verb, &err);
    return cli_fail(&err);
}
