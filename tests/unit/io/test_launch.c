/* A resident program starts, however many descriptors its starter has open, or how few. */
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/launch.h"
#include "io/spawn_link.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

enum { MANY = 1100 }; /* above what --ready-fd once took */

/* Says that it is ready only over the descriptor that it was told of, and only if that is 3. */
static const char script[] = "#!/bin/sh\n"
                             "[ \"$5\" = --ready-fd ] && [ \"$6\" = 3 ] || exit 1\n"
                             "for fd in /proc/self/fd/*; do\n"
                             "  [ \"${fd##*/}\" -gt 100 ] && exit 1\n"
                             "done\n"
                             "printf r >&3\n";

static struct place make_place(const struct scratch *dir) {
    struct place p = {0};
    char path[PLACE_SIZE + 16];
    snprintf(p.run, sizeof(p.run), "%s/run", dir->path);
    snprintf(p.home, sizeof(p.home), "%s/home", dir->path);
    snprintf(p.libexec, sizeof(p.libexec), "%s", dir->path);
    snprintf(path, sizeof(path), "%s/program", dir->path);
    int fd DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, script, strlen(script)), strlen(script));
    return p;
}

static void a_starter_with_many_descriptors_starts_it(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = make_place(&dir);
    struct rlimit before, more;
    struct err err = {0};
    int fds[MANY], n = 0;
    getrlimit(RLIMIT_NOFILE, &before);
    more = before;
    if (more.rlim_max < MANY + 100)
        skip();
    more.rlim_cur = more.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &more), 0);
    while (n < MANY && (fds[n] = fcntl(STDERR_FILENO, F_DUPFD, 3)) >= 0)
        n++;
    assert_int_equal(n, MANY);
    int r = launch(&place, "program", "log", NULL, NULL, &err);
    while (n)
        close(fds[--n]);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(r, 0);
}

/* The pipe, or the log, gets the numbers of those that are closed. */
static int launch_without(unsigned closed, const struct place *place) {
    struct err err = {0};
    int kept[3];
    for (int fd = 0; fd < 3; fd++) {
        kept[fd] = closed & 1u << fd ? fcntl(fd, F_DUPFD_CLOEXEC, 10) : -1;
        if (closed & 1u << fd)
            close(fd);
    }
    int r = launch(place, "program", "log", NULL, NULL, &err);
    for (int fd = 0; fd < 3; fd++)
        if (kept[fd] >= 0) {
            dup2(kept[fd], fd);
            close(kept[fd]);
        }
    return r;
}

static void a_starter_without_standard_streams_starts_it(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = make_place(&dir);
    for (unsigned closed = 1; closed < 8; closed++)
        if (launch_without(closed, &place) < 0)
            fail_msg("without streams %#x", closed);
}

static void a_program_that_ends_at_once_is_an_error(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = make_place(&dir);
    struct err err = {0};
    assert_int_equal(launch(&place, "missing", "log", NULL, NULL, &err), -1);
    assert_non_null(strstr(err.text, "ended before it was ready"));
}

/* It ends by a signal at its first starts, and refuses after that. */
static int connect_to_dying(int deaths, int *ret_starts, struct err *err) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = make_place(&dir);
    struct stat st;
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/carrel-spawn", dir.path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(dprintf(fd,
                        "#!/bin/sh\nprintf x >>'%s/starts'\n"
                        "[ $(wc -c <'%s/starts') -gt %d ] || kill -9 $$\nprintf 'Eno room' >&3\n",
                        dir.path, dir.path, deaths) > 0);
    close(fd);
    int r = spawn_connect(&place, NULL, err);
    snprintf(path, sizeof(path), "%s/starts", dir.path);
    assert_int_equal(stat(path, &st), 0);
    *ret_starts = (int)st.st_size;
    return r;
}

static void a_spawner_that_is_killed_while_it_starts_is_started_again(void **state) {
    (void)state;
    struct err err = {0};
    int starts;
    assert_int_equal(connect_to_dying(1, &starts, &err), -1);
    assert_int_equal(starts, 2);
    assert_non_null(strstr(err.text, "no room"));
    assert_int_equal(connect_to_dying(100, &starts, &err), -1);
    assert_int_equal(starts, 3);
    assert_non_null(strstr(err.text, "ended before it was ready"));
}

/* Longer than a second, as on a busy host. */
static void a_spawner_that_leaves_slowly_is_waited_for(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = make_place(&dir);
    struct err err = {0};
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/carrel-spawn", dir.path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(dprintf(fd,
                        "#!/bin/sh\nprintf x >>'%s/starts'\n"
                        "if [ $(wc -c <'%s/starts') -le 70 ]; then printf Bbusy >&3\n"
                        "else printf 'Eno room' >&3; fi\n",
                        dir.path, dir.path) > 0);
    close(fd);
    assert_int_equal(spawn_connect(&place, NULL, &err), -1);
    assert_non_null(strstr(err.text, "no room"));
}

/* The code of a refusal crosses the pipe, so that the starter decides by it and not by the words.
 */
static void a_refusal_keeps_its_code(void **state) {
    (void)state;
    static const enum err_code codes[][2] = {
        {ERR_BUSY, ERR_BUSY}, {ERR_UNSUPPORTED, ERR_UNSUPPORTED}, {ERR_INTERNAL, ERR_UNSUPPORTED}};
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct place place = make_place(&dir);
    char path[PLACE_SIZE + 16];
    snprintf(path, sizeof(path), "%s/refuses", dir.path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_true(dprintf(fd, "#!/bin/sh\ncat '%s/words' >&3\n", dir.path) > 0);
    close(fd);
    snprintf(path, sizeof(path), "%s/words", dir.path);
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        struct err why = {0}, err = {0};
        err_set(&why, codes[i][0], "somebody holds '%s'", "the lock");
        err_remedy(&why, "end it");
        int words = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        launch_report(&words, &why);
        assert_int_equal(words, -1);
        assert_int_equal(launch(&place, "refuses", "log", NULL, NULL, &err), -1);
        assert_int_equal(err.code, codes[i][1]);
        assert_string_equal(err.text, "somebody holds 'the lock'");
        assert_string_equal(err.remedy, "end it");
    }
}

UNIT_MAIN(cmocka_unit_test(a_starter_with_many_descriptors_starts_it),
          cmocka_unit_test(a_starter_without_standard_streams_starts_it),
          cmocka_unit_test(a_program_that_ends_at_once_is_an_error),
          cmocka_unit_test(a_spawner_that_is_killed_while_it_starts_is_started_again),
          cmocka_unit_test(a_spawner_that_leaves_slowly_is_waited_for),
          cmocka_unit_test(a_refusal_keeps_its_code))
