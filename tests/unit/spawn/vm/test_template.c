#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spawn/vm/template.h"
#include "tests/unit/unit.h"

static const struct vm_template_key keys[2] = {{.cpus = 1}, {.cpus = 2}};

static struct vm_template *put(struct vm_templates *t, int i, const struct vm_template_key *key) {
    t->slots[i] = (struct vm_template){.key = *key, .proof = -1};
    t->slots[i].ram = open("/dev/null", O_RDWR | O_CLOEXEC);
    t->slots[i].state = open("/dev/null", O_RDWR | O_CLOEXEC);
    return &t->slots[i];
}

static void a_template_is_found_by_its_whole_key(void **state) {
    (void)state;
    struct vm_templates t;
    vm_templates_init(&t);
    assert_null(vm_template_find(&t, &keys[0]));
    struct vm_template *one = put(&t, 2, &keys[0]);
    assert_ptr_equal(vm_template_find(&t, &keys[0]), one);
    assert_null(vm_template_find(&t, &keys[1]));
}

static void a_template_whose_first_clone_ended_without_a_word_is_dropped(void **state) {
    (void)state;
    struct vm_templates t;
    int ends[2];
    vm_templates_init(&t);
    struct vm_template *one = put(&t, 0, &keys[0]);
    int ram = one->ram;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    vm_template_prove(one, ends[0]);
    assert_ptr_equal(vm_template_find(&t, &keys[0]), one); /* it may still start */
    close(ends[1]);
    assert_null(vm_template_find(&t, &keys[0]));
    assert_int_equal(fcntl(ram, F_GETFD), -1);
}

static void a_template_is_kept_once_a_clone_was_awake(void **state) {
    (void)state;
    struct vm_templates t;
    int ends[2];
    vm_templates_init(&t);
    struct vm_template *one = put(&t, 0, &keys[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    vm_template_prove(one, ends[0]);
    assert_int_equal(write(ends[1], "awake\n", 6), 6);
    close(ends[1]);
    assert_ptr_equal(vm_template_find(&t, &keys[0]), one);
    /* The next clones need not be heard. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    close(ends[1]);
    vm_template_prove(one, ends[0]);
    assert_ptr_equal(vm_template_find(&t, &keys[0]), one);
}

UNIT_MAIN(cmocka_unit_test(a_template_is_found_by_its_whole_key),
          cmocka_unit_test(a_template_whose_first_clone_ended_without_a_word_is_dropped),
          cmocka_unit_test(a_template_is_kept_once_a_clone_was_awake))
