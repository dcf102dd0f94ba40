/* The CPUs of boxes with a cpu limit: as many as the limit, those with the least load. */
#include "tests/unit/unit.h"

#include "spawn/cpus.h"

static struct cpu_loads loads;

static cpu_set_t set_of(unsigned first, unsigned count) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (unsigned i = first; i < first + count; i++)
        CPU_SET(i, &set);
    return set;
}

static cpu_set_t choose(const cpu_set_t *allowed, uint64_t cpu_milli, unsigned from) {
    cpu_set_t got;
    cpus_choose(&loads, allowed, cpu_milli, from, &got);
    return got;
}

static void a_box_gets_its_limit_rounded_up(void **state) {
    (void)state;
    static const struct {
        uint64_t milli;
        int want;
    } rows[] = {{0, 8},    {1, 1},    {10, 1},   {999, 1},  {1000, 1},        {1001, 2},
                {1500, 2}, {2000, 2}, {7001, 8}, {8000, 8}, {1024 * 1000, 8}, {UINT64_MAX, 8}};
    cpu_set_t allowed = set_of(4, 8);
    memset(&loads, 0, sizeof(loads));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        cpu_set_t got = choose(&allowed, rows[i].milli, 0), both;
        assert_int_equal(CPU_COUNT(&got), rows[i].want);
        CPU_AND(&both, &got, &allowed);
        assert_true(CPU_EQUAL(&both, &got)); /* none outside of what the spawner may use */
    }
}

static void the_cpus_with_the_least_load_are_chosen(void **state) {
    (void)state;
    cpu_set_t allowed = set_of(0, 4), want, got;
    memset(&loads, 0, sizeof(loads));
    /* four boxes of one cpu get one CPU each, wherever the search begins */
    for (unsigned i = 0; i < 4; i++) {
        got = choose(&allowed, 1000, 3);
        want = set_of((3 + i) % 4, 1);
        assert_true(CPU_EQUAL(&got, &want));
        cpu_loads_add(&loads, &got, 1000);
    }
    memset(&loads, 0, sizeof(loads));
    want = set_of(0, 2);
    cpu_loads_add(&loads, &want, 2000); /* 1.0 each */
    want = set_of(2, 1);
    cpu_loads_add(&loads, &want, 300);
    got = choose(&allowed, 2000, 0);
    want = set_of(2, 2);
    assert_true(CPU_EQUAL(&got, &want));
    got = choose(&allowed, 500, 0);
    want = set_of(3, 1);
    assert_true(CPU_EQUAL(&got, &want));
}

UNIT_MAIN(cmocka_unit_test(a_box_gets_its_limit_rounded_up),
          cmocka_unit_test(the_cpus_with_the_least_load_are_chosen))
