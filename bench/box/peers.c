/* The peers, and what they need: one table, and a bundle for the two that take one. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "outside.h"

enum { ECHO, TRUE };

static const char *const programs[][3] = {
    [ECHO] = {"/bin/echo", "x", NULL},
    [TRUE] = {"/bin/true", NULL},
};

static const struct {
    const char *name;
    unsigned every;
    bool bundle; /* command, then: run --bundle FOLDER NAME */
    const char *prefix[24];
} rows[PEER_MAX] = {
    {"unshare",
     1,
     false,
     {"/usr/bin/unshare", "--user", "--map-root-user", "--mount", "--uts", "--ipc", "--net",
      "--cgroup", "--pid", "--fork", "--mount-proc"}},
    {"bwrap",
     1,
     false,
     {"/usr/bin/bwrap", "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev",
      "/dev"}},
    {"crun", 10, true, {"/usr/bin/crun", "run", "--bundle"}},
    {"runc", 10, true, {"/usr/sbin/runc", "run", "--bundle"}},
};

/* The host's /usr read-only, the namespaces that bwrap unshares but the user's, our limits. */
static const char bundle_config[] =
    "{\"ociVersion\":\"1.0.2\",\"process\":{\"terminal\":false,\"user\":{\"uid\":0,\"gid\":0},"
    "\"args\":[%s],\"env\":[\"PATH=/usr/bin:/bin\"],\"cwd\":\"/\",\"noNewPrivileges\":true},"
    "\"root\":{\"path\":\"rootfs\",\"readonly\":true},\"hostname\":\"bench\",\"mounts\":["
    "{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
    "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\","
    "\"options\":[\"nosuid\",\"mode=755\"]},"
    "{\"destination\":\"/usr\",\"type\":\"bind\",\"source\":\"/"
    "usr\",\"options\":[\"rbind\",\"ro\"]}],"
    "\"linux\":{\"resources\":{\"memory\":{\"limit\":2147483648},\"pids\":{\"limit\":512}},"
    "\"namespaces\":[{\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":"
    "\"uts\"},"
    "{\"type\":\"mount\"},{\"type\":\"cgroup\"}]}}\n";

static int write_config(const char *path, const char *args) {
    FILE *f = fopen(path, "we");
    if (!f)
        return -1;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int r = fprintf(f, bundle_config, args);
#pragma GCC diagnostic pop
    return fclose(f) == 0 && r > 0 ? 0 : -1;
}

static int make_bundle(const char *dir, const char *args, struct err *err) {
    static const char *const dirs[] = {"", "/rootfs", "/rootfs/usr", "/rootfs/proc", "/rootfs/dev"};
    static const char *const links[] = {"bin", "lib", "lib64", "sbin"};
    char path[512], target[32];
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
        snprintf(path, sizeof(path), "%s%s", dir, dirs[i]);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return err_sys(err, "make '%s'", path);
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        snprintf(path, sizeof(path), "%s/rootfs/%s", dir, links[i]);
        snprintf(target, sizeof(target), "usr/%s", links[i]);
        if (symlink(target, path) < 0 && errno != EEXIST)
            return err_sys(err, "make '%s'", path);
    }
    snprintf(path, sizeof(path), "%s/config.json", dir);
    return write_config(path, args) < 0 ? err_sys(err, "write '%s'", path) : 0;
}

static void compose(struct peers *p, size_t i, int which, const char **argv) {
    size_t n = 0;
    for (; rows[i].prefix[n]; n++)
        argv[n] = rows[i].prefix[n];
    if (rows[i].bundle) {
        argv[n++] = p->bundles[which];
        argv[n++] = "carrel-bench";
    } else {
        for (size_t k = 0; programs[which][k]; k++)
            argv[n++] = programs[which][k];
    }
    argv[n] = NULL;
}

/* Runs it once with stderr where we can read why it does not work; the last line is kept. */
static void probe(struct peer *peer) {
    int ends[2];
    char said[4096];
    size_t have = 0;
    if (access(peer->echo[0], X_OK) < 0) {
        snprintf(peer->why_not, sizeof(peer->why_not), "not installed");
        return;
    }
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(STDIN_FILENO, STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(peer->true_[0], (char *const *)peer->true_);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t n;
         have < sizeof(said) - 1 && (n = read(ends[0], said + have, sizeof(said) - 1 - have)) > 0;)
        have += (size_t)n;
    close(ends[0]);
    while (have && said[have - 1] == '\n')
        have--;
    said[have] = '\0';
    int status = 0;
    waitpid(pid, &status, 0);
    char *line = strrchr(said, '\n');
    if (status != 0)
        snprintf(peer->why_not, sizeof(peer->why_not), "%s",
                 *said ? (line ? line + 1 : said) : "fails");
}

int peers_open(struct peers *p, const char *dir, struct err *err) {
    static const char *const args[] = {[ECHO] = "\"/bin/echo\",\"x\"", [TRUE] = "\"/bin/true\""};
    for (int which = ECHO; which <= TRUE; which++) {
        snprintf(p->bundles[which], sizeof(p->bundles[which]), "%s/bundle%d", dir, which);
        if (make_bundle(p->bundles[which], args[which], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < PEER_MAX; i++) {
        struct peer *peer = &p->all[i];
        *peer = (struct peer){.name = rows[i].name, .every = rows[i].every};
        compose(p, i, ECHO, peer->echo);
        compose(p, i, TRUE, peer->true_);
        probe(peer);
    }
    return 0;
}

const struct peer *peers_find(const struct peers *p, const char *name) {
    for (size_t i = 0; i < PEER_MAX; i++)
        if (strcmp(p->all[i].name, name) == 0 && !p->all[i].why_not[0])
            return &p->all[i];
    return NULL;
}
