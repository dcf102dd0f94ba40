#include "gate/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The first addresses belong to the machine: 198.18.0.1 to a box, 198.18.0.0/30 to a vm. */
enum { FIRST = (198 << 8 | 18) };
#define FIRST_ADDRESS ((uint32_t)FIRST << 16 | 4)

void names_done(struct names *n) {
    for (size_t i = 0; n->names && i < NAMES_MAX; i++)
        free(n->names[i]);
    free(n->names);
    map_done(&n->numbers);
    *n = (struct names){.names = NULL};
}

/* The map holds the number plus one as a pointer, because the number 0 would be NULL. */
static void names_put(struct names *n, size_t number, const char *name) {
    if (!n->names)
        n->names = xcalloc(NAMES_MAX, sizeof(*n->names));
    if (n->names[number])
        map_take(&n->numbers, n->names[number]);
    free(n->names[number]);
    n->names[number] = xstrdup(name);
    map_put(&n->numbers, n->names[number], (void *)(uintptr_t)(number + 1));
}

bool names_has(const struct names *n, const char *name) {
    return map_get(&n->numbers, name) != NULL;
}

uint32_t names_address(struct names *n, const char *name) {
    uintptr_t known = (uintptr_t)map_get(&n->numbers, name);
    if (known)
        return FIRST_ADDRESS + (uint32_t)known - 1;
    size_t number = n->next;
    n->next = (number + 1) % NAMES_MAX;
    names_put(n, number, name);
    if (n->added)
        n->added(n->arg, (uint32_t)number, n->names[number]);
    return FIRST_ADDRESS + (uint32_t)number;
}

const char *names_find(const struct names *n, uint32_t address) {
    uint32_t number = address - FIRST_ADDRESS;
    return n->names && number < NAMES_MAX ? n->names[number] : NULL;
}

void names_restore(struct names *n, uint32_t number, const char *name) {
    char checked[NAME_SIZE];
    if (number < NAMES_MAX && name_read(name, strlen(name), checked) &&
        !map_get(&n->numbers, checked))
        names_put(n, number, checked);
}

void names_go_on(struct names *n, uint32_t newest) {
    n->next = (newest + 1) % NAMES_MAX;
}
