/*
 * Deletes the oldest segments (files) of the journal. A signed record announces first where the
 * journal starts from then on, so a journal whose beginning was removed by anybody else does not
 * verify.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "store/journal_chain.h"

static const char verb[] = "journal.pruned";

/* True if a segment is too old or beyond the size limit. All segments before it are deleted too. */
static bool is_past(const struct journal_keep *keep, const struct stat *st, uint64_t newer_bytes) {
    bool old = keep->since_ms && (int64_t)st->st_mtim.tv_sec * 1000 < keep->since_ms;
    return old || (keep->bytes && newer_bytes + (uint64_t)st->st_size > keep->bytes);
}

/* Returns the first segment to keep. The last two segments always stay. */
static uint64_t first_kept(int dir, uint64_t first, uint64_t last, const struct journal_keep *keep,
                           uint64_t *ret_gone_bytes) {
    uint64_t bytes = 0, kept = last;
    struct stat st;
    char name[SEGMENT_NAME_SIZE];
    *ret_gone_bytes = 0;
    for (uint64_t n = last; n >= first; n--) {
        segment_name(n, name);
        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            break;
        bool stays = n + 1 >= last || (kept == n + 1 && !is_past(keep, &st, bytes));
        kept = stays ? n : kept;
        bytes += stays ? (uint64_t)st.st_size : 0;
        *ret_gone_bytes += stays ? 0 : (uint64_t)st.st_size;
    }
    return kept;
}

bool journal_is_prune(const struct journal_record *r, uint64_t *ret_first) {
    unsigned long long first;
    if (r->kind != JOURNAL_NOTE || strcmp(r->verb, verb) != 0 ||
        sscanf(r->detail ? r->detail : "", "{\"segment\":%llu}", &first) != 1)
        return false;
    *ret_first = first;
    return true;
}

int journal_prune(struct journal *j, int dir, uint64_t last, const struct journal_keep *keep,
                  uint64_t *ret_first, struct err *err) {
    uint64_t first, newest, bytes;
    char detail[40];
    *ret_first = 0;
    if (!keep->bytes && !keep->since_ms)
        return 0;
    if (segment_range(dir, &first, &newest, err) < 0)
        return -1;
    uint64_t kept = first_kept(dir, first, last, keep, &bytes);
    if (kept <= first)
        return 0;
    snprintf(detail, sizeof(detail), "{\"segment\":%llu}", (unsigned long long)kept);
    const struct journal_record note = {.kind = JOURNAL_NOTE,
                                        .verb = verb,
                                        .reason = "beyond the age or size limit of the journal",
                                        .bytes = bytes,
                                        .detail = detail};
    if (journal_append(j, &note, 1, NULL, err) < 0 || journal_sign(j, err) < 0)
        return -1;
    *ret_first = kept;
    return 0;
}

int journal_drop(int dir, uint64_t first, struct err *err) {
    uint64_t oldest, newest;
    char name[SEGMENT_NAME_SIZE];
    if (segment_range(dir, &oldest, &newest, err) < 0)
        return -1;
    for (uint64_t n = oldest; n < first && n < newest; n++) {
        segment_name(n, name);
        if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
            return err_sys(err, "cannot delete journal segment (file) %s", name);
    }
    return fsync(dir) < 0 ? err_sys(err, "cannot sync the journal directory") : 0;
}
