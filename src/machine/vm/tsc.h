/*
 * The rate of the processor's time-stamp counter. A vm cannot measure it reliably while the host is
 * busy, and then hangs, so its kernel gets the rate of the host.
 */
#pragma once

#include <stdint.h>

/* In kHz; 0: the processor has no such counter. Takes 10 ms. */
uint32_t tsc_khz(void);
