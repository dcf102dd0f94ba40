/* Trap texts of scalar instructions. Traps are compared by pointer, so each text exists once. */
#include "wasm/num.h"

const char num_trap_div_zero[] = "integer divide by zero";
const char num_trap_overflow[] = "integer overflow";
const char num_trap_conversion[] = "invalid conversion to integer";
