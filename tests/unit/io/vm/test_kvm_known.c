#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/vm/kvm_known.h"
#include "tests/unit/scratch.h"

#define HOST "boot 1 2 3"

static void an_answer_holds_for_its_host_only(void **state) {
    (void)state;
    const struct kvm_probe yes = {.is_usable = true, .reason = "10 million loops in 4 ms"};
    struct kvm_probe p = {0};
    char text[KVM_TEXT_SIZE];
    kvm_known_print(HOST, &yes, text);
    assert_string_equal(text, HOST "\nyes\n10 million loops in 4 ms\n");
    assert_false(kvm_known_parse(text, "boot 1 2", &p));
    assert_false(kvm_known_parse(text, "boot 1 2 34", &p));
    assert_false(p.is_usable);
    assert_true(kvm_known_parse(text, HOST, &p));
    assert_true(p.is_usable);
    assert_string_equal(p.reason, yes.reason);
    assert_true(kvm_known_parse(HOST "\nno\nit hangs\n", HOST, &p));
    assert_false(p.is_usable);
    assert_string_equal(p.reason, "it hangs");
}

static void a_damaged_answer_is_none(void **state) {
    (void)state;
    struct kvm_probe p = {0};
    char longer[KVM_TEXT_SIZE + KVM_REASON_SIZE] = HOST "\nyes\n";
    const char *const damaged[] = {"",
                                   HOST,
                                   HOST "\n",
                                   HOST "\nyes",
                                   HOST "\nyes\n",
                                   HOST "\nyes\n\n",
                                   HOST "\nyes\ncut",
                                   HOST "\nYES\nx\n"};
    for (size_t i = 0; i < sizeof(damaged) / sizeof(*damaged); i++)
        assert_false(kvm_known_parse(damaged[i], HOST, &p));
    size_t n = strlen(longer);
    memset(longer + n, 'x', KVM_REASON_SIZE);
    longer[n + KVM_REASON_SIZE] = '\n';
    assert_false(kvm_known_parse(longer, HOST, &p));
    assert_false(p.is_usable);
}

/* A vm that did not start decides against what the file says, and the file says so afterwards. */
static void a_failed_start_is_remembered(void **state) {
    (void)state;
    struct scratch scratch DEFER(scratch_done) = scratch_new();
    const char *dir = scratch.path;
    struct kvm_probe p;
    char host[KVM_HOST_SIZE], text[KVM_TEXT_SIZE], path[256];
    assert_false(kvm_recall(dir, &p));
    snprintf(path, sizeof(path), "%s/vm", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    kvm_host(host);
    kvm_known_print(host, &(struct kvm_probe){true, "said by the test"}, text);
    snprintf(path, sizeof(path), "%s/vm/kvm", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    kvm_decide(dir, &p);
    assert_true(p.is_usable);
    kvm_remember_failure(dir, "no answer\nwithin 10 s");
    kvm_decide(dir, &p);
    assert_false(p.is_usable);
    assert_string_equal(p.reason, "no answer within 10 s");
    /* Without a file, the answer is that of the probe. */
    assert_int_equal(unlink(path), 0);
    kvm_decide(dir, &p);
    struct kvm_probe known;
    assert_true(kvm_recall(dir, &known));
    assert_int_equal(known.is_usable, p.is_usable);
    assert_string_equal(known.reason, p.reason);
}

UNIT_MAIN(cmocka_unit_test(an_answer_holds_for_its_host_only),
          cmocka_unit_test(a_damaged_answer_is_none),
          cmocka_unit_test(a_failed_start_is_remembered))
