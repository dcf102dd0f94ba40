/* Machines of one image share what its image.json says. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "service/images/inner.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

struct world {
    struct scratch dir;
    struct place place;
    struct service service;
};

static const char *const ids[] = {"i-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                  "i-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"};

static void put_image(const struct world *w, const char *id, const char *json) {
    char path[PLACE_SIZE + 200];
    snprintf(path, sizeof(path), "%s/images/%s", w->place.home, id);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/images/%s/image.json", w->place.home, id);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(json, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int world_new(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    char path[PLACE_SIZE + 16];
    w->dir = scratch_new();
    snprintf(w->place.home, sizeof(w->place.home), "%s", w->dir.path);
    snprintf(path, sizeof(path), "%s/images", w->dir.path);
    assert_int_equal(mkdir(path, 0700), 0);
    w->service = (struct service){.place = &w->place,
                                  .store = unit_store_of(w->dir.path, &unit_ann),
                                  .images = service_images_new()};
    put_image(w, ids[0], "{\"uid\":7,\"image\":{\"env\":[\"A=1\",\"no\",\"B=x=y\"]}}");
    put_image(w, ids[1], "{\"uid\":8}");
    *state = w;
    return 0;
}

static int world_free(void **state) {
    struct world *w = *state;
    store_close(w->service.store);
    scratch_done(&w->dir);
    free(w);
    return 0;
}

static struct live_image *load(struct world *w, int image) {
    struct err err;
    struct live_image *i = live_image_load(&w->service, "ann", ids[image], &err);
    assert_non_null(i);
    return i;
}

static void machines_of_one_image_share_its_configuration(void **state) {
    struct world *w = *state;
    struct live_image *first = load(w, 0), *second = load(w, 0), *other = load(w, 1);
    const struct exec_defaults *d = live_image_defaults(second);
    assert_ptr_equal(live_image_defaults(first), d);
    assert_ptr_not_equal(live_image_defaults(other), d);
    assert_int_equal(live_image_defaults(other)->uid, 8);
    live_image_free(first);
    assert_int_equal(d->uid, 7);
    assert_int_equal(d->env.count, 4);
    assert_string_equal(d->env.v[2], "B");
    assert_string_equal(d->env.v[3], "x=y");
    live_image_free(second);
    live_image_free(other);
    assert_int_equal(w->service.images->configs.count, 0);
    service_images_free(w->service.images);
}

static void an_image_may_outlive_the_service(void **state) {
    struct world *w = *state;
    struct live_image *i = load(w, 0);
    service_images_free(w->service.images);
    assert_int_equal(live_image_defaults(i)->uid, 7);
    live_image_free(i);
}

UNIT_MAIN(cmocka_unit_test_setup_teardown(machines_of_one_image_share_its_configuration, world_new,
                                          world_free),
          cmocka_unit_test_setup_teardown(an_image_may_outlive_the_service, world_new, world_free))
