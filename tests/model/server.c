/* rehearsal-server SCRIPT [KEY]: prints the port it listens on, serves until SIGTERM. */
#include <fcntl.h>
#include <signal.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "model/rehearsal_http.h"

static void on_term(void *arg, int signum) {
    (void)signum;
    loop_stop(arg);
}

static int fail(const struct err *err) {
    fprintf(stderr, "rehearsal-server: %s [%s]\n", err->text, err->remedy);
    return 1;
}

static int read_script(const char *path, struct rehearsal **ret, struct err *err) {
    char *text DEFER_FREE = malloc(REHEARSAL_BYTES_MAX + 2);
    ssize_t n = text ? read_file_at(AT_FDCWD, path, text, REHEARSAL_BYTES_MAX + 2) : -1;
    return n < 0 ? err_num(err, (int)n, "read '%s'", path)
                 : rehearsal_parse(text, (size_t)n, ret, err);
}

int main(int argc, char **argv) {
    struct err err = {0};
    struct rehearsal *script DEFER(rehearsal_freep) = NULL;
    struct secret *key DEFER(secret_freep) = argc > 2 ? secret_new(argv[2], strlen(argv[2])) : NULL;
    uint16_t port;
    if (argc < 2 || read_script(argv[1], &script, &err) < 0)
        return fail(&err);
    struct loop *loop DEFER(loop_freep) = loop_new(&err);
    if (!loop)
        return fail(&err);
    struct rehearsal_http *played = rehearsal_http_new(loop, script, key);
    struct http_server *server = http_server_new(
        loop, &(struct http_server_config){.on_request = rehearsal_http_request, .arg = played});
    if (http_listen_tcp(server, "127.0.0.1", 0, &port, &err) < 0 ||
        loop_on_signal(loop, SIGTERM, on_term, loop, &err) < 0)
        return fail(&err);
    printf("%u\n", (unsigned)port);
    fflush(stdout);
    loop_run(loop);
    http_server_free(server);
    rehearsal_http_free(played);
    return 0;
}
