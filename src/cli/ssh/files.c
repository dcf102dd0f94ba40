#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cli/agent/agent.h"
#include "cli/ssh/inner.h"

static const char kind[] = "ssh-ed25519 ";

/* Runs ssh-keygen of this host; `ret` gets what it prints. */
static int keygen(const char *const *words, char *ret, size_t size, struct err *err) {
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t got;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    close(ends[1]);
    while (pid > 0 && n < size - 1 && (got = read(ends[0], ret + n, size - 1 - n)) > 0)
        n += (size_t)got;
    ret[n] = '\0';
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return err_sys(err, "cannot start ssh-keygen");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 127)
        return err_set(err, ERR_UNKNOWN, "ssh-keygen failed");
    err_set(err, ERR_UNSUPPORTED, "ssh-keygen is not installed on this host");
    return err_remedy(err, "install it: apt install openssh-client");
}

/* Makes the key under another name first: whoever is second takes that of the first. */
static int make_key(const struct ssh_files *f, struct err *err) {
    char fresh[PATH_MAX], public[PATH_MAX], said[256];
    if (access(f->key, F_OK) == 0)
        return 0;
    snprintf(fresh, sizeof(fresh), "%s/new-%d", f->dir, getpid());
    snprintf(public, sizeof(public), "%s/new-%d.pub", f->dir, getpid());
    const char *const words[] = {"ssh-keygen", "-q",     "-t", "ed25519", "-N", "",
                                 "-C",         "carrel", "-f", fresh,     NULL};
    int r = keygen(words, said, sizeof(said), err);
    if (r == 0 && link(fresh, f->key) < 0 && access(f->key, F_OK) < 0)
        r = err_sys(err, "cannot create '%s'", f->key);
    unlink(fresh);
    unlink(public);
    return r;
}

int ssh_files_make(const char *machine_id, struct ssh_files *ret, struct err *err) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    char hosts[PATH_MAX];
    bool given = data && data[0] == '/';
    if (!given && (!home || home[0] != '/'))
        return err_set(err, ERR_INVALID, "HOME is not set, so there is no place for an SSH key");
    if (snprintf(ret->dir, sizeof(ret->dir), "%s%s/carrel-ssh", given ? data : home,
                 given ? "" : "/.local/share") >= (int)sizeof(ret->dir))
        return err_set(err, ERR_INVALID, "the path of the home directory is too long");
    snprintf(hosts, sizeof(hosts), "%s/hosts", ret->dir);
    snprintf(ret->key, sizeof(ret->key), "%s/id_ed25519", ret->dir);
    snprintf(ret->known, sizeof(ret->known), "%s/hosts/%s", ret->dir, machine_id);
    return agent_make_dirs(hosts, err) < 0 ? -1 : make_key(ret, err);
}

/* True: one line with a key, as it may stand in a file of keys. */
static bool is_key(const char *text) {
    size_t n = sizeof(kind) - 1;
    return strncmp(text, kind, n) == 0 && strlen(text) < SSH_KEY_MAX && text[n] &&
           strspn(text + n, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=") ==
               strlen(text + n);
}

int ssh_files_public(const struct ssh_files *f, char ret[SSH_KEY_MAX], struct err *err) {
    const char *const words[] = {"ssh-keygen", "-y", "-f", f->key, NULL};
    char said[SSH_KEY_MAX];
    if (keygen(words, said, sizeof(said), err) < 0)
        return err_wrap(err, "read the key '%s'", f->key);
    char *space = strchr(said, ' ');
    said[space ? (size_t)(space + 1 - said) + strcspn(space + 1, " \n") : 0] = '\0';
    if (!is_key(said))
        return err_set(err, ERR_INVALID, "'%s' is not a key of the type ed25519", f->key);
    memcpy(ret, said, sizeof(said));
    return 0;
}

int ssh_files_know(const struct ssh_files *f, const char *machine_id, const char *key,
                   struct err *err) {
    char line[SSH_KEY_MAX + ID_SIZE + 2], old[sizeof(line)], fresh[PATH_MAX];
    if (!is_key(key))
        return err_set(err, ERR_INVALID, "the machine gave a wrong host key");
    int n = snprintf(line, sizeof(line), "%s %s\n", machine_id, key);
    ssize_t had = read_file_at(AT_FDCWD, f->known, old, sizeof(old));
    if (had == n && memcmp(old, line, (size_t)n) == 0)
        return 0;
    snprintf(fresh, sizeof(fresh), "%s/new-%d", f->dir, getpid());
    int fd DEFER_CLOSE = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write_all(fd, line, (size_t)n) < 0 || rename(fresh, f->known) < 0)
        return err_sys(err, "cannot write '%s'", f->known);
    return 0;
}
