#include "service/net/flood.h"

uint64_t flood_take(struct flood *f) {
    uint64_t counted = f->counted;
    f->counted = 0;
    return counted;
}

bool flood_turn(struct flood *f, const struct flood_limit *limit, uint64_t now_ms,
                uint64_t *ret_counted) {
    if (now_ms - f->since_ms < limit->window_ms)
        return false;
    *ret_counted = flood_take(f);
    *f = (struct flood){.since_ms = now_ms};
    return true;
}

bool flood_admit(struct flood *f, const struct flood_limit *limit) {
    bool admitted = f->admitted < limit->most;
    f->admitted += admitted;
    f->counted += !admitted;
    return admitted;
}
