/* Tags of templates: further names of their images. */
#include "api/e2b/templates.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"

enum { TAGS_GIVEN_MAX = 16, NAME_GIVEN_MAX = 255 };

struct tags_body {
    const char *target; /* NAME or NAME:TAG; NAME to remove tags */
    struct texts tags;
};

#define AT(member) offsetof(struct tags_body, member)
static const struct field tags_fields[] = {
    {"target", FIELD_TEXT, AT(target), "template", .required = true, .max = NAME_GIVEN_MAX},
    {"tags", FIELD_TEXTS, AT(tags), "tags", .required = true, .max = TAGS_GIVEN_MAX},
};
static const struct field untag_fields[] = {
    {"name", FIELD_TEXT, AT(target), "template", .required = true, .max = NAME_GIVEN_MAX},
    {"tags", FIELD_TEXTS, AT(tags), "tags", .required = true, .max = TAGS_GIVEN_MAX},
};
#undef AT
const struct schema e2b_tags_schema = SCHEMA("E2bTags", struct tags_body, tags_fields);
const struct schema e2b_untag_schema = SCHEMA("E2bUntag", struct tags_body, untag_fields);

/* What a call about the image of a template came to. */
struct tagging {
    char id[IMAGE_ID_SIZE];
    bool is_template;
    bool failed;
    struct err err;
};

static void tagging_came(void *arg, const struct image_view *view, const struct err *err) {
    struct tagging *t = arg;
    struct template_start start;
    json_t *config DEFER(json_decrefp) = view ? json_loads(view->config, 0, NULL) : NULL;
    t->failed |= err != NULL;
    if (err) {
        t->err = *err;
        return;
    }
    snprintf(t->id, sizeof(t->id), "%s", view->id);
    t->is_template = template_start_read(config, &start);
}

int template_name_free(struct service *s, const struct caller *who, const char *image,
                       struct err *err) {
    struct tagging t = {.failed = false};
    if (service_image_show(s, who, image, tagging_came, &t, err) < 0 || t.failed || t.is_template)
        return 0;
    err_set(err, ERR_EXISTS, "the image '%.60s' exists, and no client of E2B built it", image);
    return err_remedy(err, "use another name, or delete the image: carrel image rm %.60s", image);
}

/* The image of a tag, which must be of a template that a client built. */
static int tag_find(struct e2b_call *c, const struct template_ref *ref, struct tagging *ret,
                    struct err *err) {
    char image[TEMPLATE_NAME_SIZE];
    *ret = (struct tagging){.failed = false};
    if (template_image_name(ref->name, ref->tag, image, err) < 0)
        return -1;
    if (service_image_show(c->service, &c->who, image, tagging_came, ret, err) == 0 &&
        ret->is_template)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "template '%.60s' with the tag '%.60s' not found", ref->name,
                   ref->tag);
}

static int tags_check(const struct tags_body *r, const struct template_ref *ref, struct err *err) {
    char image[TEMPLATE_NAME_SIZE];
    if (!r->tags.count)
        return err_set(err, ERR_INVALID, "at least one tag is required");
    for (size_t i = 0; i < r->tags.count; i++)
        if (template_image_name(ref->name, r->tags.v[i], image, err) < 0)
            return -1;
    return 0;
}

/* service_image_tag() answers at once. */
static int tags_set(struct e2b_call *c, const struct template_ref *ref, struct tagging *t,
                    struct err *err) {
    const struct tags_body *r = c->request;
    char from[IMAGE_ID_SIZE], image[TEMPLATE_NAME_SIZE];
    memcpy(from, t->id, sizeof(from));
    for (size_t i = 0; i < r->tags.count; i++)
        if (template_image_name(ref->name, r->tags.v[i], image, err) < 0 ||
            template_name_free(c->service, &c->who, image, err) < 0)
            return -1;
    for (size_t i = 0; i < r->tags.count; i++) {
        if (template_image_name(ref->name, r->tags.v[i], image, err) < 0)
            return -1;
        service_image_tag(c->service, &c->who, from, image, tagging_came, t);
        if (t->failed) {
            *err = t->err;
            return -1;
        }
    }
    return 0;
}

void e2b_tags_assign(struct e2b_call *c) {
    const struct tags_body *r = c->request;
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    char uuid[TEMPLATE_UUID_SIZE];
    struct template_ref ref;
    struct tagging t;
    struct err err;
    if (template_ref_read(r->target, &ref, &err) < 0 || tags_check(r, &ref, &err) < 0 ||
        tag_find(c, &ref, &t, &err) < 0 || tags_set(c, &ref, &t, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    e2b_build_uuid(c->templates, t.id, uuid);
    jot_object(&j, NULL);
    jot_string(&j, "buildID", uuid);
    jot_array(&j, "tags");
    for (size_t i = 0; i < r->tags.count; i++)
        jot_string(&j, NULL, r->tags.v[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    e2b_answer(c, 201, &text, NULL);
}

/* ---- removal ---- */

static int untag_check(const struct tags_body *r, struct template_ref *ref, struct err *err) {
    if (strchr(r->target, ':'))
        return err_set(err, ERR_INVALID, "field 'name' must not have a tag; use the field 'tags'");
    if (template_ref_read(r->target, ref, err) < 0 || tags_check(r, ref, err) < 0)
        return -1;
    for (size_t i = 0; i < r->tags.count; i++)
        if (strcmp(r->tags.v[i], TEMPLATE_DEFAULT_TAG) == 0)
            return err_set(err, ERR_INVALID,
                           "the tag '" TEMPLATE_DEFAULT_TAG "' cannot be removed");
    return 0;
}

/* All tags must exist before the first one is removed. */
static int untag_all(struct e2b_call *c, struct template_ref *ref, bool removes, struct err *err) {
    const struct tags_body *r = c->request;
    for (size_t i = 0; i < r->tags.count; i++) {
        char image[TEMPLATE_NAME_SIZE];
        struct tagging t;
        snprintf(ref->tag, sizeof(ref->tag), "%s", r->tags.v[i]);
        if (tag_find(c, ref, &t, err) < 0 ||
            template_image_name(ref->name, ref->tag, image, err) < 0)
            return -1;
        if (removes)
            service_image_remove(c->service, &c->who, image, tagging_came, &t);
        if (t.failed) {
            *err = t.err;
            return -1;
        }
    }
    return 0;
}

void e2b_tags_remove(struct e2b_call *c) {
    struct template_ref ref;
    struct err err;
    if (untag_check(c->request, &ref, &err) < 0 || untag_all(c, &ref, false, &err) < 0 ||
        untag_all(c, &ref, true, &err) < 0)
        e2b_error(c, &err);
    else
        e2b_done(c);
}
