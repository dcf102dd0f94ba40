#include "store/images.h"

#include <string.h>

#include "store/store.h"

void image_list_done(struct image_list *list) {
    rows_free(&image_table, list->rows, list->count);
    *list = (struct image_list){0};
}

int store_image_put(struct store *s, const struct image_row *row, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_IMAGE_PUT, err) < 0 || query_bind(&q, &image_table, row, err) < 0)
        return -1;
    return query_run(&q, NULL, err);
}

static int find_all(struct store *s, const char *owner, const char *text, struct image_list *ret,
                    struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_IMAGE_FIND, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, text);
    query_u64(&q, 3, STORE_PAGE_MAX);
    return query_all(&q, &image_table, (void **)&ret->rows, &ret->count, err);
}

int store_image_find(struct store *s, const char *owner, const char *text, struct image_row *ret,
                     struct err *err) {
    struct image_list found DEFER(image_list_done) = {0};
    if (find_all(s, owner, text, &found, err) < 0)
        return -1;
    if (found.count == 0) {
        err_set(err, ERR_NOT_FOUND, "image '%.60s' does not exist", text);
        return err_remedy(err, "list images with `carrel image ls`");
    }
    bool by_name = strcmp(found.rows[0].name, text) == 0;
    for (size_t i = 1; i < found.count && !by_name; i++)
        if (strcmp(found.rows[i].id, found.rows[0].id) != 0)
            return err_set(err, ERR_INVALID, "'%.60s' matches several images: use a longer id",
                           text);
    *ret = found.rows[0];
    return 0;
}

int store_image_list(struct store *s, const char *owner, struct image_list *ret, struct err *err) {
    QUERY;
    *ret = (struct image_list){0};
    if (query_start(&q, s, STMT_IMAGE_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_u64(&q, 2, STORE_PAGE_MAX);
    return query_all(&q, &image_table, (void **)&ret->rows, &ret->count, err);
}

int store_image_delete(struct store *s, const char *owner, const char *name, struct err *err) {
    QUERY;
    size_t changed = 0;
    if (query_start(&q, s, STMT_IMAGE_DELETE, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "image '%.60s' does not exist", name);
}

static int images_count(struct store *s, enum statement id, const char *image, const char *owner,
                        uint64_t *ret, struct err *err) {
    QUERY;
    *ret = 0;
    if (query_start(&q, s, id, err) < 0)
        return -1;
    query_text(&q, 1, image);
    query_text(&q, 2, owner);
    if (query_step(&q, err) < 0)
        return -1;
    *ret = (uint64_t)sqlite3_column_int64(q.stmt, 0);
    return 0;
}

int store_image_totals(struct store *s, struct image_totals *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_IMAGE_TOTALS, err) < 0 || query_step(&q, err) < 0)
        return -1;
    *ret = (struct image_totals){
        .names = (uint64_t)sqlite3_column_int64(q.stmt, 0),
        .trees = (uint64_t)sqlite3_column_int64(q.stmt, 1),
        .bytes = (uint64_t)sqlite3_column_int64(q.stmt, 2),
    };
    return 0;
}

int store_image_uses(struct store *s, const char *id, uint64_t *ret, struct err *err) {
    return images_count(s, STMT_IMAGE_USES, id, NULL, ret, err);
}

int store_image_machines(struct store *s, const char *owner, const char *id, uint64_t *ret,
                         struct err *err) {
    return images_count(s, STMT_IMAGE_MACHINES, id, owner, ret, err);
}
