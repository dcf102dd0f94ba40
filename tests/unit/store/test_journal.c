/* The chain holds through restarts and crashes, and every kind of tampering shows. */
#include "tests/unit/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/defer.h"
#include "store/journal.h"
#include "tests/unit/outcome.h"
#include "tests/unit/scratch.h"

static struct journal *open_journal(const char *dir, const struct journal_options *options) {
    struct journal *j;
    ok(journal_open(dir, options, &j, &err));
    return j;
}

static void append(struct journal *j, const char *machine, int number) {
    char detail[64], name[32];
    snprintf(detail, sizeof(detail), "{\"n\":%d}", number);
    snprintf(name, sizeof(name), "arg-%d", number);
    const struct journal_record records[] = {
        {.kind = JOURNAL_INTENT,
         .owner = "ann",
         .client = "uid=0 pid=1",
         .verb = "exec.start",
         .machine = machine,
         .argv = (const char *const[]){"echo", name},
         .argc = 2,
         .time_ms = 1000 + number},
        {.kind = JOURNAL_RESULT,
         .owner = "ann",
         .verb = "exec.end",
         .machine = machine,
         .has_exit = true,
         .exit = number,
         .bytes = 3,
         .detail = detail,
         .time_ms = 1000 + number},
    };
    uint64_t seq;
    struct journal_head before, after;
    journal_at(j, &before);
    ok(journal_append(j, records, 2, &seq, &err));
    assert_int_equal(seq, before.seq + 1);
    journal_at(j, &after);
    assert_true(after.seq >= seq + 1);
}

static int verify(const char *dir, const struct journal_head *expected,
                  struct journal_report *report) {
    char path[160];
    uint8_t key[JOURNAL_PUBKEY_BYTES];
    snprintf(path, sizeof(path), "%s/key.pub", dir);
    ok(journal_pubkey_read(path, key, &err));
    err = (struct err){0};
    return journal_verify(dir, key, expected, report, &err);
}

static void assert_whole(const char *dir) {
    struct journal_report r;
    if (verify(dir, NULL, &r) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(r.segment, "");
}

/* ---- Files as bytes ---- */

struct file {
    char path[160];
    char *data;
    size_t len;
};

static void file_done(struct file *f) {
    free(f->data);
}

static struct file file_read(const char *dir, const char *name) {
    struct file f = {0};
    struct stat st;
    snprintf(f.path, sizeof(f.path), "%s/%s", dir, name);
    int fd = open(f.path, O_RDONLY);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    f.data = malloc((size_t)st.st_size + 1);
    f.len = (size_t)st.st_size;
    assert_int_equal(read(fd, f.data, f.len), f.len);
    close(fd);
    return f;
}

static void file_write(const struct file *f, const char *data, size_t len) {
    int fd = open(f->path, O_WRONLY | O_TRUNC | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

/* Where line i begins; the end of the file after the last one. */
static size_t line_at(const struct file *f, size_t i) {
    size_t at = 0;
    while (i-- > 0)
        at = (size_t)((char *)memchr(f->data + at, '\n', f->len - at) + 1 - f->data);
    return at;
}

static size_t line_count(const struct file *f) {
    size_t n = 0;
    for (size_t i = 0; i < f->len; i++)
        n += f->data[i] == '\n';
    return n;
}

/* A journal of three segments; the last one ends with records that no head covers yet. */
static struct journal_head make(const char *dir) {
    struct journal_options small = {.segment_bytes = 500}, large = {0};
    struct journal *j = open_journal(dir, &small);
    append(j, "m-aaaaaaaaaaaa", 1);
    append(j, "m-aaaaaaaaaaaa", 2);
    journal_close(j);
    j = open_journal(dir, &large);
    append(j, "m-aaaaaaaaaaaa", 3);
    struct journal_head head;
    journal_at(j, &head);
    journal_close(j);
    assert_whole(dir);
    return head;
}

static void a_journal_goes_on_after_a_restart(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_head head = make(dir.path);
    struct journal_options options = {0};
    struct journal *j = open_journal(dir.path, &options);
    struct journal_head at;
    journal_at(j, &at);
    assert_memory_equal(&at, &head, sizeof(at));
    append(j, "m-bbbbbbbbbbbb", 100);
    assert_int_equal(journal_sign(j, &err), 1);
    assert_int_equal(journal_sign(j, &err), 0); /* nothing new: nothing is written */
    struct journal_head signed_head;
    journal_at(j, &signed_head);
    assert_int_equal(signed_head.seq, head.seq + 3);
    journal_close(j);
    struct journal_report r;
    if (verify(dir.path, &head, &r) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(r.segments, 3);
    assert_int_equal(r.records, signed_head.seq);
    assert_int_equal(r.signed_seq, signed_head.seq - 1);
    assert_memory_equal(r.head.hash, signed_head.hash, SHA256_BYTES);
    struct stat st;
    char path[160];
    snprintf(path, sizeof(path), "%s/key", dir.path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static void every_flipped_byte_shows(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_report r;
    make(dir.path);
    for (int segment = 1; segment <= 3; segment++) {
        char name[16];
        snprintf(name, sizeof(name), "%08d.log", segment);
        struct file f DEFER(file_done) = file_read(dir.path, name);
        for (size_t i = 0; i < f.len; i++) {
            f.data[i] ^= (char)(1 << i % 8);
            file_write(&f, f.data, f.len);
            if (verify(dir.path, NULL, &r) == 0)
                fail_msg("byte %zu of %s was changed and nothing showed", i, name);
            assert_string_equal(r.segment, name);
            assert_true(r.line > 0 && r.seq > 0 && r.why[0]);
            f.data[i] ^= (char)(1 << i % 8);
        }
        file_write(&f, f.data, f.len);
    }
    assert_whole(dir.path);
}

/* The head is what somebody saw in the system log: it covers the last record. */
static void every_removed_doubled_or_moved_record_shows(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_head head = make(dir.path);
    struct journal_report r;
    for (int segment = 1; segment <= 3; segment++) {
        char name[16], *changed DEFER_FREE = NULL;
        snprintf(name, sizeof(name), "%08d.log", segment);
        struct file f DEFER(file_done) = file_read(dir.path, name);
        changed = malloc(2 * f.len);
        size_t lines = line_count(&f);
        for (size_t i = 0; i < lines; i++) {
            size_t a = line_at(&f, i), b = line_at(&f, i + 1), n = 0;
            memcpy(changed, f.data, a);
            memcpy(changed + a, f.data + b, f.len - b);
            file_write(&f, changed, f.len - (b - a));
            assert_int_equal(verify(dir.path, &head, &r), -1);

            memcpy(changed, f.data, b);
            memcpy(changed + b, f.data + a, f.len - a);
            file_write(&f, changed, f.len + (b - a));
            assert_int_equal(verify(dir.path, &head, &r), -1);

            if (i + 1 == lines)
                continue;
            size_t c = line_at(&f, i + 2);
            memcpy(changed, f.data, a);
            n = a;
            memcpy(changed + n, f.data + b, c - b);
            n += c - b;
            memcpy(changed + n, f.data + a, b - a);
            n += b - a;
            memcpy(changed + n, f.data + c, f.len - c);
            file_write(&f, changed, f.len);
            assert_int_equal(verify(dir.path, &head, &r), -1);
        }
        /* Cut anywhere. */
        for (size_t i = 0; i < f.len; i += 9) {
            file_write(&f, f.data, i);
            assert_int_equal(verify(dir.path, &head, &r), -1);
        }
        file_write(&f, f.data, f.len);
    }
    assert_int_equal(verify(dir.path, &head, &r), 0);
}

static void a_cut_tail_shows_against_a_head(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_head head = make(dir.path);
    struct file f DEFER(file_done) = file_read(dir.path, "00000003.log");
    file_write(&f, f.data, line_at(&f, line_count(&f) - 1));
    struct journal_report r;
    assert_int_equal(verify(dir.path, NULL, &r), 0); /* by itself it is a chain */
    assert_int_equal(verify(dir.path, &head, &r), -1);
    assert_int_equal(err.code, ERR_GONE);
    /* Going on from there makes another history. */
    struct journal_options options = {0};
    struct journal *j = open_journal(dir.path, &options);
    append(j, "m-aaaaaaaaaaaa", 3);
    append(j, "m-aaaaaaaaaaaa", 3);
    journal_close(j);
    assert_int_equal(verify(dir.path, NULL, &r), 0);
    assert_int_equal(verify(dir.path, &head, &r), -1);
    assert_int_equal(err.code, ERR_GONE);
    /* And the daemon, which remembers a head too, refuses to. */
    options.expected = &head;
    refused(ERR_GONE, journal_open(dir.path, &options, &j, &err));

    char text[JOURNAL_HEAD_TEXT];
    struct journal_head parsed;
    journal_head_text(&head, text);
    ok(journal_head_parse(text, &parsed, &err));
    assert_memory_equal(&parsed, &head, sizeof(head));
    refused(ERR_INVALID, journal_head_parse("12", &parsed, &err));
    text[3]++;
    text[strlen(text) - 1] = 'g';
    refused(ERR_INVALID, journal_head_parse(text, &parsed, &err));
}

static void segments_of_other_journals_show(void **state) {
    (void)state;
    struct scratch one DEFER(scratch_done) = scratch_new(), two DEFER(scratch_done) = scratch_new();
    make(one.path);
    make(two.path);
    struct journal_report r;
    for (int segment = 1; segment <= 3; segment++) {
        char name[16];
        snprintf(name, sizeof(name), "%08d.log", segment);
        struct file mine DEFER(file_done) = file_read(one.path, name);
        struct file other DEFER(file_done) = file_read(two.path, name);
        file_write(&mine, other.data, other.len);
        assert_int_equal(verify(one.path, NULL, &r), -1);
        /* From line 2 on, under its own header. */
        size_t a = line_at(&mine, 1), b = line_at(&other, 1);
        char *mixed DEFER_FREE = malloc(mine.len + other.len);
        memcpy(mixed, mine.data, a);
        memcpy(mixed + a, other.data + b, other.len - b);
        file_write(&mine, mixed, a + other.len - b);
        assert_int_equal(verify(one.path, NULL, &r), -1);
        file_write(&mine, mine.data, mine.len);
    }
    assert_whole(one.path);
    /* A whole journal with another key. */
    struct file mine DEFER(file_done) = file_read(one.path, "key.pub");
    struct file other DEFER(file_done) = file_read(two.path, "key.pub");
    file_write(&mine, other.data, other.len);
    assert_int_equal(verify(one.path, NULL, &r), -1);
    assert_non_null(strstr(err.text, "signature"));
    struct journal_options options = {0};
    struct journal *j;
    refused(ERR_INVALID, journal_open(one.path, &options, &j, &err));
}

static void a_missing_segment_shows(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    make(dir.path);
    struct journal_report r;
    struct file f DEFER(file_done) = file_read(dir.path, "00000002.log");
    unlink(f.path);
    assert_int_equal(verify(dir.path, NULL, &r), -1);
    assert_non_null(strstr(err.text, "00000002.log is missing"));
    struct journal_options options = {0};
    struct journal *j;
    refused(ERR_INVALID, journal_open(dir.path, &options, &j, &err));
}

static void a_torn_line_is_cut_off_and_noted(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    make(dir.path);
    struct file f DEFER(file_done) = file_read(dir.path, "00000003.log");
    size_t last = line_at(&f, line_count(&f) - 1);
    struct journal_options options = {0};
    struct journal_report r;
    for (size_t cut = last + 1; cut < f.len; cut += 13) {
        file_write(&f, f.data, cut);
        struct journal *j = open_journal(dir.path, &options);
        append(j, "m-cccccccccccc", 1);
        journal_close(j);
        assert_int_equal(verify(dir.path, NULL, &r), 0);
        struct file now DEFER(file_done) = file_read(dir.path, "00000003.log");
        now.data[now.len - 1] = '\0';
        assert_non_null(strstr(now.data + last, "journal.torn"));
    }
}

static void a_crash_between_two_segments_is_mended(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    make(dir.path);
    struct file f DEFER(file_done) = file_read(dir.path, "00000003.log");
    size_t header = line_at(&f, 1);
    struct journal_options options = {0};
    struct journal_report r;
    for (size_t cut = 0; cut < header; cut += 17) {
        file_write(&f, f.data, cut);
        struct journal *j = open_journal(dir.path, &options);
        append(j, "m-cccccccccccc", 1);
        journal_close(j);
        assert_int_equal(verify(dir.path, NULL, &r), 0);
        assert_int_equal(r.segments, 3);
    }
    /* The same for the very first line of all. */
    struct scratch fresh DEFER(scratch_done) = scratch_new();
    struct journal *j = open_journal(fresh.path, &options);
    journal_close(j);
    struct file first DEFER(file_done) = file_read(fresh.path, "00000001.log");
    file_write(&first, first.data, first.len / 2);
    j = open_journal(fresh.path, &options);
    journal_close(j);
    assert_whole(fresh.path);
}

static void a_broken_journal_is_not_appended_to(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    make(dir.path);
    struct file f DEFER(file_done) = file_read(dir.path, "00000003.log");
    struct journal_options options = {0};
    struct journal *j;
    for (size_t i = 0; i < f.len - 1; i += 7) {
        f.data[i] ^= 4;
        file_write(&f, f.data, f.len);
        refused(ERR_INVALID, journal_open(dir.path, &options, &j, &err));
        assert_non_null(strstr(err.remedy, "audit verify"));
        f.data[i] ^= 4;
    }
    file_write(&f, f.data, f.len);
    /* The segment before it was changed at its end. */
    struct file before DEFER(file_done) = file_read(dir.path, "00000002.log");
    before.data[before.len - 10] ^= 1;
    file_write(&before, before.data, before.len);
    refused(ERR_INVALID, journal_open(dir.path, &options, &j, &err));
}

static void a_lost_journal_is_begun_anew_with_a_note(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_head seen = {.seq = 77};
    struct journal_options options = {.expected = &seen};
    journal_close(open_journal(dir.path, &options));
    struct file f DEFER(file_done) = file_read(dir.path, "00000001.log");
    f.data[f.len - 1] = '\0';
    assert_non_null(strstr(f.data, "\"verb\":\"journal.lost\",\"reason\":\"absent up to 77:00"));
    /* Whoever verifies is told, as every hash of the new one holds. */
    struct journal_report report;
    ok(verify(dir.path, NULL, &report));
    assert_int_equal(report.lost_seq, report.head.seq);
}

/* ---- Full disks and sudden death ---- */

static void a_full_disk_loses_no_acknowledged_record(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options options = {.head_every = 4};
    struct journal *j = open_journal(dir.path, &options);
    append(j, "m-aaaaaaaaaaaa", 0);
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    int full = 0;
    /* The limit falls on each byte of a record in turn: a write is cut short there. */
    for (rlim_t room = 1; room < 500; room += 3) {
        struct journal_head before, after;
        struct stat st;
        char path[160];
        snprintf(path, sizeof(path), "%s/00000001.log", dir.path);
        assert_int_equal(stat(path, &st), 0);
        journal_at(j, &before);
        small = (struct rlimit){(rlim_t)st.st_size + room, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        const struct journal_record r = {.kind = JOURNAL_NOTE, .verb = "v", .owner = "ann"};
        err = (struct err){0};
        int status = journal_append(j, &r, 1, NULL, &err);
        setrlimit(RLIMIT_FSIZE, &old);
        journal_at(j, &after);
        if (status < 0) {
            full++;
            assert_int_equal(err.code, ERR_LIMIT);
            assert_int_equal(after.seq, before.seq);
        } else {
            assert_true(after.seq > before.seq);
        }
        assert_whole(dir.path);
    }
    assert_true(full > 20);
    append(j, "m-aaaaaaaaaaaa", 1);
    journal_close(j);
    assert_whole(dir.path);
}

static void a_segment_that_cannot_be_made_waits(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options options = {.segment_bytes = 900};
    struct journal *j = open_journal(dir.path, &options);
    struct file blocker = {0};
    snprintf(blocker.path, sizeof(blocker.path), "%s/00000002.log", dir.path);
    assert_int_equal(mkdir(blocker.path, 0700), 0);
    for (int i = 0; i < 4; i++)
        append(j, "m-aaaaaaaaaaaa", i);
    rmdir(blocker.path);
    append(j, "m-aaaaaaaaaaaa", 9);
    journal_close(j);
    struct journal_report r;
    assert_int_equal(verify(dir.path, NULL, &r), 0);
    assert_int_equal(r.segments, 2);
}

/* Appends until it is killed, and says on the pipe what was acknowledged. */
static void write_forever(const char *dir, int pipe_fd) {
    struct journal_options options = {.segment_bytes = 20000, .head_every = 30};
    struct journal *j;
    if (journal_open(dir, &options, &j, NULL) < 0)
        _exit(3);
    for (;;) {
        uint64_t seq;
        const struct journal_record r = {.kind = JOURNAL_NOTE, .verb = "crash", .owner = "ann"};
        if (journal_append(j, &r, 1, &seq, NULL) < 0 ||
            write(pipe_fd, &seq, sizeof(seq)) != sizeof(seq))
            _exit(4);
    }
}

static void killed_writers_leave_a_whole_journal(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    unsigned seed = (unsigned)getpid();
    print_message("# seed %u\n", seed);
    uint64_t total = 0;
    for (int round = 0; round < 24; round++) {
        int fds[2], status;
        assert_int_equal(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0) {
            close(fds[0]);
            write_forever(dir.path, fds[1]);
        }
        close(fds[1]);
        if (round % 2) /* half of them while they open, half while they write */
            poll(&(struct pollfd){.fd = fds[0], .events = POLLIN}, 1, 20000);
        usleep(500 + (useconds_t)rand_r(&seed) % 20000);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        uint64_t seq, last = 0;
        while (read(fds[0], &seq, sizeof(seq)) == sizeof(seq))
            last = seq;
        close(fds[0]);
        struct journal_options options = {0};
        struct journal *j = open_journal(dir.path, &options);
        struct journal_head at;
        journal_at(j, &at);
        assert_true(at.seq >= last);
        total = last ? last : total;
        journal_close(j);
        if (round % 8 == 7)
            assert_whole(dir.path);
    }
    assert_true(total > 12);
}

/* ---- What is written ---- */

static struct journal_record read_last(const char *dir, struct journal_reader **ret) {
    const struct journal_record *r;
    const char *line;
    size_t len;
    struct journal_filter filter = {.tail = 1};
    ok(journal_reader_open(dir, &filter, ret, &err));
    assert_int_equal(journal_reader_next(*ret, &r, &line, &len, &err), 1);
    return *r;
}

static void secrets_never_reach_the_file(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options options = {0};
    struct journal *j = open_journal(dir.path, &options);
    const struct journal_secret secrets[] = {{"API", "hunter2\"", 8}, {"COMMA", "\",\"", 3}};
    struct journal_record r = {
        .kind = JOURNAL_INTENT,
        .argv = (const char *const[]){"curl", "-H", "Key: hunter2\"!"},
        .argc = 3,
        .reason = "hunter2\"",
        .detail = "{\"header\":\"hunter2\\\"\"}",
        .secrets = secrets,
        .secret_count = 2,
    };
    ok(journal_append(j, &r, 1, NULL, &err));
    struct journal_reader *reader;
    struct journal_record out = read_last(dir.path, &reader);
    assert_string_equal(out.argv[2], "Key: [secret API]!");
    assert_string_equal(out.reason, "[secret API]");
    assert_string_equal(out.detail, "{\"header\":\"[secret API]\"}");
    journal_reader_close(reader);
    /* Where taking it out breaks the JSON, the whole detail goes. */
    r.detail = "{\"a\":\"b\",\"c\":1}";
    ok(journal_append(j, &r, 1, NULL, &err));
    out = read_last(dir.path, &reader);
    assert_string_equal(out.detail, "\"[removed: it held a secret]\"");
    journal_reader_close(reader);
    journal_close(j);
    struct file f DEFER(file_done) = file_read(dir.path, "00000001.log");
    assert_null(memmem(f.data, f.len, "hunter2", 7));
}

static void long_texts_are_cut_and_say_so(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options options = {0};
    struct journal *j = open_journal(dir.path, &options);
    size_t size = 300000;
    char *big DEFER_FREE = malloc(size + 1);
    memset(big, 'x', size);
    big[size] = '\0';
    struct journal_record r = {.kind = JOURNAL_NOTE,
                               .argv = (const char *const[]){"cat", big, "z"},
                               .argc = 3,
                               .reason = big,
                               .client = big};
    ok(journal_append(j, &r, 1, NULL, &err));
    struct journal_reader *reader;
    struct journal_record out = read_last(dir.path, &reader);
    assert_int_equal(out.argc, 2);
    assert_int_equal(strlen(out.argv[1]), JOURNAL_ARGV_BYTES - 5);
    assert_int_equal(out.argv_bytes, 4 + size + 1 + 2);
    assert_int_equal(strlen(out.argv_hash), 64);
    assert_int_equal(strlen(out.reason), JOURNAL_TEXT_MAX);
    journal_reader_close(reader);

    static const char *many[1000];
    for (size_t i = 0; i < 1000; i++)
        many[i] = "a";
    r = (struct journal_record){.kind = JOURNAL_NOTE, .argv = many, .argc = 1000};
    ok(journal_append(j, &r, 1, NULL, &err));
    out = read_last(dir.path, &reader);
    assert_int_equal(out.argc, JOURNAL_ARGV_COUNT);
    assert_int_equal(out.argv_bytes, 2000);
    journal_reader_close(reader);
    r = (struct journal_record){.kind = JOURNAL_NOTE, .detail = big};
    refused(ERR_LIMIT, journal_append(j, &r, 1, NULL, &err));
    journal_close(j);
    assert_whole(dir.path);
}

static void count_head(void *arg, const struct journal_head *head) {
    struct journal_head *last = arg;
    assert_true(head->seq > last->seq);
    *last = *head;
}

static void heads_are_given_away(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_head seen = {0};
    struct journal_options options = {.head_every = 4, .on_head = count_head, .on_head_arg = &seen};
    struct journal *j = open_journal(dir.path, &options);
    for (int i = 0; i < 10; i++)
        append(j, "m-aaaaaaaaaaaa", i);
    journal_close(j);
    assert_true(seen.seq > 15);
    struct journal_report r;
    assert_int_equal(verify(dir.path, &seen, &r), 0);
    seen.hash[0] ^= 1;
    assert_int_equal(verify(dir.path, &seen, &r), -1);
    assert_int_equal(err.code, ERR_GONE);
}

/* ---- Reading ---- */

static size_t count(const char *dir, const struct journal_filter *filter, uint64_t *ret_first) {
    struct journal_reader *reader;
    const struct journal_record *r;
    const char *line;
    size_t len, n = 0;
    int got;
    ok(journal_reader_open(dir, filter, &reader, &err));
    while ((got = journal_reader_next(reader, &r, &line, &len, &err)) == 1) {
        if (n++ == 0 && ret_first)
            *ret_first = r->seq;
        assert_true(line[len - 1] == '\n');
    }
    assert_int_equal(got, 0);
    journal_reader_close(reader);
    return n;
}

static void readers_filter_and_follow(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options options = {.segment_bytes = 1000};
    struct journal *j = open_journal(dir.path, &options);
    for (int i = 0; i < 20; i++)
        append(j, i % 4 ? "m-aaaaaaaaaaaa" : "m-bbbbbbbbbbbb", i);
    struct {
        struct journal_filter filter;
        size_t count;
    } cases[] = {
        {{0}, 40},
        {{.machine = "m-bbbbbbbbbbbb"}, 10},
        {{.verb = "exec"}, 40},
        {{.verb = "exec.end"}, 20},
        {{.verb = "exe"}, 0},
        {{.owner = "bob"}, 0},
        {{.text = "M-BBBBBBBBBBBB"}, 10},
        {{.text = "m-bbbbbbbbbbbbb"}, 0},
        {{.text = "m-bbbb", .verb = "exec.end"}, 5},
        {{.text = ""}, 40},
        {{.since_ms = 1010}, 20},
        {{.until_ms = 1009}, 20},
        {{.tail = 3}, 3},
        {{.tail = 4, .machine = "m-bbbbbbbbbbbb"}, 4},
        {{.tail = 1000000}, 40},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(count(dir.path, &cases[i].filter, NULL), cases[i].count);
    struct journal_filter everything = {.structural = true};
    struct journal_head at;
    journal_at(j, &at);
    assert_int_equal(count(dir.path, &everything, NULL), at.seq);
    uint64_t first;
    struct journal_filter after = {.after_seq = at.seq - 3};
    assert_true(count(dir.path, &after, &first) <= 3 && first > at.seq - 3);

    /* A search has few words. */
    const char *many = "m m m m m m m m m m m m m m m m m", *fewer = many + 2;
    assert_int_equal(count(dir.path, &(struct journal_filter){.text = fewer}, NULL), 40);
    struct journal_reader *refused;
    const struct journal_filter too_many = {.text = many};
    assert_int_equal(journal_reader_open(dir.path, &too_many, &refused, &err), -1);
    assert_non_null(strstr(err.text, "more than 16 words"));

    /* A search that nobody waits for ends, whether it seeks the last records or reads on. */
    atomic_bool stop = true;
    struct journal_filter ended = {.tail = 3, .stop = &stop};
    assert_int_equal(journal_reader_open(dir.path, &ended, &refused, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    ended.tail = 0;
    ok(journal_reader_open(dir.path, &ended, &refused, &err));
    const struct journal_record *none;
    const char *nothing;
    size_t size;
    assert_int_equal(journal_reader_next(refused, &none, &nothing, &size, &err), -1);
    stop = false;
    assert_int_equal(journal_reader_next(refused, &none, &nothing, &size, &err), 1);
    journal_reader_close(refused);

    /* A reader at the end sees what comes later, over the border of a segment too. */
    struct journal_reader *reader;
    const struct journal_record *r;
    const char *line;
    size_t len, seen = 0;
    struct journal_filter filter = {.tail = 1};
    ok(journal_reader_open(dir.path, &filter, &reader, &err));
    while (journal_reader_next(reader, &r, &line, &len, &err) == 1)
        seen++;
    assert_int_equal(seen, 1);
    for (int i = 0; i < 10; i++)
        append(j, "m-cccccccccccc", i);
    while (journal_reader_next(reader, &r, &line, &len, &err) == 1)
        seen++;
    assert_int_equal(seen, 21);
    journal_reader_close(reader);
    journal_close(j);
}

/* Or a daemon at its limit of open files would take it for a disk that fails, and leave. */
static void a_sync_needs_no_new_descriptor(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options small = {.segment_bytes = 500};
    struct journal *j = open_journal(dir.path, &small);
    struct journal_head at, synced;
    struct rlimit old;
    getrlimit(RLIMIT_NOFILE, &old);
    for (int i = 0; i < 20; i++)
        append(j, "m-cccccccccccc", i);
    const struct rlimit few = {64, old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    int taken[64];
    size_t count = 0;
    while ((taken[count] = dup(0)) >= 0)
        count++;
    assert_int_equal(errno, EMFILE);
    int status = journal_sync(j, &err);
    while (count)
        close(taken[--count]);
    setrlimit(RLIMIT_NOFILE, &old);
    ok(status);
    journal_at(j, &at);
    journal_synced(j, &synced);
    assert_int_equal(synced.seq, at.seq);
    journal_close(j);
    assert_whole(dir.path);
}

static uint64_t forget(struct journal *j, const struct journal_keep *keep) {
    uint64_t first;
    ok(journal_announce(j, keep, &first, &err));
    ok(journal_sync(j, &err));
    if (first)
        ok(journal_forget(j, first, &err));
    return first;
}

static void drop_segment(const char *dir, uint64_t number) {
    char path[160];
    snprintf(path, sizeof(path), "%s/%08u.log", dir, (unsigned)number);
    assert_int_equal(unlink(path), 0);
}

/* The head that the first record there follows from. */
static struct journal_head head_before(const char *dir, const struct journal_report *r) {
    struct journal_head head;
    char name[16], text[JOURNAL_HEAD_TEXT];
    static const char lead[] = "\"prev\":\"";
    snprintf(name, sizeof(name), "%08u.log", (unsigned)r->first_segment);
    struct file f DEFER(file_done) = file_read(dir, name);
    f.data[f.len] = '\0';
    const char *prev = strstr(f.data, lead);
    assert_non_null(prev);
    snprintf(text, sizeof(text), "%llu:%.64s", (unsigned long long)r->first_seq - 1,
             prev + sizeof(lead) - 1);
    ok(journal_head_parse(text, &head, &err));
    return head;
}

/* Somebody's head may be of the last record that is gone: it proves the beginning. None before can.
 */
static void assert_begins_after(const char *dir, const struct journal_report *r) {
    struct journal_report unused;
    struct journal_head last = head_before(dir, r), other = last, earlier = last;
    if (verify(dir, &last, &unused) < 0)
        fail_msg("%s", err.text);
    other.hash[0] ^= 1;
    refused(ERR_GONE, verify(dir, &other, &unused));
    earlier.seq--;
    refused(ERR_GONE, verify(dir, &earlier, &unused));
}

static void what_is_forgotten_was_announced(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options small = {.segment_bytes = 500};
    struct journal *j = open_journal(dir.path, &small);
    struct journal_head early, late;
    struct journal_report r;
    append(j, "m-aaaaaaaaaaaa", 0);
    journal_at(j, &early);
    for (int i = 1; i < 10; i++)
        append(j, "m-aaaaaaaaaaaa", i);
    assert_int_equal(forget(j, &(struct journal_keep){0}), 0);
    assert_int_equal(forget(j, &(struct journal_keep){.bytes = 1 << 20}), 0);
    assert_int_equal(forget(j, &(struct journal_keep){.since_ms = 1}), 0);
    uint64_t first = forget(j, &(struct journal_keep){.bytes = 3000});
    assert_true(first > 1);
    append(j, "m-bbbbbbbbbbbb", 11);
    journal_at(j, &late);
    journal_close(j);

    if (verify(dir.path, &late, &r) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(r.first_segment, first);
    assert_true(r.first_seq > early.seq && r.records == r.head.seq - r.first_seq + 1);
    assert_begins_after(dir.path, &r);
    refused(ERR_GONE, verify(dir.path, &early, &r));

    /* It goes on, is read from where it begins, and forgets again; two segments always stay. */
    j = open_journal(dir.path, &small);
    struct journal_reader *reader;
    const struct journal_record *record;
    const char *line;
    size_t len;
    ok(journal_reader_open(dir.path, &(struct journal_filter){.structural = true}, &reader, &err));
    assert_int_equal(journal_reader_next(reader, &record, &line, &len, &err), 1);
    assert_int_equal(record->seq, r.first_seq);
    journal_reader_close(reader);
    for (int i = 20; i < 30; i++)
        append(j, "m-bbbbbbbbbbbb", i);
    assert_true(forget(j, &(struct journal_keep){.since_ms = INT64_MAX}) > first);
    journal_close(j);
    assert_whole(dir.path);
    if (verify(dir.path, NULL, &r) < 0)
        fail_msg("%s", err.text);
    assert_true(r.segments >= 2 && r.segments <= 3);
    j = open_journal(dir.path, &small);
    journal_close(j);
}

static void a_beginning_that_nobody_announced_shows(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct journal_options small = {.segment_bytes = 500};
    struct journal *j = open_journal(dir.path, &small);
    struct journal_report r;
    for (int i = 0; i < 10; i++)
        append(j, "m-aaaaaaaaaaaa", i);
    uint64_t first;
    /* Announced and, for a crash, not removed: still whole. */
    ok(journal_announce(j, &(struct journal_keep){.bytes = 3000}, &first, &err));
    struct journal_head announced;
    journal_at(j, &announced);
    journal_close(j);
    assert_true(first > 2);
    ok(verify(dir.path, &announced, &r));
    assert_int_equal(r.signed_seq, announced.seq - 1); /* who may forget has signed it */
    for (uint64_t n = 1; n < first; n++) {
        drop_segment(dir.path, n);
        if (verify(dir.path, NULL, &r) < 0)
            fail_msg("segment %d: %s", (int)n, err.text);
        assert_int_equal(r.first_segment, n + 1);
    }
    drop_segment(dir.path, first);
    refused(ERR_GONE, verify(dir.path, NULL, &r));
}

UNIT_MAIN(cmocka_unit_test(a_journal_goes_on_after_a_restart),
          cmocka_unit_test(what_is_forgotten_was_announced),
          cmocka_unit_test(a_beginning_that_nobody_announced_shows),
          cmocka_unit_test(every_flipped_byte_shows),
          cmocka_unit_test(every_removed_doubled_or_moved_record_shows),
          cmocka_unit_test(a_cut_tail_shows_against_a_head),
          cmocka_unit_test(segments_of_other_journals_show),
          cmocka_unit_test(a_missing_segment_shows),
          cmocka_unit_test(a_torn_line_is_cut_off_and_noted),
          cmocka_unit_test(a_crash_between_two_segments_is_mended),
          cmocka_unit_test(a_broken_journal_is_not_appended_to),
          cmocka_unit_test(a_lost_journal_is_begun_anew_with_a_note),
          cmocka_unit_test(a_full_disk_loses_no_acknowledged_record),
          cmocka_unit_test(a_segment_that_cannot_be_made_waits),
          cmocka_unit_test(a_sync_needs_no_new_descriptor),
          cmocka_unit_test(killed_writers_leave_a_whole_journal),
          cmocka_unit_test(secrets_never_reach_the_file),
          cmocka_unit_test(long_texts_are_cut_and_say_so), cmocka_unit_test(heads_are_given_away),
          cmocka_unit_test(readers_filter_and_follow))
