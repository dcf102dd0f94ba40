/*
 * carrel mcp: standard input and output become a connection of the daemon's MCP face, line by line.
 * Nothing is looked at here: this must start in a millisecond and cost nothing a call.
 */
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/sha256.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"

struct mcp_options {
    const char *machine, *listen;
    bool fixture, help;
};

#define AT(member) offsetof(struct mcp_options, member)

const struct option_row mcp_rows[] = {
    {'m', "machine", "MACHINE", OPTION_TEXT, AT(machine),
     "use this machine, and no other (default: one of its own for this directory)"},
    {0, "fixture", NULL, OPTION_FLAG, AT(fixture),
     "serve what the conformance suite expects, and no machine"},
    {0, "listen", "ADDRESS:PORT", OPTION_TEXT, AT(listen), "with --fixture: where"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* The same directory finds the same machine again. */
static void directory_key(char ret[33]) {
    char *cwd DEFER_FREE = getcwd(NULL, 0);
    uint8_t hash[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, cwd ? cwd : "/", cwd ? strlen(cwd) : 1);
    sha256_end(&s, hash);
    for (size_t i = 0; i < 16; i++)
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

static int upgrade(struct client *c, const struct mcp_options *o, struct err *err) {
    char target[CLIENT_TARGET_SIZE], key[33];
    const struct http_head *head;
    const struct http_pair fields[] = {{"Connection", "Upgrade"},
                                       {"Upgrade", "mcp-lines"},
                                       {c->bearer[0] ? "Authorization" : NULL, c->bearer},
                                       {NULL, NULL}};
    const struct http_request request = {.method = "GET", .target = target, .fields = fields};
    directory_key(key);
    if (client_target(target, err, "/mcp?key=%s", key) < 0 ||
        client_query(target, "machine", o->machine, err) < 0 ||
        http_client_send(c->http, &request, err) < 0 || client_answer(c->http, &head, err) < 0)
        return -1;
    if (head->status != 101)
        return err_set(err, ERR_INTERNAL, "the daemon does not speak MCP (status %d)",
                       head->status);
    return 0;
}

/* What has come from the daemon. 1 go on, 0 it is over, -1. */
static int pass_out(struct client *c, struct err *err) {
    struct err why;
    char *bytes;
    size_t n;
    int more;
    while ((more = http_client_read_raw(c->http, 0, &bytes, &n, &why)) > 0) {
        int w = write_all(STDOUT_FILENO, bytes, n);
        if (w < 0)
            return err_num(err, w, "write a message");
    }
    if (more < 0 && why.code != ERR_TIMEOUT) {
        *err = why;
        return -1;
    }
    return more < 0;
}

/* What the client says. 1 go on, 0 it said all, -1. */
static int pass_in(struct client *c, struct err *err) {
    char bytes[64 << 10];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0)
        return err_sys(err, "read a message");
    if (n == 0) {
        shutdown(http_client_fd(c->http), SHUT_WR); /* what is on its way still comes */
        return 0;
    }
    return http_client_write_raw(c->http, bytes, (size_t)n, err) < 0 ? -1 : 1;
}

static int bridge(struct client *c, struct err *err) {
    bool open = true;
    for (;;) {
        struct pollfd fds[] = {{.fd = http_client_fd(c->http), .events = POLLIN},
                               {.fd = open ? STDIN_FILENO : -1, .events = POLLIN}};
        int r = pass_out(c, err);
        if (r < 0)
            return -1;
        if (r == 0)
            return open ? err_set(err, ERR_GONE, "the daemon closed the connection") : 0;
        if (poll(fds, 2, -1) < 0)
            return err_sys(err, "wait");
        if (fds[1].revents) {
            r = pass_in(c, err);
            if (r < 0)
                return -1;
            open = r > 0;
        }
    }
}

static int run_fixture(const struct mcp_options *o) {
    char program[PLACE_SIZE + 32];
    struct place place;
    struct err err;
    if (place_find(&place, &err) < 0)
        return cli_fail(&err);
    snprintf(program, sizeof(program), "%s/carrel-mcp-fixture", place.libexec);
    execl(program, "carrel-mcp-fixture", o->listen ? o->listen : "127.0.0.1:0", (char *)NULL);
    err_sys(&err, "run '%s'", program);
    return cli_fail(&err);
}

static void announce(void) {
    fputs("carrel: preparing this host for its first machine...\n", stderr);
}

int cmd_mcp(int argc, char **argv) {
    struct mcp_options o = {0};
    struct client c = {0};
    struct err err;
    int next;
    if (options_parse(mcp_rows, argc - 1, argv + 1, &o, &next, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("mcp");
        options_print(mcp_rows);
        return 0;
    }
    const char *word = argv[1 + next];
    if (word || (o.listen && !o.fixture)) {
        err_set(&err, ERR_INVALID,
                word ? "one word too many: '%s'" : "--listen goes with --fixture only%s",
                word ? word : "");
        err_remedy(&err, "over HTTP the daemon itself serves MCP, at /mcp: see `carrel serve`");
        return cli_fail(&err);
    }
    if (o.fixture)
        return run_fixture(&o);
    int r = client_open(&c, CLIENT_START, announce, &err);
    if (r == 0)
        r = upgrade(&c, &o, &err);
    if (r == 0)
        r = bridge(&c, &err);
    client_close(&c);
    return r < 0 ? cli_fail(&err) : 0;
}
