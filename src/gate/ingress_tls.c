#include "gate/ingress_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "gate/authority.h"
#include "gate/name.h"

enum { PEM_MAX = 16384 };
#define LOCAL ".localhost"

struct ingress_tls {
    struct ingress_config config;
    SSL_CTX *given;                 /* of the owner's files; NULL: not read yet */
    struct timespec certificate_of; /* when the file that `given` was made from was changed */
    struct authority *authority;    /* NULL: not open */
    char domain_name[NAME_SIZE];    /* "*.DOMAIN", for which it signs one certificate */
};

struct ingress_tls *ingress_tls_new(const struct ingress_config *config) {
    struct ingress_tls *t = xnew(struct ingress_tls);
    t->config = *config;
    return t;
}

void ingress_tls_free(struct ingress_tls *t) {
    SSL_CTX_free(t->given);
    authority_free(t->authority);
    free(t);
}

bool ingress_tls_wanted(const struct ingress_tls *t) {
    return *t->config.certificate;
}

/* ---- by a certificate of the owner ---- */

static int tls_failed(struct err *err, const char *what, const char *path) {
    char why[256];
    ERR_error_string_n(ERR_get_error(), why, sizeof(why));
    err_set(err, ERR_INVALID, "cannot use the %s in '%s': %s", what, path, why);
    return err_remedy(err, "see [gate] certificate and certificate_key in carrel.conf");
}

static int given_open(struct ingress_tls *t, struct err *err) {
    const char *certificate = t->config.certificate, *key = t->config.key;
    struct stat st;
    if (stat(certificate, &st) < 0) {
        err_sys(err, "cannot read the certificate '%s'", certificate);
        return err_remedy(err, "see [gate] certificate and certificate_key in carrel.conf");
    }
    if (t->given && st.st_mtim.tv_sec == t->certificate_of.tv_sec &&
        st.st_mtim.tv_nsec == t->certificate_of.tv_nsec)
        return 0;
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    int r = 0;
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
        SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1)
        r = tls_failed(err, "certificate", certificate);
    else if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
             SSL_CTX_check_private_key(ctx) != 1)
        r = tls_failed(err, "private key", key);
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_free(t->given);
    t->given = ctx;
    t->certificate_of = st.st_mtim;
    return 0;
}

/* ---- by an authority of the daemon's own ---- */

/* Writes a whole file or nothing, also if the power fails. */
static int own_save(const char *path, const struct buf *text, mode_t mode, struct err *err) {
    char next[PATH_MAX];
    snprintf(next, sizeof(next), "%s.new", path);
    int fd DEFER_CLOSE = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 || fchmod(fd, mode) < 0)
        return err_sys(err, "cannot create file '%s'", path);
    int r = write_all(fd, text->data, text->len);
    if (r < 0)
        return err_num(err, r, "cannot write file '%s'", path);
    return fsync(fd) == 0 && rename(next, path) == 0 ? 0
                                                     : err_sys(err, "cannot write file '%s'", path);
}

static int own_create(struct ingress_tls *t, const char *path, struct err *err) {
    struct buf pem DEFER(buf_done) = BUF(PEM_MAX);
    struct authority *a = authority_new_for(t->config.domain, err);
    if (!a)
        return -1;
    int r = authority_write(a, &pem, err);
    if (r == 0)
        r = own_save(path, &pem, 0600, err);
    if (pem.data)
        explicit_bzero(pem.data, pem.len);
    if (r < 0)
        authority_free(a);
    else
        t->authority = a;
    return r;
}

static int own_read(struct ingress_tls *t, struct err *err) {
    char path[PATH_MAX], pem[PEM_MAX];
    snprintf(path, sizeof(path), "%s/authority-%s.pem", t->config.home, t->config.domain);
    ssize_t n = read_file_at(AT_FDCWD, path, pem, sizeof(pem));
    if (n == -ENOENT)
        return own_create(t, path, err);
    if (n < 0)
        return err_num(err, (int)n, "cannot read file '%s'", path);
    t->authority = authority_read(pem, err);
    explicit_bzero(pem, sizeof(pem));
    if (t->authority)
        return 0;
    err_wrap(err, "file '%s'", path);
    return err_remedy(err, "delete it, and a new authority is made, which clients must trust anew");
}

/* Clients on this host find the certificate in the run directory: the store is not theirs. */
static int own_publish(struct ingress_tls *t, struct err *err) {
    char path[PATH_MAX];
    struct buf pem DEFER(buf_done) = BUF(PEM_MAX);
    snprintf(path, sizeof(path), "%s/authority.pem", t->config.run);
    return authority_certificate(t->authority, &pem, err) == 0 ? own_save(path, &pem, 0644, err)
                                                               : -1;
}

static int own_open(struct ingress_tls *t, struct err *err) {
    int n = snprintf(t->domain_name, sizeof(t->domain_name), "*.%s", t->config.domain);
    if (t->authority)
        return 0;
    if (!*t->config.domain || n >= (int)sizeof(t->domain_name)) {
        err_set(err, ERR_INVALID, "'certificate = " INGRESS_OWN "' needs a domain");
        return err_remedy(err, "set [gate] domain in carrel.conf");
    }
    if (own_read(t, err) == 0 && own_publish(t, err) == 0)
        return 0;
    authority_free(TAKE(t->authority));
    return -1;
}

/* True for one label below "localhost". Clients accept no certificate for all such names. */
static bool is_local(const char *name, char ret[NAME_SIZE]) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
    bool yes = n > 0 && n <= LABEL_MAX && strcmp(name + n, LOCAL) == 0;
    if (yes)
        snprintf(ret, NAME_SIZE, "%s", name);
    return yes;
}

/* Called once the hello of the client is read, which says what name it wants. */
static int choose_certificate(SSL *ssl, void *arg) {
    struct ingress_tls *t = arg;
    char local[NAME_SIZE];
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    return authority_use(t->authority, ssl, name && is_local(name, local) ? local : t->domain_name);
}

/* ---- both ---- */

static bool is_own(const struct ingress_tls *t) {
    return strcmp(t->config.certificate, INGRESS_OWN) == 0;
}

int ingress_tls_open(struct ingress_tls *t, struct err *err) {
    return !ingress_tls_wanted(t) ? 0 : is_own(t) ? own_open(t, err) : given_open(t, err);
}

SSL *ingress_tls_accept(struct ingress_tls *t) {
    SSL *ssl = is_own(t) ? authority_accept(t->authority, t->domain_name) : SSL_new(t->given);
    if (ssl && is_own(t))
        SSL_set_cert_cb(ssl, choose_certificate, t);
    if (ssl)
        SSL_set_accept_state(ssl);
    return ssl;
}
