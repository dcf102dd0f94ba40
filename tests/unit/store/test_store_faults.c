/*
 * Full disks, failing disks, sudden death and damaged files: what was acknowledged is there
 * afterwards, and nothing crashes.
 */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/defer.h"
#include "store/events.h"
#include "store/execs.h"
#include "store/machines.h"
#include "store/owners.h"
#include "tests/unit/faults.h"
#include "tests/unit/scratch.h"

/* What one worker did: the furthest state of each of its machines that was acknowledged. */
enum { LEDGER_MAX = 200000 };
struct entry {
    char machine[ID_SIZE];
    char exec[ID_SIZE];
    uint32_t step; /* 1 added, 2 its command added, 3 its command ended, 4 ended */
};

static int open_store(const char *home, struct store **ret, struct err *err) {
    struct store_options options = {.home = home, .journal = {.segment_bytes = 4000}};
    return store_open(&options, ret, err);
}

static int add_owner(struct store *s) {
    struct owner_row owner = {.name = "ann", .uid = 1000};
    return store_owner_put(s, &owner, NULL);
}

static int step_add(struct store *s, struct entry *e) {
    char existing[ID_SIZE];
    struct machine_row row = {.owner = "ann",
                              .state = MACHINE_RUNNING,
                              .kind = "box",
                              .image = "host",
                              .idle_action = IDLE_STOP,
                              .steps = STEPS_MANUAL};
    struct id id = id_new('m');
    memcpy(row.id, id.text, sizeof(row.id));
    memcpy(e->machine, id.text, sizeof(e->machine));
    return store_machine_add(s, &row, existing, NULL);
}

static int step_exec(struct store *s, struct entry *e) {
    char existing[ID_SIZE];
    struct exec_row row = {.owner = "ann", .state = EXEC_STARTING, .argv = (char *)"[\"true\"]"};
    struct id id = id_new('x');
    memcpy(row.id, id.text, sizeof(row.id));
    memcpy(row.machine, e->machine, sizeof(row.machine));
    memcpy(e->exec, id.text, sizeof(e->exec));
    return store_exec_add(s, &row, existing, NULL);
}

static int step_finish(struct store *s, struct entry *e) {
    struct exec_row row = {.state = EXEC_EXITED, .exit_code = 42};
    memcpy(row.id, e->exec, sizeof(row.id));
    return store_exec_finish(s, &row, NULL);
}

static int step_end(struct store *s, struct entry *e) {
    struct event_row event = {.owner = "ann", .type = "machine.ended"};
    int64_t id;
    struct journal_record record = {
        .kind = JOURNAL_NOTE, .verb = "machine.end", .machine = e->machine};
    if (store_log(s, &record, NULL, NULL) < 0)
        return -1;
    /* Two writes as one: if it is acknowledged both are there. */
    if (store_begin(s, NULL) == 0 && store_machine_end(s, e->machine, 1, "asked", NULL) == 0 &&
        store_event_add(s, &event, &id, NULL) == 0 && store_commit(s, NULL) == 0)
        return 0;
    store_rollback(s);
    return -1;
}

static int (*const steps[])(struct store *, struct entry *) = {step_add, step_exec, step_finish,
                                                               step_end};

/* Goes as far as it can. */
static void work(struct store *s, struct entry *e) {
    for (e->step = 0; e->step < 4; e->step++)
        if (steps[e->step](s, e) < 0)
            return;
}

static void check_entry(struct store *s, const struct entry *e) {
    struct machine_row m;
    struct exec_row x;
    struct err err = {0};
    if (e->step >= 1) {
        if (store_machine_get(s, e->machine, &m, &err) < 0)
            fail_msg("lost a machine: %s", err.text);
        if (e->step >= 4)
            assert_int_equal(m.state, MACHINE_ENDED);
        machine_row_done(&m);
    }
    if (e->step >= 2) {
        if (store_exec_get(s, e->exec, &x, &err) < 0)
            fail_msg("lost a command: %s", err.text);
        if (e->step >= 3)
            assert_int_equal(x.exit_code, 42);
        exec_row_done(&x);
    }
}

static struct store *reopen(const char *home) {
    struct store *s;
    struct err err = {0};
    if (open_store(home, &s, &err) < 0)
        fail_msg("%s [%s]", err.text, err.remedy);
    return s;
}

static void check_journal(const char *home) {
    char dir[128], key[160];
    uint8_t pubkey[JOURNAL_PUBKEY_BYTES];
    struct journal_report report;
    struct err err = {0};
    snprintf(dir, sizeof(dir), "%s/journal", home);
    snprintf(key, sizeof(key), "%s/key.pub", dir);
    assert_int_equal(journal_pubkey_read(key, pubkey, &err), 0);
    if (journal_verify(dir, pubkey, NULL, &report, &err) < 0)
        fail_msg("%s", err.text);
}

static uint64_t count_ended_events(struct store *s) {
    struct event_list list;
    struct event_filter filter = {.type = "machine.ended", .limit = STORE_PAGE_MAX};
    assert_int_equal(store_event_list(s, 0, &filter, &list, NULL), 0);
    uint64_t n = list.count;
    event_list_done(&list);
    return n;
}

/* A store, a fault at the nth call, some work, and a look at what is left. Returns whether it hit.
 */
static bool fail_at(int nth, int error, bool forever, bool shortly, bool syncs) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct entry ledger[3] = {0};
    struct store *s = NULL;
    uint64_t ended = 0;
    faults_set(nth, error, forever, shortly, syncs);
    if (open_store(dir.path, &s, NULL) == 0 && add_owner(s) == 0)
        for (size_t i = 0; i < 3; i++)
            work(s, &ledger[i]);
    store_close(s);
    bool hit = atomic_load(&faults.hits) > 0;
    faults_set(0, 0, false, false, false);

    s = reopen(dir.path);
    for (size_t i = 0; i < 3; i++) {
        check_entry(s, &ledger[i]);
        ended += ledger[i].step == 4;
    }
    assert_true(count_ended_events(s) >= ended);
    assert_int_equal(add_owner(s), 0);
    struct entry after = {0};
    work(s, &after);
    assert_int_equal(after.step, 4);
    store_close(s);
    check_journal(dir.path);
    return hit;
}

static void each_write_may_fail(void **state) {
    (void)state;
    static const struct {
        int error;
        bool forever, shortly;
    } kinds[] = {{ENOSPC, false, false}, {ENOSPC, true, true}, {EIO, false, true}};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        int nth = 1;
        while (fail_at(nth, kinds[k].error, kinds[k].forever, kinds[k].shortly, false))
            nth += 1 + nth / 40;
        assert_true(nth > 60); /* it really walked over the writes */
    }
}

static void each_sync_may_fail(void **state) {
    (void)state;
    int nth = 1;
    while (fail_at(nth, EIO, false, false, true))
        nth++;
    assert_true(nth > 5);
}

static void after_a_failed_flush_nothing_is_acknowledged(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = reopen(dir.path);
    struct err err = {0};
    assert_int_equal(add_owner(s), 0);
    struct entry before = {0}, after = {0};
    work(s, &before);
    assert_int_equal(before.step, 4);
    assert_int_equal(store_flush(s, &err), 0);
    faults_set(1, EIO, false, false, true);
    assert_int_equal(store_flush(s, &err), -1);
    faults_set(0, 0, false, false, false);
    /* The disk works again, but what it holds is not known. */
    assert_int_equal(store_flush(s, &err), -1);
    assert_non_null(strstr(err.remedy, "restart"));
    work(s, &after);
    assert_int_equal(after.step, 0);
    struct journal_record record = {.kind = JOURNAL_NOTE, .verb = "v"};
    assert_int_equal(store_log(s, &record, NULL, &err), -1);
    check_entry(s, &before);
    store_close(s);
    s = reopen(dir.path);
    check_entry(s, &before);
    store_close(s);
}

/* ---- Sudden death ---- */

static void work_forever(const char *home, int out) {
    struct store *s;
    if (open_store(home, &s, NULL) < 0 || add_owner(s) < 0)
        _exit(3);
    for (;;) {
        struct entry e = {0};
        for (e.step = 0; e.step < 4;) {
            if (steps[e.step](s, &e) < 0)
                _exit(4);
            e.step++;
            if (write(out, &e, sizeof(e)) != sizeof(e))
                _exit(5);
        }
    }
}

static size_t read_ledger(int fd, struct entry *ledger) {
    size_t n = 0;
    struct entry e;
    while (n < LEDGER_MAX && read(fd, &e, sizeof(e)) == sizeof(e)) {
        if (n > 0 && strcmp(ledger[n - 1].machine, e.machine) == 0)
            ledger[n - 1] = e;
        else
            ledger[n++] = e;
    }
    return n;
}

static void killed_writers_lose_nothing(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    unsigned seed = (unsigned)getpid();
    struct entry *ledger DEFER_FREE = calloc(LEDGER_MAX, sizeof(*ledger));
    size_t total = 0;
    print_message("# seed %u\n", seed);
    for (int round = 0; round < 25; round++) {
        int fds[2], status;
        assert_int_equal(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0) {
            close(fds[0]);
            work_forever(dir.path, fds[1]);
        }
        close(fds[1]);
        /* Half of them while they open, half while they write; now and then late enough for syncs
         * and copies of the log. */
        if (round % 2)
            poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, 20000);
        struct timespec life = {.tv_nsec =
                                    rand_r(&seed) % (round % 5 == 4 ? 400 : 30) * 1000000l + 1};
        pid_t killer = fork();
        if (killer == 0) {
            nanosleep(&life, NULL);
            kill(child, SIGKILL);
            _exit(0);
        }
        size_t n = read_ledger(fds[0], ledger);
        close(fds[0]);
        waitpid(killer, NULL, 0);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        struct store *s = reopen(dir.path);
        for (size_t i = 0; i < n; i++)
            check_entry(s, &ledger[i]);
        total += n;
        store_close(s);
    }
    check_journal(dir.path);
    print_message("# %zu machines\n", total);
    assert_true(total > 12);
}

/* ---- The loop never waits for the disk ---- */

enum { LOG_BOUND = 64 << 20, LOG_CHECKED = 80 << 20, BURST = 1 << 20 };

/* Returns false when no sync finished within two minutes. */
static bool wait_for_sync(struct store *s, struct store_stats *stats) {
    uint64_t before = stats->flushes;
    for (int i = 0; i < 120000 && stats->flushes == before; i++) {
        usleep(1000);
        store_stats(s, stats);
    }
    return stats->flushes > before;
}

/*
 * Writes one machine. The flusher thread keeps the log within its bound, once per sync, so a writer
 * that outruns the disk by far could still pass it: above the bound this one writes at most BURST
 * bytes per sync. How fast the host syncs then makes no difference.
 */
static void write_within_bound(struct store *s, struct store_stats *stats, uint64_t *burst_end) {
    struct entry e = {0};
    work(s, &e);
    assert_int_equal(e.step, 4);
    store_stats(s, stats);
    if (stats->wal_bytes < LOG_BOUND) {
        *burst_end = LOG_BOUND;
    } else if (stats->wal_bytes >= *burst_end) {
        assert_true(wait_for_sync(s, stats));
        *burst_end = stats->wal_bytes + BURST;
    }
}

static void the_loop_does_not_sync(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    /* Segments of the usual size: of tiny ones more would end than may wait for the next sync. */
    const struct store_options usual = {.home = dir.path};
    struct store *s;
    assert_int_equal(store_open(&usual, &s, NULL), 0);
    assert_int_equal(add_owner(s), 0);
    atomic_store(&faults.loop_syncs, 0);
    atomic_store(&faults.other_syncs, 0);
    struct store_stats stats = {0};
    uint64_t burst_end = LOG_BOUND, longest = 0;
    time_t end = time(NULL) + 180; /* on a host that is busy with other things */
    while (stats.checkpoints < 3 && time(NULL) < end) {
        write_within_bound(s, &stats, &burst_end);
        longest = stats.wal_bytes > longest ? stats.wal_bytes : longest;
    }
    assert_true(stats.checkpoints >= 3);
    assert_true(atomic_load(&faults.other_syncs) > 0);
    print_message("# %llu syncs by the loop, %llu by others, %llu checkpoints, log of %llu bytes\n",
                  (unsigned long long)atomic_load(&faults.loop_syncs),
                  (unsigned long long)atomic_load(&faults.other_syncs),
                  (unsigned long long)stats.checkpoints, (unsigned long long)longest);
    /* A commit that slips in between the copy and the thread's own commit begins the log anew. */
    assert_true(atomic_load(&faults.loop_syncs) <= stats.checkpoints);
    assert_true(longest < LOG_CHECKED);
    store_close(s);
}

/* A log that begins is synced by whoever writes first, also after a start that found nothing new.
 */
static void not_even_the_first_commit_syncs_on_the_loop(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    store_close(reopen(dir.path));
    store_close(reopen(dir.path));
    struct store *s = reopen(dir.path);
    atomic_store(&faults.loop_syncs, 0);
    assert_int_equal(add_owner(s), 0);
    assert_int_equal(atomic_load(&faults.loop_syncs), 0);
    store_close(s);
}

/* Nobody asks for it: it happens by itself, also for the journal alone. */
static void what_is_written_is_synced_soon(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = reopen(dir.path);
    struct journal_record record = {.kind = JOURNAL_NOTE, .verb = "v"};
    for (int i = 0; i < 4; i++) {
        usleep(300000); /* what came before is done */
        unsigned long long before = atomic_load(&faults.other_syncs);
        assert_int_equal(i % 2 ? add_owner(s) : store_log(s, &record, NULL, NULL), 0);
        /* It takes 100 ms; a host that is busy with other things may need more. */
        for (int wait = 0; wait < 500 && atomic_load(&faults.other_syncs) == before; wait++)
            usleep(10000);
        assert_true(atomic_load(&faults.other_syncs) > before);
    }
    store_close(s);
}

/* A full disk keeps nobody out who would make room. */
static void a_full_disk_still_knows_its_tokens(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s = reopen(dir.path);
    struct token_row row = {.owner = "ann", .scopes = SCOPE_ADMIN}, out;
    char secret[TOKEN_SIZE];
    assert_int_equal(add_owner(s), 0);
    assert_int_equal(store_token_add(s, &row, secret, NULL), 0);
    faults_set(1, ENOSPC, true, false, false);
    assert_int_equal(store_token_check(s, secret, strlen(secret), 1000000, &out, NULL), 0);
    struct err err = {0};
    struct owner_row owner = {.name = "bob", .uid = -1};
    assert_int_equal(store_owner_put(s, &owner, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_non_null(strstr(err.remedy, "make room"));
    faults_set(0, 0, false, false, false);
    assert_int_equal(store_owner_put(s, &owner, &err), 0);
    store_close(s);
}

/* ---- Damaged files ---- */

static size_t file_size(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

static void damage(const char *path, unsigned *seed) {
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    size_t size = file_size(path);
    if (size == 0) {
        close(fd);
        return;
    }
    switch (rand_r(seed) % 4) {
    case 0:
        assert_int_equal(ftruncate(fd, (off_t)((size_t)rand_r(seed) % size)), 0);
        break;
    case 1: { /* the header decides most */
        uint8_t byte = (uint8_t)rand_r(seed);
        assert_int_equal(pwrite(fd, &byte, 1, rand_r(seed) % 100), 1);
        break;
    }
    default: {
        char page[64];
        for (size_t i = 0; i < sizeof(page); i++)
            page[i] = (char)rand_r(seed);
        for (int i = 0; i < 20; i++)
            assert_true(pwrite(fd, page, 1 + (size_t)rand_r(seed) % 63,
                               (off_t)((size_t)rand_r(seed) % size)) > 0);
    }
    }
    close(fd);
}

static void copy_file(const char *from, const char *to) {
    char bytes[8192];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (ssize_t n; in >= 0 && (n = read(in, bytes, sizeof(bytes))) > 0;)
        assert_int_equal(write(out, bytes, (size_t)n), n);
    close(in);
    close(out);
}

/* Whatever it holds, using it fails or works, with an error that says what to do. */
static bool use_damaged(const char *home) {
    struct store *s;
    struct err err = {0};
    if (open_store(home, &s, &err) < 0) {
        assert_true(err.text[0] != '\0');
        return false;
    }
    struct machine_list list;
    struct machine_filter filter = {.states = MACHINE_STATES_ALL};
    if (store_machine_list(s, &filter, &list, &err) == 0)
        machine_list_done(&list);
    (void)add_owner(s);
    struct entry e;
    work(s, &e);
    size_t gone;
    (void)store_machine_trim(s, INT64_MAX, 1000, &gone, &err);
    store_close(s);
    return true;
}

static void a_damaged_database_is_refused_and_never_crashes(void **state) {
    (void)state;
    struct scratch model DEFER(scratch_done) = scratch_new();
    char from[128], to[128];
    unsigned seed = (unsigned)getpid() * 7919u;
    print_message("# seed %u\n", seed);
    /* Killed, so that there is a log as well. */
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        work_forever(model.path, null);
    }
    usleep(200000);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    int refusals = 0;
    for (int round = 0; round < 60; round++) {
        struct scratch dir DEFER(scratch_done) = scratch_new();
        copy_file(scratch_file(&model, "carrel.db", from), scratch_file(&dir, "carrel.db", to));
        if (round % 2)
            copy_file(scratch_file(&model, "carrel.db-wal", from),
                      scratch_file(&dir, "carrel.db-wal", to));
        damage(scratch_file(&dir, round % 4 == 1 ? "carrel.db-wal" : "carrel.db", to), &seed);
        refusals += !use_damaged(dir.path);
    }
    print_message("# %d of 60 refused\n", refusals);
    assert_true(refusals > 5);
}

static void a_file_that_is_no_database_is_refused_with_a_remedy(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    struct store *s;
    struct err err = {0};
    int fd = open(scratch_file(&dir, "carrel.db", path), O_WRONLY | O_CREAT, 0600);
    char text[4096];
    memset(text, 'x', sizeof(text));
    assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
    close(fd);
    assert_int_equal(open_store(dir.path, &s, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_non_null(strstr(err.text, "not a database"));
    assert_non_null(strstr(err.remedy, "backup"));
}

/* The database remembers a head of the journal that was durable. */
static void a_rolled_back_journal_is_noticed(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char log[128], saved[128];
    struct entry e;
    struct err err = {0};
    struct store *s = reopen(dir.path);
    assert_int_equal(add_owner(s), 0);
    store_close(s);
    copy_file(scratch_file(&dir, "journal/00000001.log", log), scratch_file(&dir, "saved", saved));
    s = reopen(dir.path);
    work(s, &e);
    store_close(s);
    copy_file(saved, log);
    assert_int_equal(open_store(dir.path, &s, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    assert_true(err.remedy[0] != '\0');
}

UNIT_MAIN(cmocka_unit_test(each_write_may_fail), cmocka_unit_test(each_sync_may_fail),
          cmocka_unit_test(after_a_failed_flush_nothing_is_acknowledged),
          cmocka_unit_test(killed_writers_lose_nothing), cmocka_unit_test(the_loop_does_not_sync),
          cmocka_unit_test(not_even_the_first_commit_syncs_on_the_loop),
          cmocka_unit_test(what_is_written_is_synced_soon),
          cmocka_unit_test(a_full_disk_still_knows_its_tokens),
          cmocka_unit_test(a_damaged_database_is_refused_and_never_crashes),
          cmocka_unit_test(a_file_that_is_no_database_is_refused_with_a_remedy),
          cmocka_unit_test(a_rolled_back_journal_is_noticed))
