#include "guest/account.h"

#include <sys/stat.h>

#include "base/text/accounts.h"
#include "guest/scratch.h"
#include "guest/sys.h"

enum { HOME, SHELL, USER, LOGNAME, VARIABLES, VARIABLE_SIZE = 4096, SMALL_FILE = 64 << 10 };

_Static_assert(sizeof(scratch_text) >= ACCOUNT_FILE_MAX, "a whole file fits");
static char values[VARIABLES][VARIABLE_SIZE] SCRATCH;
static uint32_t ids[ACCOUNT_GROUPS_MAX] SCRATCH;
static const char *const prefixes[VARIABLES] = {"HOME=", "SHELL=", "USER=", "LOGNAME="};

/* Reads a file into scratch_text. A file that is missing, special or too long counts as empty. */
static size_t read_table(const char *path) {
    struct stat st;
    int fd = sys_open(AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return 0;
    size_t n = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= (off_t)ACCOUNT_FILE_MAX)
        for (ssize_t got; n < ACCOUNT_FILE_MAX; n += (size_t)got)
            if ((got = read(fd, scratch_text + n, ACCOUNT_FILE_MAX - n)) <= 0)
                break;
    close(fd);
    return n;
}

static void drop_table(size_t n) {
    if (n > SMALL_FILE)
        scratch_text_drop();
}

/* Sets one variable. A value that is too long or empty is replaced by `otherwise`. */
static void set_variable(int which, struct account_text value, const char *otherwise) {
    size_t head = strlen(prefixes[which]);
    if (value.n == 0 || value.n >= VARIABLE_SIZE - head)
        value = (struct account_text){otherwise, strnlen(otherwise, ACCOUNT_NAME_MAX)};
    memcpy(values[which], prefixes[which], head);
    memcpy(values[which] + head, value.s, value.n);
    values[which][head + value.n] = '\0';
}

int account_resolve(const struct msg_exec *e, const char *name, struct account_found *ret) {
    static const char *variables[VARIABLES + 1];
    struct account a;
    size_t n = read_table("/etc/passwd");
    bool listed =
        account_find(scratch_text, n, name, &a) && (e->uid == MSG_ID_LOOKUP || a.uid == e->uid);
    if (!listed && e->uid == MSG_ID_LOOKUP) {
        drop_table(n);
        errno = ENOENT;
        return -1;
    }
    if (!listed)
        a = (struct account){.uid = e->uid, .gid = e->uid};
    set_variable(HOME, a.home, a.uid == 0 ? "/root" : "/");
    set_variable(SHELL, a.shell, "/bin/sh");
    set_variable(USER, a.name, name);
    set_variable(LOGNAME, a.name, name);
    drop_table(n);
    for (int i = 0; i < VARIABLES; i++)
        variables[i] = values[i];
    const char *user = values[USER] + strlen(prefixes[USER]);
    *ret = (struct account_found){.uid = a.uid,
                                  .gid = e->gid != MSG_ID_NONE ? e->gid : a.gid,
                                  .group_count = 1,
                                  .groups = ids,
                                  .home = values[HOME] + strlen(prefixes[HOME]),
                                  .variables = variables};
    ids[0] = ret->gid;
    if (!listed)
        return 0;
    n = read_table("/etc/group");
    const struct account_text member = {user, strlen(user)};
    ret->group_count = account_groups(scratch_text, n, member, ids, 1, ACCOUNT_GROUPS_MAX);
    drop_table(n);
    return 0;
}
