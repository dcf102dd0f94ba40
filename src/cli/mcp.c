/*
 * carrel mcp: connects standard input and output to the MCP endpoint of the daemon, line by line.
 * If the daemon is replaced, this command repeats the client's first messages to the new daemon and
 * answers calls in progress with an error. For this it reads only method and id of each line.
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
#include "base/hex.h"
#include "base/id.h"
#include "base/sha256.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/mcp_link.h"
#include "cli/mcp_machine.h"
#include "cli/options.h"

/* MESSAGE_MAX is MCP_MESSAGE_MAX of the daemon, which refuses longer messages. */
enum { JOINS_MAX = 4, JOIN_NAME_MAX = 16 }; /* as in the daemon */
enum { MESSAGE_MAX = 16 << 20, BLOCK = 64 << 10, ANSWERS_MAX = 4 << 20 };

struct mcp_options {
    const char *machine, *tools;
    struct option_list joins;
    struct mcp_grants grants;
    bool help;
};

#define AT(member) offsetof(struct mcp_options, member)

const struct option_row mcp_rows[] = {
    {0, "machine", "MACHINE", OPTION_TEXT, AT(machine),
     "machine for the agent's tools (default: one per current directory, without its files)"},
    {'d', "dir", "HOST[:GUEST][:ro|cow][:untrusted]", OPTION_LIST, AT(grants.dirs),
     "give the agent's machine a directory: a copy (cow, default) or read-only (ro)"},
    {0, "net", "[ask:]TARGET[,TARGET...]", OPTION_LIST, AT(grants.net),
     "let the machine connect to these targets, such as apt,npm (see carrel net --help)"},
    {0, "models", "any|tokens=N|money=X|tokens=N,money=X", OPTION_TEXT, AT(grants.models),
     MODELS_OPTION_HELP},
    {0, "budget", "MONEY|tokens=N", OPTION_TEXT, AT(grants.budget),
     "let the machine call models up to this cost, as --models money=X"},
    {0, "image", "IMAGE", OPTION_TEXT, AT(grants.image), "image of the machine (default: host)"},
    {'m', "mem", "SIZE", OPTION_SIZE, AT(grants.mem), "memory limit of the machine (default: 2G)"},
    {'c', "cpus", "N", OPTION_MILLI, AT(grants.cpu_milli),
     "cpu limit of the machine, such as 0.5 (default: unlimited)"},
    {0, "disk", "SIZE", OPTION_SIZE, AT(grants.disk), "disk limit of the machine (default: 1G)"},
    {0, "tools", "minimal|coding|all", OPTION_TEXT, AT(tools),
     "tools to offer; smaller sets need less of the model's context (default: all)"},
    {0, "join", "NAME=COMMAND", OPTION_LIST, AT(joins),
     "also offer the tools of an MCP server that this command starts in the machine"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* Hashes the current directory. The daemon uses the same machine for the same key. */
static void directory_key(char ret[33]) {
    char *cwd DEFER_FREE = getcwd(NULL, 0);
    uint8_t hash[SHA256_BYTES];
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, cwd ? cwd : "/", cwd ? strlen(cwd) : 1);
    sha256_end(&s, hash);
    hex_put(hash, 16, ret);
}

static void mcp_announce(void) {
    fputs("carrel: preparing this host for its first machine...\n", stderr);
}

struct bridge {
    struct client client;
    const struct mcp_options *o;
    const char *machine; /* the machine that the tools are bound to, or NULL */
    char made[ID_SIZE];  /* the machine of the options for grants */
    struct mcp_link link;
    struct client_search search;
    struct buf in, out; /* incomplete lines of the client, and of the daemon */
    bool open;          /* the client may send more */
    bool endless; /* the client sent a line over the limit: the daemon will close the connection */
    bool lost;
    struct id talk; /* id of the conversation, which the next daemon gets too */
};

/* Asks the daemon to speak MCP. 1: it agreed; 0: no answer; -1: refused. */
static int upgrade(struct bridge *b, struct err *err) {
    struct client *c = &b->client;
    char target[CLIENT_TARGET_SIZE], key[33];
    const struct http_head *head = NULL;
    const struct http_pair fields[] = {{"Connection", "Upgrade"},
                                       {"Upgrade", "mcp-lines"},
                                       {"Carrel-Conversation", b->talk.text},
                                       {c->bearer[0] ? "Authorization" : NULL, c->bearer},
                                       {NULL, NULL}};
    const struct http_request request = {.method = "GET", .target = target, .fields = fields};
    directory_key(key);
    if (client_target(target, err, "/mcp?key=%s", key) < 0 ||
        client_query(target, "machine", b->machine, err) < 0 ||
        client_query(target, "tools", b->o->tools, err) < 0)
        return -1;
    for (size_t i = 0; i < b->o->joins.count; i++)
        if (client_query(target, "join", b->o->joins.items[i], err) < 0)
            return -1;
    if (http_client_send(c->http, &request, err) < 0)
        return 0;
    if (client_answer(c->http, &head, err) < 0)
        return head ? -1 : 0;
    if (head->status != 101)
        return err_set(err, ERR_INTERNAL, "the daemon does not speak MCP (HTTP status %d)",
                       head->status);
    return 1;
}

static int mcp_say(const char *bytes, size_t n, struct err *err) {
    int w = write_all(STDOUT_FILENO, bytes, n);
    return w < 0 ? err_num(err, w, "cannot write an MCP message to standard output") : 0;
}

/* Answers the calls in progress with an error; the conversation continues with the next daemon. */
static int lose(struct bridge *b, struct err *err) {
    struct buf answers DEFER(buf_done) = BUF(ANSWERS_MAX);
    if (b->endless)
        return err_set(err, ERR_GONE,
                       "the daemon closed the connection: a message of the MCP client is too long");
    b->lost = true;
    b->out.len = 0;
    client_lost(&b->search);
    return !link_lost(&b->link, &answers)
               ? err_set(err, ERR_LIMIT,
                         "the connection to the daemon was lost while too many MCP calls were in "
                         "progress")
               : mcp_say(answers.data ? answers.data : "", answers.len, err);
}

static int come_back(struct bridge *b, struct err *err) {
    struct buf hello DEFER(buf_done) = BUF(ANSWERS_MAX);
    int there = client_look(&b->client, &b->search, err);
    if (there > 0)
        there = upgrade(b, err);
    if (there <= 0)
        return there;
    if (!link_hello(&b->link, &hello))
        return err_set(err, ERR_LIMIT, "out of memory");
    if (hello.len && http_client_write_raw(b->client.http, hello.data, hello.len, err) < 0)
        return 0;
    b->lost = false;
    b->search = (struct client_search){.start = CLIENT_START};
    return 0;
}

/* Passes complete lines of the daemon to the client. */
static int take_lines(struct bridge *b, const char *bytes, size_t n, struct err *err) {
    if (!buf_add(&b->out, bytes, n))
        return err_set(err, ERR_LIMIT, "the daemon sent an MCP message longer than the limit");
    char *at = b->out.data, *end;
    for (; (end = memchr(at, '\n', b->out.len - (size_t)(at - b->out.data))); at = end + 1) {
        size_t length = (size_t)(end + 1 - at);
        if (link_heard(&b->link, at, length) && mcp_say(at, length, err) < 0)
            return -1;
    }
    buf_drop(&b->out, (size_t)(at - b->out.data));
    return 0;
}

/* Reads what the daemon has sent. 1: more may come; 0: the connection is closed; -1: failed. */
static int pass_out(struct bridge *b, struct err *err) {
    struct err why;
    char *bytes;
    size_t n;
    int more;
    while ((more = http_client_read_raw(b->client.http, 0, &bytes, &n, &why)) > 0)
        if (take_lines(b, bytes, n, err) < 0)
            return -1;
    return more < 0 && why.code == ERR_TIMEOUT;
}

/* Sends bytes to the daemon. If it has ended, first passes on the answers that it sent. */
static int send_bytes(struct bridge *b, const char *bytes, size_t n, struct err *err) {
    if (n == 0 || http_client_write_raw(b->client.http, bytes, n, err) == 0)
        return 0;
    return pass_out(b, err) < 0 ? -1 : lose(b, err);
}

/* Sends only complete lines. Part of a line would be lost if the daemon is replaced. */
static int pass_lines(struct bridge *b, struct err *err) {
    char *at = b->in.data, *end;
    for (; (end = memchr(at, '\n', b->in.len - (size_t)(at - b->in.data))); at = end + 1)
        link_said(&b->link, at, (size_t)(end + 1 - at));
    size_t whole = (size_t)(at - b->in.data);
    int r = send_bytes(b, b->in.data, whole, err);
    buf_drop(&b->in, whole);
    return r;
}

static int pass_rest(struct bridge *b, const char *bytes, size_t n, struct err *err) {
    int r = send_bytes(b, b->in.data, b->in.len, err);
    b->in.len = 0;
    return r < 0 || b->lost ? r : send_bytes(b, bytes, n, err);
}

/* Reads lines of the client. */
static int pass_in(struct bridge *b, struct err *err) {
    char bytes[BLOCK];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n < 0)
        return err_sys(err, "cannot read an MCP message from standard input");
    b->open = n > 0;
    if (n > 0 && !b->endless && buf_add(&b->in, bytes, (size_t)n))
        return pass_lines(b, err);
    b->endless |= n > 0;
    if (pass_rest(b, bytes, (size_t)n, err) < 0)
        return -1;
    if (n == 0 && !b->lost)
        shutdown(http_client_fd(b->client.http), SHUT_WR); /* answers in progress still arrive */
    return 0;
}

/* Waits for input and passes it on. 1: call again; 0: the end of the conversation; -1: failed. */
static int turn(struct bridge *b, struct err *err) {
    struct pollfd fds[] = {
        {.fd = b->lost ? -1 : http_client_fd(b->client.http), .events = POLLIN | POLLRDHUP},
        {.fd = b->open && !b->lost ? STDIN_FILENO : -1, .events = POLLIN}};
    int more = b->lost ? 1 : pass_out(b, err);
    if (more < 0)
        return -1;
    if (more == 0)
        return !b->open ? 0 : lose(b, err) < 0 ? -1 : 1;
    if (poll(fds, 2, b->lost ? CLIENT_AGAIN_MS : -1) < 0)
        return err_sys(err, "cannot wait for MCP messages");
    /* The daemon has closed the connection: leave the input for the next daemon. */
    bool gone = fds[0].revents & (POLLRDHUP | POLLHUP | POLLERR);
    if (fds[1].revents && !gone && pass_in(b, err) < 0)
        return -1;
    return b->lost && come_back(b, err) < 0 ? -1 : 1;
}

static int serve(struct bridge *b, struct err *err) {
    if (client_open(&b->client, CLIENT_START, mcp_announce, err) < 0)
        return -1;
    b->machine = b->o->machine;
    if (mcp_grants_given(&b->o->grants)) {
        if (mcp_machine(&b->client, &b->o->grants, b->made, err) < 0)
            return -1;
        b->machine = b->made;
    }
    int r = upgrade(b, err);
    if (r <= 0)
        return -1;
    while (r > 0)
        r = turn(b, err);
    return r;
}

static int run_bridge(const struct mcp_options *o, struct err *err) {
    struct bridge b = {.o = o,
                       .open = true,
                       .talk = id_new('k'),
                       .search = {.start = CLIENT_START},
                       .in = BUF(MESSAGE_MAX + BLOCK),
                       .out = BUF(2 * MESSAGE_MAX)};
    link_init(&b.link);
    int r = serve(&b, err);
    link_done(&b.link);
    buf_done(&b.in);
    buf_done(&b.out);
    client_close(&b.client);
    return r;
}

static int mcp_check_tools(const char *set, struct err *err) {
    static const char *const sets[] = {"minimal", "coding", "all"};
    for (size_t i = 0; set && i < sizeof(sets) / sizeof(*sets); i++)
        if (strcmp(set, sets[i]) == 0)
            return 0;
    return set ? err_set(err, ERR_INVALID, "--tools %.40s: must be minimal, coding or all", set)
               : 0;
}

static int mcp_check_joins(const struct option_list *joins, struct err *err) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    if (joins->count > JOINS_MAX)
        return err_set(err, ERR_INVALID, "--join: at most %d servers can be joined", JOINS_MAX);
    for (size_t i = 0; i < joins->count; i++) {
        size_t n = strspn(joins->items[i], letters);
        if (!n || n > JOIN_NAME_MAX || joins->items[i][n] != '=' || !joins->items[i][n + 1]) {
            err_set(err, ERR_INVALID, "--join %.60s: must be NAME=COMMAND", joins->items[i]);
            return err_remedy(err, "a name has up to %d lower-case letters, digits and '-'",
                              JOIN_NAME_MAX);
        }
    }
    return 0;
}

int cmd_mcp(int argc, char **argv) {
    struct mcp_options o = {0};
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
    if (word) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s'", word);
        err_remedy(&err, "for MCP over HTTP use /mcp of the daemon: see carrel serve --help");
        return cli_fail(&err);
    }
    if (o.machine && mcp_grants_given(&o.grants)) {
        err_set(&err, ERR_INVALID, "--machine cannot be used with options for a new machine");
        err_remedy(&err, "give grants to an existing machine with carrel grant and carrel net");
        return cli_fail(&err);
    }
    if (mcp_check_tools(o.tools, &err) < 0 || mcp_check_joins(&o.joins, &err) < 0)
        return cli_fail(&err);
    return run_bridge(&o, &err) < 0 ? cli_fail(&err) : 0;
}
