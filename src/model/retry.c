#include "model/retry.h"

#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/parse.h"

enum { DAY_MS = 86400000 };

static bool date_ms(const char *text, int64_t now_s, uint64_t *ret_ms) {
    struct tm tm = {0};
    const char *rest = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    time_t at = rest && !*rest ? timegm(&tm) : 0;
    if (at <= now_s)
        return false;
    *ret_ms = at - now_s > DAY_MS / 1000 ? DAY_MS : (uint64_t)(at - now_s) * 1000;
    return true;
}

static bool usable(uint64_t ms, uint64_t *ret_ms) {
    *ret_ms = ms < DAY_MS ? ms : DAY_MS;
    return ms > 0;
}

bool model_retry_after(const char *ms, const char *after, int64_t now_s, uint64_t *ret_ms) {
    uint64_t n;
    if (ms && parse_milli(ms, &n, NULL) == 0 && usable(n / 1000, ret_ms))
        return true;
    if (after && parse_milli(after, &n, NULL) == 0)
        return usable(n, ret_ms);
    return after && date_ms(after, now_s, ret_ms);
}

uint64_t model_back_off(unsigned attempt, uint64_t base_ms, uint32_t random) {
    uint64_t wait = base_ms;
    for (unsigned i = 1; i < attempt && wait < MODEL_WAIT_MAX_MS; i++)
        wait *= 2;
    if (wait > MODEL_WAIT_MAX_MS)
        wait = MODEL_WAIT_MAX_MS;
    return wait - wait / 4 * (random >> 8) / (UINT32_MAX >> 8);
}
