#include "cli/image/debian.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "cli/image/image.h"

enum { SOURCES_MAX = 32, SOURCE_BYTES = 64 << 10, MIRRORS_MAX = 64 };

#define APT "/etc/apt"

static bool has_word(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || isspace((unsigned char)at[-1])) &&
            (!at[n] || isspace((unsigned char)at[n])))
            return true;
    return false;
}

/* Source lists of this host's apt that name the suite. */
struct sources {
    char *paths[SOURCES_MAX];
    size_t count;
};

static void sources_done(struct sources *s) {
    while (s->count)
        free(s->paths[--s->count]);
}

static void add_source(struct sources *s, const char *path, const char *suite) {
    char *text DEFER_FREE = malloc(SOURCE_BYTES);
    if (text && s->count < SOURCES_MAX && read_file_at(AT_FDCWD, path, text, SOURCE_BYTES) > 0 &&
        (!suite || has_word(text, suite)))
        s->paths[s->count++] = xstrdup(path);
}

static bool is_source_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".list") == 0 || strcmp(dot, ".sources") == 0);
}

static void find_sources(struct sources *s, const char *suite) {
    DIR *d DEFER(dir_close) = opendir(APT "/sources.list.d");
    add_source(s, APT "/sources.list", suite);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[512];
        snprintf(path, sizeof(path), APT "/sources.list.d/%s", e->d_name);
        if (is_source_name(e->d_name))
            add_source(s, path, suite);
    }
}

/* Adds the host of every URL in the text. */
static void add_hosts(json_t *hosts, const char *text) {
    for (const char *at = text; (at = strstr(at, "://")); at += 3) {
        size_t n = strcspn(at + 3, "/: \t\n"), i;
        json_t *known;
        json_array_foreach(hosts, i, known) {
            if (json_string_length(known) == n && memcmp(json_string_value(known), at + 3, n) == 0)
                break;
        }
        if (n && i == json_array_size(hosts) && i < MIRRORS_MAX)
            json_array_append_new(hosts, json_stringn(at + 3, n));
    }
}

json_t *debian_mirrors(void) {
    struct sources s DEFER(sources_done) = {.count = 0};
    char *text DEFER_FREE = malloc(SOURCE_BYTES);
    json_t *hosts = json_array();
    find_sources(&s, NULL);
    for (size_t i = 0; text && i < s.count; i++)
        if (read_file_at(AT_FDCWD, s.paths[i], text, SOURCE_BYTES) > 0)
            add_hosts(hosts, text);
    return hosts;
}

static void become_mmdebstrap(const char *suite, const struct sources *s, int out) {
    const char *argv[SOURCES_MAX + 8] = {"mmdebstrap", "--quiet", "--variant=minbase",
                                         "--",         suite,     "-"};
    for (size_t i = 0, n = 6; i < s->count; i++)
        argv[n++] = s->paths[i];
    int null = open("/dev/null", O_RDONLY);
    if (dup2(null, 0) < 0 || dup2(out, 1) < 0)
        _exit(127);
    close_range(3, ~0u, 0);
    execvp("mmdebstrap", (char *const *)argv);
    _exit(127);
}

int debian_make(struct build_wait *w, const char *name, const char *suite, struct err *err) {
    struct sources s DEFER(sources_done) = {.count = 0};
    json_t *image DEFER(json_decrefp) = NULL;
    const char *tmp = getenv("TMPDIR");
    int status = -1;
    find_sources(&s, suite);
    if (!s.count) {
        err_set(err, ERR_NOT_FOUND, "apt on this host has no mirror for Debian suite '%.40s'",
                suite);
        return err_remedy(err,
                          "import a root filesystem with carrel image import, or fetch it: "
                          "carrel image pull %s",
                          name);
    }
    /*
     * mmdebstrap may write nothing for longer than a request waits, so its output is collected
     * first.
     */
    int out DEFER_CLOSE = open(tmp && *tmp ? tmp : "/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    pid_t pid = out < 0 ? -1 : fork();
    if (pid == 0)
        become_mmdebstrap(suite, &s, out);
    if (pid < 0)
        return err_sys(err, "cannot start mmdebstrap");
    build_wait_process(w, pid, &status);
    off_t size = lseek(out, 0, SEEK_CUR);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return size <= 0 || lseek(out, 0, SEEK_SET) < 0
                   ? err_sys(err, "cannot read the output of mmdebstrap")
                   : image_upload(w->client, out, name, (uint64_t)size, name, w->silent, &image,
                                  err);
    bool absent = WIFEXITED(status) && WEXITSTATUS(status) == 127;
    err_set(err, absent ? ERR_UNSUPPORTED : ERR_INTERNAL,
            absent ? "mmdebstrap is not installed" : "mmdebstrap failed (status %d)", status);
    return err_remedy(err, absent ? "sudo apt-get install mmdebstrap"
                                  : "see the output of mmdebstrap above");
}
