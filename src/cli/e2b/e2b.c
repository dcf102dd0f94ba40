/* carrel e2b: settings for programs that use the E2B SDK. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"

struct e2b_options {
    bool domain, json, help;
};

#define AT(member) offsetof(struct e2b_options, member)

const struct option_row e2b_rows[] = {
    {0, "domain", NULL, OPTION_FLAG, AT(domain),
     "print E2B_DOMAIN in place of URLs; requires [gate] domain and certificate"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print the key and the URL as JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

int cmd_e2b(int argc, char **argv) {
    const struct client_request r = {.method = "POST", .target = "/e2b/key"};
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct e2b_options o = {.json = false};
    char *words[1] = {NULL};
    struct err err;
    int count = options_words(e2b_rows, argc, argv, &o, words, 1, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("e2b");
        return 0;
    }
    if (count == 0 || strcmp(words[0], "env") != 0) {
        err_set(&err, ERR_INVALID, "unknown subcommand '%.40s'", count ? words[0] : "");
        err_remedy(&err, "see carrel e2b --help");
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 || client_call(&c, &r, &answer, &err) < 0)
        return cli_fail(&err);
    if (o.json) {
        print_json(answer);
        return 0;
    }
    const char *url = client_text(answer, "url"), *domain = client_text(answer, "domain");
    if (o.domain && !*domain) {
        err_set(&err, ERR_UNSUPPORTED, "--domain: the daemon serves no domain with TLS");
        err_remedy(&err, "set domain and certificate in the section [gate] of carrel.conf; if they "
                         "are set, the log of the daemon says what failed");
        return cli_fail(&err);
    }
    printf("export E2B_API_KEY=%s\n", client_text(answer, "key"));
    if (o.domain) {
        printf("export E2B_DOMAIN=%s\n", domain);
        return 0;
    }
    printf("export E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\nexport E2B_VOLUME_API_URL=%s\n", url,
           url, url);
    return 0;
}
