#include "io/http_origin.h"

#include <arpa/inet.h>
#include <string.h>

/*
 * True if the Host field is a name of this server. A web page whose host name was rebound to our
 * address sends its own name as Host, and is refused.
 */
static bool host_is_ours(struct http_text host) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]", "carrel"};
    size_t n = host.n;
    while (n && host.s[n - 1] >= '0' && host.s[n - 1] <= '9')
        n--;
    if (n && host.s[n - 1] == ':')
        host.n = n - 1;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (http_text_is_like(host, names[i]))
            return true;
    return false;
}

/*
 * True for an address with or without a port, such as "127.0.0.1:7070" or "[::1]". The text is
 * parsed, because a host name may also consist of hex digits and dots.
 */
static bool is_address(struct http_text host) {
    char text[INET6_ADDRSTRLEN + 8];
    unsigned char address[16];
    size_t n = host.n;
    while (n && host.s[n - 1] >= '0' && host.s[n - 1] <= '9')
        n--;
    n = n && n < host.n && host.s[n - 1] == ':' ? n - 1 : host.n;
    bool six = n > 2 && host.s[0] == '[' && host.s[n - 1] == ']';
    n -= six ? 2 : 0;
    if (!n || n >= sizeof(text))
        return false;
    memcpy(text, host.s + six, n);
    text[n] = '\0';
    return strlen(text) == n && inet_pton(six ? AF_INET6 : AF_INET, text, address) == 1;
}

/*
 * A Host that is an address is accepted: only names can be rebound, and a token is still required.
 */
int http_check_host(const struct http_exchange *x, struct err *err) {
    if (!x->peer->local && !host_is_ours(x->head->authority) && !is_address(x->head->authority)) {
        err_set(err, ERR_DENIED, "host '%.*s' is not a name of this server",
                (int)(x->head->authority.n < 100 ? x->head->authority.n : 100),
                x->head->authority.s);
        return err_remedy(err, "use the address of the server, or localhost");
    }
    return 0;
}

int http_check_origin(const struct http_exchange *x, struct err *err) {
    const struct http_field *origin = http_field_find(x->head, "Origin");
    if (http_check_host(x, err) < 0)
        return -1;
    if (!origin)
        return 0;
    struct http_text o = origin->value;
    static const char scheme[] = "http://";
    if (o.n > 7 && strncmp(o.s, scheme, 7) == 0 &&
        http_text_same((struct http_text){o.s + 7, o.n - 7}, x->head->authority))
        return 0;
    return err_set(err, ERR_DENIED, "requests from web pages of other sites (origins) are refused");
}
