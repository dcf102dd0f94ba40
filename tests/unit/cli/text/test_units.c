#include "tests/unit/unit.h"

#include <string.h>

#include "cli/text/units.h"

static const char *shown(const char *name, json_t *value, const char *label) {
    static char text[UNITS_SIZE];
    char got[UNITS_SIZE];
    const char *found = units_value(name, value, text, got);
    assert_string_equal(got, label);
    json_decref(value);
    return found;
}

static void a_name_tells_the_unit(void **state) {
    (void)state;
    assert_string_equal(shown("idle_ms", json_integer(1800000), "idle"), "30m");
    assert_string_equal(shown("idle_ms", json_integer(0), "idle"), "none");
    assert_string_equal(shown("used_ms", json_integer(0), "used"), "never");
    assert_non_null(strstr(shown("created_ms", json_integer(1577934245678), "created"),
                           "2020-01-02 03:04:05 UTC ("));
    assert_string_equal(shown("max_ttl_ms", json_integer(315360000000), "max_ttl"), "3650d");
    assert_string_equal(shown("cpu_us", json_integer(1500000), "cpu"), "1.5s");
    assert_string_equal(shown("disk_bytes", json_integer(1536), "disk"), "1.5K");
    assert_string_equal(shown("mem", json_integer(2ll << 30), "mem"), "2G");
    assert_string_equal(shown("size", json_integer(1ll << 30), "size"), "1G");
    assert_string_equal(shown("machines", json_array(), "machines"), "none");
    assert_string_equal(shown("cpus", json_real(0.5), "cpus"), "0.5");
    assert_string_equal(shown("cpus", json_integer(0), "cpus"), "unlimited");
    assert_string_equal(shown("pids", json_integer(1024), "pids"), "1024");
    assert_string_equal(shown("drifted", json_false(), "drifted"), "no");
    assert_non_null(strstr(shown("expires", json_string("2099-01-02T03:04:05.678Z"), "expires"),
                           "2099-01-02 03:04:05 UTC (in "));
    assert_non_null(
        strstr(shown("created", json_string("2020-01-02T03:04:05Z"), "created"), " ago)"));
    assert_null(shown("name", json_string("2020-01-02"), "name"));
    assert_null(shown("limits", json_object(), "limits"));
}

UNIT_MAIN(cmocka_unit_test(a_name_tells_the_unit))
