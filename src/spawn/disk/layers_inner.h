/* Functions shared by src/spawn/disk/layers*.c. Only for those files. */
#pragma once

#include "base/fdio.h"
#include "spawn/disk/layers.h"
#include "spawn/spawner.h"

/* layers.c */
struct box *layers_holder(struct spawner *s, const char *machine, int *ret_disk);
int layers_clone_disk(struct spawner *s, const struct box *box, int disk, int *ret, int copies);
int layers_clone_named(struct spawner *s, const char *name, int *ret, int copies, struct err *err);
int layers_open_userns(const struct spawner *s, const struct box *box);
void layers_stack_clear(struct spawner *s, struct stack *stack);
int layers_prepare_disk(struct spawner *s, const struct stack *stack, int i, bool writable);
int layers_open_image(struct spawner *s, const struct box *box, struct image *old,
                      const struct image **ret, struct err *err);
void layers_image_closep(struct image *image);

/* layers_new.c */
int layers_list_disks(const struct layers *layers, const char *ret[LAYERS_DISKS_MAX], size_t *count,
                      struct err *err);
