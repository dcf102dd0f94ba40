#include "guest/scratch.h"

#include <sys/mman.h>
#include <unistd.h>

#include "guest/conn.h"
#include "guest/log.h"

/* From guest.ld. */
extern uint8_t scratch_start[], scratch_end[];

char scratch_text[SCRATCH_TEXT] SCRATCH __attribute__((aligned(SCRATCH_ALIGN)));

void scratch_text_drop(void) {
    madvise(scratch_text, sizeof(scratch_text), MADV_DONTNEED);
}

/* Pages below this function hold nothing, because the loop starts every function anew. */
static void stack_drop(void) {
    enum { OWN = 1024 }; /* what this function and madvise() need */
    size_t page = (size_t)getpagesize();
    uint8_t *here = __builtin_frame_address(0);
    uint8_t *end = here - OWN - (uintptr_t)(here - OWN) % page;
    uint8_t *start = guest_stack + (page - (uintptr_t)guest_stack % page) % page;
    if (here > guest_stack && here < guest_stack + GUEST_STACK && start < end)
        madvise(start, (size_t)(end - start), MADV_DONTNEED);
}

void scratch_drop(struct guest *g) {
    madvise(scratch_start, (size_t)(scratch_end - scratch_start), MADV_DONTNEED);
    if (g->cmd_end == 0)
        log_drop_spills();
    for (uint32_t i = 0; i < g->conn_end; i++)
        if (g->conns[i].src.fd >= 0)
            conn_drop_pages(&g->conns[i]);
    stack_drop();
}
