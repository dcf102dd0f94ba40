#include "gate/ingress_name.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"

enum { NAME_MAX_BYTES = 64, HTTP_PORT = 80, HTTPS_PORT = 443 };

static bool ends_with(struct http_text *host, const char *dot, const char *domain) {
    size_t dot_n = strlen(dot), n = dot_n + strlen(domain);
    if (host->n <= n || strncasecmp(host->s + host->n - n, dot, dot_n) != 0 ||
        strncasecmp(host->s + host->n - n + dot_n, domain, n - dot_n) != 0)
        return false;
    host->n -= n;
    return true;
}

/* Browsers write host names in lower case, other clients as they were typed. */
static void copy_lower(char *to, struct http_text from) {
    for (size_t i = 0; i < from.n; i++) {
        char c = from.s[i];
        to[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    to[from.n] = '\0';
}

bool ingress_name_read(struct http_text host, const char *domain, struct http_text *ret) {
    const char *colon = memchr(host.s, ':', host.n);
    *ret = (struct http_text){host.s, colon ? (size_t)(colon - host.s) : host.n};
    return ends_with(ret, "", INGRESS_DOMAIN) || (*domain && ends_with(ret, ".", domain));
}

bool ingress_door_read(struct http_text host, const char *domain, struct ingress_door *ret) {
    struct http_text name;
    return ingress_name_read(host, domain, &name) && ingress_door_named(name, ret);
}

bool ingress_door_named(struct http_text name, struct ingress_door *ret) {
    char text[NAME_MAX_BYTES], id[ID_SIZE];
    uint64_t port = 0;
    if (name.n >= sizeof(text))
        return false;
    copy_lower(text, name);
    char *machine = text, *dash = strchr(text, '-');
    if (*text >= '1' && *text <= '9' && dash) {
        *dash = '\0';
        machine = dash + 1;
        if (parse_u64(text, 1, 65535, &port, NULL) < 0)
            return false;
    }
    size_t n = strlen(machine);
    if (id_valid(machine, n, 'm'))
        memcpy(id, machine, n + 1);
    else if (!id_from_label(machine, n, 'm', id))
        return false;
    *ret = (struct ingress_door){.port = (uint16_t)port};
    memcpy(ret->machine, id, sizeof(id));
    return true;
}

bool ingress_host_is_address(struct http_text host) {
    char text[INET_ADDRSTRLEN];
    struct in_addr a;
    const char *colon = memchr(host.s, ':', host.n);
    struct http_text name = {host.s, colon ? (size_t)(colon - host.s) : host.n};
    if (name.n >= sizeof(text))
        return false;
    copy_lower(text, name);
    return strcmp(text, &INGRESS_DOMAIN[1]) == 0 || inet_pton(AF_INET, text, &a) == 1;
}

/* The default port of the scheme is left out. */
static bool put_port(struct buf *out, bool tls, uint16_t listens) {
    return listens == (tls ? HTTPS_PORT : HTTP_PORT) || buf_addf(out, ":%u", listens);
}

bool ingress_domain_put(struct buf *out, const char *domain, bool tls, uint16_t listens) {
    return buf_addf(out, "%s", *domain ? domain : &INGRESS_DOMAIN[1]) &&
           put_port(out, tls, listens);
}

bool ingress_origins_put(struct buf *out, const char *domain, bool tls, uint16_t listens) {
    return buf_addf(out, "%s://*.", tls ? "https" : "http") &&
           ingress_domain_put(out, domain, tls, listens);
}

bool ingress_name_put(struct buf *out, const struct ingress_door *door, const char *domain,
                      bool tls, uint16_t listens) {
    const char *scheme = tls ? "https" : "http";
    char label[ID_LABEL_SIZE];
    id_to_label(door->machine, label);
    bool ok = *domain
                  ? buf_addf(out, "%s://%u-%s.%s", scheme, door->port, label, domain)
                  : buf_addf(out, "%s://%u-%s" INGRESS_DOMAIN, scheme, door->port, door->machine);
    return ok && put_port(out, tls, listens) && buf_add(out, "/", 1);
}
