/*
 * Templates of E2B's clients. A template is an image of its owner, and its id is the name of the
 * image. A tag makes another name, NAME:TAG; the name alone is the tag "default".
 *
 * Clients list, tag and delete only templates that clients built, but may start a sandbox or a
 * template from any image of their owner.
 */
#pragma once

#include "api/e2b/inner.h"
#include "api/e2b/template_plan.h"
#include "base/image_id.h"
#include "io/loop.h"
#include "service/images/images.h"

#define TEMPLATE_DEFAULT_TAG "default"
enum { TEMPLATE_UUID_SIZE = 37, TEMPLATE_NAME_SIZE = IMAGE_NAME_SIZE };

/* ---- templates.c ---- */

/* A name that a client gave, NAME or NAME:TAG, in two parts. */
struct template_ref {
    char name[TEMPLATE_NAME_SIZE], tag[TEMPLATE_NAME_SIZE]; /* tag: "default" if not given */
};
int template_ref_read(const char *text, struct template_ref *ret, struct err *err);
/* Writes the name of the image that has the tag. -1: it is too long, or not valid. */
int template_image_name(const char *name, const char *tag, char ret[TEMPLATE_NAME_SIZE],
                        struct err *err);

/* The image that a sandbox or a template starts from. */
struct template_found {
    char image[TEMPLATE_NAME_SIZE];
    json_t *config;
    struct template_start start; /* texts in config */
    bool is_template;
};
void template_found_done(struct template_found *f);
/*
 * Finds the image of a template that a client names. Names that E2B's clients use for a base of
 * E2B's own are the image of carrel.conf, unless the owner has an image of that name.
 */
int template_find(struct e2b_call *c, const char *text, struct template_found *ret,
                  struct err *err);

void e2b_templates_list(struct e2b_call *c);
void e2b_template_show(struct e2b_call *c);
void e2b_template_alias(struct e2b_call *c);
void e2b_template_delete(struct e2b_call *c);
/* A build of an image by its id, in the form in which clients know builds. */
void template_image_uuid(const char *image, char ret[TEMPLATE_UUID_SIZE]);

/* ---- tags.c ---- */

extern const struct schema e2b_tags_schema, e2b_untag_schema;
void e2b_tags_list(struct e2b_call *c);
void e2b_tags_assign(struct e2b_call *c);
void e2b_tags_remove(struct e2b_call *c);
/* -1: an image has this name that no client built, and that no client may replace. */
int template_name_free(struct service *s, const struct caller *who, const char *image,
                       struct err *err);

/* ---- builds.c, build_views.c, files.c ---- */

struct e2b_templates *e2b_templates_new(struct loop *loop, struct service *service);
void e2b_templates_free(struct e2b_templates *t);

extern const struct schema e2b_build_schema, e2b_build_start_schema;
void e2b_build_request(struct e2b_call *c);
void e2b_build_start(struct e2b_call *c);
void e2b_build_status(struct e2b_call *c);
void e2b_build_logs(struct e2b_call *c);
void e2b_build_files(struct e2b_call *c);
/* The id by which clients know the build of an image. */
void e2b_build_uuid(const struct e2b_templates *t, const char *image, char ret[TEMPLATE_UUID_SIZE]);

#define E2B_UPLOADS "/e2b/uploads/"
/* PUT of files, at a path that e2b_build_files() gave out. False: the path is another one. */
bool e2b_upload_take(struct e2b_templates *t, struct http_exchange *x);

/* ---- start.c ---- */

/*
 * Runs the start command of a template in a new sandbox, and waits until its ready command
 * succeeds, at most TEMPLATE_READY_MS. `done` is called once, also if the sandbox ends meanwhile.
 */
enum { TEMPLATE_READY_MS = 20 * 1000 };
void template_start_run(struct e2b_call *c, const char *machine, const struct template_start *start,
                        loop_fn *done, void *arg);
