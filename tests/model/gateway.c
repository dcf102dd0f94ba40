/*
 * gateway-server CONF HOME TOKENS MICRO: the gateway for one machine with that budget; prints the
 * port it listens on, serves until SIGTERM, then prints what the machine has spent.
 */
#include <signal.h>

#include "base/defer.h"
#include "base/parse.h"
#include "model/gateway.h"
#include "store/accounts.h"

static struct gateway *gateway;

static void on_request(struct http_exchange *x, void *arg) {
    gateway_request(gateway, x, arg);
}

static void on_term(void *arg, int signum) {
    (void)signum;
    loop_stop(arg);
}

static int fail(const struct err *err) {
    fprintf(stderr, "gateway-server: %s [%s]\n", err->text, err->remedy);
    return 1;
}

static int open_ledger(char **argv, struct store **ret, struct err *err) {
    struct store_options options = {.home = argv[2], .journal = {.segment_bytes = 1 << 20}};
    struct account_row row = {.id = "machine:m"};
    if (parse_u64(argv[3], 0, 1ull << 40, &row.limit_tokens, err) < 0 ||
        parse_u64(argv[4], 0, 1ull << 40, &row.limit_micro, err) < 0 ||
        store_open(&options, ret, err) < 0 || store_holds_charge(*ret, NULL, err) < 0)
        return -1;
    return store_account_put(*ret, &row, err);
}

static void print_account(struct store *s) {
    struct account_row row = {0};
    (void)store_account_get(s, "machine:m", &row, NULL);
    printf("{\"tokens\":%llu,\"micro\":%llu,\"held\":%llu,\"calls\":%llu}\n",
           (unsigned long long)row.spent_tokens, (unsigned long long)row.spent_micro,
           (unsigned long long)row.held_tokens, (unsigned long long)row.calls);
}

int main(int argc, char **argv) {
    static struct conf conf;
    struct err err = {0};
    uint16_t port;
    struct store *store DEFER(store_closep) = NULL;
    if (argc != 5 || conf_read(argv[1], &conf, &err) < 0 || open_ledger(argv, &store, &err) < 0)
        return fail(&err);
    struct loop *loop DEFER(loop_freep) = loop_new(&err);
    struct fetcher *fetcher = loop ? fetcher_new(loop, NULL, &err) : NULL;
    if (!fetcher)
        return fail(&err);
    struct ledger *ledger = ledger_new(loop, store, conf.currency);
    gateway = gateway_new(&(struct gateway_config){.loop = loop,
                                                   .fetcher = fetcher,
                                                   .ledger = ledger,
                                                   .conf = &conf,
                                                   .env = model_env_process});
    struct http_server *server = http_server_new(
        loop, &(struct http_server_config){.on_request = on_request, .arg = (char *)"machine:m"});
    if (http_listen_tcp(server, "127.0.0.1", 0, &port, &err) < 0 ||
        loop_on_signal(loop, SIGTERM, on_term, loop, &err) < 0)
        return fail(&err);
    printf("%u\n", (unsigned)port);
    fflush(stdout);
    loop_run(loop);
    gateway_free(gateway);
    http_server_free(server);
    ledger_free(ledger);
    fetcher_free(fetcher);
    print_account(store);
    return 0;
}
