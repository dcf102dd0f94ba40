/* Whether a disk stays fast: the same files are created and deleted four times. */
#include <inttypes.h>
#include <string.h>

#include "measures.h"

enum { ROUNDS = 4, OUT = 4096 };
#define DISK (4ull << 30) /* more than half the memory of a box, so not on tmpfs */

/* Lines of "churn NANOSECONDS". Returns how many there are. */
static int take_churn(const char *text, uint64_t ret[ROUNDS]) {
    int n = 0;
    while (n < ROUNDS && sscanf(text, "churn %" SCNu64, &ret[n]) == 1) {
        n++;
        text = strchr(text, '\n') + 1;
    }
    return n;
}

static void report_churn(struct bench *b, const uint64_t ns[ROUNDS]) {
    uint64_t slowest = ns[0];
    report_section(b->report, "20,000 files created and deleted, disk of 4 GB, cpu time");
    for (int i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "round %d", i + 1);
        report_figure(b->report, name, (double)ns[i] / 1e6, "ms");
        slowest = ns[i] > slowest ? ns[i] : slowest;
    }
    report_bar(b->report, "churn: slowest of four rounds / the first, cpu",
               (double)slowest / (double)ns[0], 1.3, "x");
}

int measure_churn(struct bench *b, struct err *err) {
    const char *const argv[] = {"/bench/box_work", "/tmp", b->quick ? "100" : "20000", NULL};
    const struct box_spec spec = {.grant = b->world.tools, .disk_bytes = DISK};
    struct box box = {.guest = NULL};
    struct guest_result result;
    uint64_t ns[ROUNDS];
    char text[OUT];
    int r = box_open(&box, b->world.link, &spec, err);
    if (r == 0)
        r = box_read(&box, 1, argv, text, sizeof(text), &result, err);
    if (box.guest && box_destroy(&box, b->world.link, err) < 0)
        r = -1;
    if (r == 0 && take_churn(text, ns) < ROUNDS)
        r = err_set(err, ERR_INTERNAL, "box_work printed fewer than %d rounds", ROUNDS);
    if (r == 0)
        report_churn(b, ns);
    return r;
}
