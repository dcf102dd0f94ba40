#include "io/vm/kvm_known.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "base/wire/vm_programs.h"

#define KNOWN "kvm"
#define KNOWN_NEW "kvm.new"

static const char *const answers[] = {"no\n", "yes\n"};

void kvm_host(char ret[KVM_HOST_SIZE]) {
    char boot[40] = "";
    struct stat st = {0};
    int dir DEFER_CLOSE = dir_open(AT_FDCWD, "/proc/sys/kernel/random");
    if (dir >= 0 && read_file_at(dir, "boot_id", boot, sizeof(boot)) < 0)
        boot[0] = '\0';
    (void)stat(VM_QEMU, &st);
    snprintf(ret, KVM_HOST_SIZE, "%.*s %" PRIu64 " %" PRIu64 " %" PRId64 ".%09ld",
             (int)strcspn(boot, "\n"), boot, (uint64_t)st.st_ino, (uint64_t)st.st_size,
             (int64_t)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

void kvm_known_print(const char *host, const struct kvm_probe *p, char ret[KVM_TEXT_SIZE]) {
    snprintf(ret, KVM_TEXT_SIZE, "%s\n%s%s\n", host, answers[p->is_usable], p->reason);
}

bool kvm_known_parse(const char *text, const char *host, struct kvm_probe *ret) {
    size_t n = strlen(host);
    if (strncmp(text, host, n) != 0 || text[n] != '\n')
        return false;
    for (size_t i = 0; i < 2; i++) {
        const char *reason = text + n + 1 + strlen(answers[i]);
        if (strncmp(text + n + 1, answers[i], strlen(answers[i])) != 0)
            continue;
        size_t len = strcspn(reason, "\n");
        if (len == 0 || len >= sizeof(ret->reason) || reason[len] != '\n')
            return false;
        ret->is_usable = i == 1;
        snprintf(ret->reason, sizeof(ret->reason), "%.*s", (int)len, reason);
        return true;
    }
    return false;
}

static int known_folder(const char *home) {
    char path[512];
    if (snprintf(path, sizeof(path), "%s/vm", home) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    return dir_open(AT_FDCWD, path);
}

bool kvm_recall(const char *home, struct kvm_probe *ret) {
    char host[KVM_HOST_SIZE], text[KVM_TEXT_SIZE];
    int dir DEFER_CLOSE = known_folder(home);
    if (dir < 0 || read_file_at(dir, KNOWN, text, sizeof(text)) < 0)
        return false;
    kvm_host(host);
    return kvm_known_parse(text, host, ret);
}

static void kvm_write(const char *home, const struct kvm_probe *p) {
    char host[KVM_HOST_SIZE], text[KVM_TEXT_SIZE];
    int dir DEFER_CLOSE = known_folder(home);
    if (dir >= 0)
        (void)flock(dir, LOCK_EX); /* another thread may be here too */
    kvm_host(host);
    kvm_known_print(host, p, text);
    int fd DEFER_CLOSE =
        dir < 0
            ? dir
            : openat(dir, KNOWN_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int r = fd < 0 ? -errno : write_all(fd, text, strlen(text));
    if (r >= 0 && renameat(dir, KNOWN_NEW, dir, KNOWN) < 0)
        r = -errno;
    if (r < 0)
        log_line(LOG_WARN, "io", "remember whether KVM works: %s", strerror(-r));
}

void kvm_decide(const char *home, struct kvm_probe *ret) {
    if (kvm_recall(home, ret))
        return;
    kvm_probe("/dev/kvm", ret);
    kvm_write(home, ret);
}

void kvm_remember_failure(const char *home, const char *why) {
    struct kvm_probe p = {.is_usable = false};
    snprintf(p.reason, sizeof(p.reason), "%s", why);
    for (char *at = p.reason; *at; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    kvm_write(home, &p);
}
