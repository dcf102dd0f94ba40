#include "machine/machine.h"

void machine_free(struct machine *m) {
    if (m)
        m->driver->let_go(m);
}
