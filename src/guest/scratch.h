/*
 * Memory that an idle guest gives back.
 *
 * SCRATCH marks buffers that hold nothing between two turns of the event loop. The linker
 * (guest.ld) places them together, so that one call gives their pages back to the kernel. SPARSE
 * marks large tables of which few pages are used: they come last, so that everything else shares a
 * page table.
 */
#pragma once

#include "guest/guest.h"

#define SCRATCH __attribute__((section(".bss.scratch")))
#define SPARSE __attribute__((section(".bss.sparse"), aligned(SCRATCH_ALIGN)))

enum { SCRATCH_ALIGN = 64 << 10, SCRATCH_TEXT = 1 << 20 }; /* no page is larger than the first */

/* For a whole text file. A caller uses it until it returns, and nobody else meanwhile. */
extern char scratch_text[SCRATCH_TEXT];
void scratch_text_drop(void); /* gives its pages back at once */

/* How long nothing must have happened before the guest is idle. */
enum { SCRATCH_IDLE_MS = 1000 };

/*
 * Gives back the pages of all buffers that are empty, and of the unused part of the stack. Call it
 * from the event loop only, since functions further up may use these buffers.
 */
void scratch_drop(struct guest *g);
