#include "machine/machine.h"

bool machine_is_asked(const struct machine *m) {
    return m->calls || (m->guest && guest_is_asked(m->guest));
}

void machine_free(struct machine *m) {
    if (m)
        m->driver->let_go(m);
}
