#include "tests/unit/unit.h"

#include <errno.h>

#include "io/vm/kvm_probe.h"

static void only_a_fast_loop_counts(void **state) {
    (void)state;
    struct kvm_probe p;
    kvm_judge(&(struct kvm_trial){.has_ended = true, .loop_us = 4500}, &p);
    assert_true(p.is_usable);
    assert_string_equal(p.reason, "10 million loops in 4 ms");
    kvm_judge(&(struct kvm_trial){.has_ended = true, .loop_us = 300001}, &p);
    assert_false(p.is_usable);
    kvm_judge(&(struct kvm_trial){0}, &p);
    assert_false(p.is_usable);
    assert_non_null(strstr(p.reason, "take over 300 ms"));
    kvm_judge(&(struct kvm_trial){.failed = "do this", .error = EACCES, .has_ended = true}, &p);
    assert_false(p.is_usable);
    assert_string_equal(p.reason, "do this: Permission denied");
    kvm_judge(&(struct kvm_trial){.failed = "do this"}, &p);
    assert_string_equal(p.reason, "do this: it does not work");
}

static void device_that_is_not_kvm_is_refused(void **state) {
    (void)state;
    struct kvm_probe p;
    kvm_probe("/dev/null", &p);
    assert_false(p.is_usable);
    kvm_probe("/nonexistent/kvm", &p);
    assert_false(p.is_usable);
    assert_non_null(strchr(p.reason, ':'));
}

/* The host's own device may be good, bad or absent: the answer comes in time and has a reason. */
static void device_of_this_host_is_judged(void **state) {
    (void)state;
    struct kvm_probe p = {0};
    kvm_probe("/dev/kvm", &p);
    assert_true(p.reason[0] != '\0');
    print_message("KVM here: %s: %s\n", p.is_usable ? "usable" : "not usable", p.reason);
}

UNIT_MAIN(cmocka_unit_test(only_a_fast_loop_counts),
          cmocka_unit_test(device_that_is_not_kvm_is_refused),
          cmocka_unit_test(device_of_this_host_is_judged))
