/*
 * Volumes of E2B's clients: volumes of the owner whose names begin with "e2b.". Clients neither see
 * nor change others, so a key needs no more rights for these than for sandboxes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/volumes/volumes.h"

#define OWN_PREFIX "e2b."
enum { PREFIX_LEN = sizeof(OWN_PREFIX) - 1, NAME_GIVEN_MAX = 60, PATH_MAX_BYTES = 4095 };

static struct caller volume_caller(const struct e2b_call *c) {
    struct caller who = c->who;
    who.has_volumes = true;
    return who;
}

static int name_check(const char *name, struct err *err) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n = strlen(name);
    if (n && n <= NAME_GIVEN_MAX && strspn(name, allowed) == n)
        return 0;
    err_set(err, ERR_INVALID, "'%.70s' is not a valid name of a volume", name);
    return err_remedy(err, "use at most %d letters, digits, '_' and '-'", NAME_GIVEN_MAX);
}

/* The name that clients know; NULL: the volume, or snapshot, is not theirs. */
static const char *client_name(const json_t *volume) {
    const char *name = json_string_value(json_object_get(volume, "name"));
    return name && strncmp(name, OWN_PREFIX, PREFIX_LEN) == 0 && !strchr(name, '@')
               ? name + PREFIX_LEN
               : NULL;
}

/* The id of clients is the id of the volume without the dash. */
static bool client_id(const json_t *volume, char ret[ID_LABEL_SIZE]) {
    const char *id = json_string_value(json_object_get(volume, "id"));
    bool ok = id && id_valid(id, strlen(id), 'v');
    if (ok)
        id_to_label(id, ret);
    return ok;
}

/* ---- answers ---- */

/* With the token for its files only in answers about one volume. */
static void put_volume(struct jot *j, const json_t *volume, const char *token) {
    char label[ID_LABEL_SIZE];
    if (!client_name(volume) || !client_id(volume, label))
        return;
    jot_object(j, NULL);
    jot_string(j, "volumeID", label);
    jot_string(j, "name", client_name(volume));
    if (token)
        jot_string(j, "token", token);
    jot_end(j, '}');
}

static void answer_volume(struct e2b_call *c, int status, const json_t *volume) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    const char *id = json_string_value(json_object_get(volume, "id"));
    char token[MACHINE_TOKEN_SIZE] = ""; /* of a key that may only read: none */
    struct err err;
    if (service_volume_token(c->service, &c->who, id ? id : "", token, &err) < 0 &&
        err.code != ERR_DENIED) {
        e2b_error(c, &err);
        return;
    }
    put_volume(&j, volume, token);
    e2b_answer(c, status, &text, NULL);
}

/* ---- list ---- */

static void volumes_came(void *arg, const char *text, const struct err *err) {
    struct e2b_call *c = arg;
    struct buf out DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&out);
    json_t *json DEFER(json_decrefp) = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *volume;
    size_t i;
    if (err) {
        e2b_error(c, err);
        return;
    }
    jot_array(&j, NULL);
    json_array_foreach(json_object_get(json, "volumes"), i, volume) {
        put_volume(&j, volume, NULL);
    }
    jot_end(&j, ']');
    e2b_answer(c, 200, &out, NULL);
}

void e2b_volumes(struct e2b_call *c) {
    service_volume_list(c->service, &c->who, volumes_came, c);
}

/* ---- one volume ---- */

/* The list, from which the volume of an id is taken. The service answers before it returns. */
struct finding {
    json_t *json;
    struct err err;
    bool failed;
};

static void finding_came(void *arg, const char *text, const struct err *err) {
    struct finding *f = arg;
    f->json = text ? json_loads(text, 0, NULL) : NULL;
    f->failed = err;
    if (err)
        f->err = *err;
}

/* A new reference to the volume that the parameter of the path names, or NULL. */
static json_t *volume_find(struct e2b_call *c, struct err *err) {
    struct finding f = {.json = NULL};
    char label[ID_LABEL_SIZE];
    json_t *volume, *found = NULL;
    size_t i;
    service_volume_list(c->service, &c->who, finding_came, &f);
    json_array_foreach(json_object_get(f.json, "volumes"), i, volume) {
        if (client_name(volume) && client_id(volume, label) && strcmp(label, c->param) == 0)
            found = json_incref(volume);
    }
    json_decref(f.json);
    if (f.failed)
        *err = f.err;
    else if (!found)
        err_set(err, ERR_NOT_FOUND, "volume '%.60s' not found", c->param);
    return found;
}

void e2b_volume_show(struct e2b_call *c) {
    struct err err;
    json_t *volume DEFER(json_decrefp) = volume_find(c, &err);
    if (volume)
        answer_volume(c, 200, volume);
    else
        e2b_error(c, &err);
}

static void volume_removed(void *arg, const char *text, const struct err *err) {
    struct e2b_call *c = arg;
    (void)text;
    if (err)
        e2b_error(c, err);
    else
        e2b_done(c);
}

void e2b_volume_delete(struct e2b_call *c) {
    const struct caller who = volume_caller(c);
    struct err err;
    json_t *volume DEFER(json_decrefp) = volume_find(c, &err);
    if (volume)
        service_volume_remove(c->service, &who, json_string_value(json_object_get(volume, "name")),
                              volume_removed, c);
    else
        e2b_error(c, &err);
}

/* ---- create ---- */

struct volume_body {
    const char *name;
};

static const struct field volume_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct volume_body, name), "name of the volume", .required = true,
     .max = 255},
};
const struct schema e2b_volume_schema = SCHEMA("E2bVolume", struct volume_body, volume_fields);

static void volume_made(void *arg, const char *text, const struct err *err) {
    struct e2b_call *c = arg;
    json_t *volume DEFER(json_decrefp) = text ? json_loads(text, 0, NULL) : NULL;
    if (err)
        e2b_error(c, err);
    else
        answer_volume(c, 201, volume);
}

void e2b_volume_create(struct e2b_call *c) {
    const struct volume_body *body = c->request;
    const struct caller who = volume_caller(c);
    struct err err;
    if (name_check(body->name, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    char *name DEFER_FREE = xformat(OWN_PREFIX "%s", body->name);
    const struct volume_request r = {.name = name};
    service_volume_create(c->service, &who, &r, volume_made, c);
}

/* ---- volumes of a new sandbox ---- */

void e2b_mounts_done(struct e2b_mounts *m) {
    for (size_t i = 0; i < m->count; i++)
        free(m->names[i]);
    *m = (struct e2b_mounts){.count = 0};
}

static int mount_add(struct e2b_mounts *m, const json_t *mount, struct err *err) {
    const char *name = json_string_value(json_object_get(mount, "name"));
    const char *path = json_string_value(json_object_get(mount, "path"));
    if (!name || !path || path[0] != '/' || strlen(path) > PATH_MAX_BYTES)
        return err_set(err, ERR_INVALID,
                       "field 'volumeMounts' needs a name and an absolute path "
                       "for each volume");
    if (m->count == E2B_MOUNTS_MAX)
        return err_set(err, ERR_LIMIT, "field 'volumeMounts' has more than %d volumes",
                       E2B_MOUNTS_MAX);
    if (name_check(name, err) < 0)
        return -1;
    m->names[m->count] = xformat(OWN_PREFIX "%s", name);
    m->uses[m->count] = (struct volume_use_request){.name = m->names[m->count], .at = path};
    m->count++;
    return 0;
}

int e2b_mounts_read(const json_t *list, struct e2b_mounts *ret, struct err *err) {
    const json_t *mount;
    size_t i;
    if (list && !json_is_array(list))
        return err_set(err, ERR_INVALID, "field 'volumeMounts' must be a list");
    json_array_foreach(list, i, mount) {
        if (mount_add(ret, mount, err) < 0)
            return -1;
    }
    return 0;
}

void e2b_put_mounts(struct jot *j, const json_t *volumes) {
    const json_t *volume;
    size_t i;
    jot_array(j, "volumeMounts");
    json_array_foreach(volumes, i, volume) {
        const char *at = json_string_value(json_object_get(volume, "at"));
        if (!client_name(volume) || !at)
            continue;
        jot_object(j, NULL);
        jot_string(j, "name", client_name(volume));
        jot_string(j, "path", at);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}
