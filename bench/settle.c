#include "settle.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/wire/plan.h"
#include "io/spawn_link.h"
#include "stats.h"

enum { SETTLE_MS = 30000, TMPFS = 0x01021994 };

static uint64_t number_of(const char *json, const char *key) {
    const char *at = strstr(json, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
}

static bool pool_full(const char *json) {
    return number_of(json, "\"berths\":") == number_of(json, "\"berths_wanted\":") &&
           number_of(json, "\"ready\":") == number_of(json, "\"ready_wanted\":");
}

static bool settled(const char *json, enum settle what, unsigned boxes) {
    const char *which = what == SETTLE_REAPED ? "\"alive\":" : "\"boxes\":";
    return number_of(json, which) == boxes && (what != SETTLE_RESTED || pool_full(json));
}

int settle(int link, enum settle what, unsigned boxes, int (*go_on)(struct err *),
           struct err *err) {
    char json[PLAN_TEXT_SIZE];
    for (uint64_t end = now_ns() + SETTLE_MS * 1000000ull; now_ns() < end;) {
        if ((go_on && go_on(err) < 0) || spawn_status(link, json, sizeof(json), err) < 0)
            return -1;
        if (settled(json, what, boxes))
            return 0;
        usleep(4000); /* a request in less than 3 ms would keep the spawner from tidying up */
    }
    return err_set(err, ERR_TIMEOUT, "the spawner does not come to rest: %.180s", json);
}

void shuffle(unsigned *order, size_t n, uint64_t *seed) {
    for (size_t i = n; i > 1; i--) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        size_t k = (size_t)(*seed >> 33) % i;
        unsigned swap = order[i - 1];
        order[i - 1] = order[k];
        order[k] = swap;
    }
}

static bool run_is_tmpfs(void) {
    struct statfs fs;
    return statfs("/run", &fs) == 0 && fs.f_type == TMPFS;
}

void mount_run(void) {
    if (!run_is_tmpfs() && unshare(CLONE_NEWNS) == 0 &&
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
}

const char *run_base(void) {
    return run_is_tmpfs() ? "/run" : "/dev/shm";
}
