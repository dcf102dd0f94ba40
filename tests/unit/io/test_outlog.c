#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "io/outlog_fd.h"
#include "tests/unit/keeping.h"

static const struct outlog_caps small = {{8, 8}, {4096, 4096}};

static struct outlog_fd made(const struct outlog_caps *caps) {
    struct outlog_fd l = OUTLOG_FD_NONE;
    struct err err;
    assert_int_equal(outlog_fd_make(&l, caps, &err), 0);
    return l;
}

static struct outlog_writer writer_of(struct outlog_fd *l) {
    struct outlog_writer w;
    assert_int_equal(outlog_write(&w, l->log.map, l->bytes), 0);
    return w;
}

static void put(struct outlog_writer *w, int stream, const char *text) {
    outlog_put(w, stream, text, strlen(text));
}

/* Byte x of what fill() writes. */
static char byte_at(uint64_t x) {
    return (char)('a' + x % 23);
}

static void fill(struct outlog_writer *w, int stream, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        char c = byte_at(w->produced[stream]);
        outlog_put(w, stream, &c, 1);
    }
}

static void assert_filled(const char *bytes, const struct outlog_piece *p) {
    for (size_t i = 0; i < p->n; i++)
        assert_int_equal(bytes[i], byte_at(p->offset + i));
}

static void the_size_is_sealed(void **state) {
    (void)state;
    struct outlog_fd l = made(&small);
    assert_int_equal(ftruncate(l.fd, (off_t)l.bytes + 1), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(l.fd, (off_t)l.bytes - 1), -1);
    assert_int_equal(pwrite(l.fd, "x", 1, (off_t)l.bytes), -1);
    assert_int_equal(fcntl(l.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    outlog_fd_close(&l);
}

static void a_new_log_costs_one_page(void **state) {
    (void)state;
    struct outlog_fd l = made(&OUTLOG_CAPS_TWO);
    struct stat st;
    assert_int_equal(fstat(l.fd, &st), 0);
    assert_true(st.st_blocks * 512 <= sysconf(_SC_PAGESIZE));
    assert_int_equal(l.bytes - OUTLOG_DATA, 64u << 20);
    outlog_fd_close(&l);
}

static void capacities_out_of_bounds_are_refused(void **state) {
    (void)state;
    struct outlog_fd l;
    struct err err;
    const struct outlog_caps bad[] = {
        {{0, 0}, {4095, 4096}},
        {{(1u << 30) + 1, 0}, {4096, 4096}},
        {{0, 0}, {4096, UINT64_MAX}},
        {{UINT64_MAX, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(outlog_fd_make(&l, &bad[i], &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void what_fits_is_read_whole(void **state) {
    (void)state;
    struct outlog_fd l = made(&small);
    struct outlog_writer w = writer_of(&l);
    fill(&w, 0, 8 + 4096);
    char to[5000];
    struct outlog_piece p = outlog_read(&l.log, 0, 0, to, sizeof(to));
    assert_int_equal(p.n, 8);
    p = outlog_read(&l.log, 0, 8, to, sizeof(to));
    assert_int_equal(p.n, 4096);
    assert_int_equal(p.left_out, 0);
    assert_filled(to, &p);
    p = outlog_read(&l.log, 0, 8 + 4096, to, sizeof(to));
    assert_int_equal(p.n, 0);
    outlog_fd_close(&l);
}

static void what_does_not_fit_is_left_out_and_counted(void **state) {
    (void)state;
    struct outlog_fd l = made(&small);
    struct outlog_writer w = writer_of(&l);
    fill(&w, 0, 10000);
    char to[5000];
    struct outlog_piece p = outlog_read(&l.log, 0, 100, to, sizeof(to));
    assert_int_equal(p.offset, 10000 - 4096);
    assert_int_equal(p.left_out, 10000 - 4096 - 100);
    assert_filled(to, &p);
    struct outlog_piece rest = outlog_read(&l.log, 0, p.offset + p.n, to, sizeof(to));
    assert_int_equal(rest.left_out, 0);
    assert_int_equal(p.n + rest.n, 4096);
    assert_filled(to, &rest);
    outlog_fd_close(&l);
}

static void what_is_being_overwritten_is_left_out(void **state) {
    (void)state;
    struct outlog_fd l = made(&small);
    struct outlog_writer w = writer_of(&l);
    fill(&w, 0, 10000);
    struct iovec v[2];
    outlog_claim(&w, 0, 500, v);
    char to[5000];
    struct outlog_piece p = outlog_read(&l.log, 0, 0, to, 8);
    assert_int_equal(p.n, 8);
    p = outlog_read(&l.log, 0, 8, to, sizeof(to));
    assert_int_equal(p.offset, 10000 + 500 - 4096);
    outlog_commit(&w, 0, 0);
    p = outlog_read(&l.log, 0, 8, to, sizeof(to));
    assert_int_equal(p.offset, 10000 - 4096);
    outlog_fd_close(&l);
}

#define RACE_BYTES (3u << 30)

static char race_block[(512 << 10) + 23];

static void *write_fast(void *arg) {
    struct outlog_writer *w = arg;
    for (uint64_t n = 100; w->produced[0] < RACE_BYTES; n = n % 30000 + 7)
        outlog_put(w, 0, race_block + w->produced[0] % 23, n);
    outlog_end(w, 0);
    outlog_end(w, 1);
    return NULL;
}

/* The writer laps the reader again and again; what the reader is given is right all the same. */
static void a_reader_beside_a_fast_writer_sees_no_wrong_byte(void **state) {
    (void)state;
    struct outlog_fd l = made(&(struct outlog_caps){{8, 8}, {1 << 20, 4096}});
    struct outlog_writer w = writer_of(&l);
    pthread_t thread;
    for (size_t i = 0; i < sizeof(race_block); i++)
        race_block[i] = byte_at(i);
    assert_int_equal(pthread_create(&thread, NULL, write_fast, &w), 0);
    struct outlog_cursor c = {0};
    static char to[512 << 10];
    uint64_t seen = 0, left_out = 0;
    while (!outlog_is_over(&l.log, &c)) {
        struct outlog_piece p = outlog_next(&l.log, &c, to, sizeof(to));
        assert_memory_equal(to, race_block + p.offset % 23, p.n);
        seen += p.n;
        left_out += p.left_out;
    }
    pthread_join(thread, NULL);
    assert_int_equal(seen + left_out, w.produced[0]);
    assert_true(seen > 4096);
    outlog_fd_close(&l);
}

static void pieces_come_in_the_order_of_the_turns(void **state) {
    (void)state;
    struct outlog_fd l = made(&(struct outlog_caps){{100, 100}, {4096, 4096}});
    struct outlog_writer w = writer_of(&l);
    put(&w, 1, "e1");
    put(&w, 0, "o1");
    put(&w, 0, "o2");
    put(&w, 1, "e2");
    put(&w, 0, "o3");
    char text[64];
    size_t n = 0;
    struct outlog_cursor c = {0};
    struct outlog_piece p;
    while ((p = outlog_next(&l.log, &c, text + n, 3)).n > 0)
        n += p.n;
    assert_memory_equal(text, "e1o1o2e2o3", 10);
    assert_false(outlog_is_over(&l.log, &c));
    put(&w, 0, "!");
    outlog_end(&w, 0);
    outlog_end(&w, 1);
    assert_false(outlog_is_over(&l.log, &c));
    assert_int_equal(outlog_next(&l.log, &c, text, 3).n, 1);
    assert_true(outlog_is_over(&l.log, &c));
    outlog_fd_close(&l);
}

static void a_cursor_from_offsets_alone_goes_on_in_order(void **state) {
    (void)state;
    struct outlog_fd l = made(&(struct outlog_caps){{100, 100}, {4096, 4096}});
    struct outlog_writer w = writer_of(&l);
    for (int i = 0; i < 5; i++) {
        put(&w, 0, "o");
        put(&w, 1, "e");
    }
    struct outlog_cursor c = {.at = {3, 2}};
    char text[8];
    for (int i = 0; i < 5; i++)
        assert_int_equal(outlog_next(&l.log, &c, text + i, 1).n, 1);
    assert_memory_equal(text, "eoeoe", 5);
    outlog_fd_close(&l);
}

static void forgotten_turns_lose_the_order_and_nothing_else(void **state) {
    (void)state;
    struct outlog_fd l = made(&(struct outlog_caps){{1 << 20, 1 << 20}, {4096, 4096}});
    struct outlog_writer w = writer_of(&l);
    for (int i = 0; i < 10000; i++) {
        put(&w, 0, "o");
        put(&w, 1, "e");
    }
    struct outlog_cursor c = {0};
    struct outlog_piece p;
    char text[16];
    size_t n[2] = {0};
    while ((p = outlog_next(&l.log, &c, text, sizeof(text))).n > 0) {
        assert_int_equal(text[0], p.stream ? 'e' : 'o');
        n[p.stream] += p.n;
    }
    assert_int_equal(n[0], 10000);
    assert_int_equal(n[1], 10000);
    outlog_fd_close(&l);
}

struct endless {
    struct outlog_writer *w;
    unsigned pieces;
};

/* Each piece that is read makes the writer write one to each stream. */
static void write_more(void *arg, const void *bytes, size_t n) {
    struct endless *e = arg;
    (void)bytes, (void)n;
    assert_true(e->pieces++ < 1000);
    put(e->w, 0, "out");
    put(e->w, 1, "err");
}

static void reading_ends_before_a_writer_that_does_not(void **state) {
    (void)state;
    struct outlog_fd l = made(&small);
    struct outlog_writer w = writer_of(&l);
    struct endless e = {.w = &w};
    struct outlog_cursor c = {0};
    const uint64_t all[2] = {UINT64_MAX, UINT64_MAX};
    put(&w, 0, "out");
    assert_false(outlog_read_to(&l.log, &c, all, 32, write_more, &e));
    assert_int_equal(e.pieces, 32);
    const uint64_t now[2] = {w.produced[0], w.produced[1]};
    assert_false(outlog_read_to(&l.log, &c, now, 32, write_more, &e));
    assert_true(outlog_read_to(&l.log, &c, now, 32, write_more, &e));
    assert_true(e.pieces <= 32 + 32 + 32);
    assert_true(c.at[0] >= now[0] && c.at[1] >= now[1] && c.at[0] < w.produced[0]);
    outlog_fd_close(&l);
}

static void lost_bytes_are_said_to_be_lost(void **state) {
    (void)state;
    struct outlog_fd l = made(&small);
    struct outlog_writer w = writer_of(&l);
    put(&w, 0, "abc");
    outlog_lose(&w, 0, 5);
    struct outlog_extent e = outlog_extent(&l.log, 0);
    assert_int_equal(e.produced, 8);
    assert_int_equal(e.lost, 5);
    outlog_fd_close(&l);
}

static void only_sealed_logs_are_adopted(void **state) {
    (void)state;
    struct outlog_fd l = made(&small), again = OUTLOG_FD_NONE;
    struct err err;
    assert_int_equal(outlog_fd_adopt(&again, dup(l.fd), &err), 0);
    struct outlog_writer w = writer_of(&l);
    put(&w, 0, "seen");
    char to[8];
    assert_int_equal(outlog_read(&again.log, 0, 0, to, 8).n, 4);
    outlog_fd_close(&again);

    int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(plain, (off_t)l.bytes), 0);
    assert_int_equal(pwrite(plain, l.log.map, OUTLOG_PAGE, 0), OUTLOG_PAGE);
    assert_int_equal(outlog_fd_adopt(&again, dup(plain), &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL), 0);
    assert_int_equal(outlog_fd_adopt(&again, dup(plain), &err), 0);
    outlog_fd_close(&again);
    assert_int_equal(pwrite(plain, "bad", 3, 0), 3);
    assert_int_equal(outlog_fd_adopt(&again, plain, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(outlog_fd_adopt(&again, open("/dev/null", O_RDWR), &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    outlog_fd_close(&l);
}

/* Keeping. */

static void assert_same(const struct outlog *a, const struct outlog *b) {
    struct outlog_cursor ca = {0}, cb = {0};
    for (;;) {
        char ta[1000], tb[1000];
        struct outlog_piece pa = outlog_next(a, &ca, ta, sizeof(ta));
        struct outlog_piece pb = outlog_next(b, &cb, tb, sizeof(tb));
        assert_memory_equal(&pa, &pb, sizeof(pa));
        assert_memory_equal(ta, tb, pa.n);
        if (pa.n + pa.left_out == 0)
            break;
    }
}

static void a_kept_log_reads_as_the_log_did(void **state) {
    (void)state;
    struct keeping k DEFER(keeping_done) = keeping_of(&small);
    uint64_t sizes[] = {0, 3, 20, 4000, 1, 9000, 0, 100};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        fill(&k.writer, 0, sizes[i]);
        fill(&k.writer, 1, sizes[i] / 2);
        if (i == 7)
            outlog_end(&k.writer, 0);
        keeping_keep(&k);
        keeping_read(&k);
        assert_same(&k.log.log, &k.kept);
        struct outlog_kept again = outlog_kept_of(&k.kept);
        assert_memory_equal(&again, &k.done, sizeof(again));
    }
    assert_true(outlog_extent(&k.kept, 0).ended);
    assert_false(outlog_extent(&k.kept, 1).ended);
}

static void keeping_starts_again_from_the_file(void **state) {
    (void)state;
    struct keeping k DEFER(keeping_done) = keeping_of(&small);
    fill(&k.writer, 0, 6000);
    keeping_keep(&k);
    fill(&k.writer, 0, 1000);
    keeping_read(&k);
    k.done = outlog_kept_of(&k.kept);
    assert_int_equal(k.done.produced[0], 6000);
    keeping_keep(&k);
    assert_same(&k.log.log, &k.kept);
}

/* A command is stored in between, and its output goes on in a new log. */
static void a_kept_log_is_restored_and_goes_on(void **state) {
    (void)state;
    uint64_t sizes[] = {0, 3, 20, 4000, 9000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        struct keeping k DEFER(keeping_done) = keeping_of(&small);
        struct outlog_fd again DEFER(outlog_fd_close) = OUTLOG_FD_NONE;
        struct outlog_writer w;
        struct outlog_kept kept;
        struct err err;
        fill(&k.writer, 0, sizes[i]);
        fill(&k.writer, 1, sizes[i] / 2);
        fill(&k.writer, 0, 1);
        keeping_keep(&k);
        assert_int_equal(outlog_fd_restore(&again, k.file, &kept, &err), 0);
        assert_memory_equal(&kept, &k.done, sizeof(kept));
        assert_same(&k.log.log, &again.log);
        assert_int_equal(outlog_write(&w, again.log.map, again.bytes), -1);
        assert_int_equal(outlog_continue(&w, again.log.map, again.bytes), 0);
        fill(&w, 1, 77);
        fill(&k.writer, 1, 77);
        assert_same(&k.log.log, &again.log);
        outlog_end(&w, 0);
        assert_int_equal(outlog_continue(&w, again.log.map, again.bytes), 0);
        assert_false(outlog_extent(&again.log, 0).ended);
        fill(&w, 0, 5);
        fill(&k.writer, 0, 5);
        assert_same(&k.log.log, &again.log);
    }
}

/* A guest that was taken over shows a log of a command that has ended long ago. */
static void a_whole_file_takes_no_other_log(void **state) {
    (void)state;
    const struct outlog_caps other = {{16, 16}, {8192, 4096}};
    const struct outlog_caps *caps[] = {&small, &other};
    struct keeping k DEFER(keeping_done) = keeping_of(&small);
    put(&k.writer, 0, "as it was");
    outlog_end(&k.writer, 0);
    keeping_keep(&k);
    assert_false(outlog_is_whole(k.file));
    outlog_end(&k.writer, 1);
    keeping_keep(&k);
    assert_true(outlog_is_whole(k.file));
    for (size_t i = 0; i < 2; i++) {
        struct outlog_fd forged = made(caps[i]);
        struct outlog_writer forger = writer_of(&forged);
        put(&forger, 0, "as it was, and something else");
        put(&forger, 1, "and an error");
        outlog_end(&forger, 0);
        outlog_end(&forger, 1);
        struct outlog_kept done = {0};
        struct err err;
        assert_int_equal(outlog_keep(&forged.log, k.file, &done, &err), 0);
        keeping_read(&k);
        assert_same(&k.log.log, &k.kept);
        outlog_fd_close(&forged);
    }
}

static void what_was_kept_can_be_released(void **state) {
    (void)state;
    struct keeping k DEFER(keeping_done) = keeping_of(&OUTLOG_CAPS_TWO);
    char chunk[4096];
    memset(chunk, 'x', sizeof(chunk));
    for (int i = 0; i < 1024; i++)
        outlog_put(&k.writer, 0, chunk, sizeof(chunk));
    keeping_keep(&k);
    struct stat before, after;
    fstat(k.log.fd, &before);
    outlog_fd_release(&k.log, &k.done);
    fstat(k.log.fd, &after);
    assert_true(before.st_blocks * 512 >= 4 << 20);
    assert_true(after.st_blocks * 512 < 128 << 10);
    outlog_put(&k.writer, 0, "more", 4);
    keeping_keep(&k);
    keeping_read(&k);
    char to[8];
    assert_int_equal(outlog_read(&k.kept, 0, 4 << 20, to, 8).n, 4);
    assert_memory_equal(to, "more", 4);
    assert_int_equal(outlog_read(&k.kept, 0, 1000, to, 8).n, 8);
    assert_memory_equal(to, "xxxxxxxx", 8);
}

static void a_file_that_is_no_log_is_refused(void **state) {
    (void)state;
    struct keeping k DEFER(keeping_done) = keeping_of(&small);
    struct err err;
    assert_int_equal(outlog_open_kept(&k.kept, k.file, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
}

UNIT_MAIN(cmocka_unit_test(the_size_is_sealed), cmocka_unit_test(a_new_log_costs_one_page),
          cmocka_unit_test(capacities_out_of_bounds_are_refused),
          cmocka_unit_test(what_fits_is_read_whole),
          cmocka_unit_test(what_does_not_fit_is_left_out_and_counted),
          cmocka_unit_test(what_is_being_overwritten_is_left_out),
          cmocka_unit_test(a_reader_beside_a_fast_writer_sees_no_wrong_byte),
          cmocka_unit_test(pieces_come_in_the_order_of_the_turns),
          cmocka_unit_test(a_cursor_from_offsets_alone_goes_on_in_order),
          cmocka_unit_test(forgotten_turns_lose_the_order_and_nothing_else),
          cmocka_unit_test(reading_ends_before_a_writer_that_does_not),
          cmocka_unit_test(lost_bytes_are_said_to_be_lost),
          cmocka_unit_test(only_sealed_logs_are_adopted),
          cmocka_unit_test(a_kept_log_reads_as_the_log_did),
          cmocka_unit_test(keeping_starts_again_from_the_file),
          cmocka_unit_test(a_kept_log_is_restored_and_goes_on),
          cmocka_unit_test(a_whole_file_takes_no_other_log),
          cmocka_unit_test(what_was_kept_can_be_released),
          cmocka_unit_test(a_file_that_is_no_log_is_refused))
