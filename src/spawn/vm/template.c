#include "spawn/vm/template.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/wire/vm_line.h"

enum {
    BOOT_MS = 180000, /* as long as the daemon waits for a guest */
    SAVE_MS = 10000,
    LOOK_MS = 5,
    REPLY_MAX = 16 << 10,
    PAGE = 4096,
    FIRST_FD = 3,
    HIGH_FD = 64,
    USED_MAX = 256 << 20, /* a guest that has just booted uses less */
};

#define MAKER_GO_ON "{\"execute\":\"cont\"}"

/* ---- the maker ---- */

/* Waits for a text from a socket; what came before it is dropped. */
static bool maker_wait(int sock, const char *text, uint64_t until_ms) {
    char got[REPLY_MAX];
    size_t have = 0;
    for (uint64_t now; (now = boot_ms()) < until_ms;) {
        struct pollfd p = {sock, POLLIN, 0};
        if (poll(&p, 1, (int)(until_ms - now)) <= 0)
            continue;
        ssize_t n = read(sock, got + have, sizeof(got) - 1 - have);
        if (n <= 0)
            return false;
        have += (size_t)n;
        got[have] = '\0';
        if (strstr(got, text))
            return true;
        if (have == sizeof(got) - 1)
            have = 0;
    }
    return false;
}

static bool maker_say(int qmp, const char *command, const int *fds, size_t count) {
    return send_fds(qmp, command, strlen(command), fds, count) >= 0;
}

/*
 * The state of the devices. QEMU does not write the memory, which is in a file already, and stops
 * the vm at the end. A vm that was stopped before would be stopped as a clone, too.
 */
static bool maker_save_state(const struct vm_making *m, int state) {
    uint64_t until = boot_ms() + SAVE_MS;
    if (!maker_say(m->qmp, "{\"execute\":\"qmp_capabilities\"}", NULL, 0) ||
        !maker_say(m->qmp,
                   "{\"execute\":\"migrate-set-capabilities\",\"arguments\":{\"capabilities\":"
                   "[{\"capability\":\"x-ignore-shared\",\"state\":true}]}}",
                   NULL, 0) ||
        !maker_say(m->qmp, "{\"execute\":\"getfd\",\"arguments\":{\"fdname\":\"state\"}}", &state,
                   1) ||
        !maker_say(m->qmp, "{\"execute\":\"migrate\",\"arguments\":{\"uri\":\"fd:state\"}}", NULL,
                   0))
        return false;
    while (boot_ms() < until) {
        if (!maker_say(m->qmp, "{\"execute\":\"query-migrate\"}", NULL, 0))
            return false;
        if (maker_wait(m->qmp, "\"status\": \"completed\"", boot_ms() + LOOK_MS))
            return true;
    }
    return false;
}

static bool is_zero(const uint8_t *page) {
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

/* Copies the pages that hold anything. False: they are too many. */
static bool maker_copy_pages(uint8_t *to, const uint8_t *from, off_t start, off_t end,
                             size_t *used) {
    for (off_t at = start; at < end; at += PAGE) {
        if (is_zero(from + at))
            continue;
        if ((*used += PAGE) > USED_MAX)
            return false;
        memcpy(to + at, from + at, PAGE);
    }
    return true;
}

static bool maker_copy_memory(int from, int to, size_t size) {
    size_t used = 0;
    bool fits = true;
    if (ftruncate(to, (off_t)size) < 0)
        return false;
    uint8_t *source = mmap(NULL, size, PROT_READ, MAP_SHARED, from, 0);
    uint8_t *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, to, 0);
    if (source == MAP_FAILED || copy == MAP_FAILED)
        return false;
    for (off_t end = 0, start; fits && (start = lseek(from, end, SEEK_DATA)) >= 0;) {
        end = lseek(from, start, SEEK_HOLE);
        fits = end > start && maker_copy_pages(copy, source, start, end, &used);
    }
    munmap(source, size);
    munmap(copy, size); /* a mapping that could write prevents the seal */
    return fits && used > 0;
}

static bool maker_seal(int fd) {
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
}

/* Keeps only what the maker needs: no other descriptor of the spawner may live longer here. */
static void maker_leave(struct vm_making *m, int *to) {
    int *const own[] = {&m->ram, &m->qmp, &m->word, to};
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int i = 0; i < 4; i++)
        if ((*own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, HIGH_FD)) < 0)
            _exit(1);
    for (int i = 0; i < 4; i++) {
        dup3(*own[i], FIRST_FD + i, O_CLOEXEC);
        *own[i] = FIRST_FD + i;
    }
    close_range(FIRST_FD + 4, ~0u, 0);
}

static void __attribute__((noreturn)) maker_run(struct vm_making *m, int to) {
    struct stat st;
    prctl(PR_SET_NAME, "carrel-template");
    maker_leave(m, &to);
    bool waits = maker_wait(m->word, VM_WAITS, boot_ms() + BOOT_MS);
    int files[] = {memfd_create("carrel-template", MFD_CLOEXEC | MFD_ALLOW_SEALING),
                   memfd_create("carrel-template-state", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    bool is_made = waits && files[0] >= 0 && files[1] >= 0 && fstat(m->ram, &st) == 0 &&
                   maker_save_state(m, files[1]) &&
                   maker_copy_memory(m->ram, files[0], (size_t)st.st_size);
    /* The vm is not stopped for longer than needed: QEMU closes the state file by itself. */
    maker_say(m->qmp, MAKER_GO_ON, NULL, 0);
    maker_wait(m->qmp, "RESUME", boot_ms() + SAVE_MS);
    write_all(m->word, m->wake, m->wake_size);
    bool is_sealed = is_made && maker_seal(files[0]) && maker_seal(files[1]);
    send_fds(to, "t", 1, files, is_sealed ? 2 : 0);
    _exit(0);
}

/* ---- the spawner ---- */

void vm_templates_init(struct vm_templates *t) {
    *t = (struct vm_templates){.maker = -1, .made_of = {-1, -1, -1, NULL, 0}};
    for (int i = 0; i < VM_TEMPLATES; i++)
        t->slots[i].ram = t->slots[i].state = t->slots[i].proof = -1;
}

static void template_drop(struct vm_template *t) {
    close_fd(&t->ram);
    close_fd(&t->state);
    close_fd(&t->proof);
}

/* False: its clone has ended, and never was awake. */
static bool template_holds(struct vm_template *t) {
    char word;
    if (t->proof < 0)
        return true;
    ssize_t n = recv(t->proof, &word, 1, MSG_DONTWAIT);
    if (n < 0)
        return true; /* not yet */
    t->is_proven = n > 0;
    close_fd(&t->proof);
    return t->is_proven;
}

void vm_template_prove(struct vm_template *t, int word) {
    if (t->is_proven || t->proof >= 0)
        close(word);
    else
        t->proof = word;
}

struct vm_template *vm_template_find(struct vm_templates *t, const struct vm_template_key *key) {
    for (int i = 0; i < VM_TEMPLATES; i++) {
        struct vm_template *slot = &t->slots[i];
        if (slot->ram < 0 || memcmp(&slot->key, key, sizeof(*key)) != 0)
            continue;
        if (!template_holds(slot)) {
            template_drop(slot);
            continue;
        }
        slot->used = ++t->uses;
        return slot;
    }
    return NULL;
}

static void making_close(struct vm_making *m) {
    close_fd(&m->ram);
    close_fd(&m->qmp);
    close_fd(&m->word);
    free(TAKE(m->wake));
}

int vm_template_make(struct vm_templates *t, const struct vm_template_key *key,
                     struct vm_making *m) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        int e = errno;
        making_close(m);
        return -e;
    }
    pid_t pid = fork();
    if (pid == 0)
        maker_run(m, ends[1]);
    int e = errno;
    close(ends[1]);
    if (pid < 0) {
        making_close(m);
        close(ends[0]);
        return -e;
    }
    t->made_of = *m;
    t->maker = ends[0];
    t->maker_pid = pid;
    t->making = *key;
    return 0;
}

/* The slot that is free, or was not used for the longest time. */
static struct vm_template *template_slot(struct vm_templates *t) {
    struct vm_template *best = &t->slots[0];
    for (int i = 0; i < VM_TEMPLATES; i++) {
        struct vm_template *slot = &t->slots[i];
        if (slot->ram < 0)
            return slot;
        if (slot->used < best->used)
            best = slot;
    }
    template_drop(best);
    return best;
}

/*
 * The maker was killed. The vm may be stopped, or wait for its wake; a vm that got it already does
 * not read another one.
 */
static void making_go_on(const struct vm_making *m) {
    static const char say[] = "{\"execute\":\"qmp_capabilities\"}" MAKER_GO_ON;
    send(m->qmp, say, sizeof(say) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    send(m->word, m->wake, m->wake_size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void vm_template_collect(struct vm_templates *t) {
    char word;
    struct fd_message got;
    struct pollfd p = {t->maker, POLLIN, 0};
    if (t->maker < 0 || poll(&p, 1, 0) <= 0)
        return;
    int n = recv_fds(t->maker, &word, 1, &got);
    if (n < 0 || got.len == 0)
        making_go_on(&t->made_of);
    if (n >= 0 && got.nfds == 2) {
        *template_slot(t) = (struct vm_template){.key = t->making,
                                                 .ram = TAKE_FD(got.fds[0]),
                                                 .state = TAKE_FD(got.fds[1]),
                                                 .proof = -1,
                                                 .used = ++t->uses};
        got.nfds = 0;
    }
    if (n >= 0)
        fd_message_close(&got);
    making_close(&t->made_of);
    close_fd(&t->maker);
    while (waitpid(t->maker_pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
