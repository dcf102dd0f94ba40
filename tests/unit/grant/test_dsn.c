#include "tests/unit/unit.h"

#include <string.h>

#include "grant/dsn.h"

static void is(const char *text, const char *host, const char *port, const char *user,
               const char *password, const char *dbname, const char *sslmode) {
    struct dsn d;
    struct err err;
    assert_int_equal(dsn_read(text, &d, &err), 0);
    assert_string_equal(d.host, host);
    assert_string_equal(d.port, port);
    assert_string_equal(d.user, user);
    assert_string_equal(d.password, password);
    assert_string_equal(d.dbname, dbname);
    assert_string_equal(d.sslmode, sslmode);
}

static void an_address_is_read(void **state) {
    (void)state;
    is("postgres://boss:key@db.example:6432/shop", "db.example", "6432", "boss", "key", "shop",
       "prefer");
    is("postgresql://boss@[2001:db8::1]/shop?sslmode=verify-full", "2001:db8::1", "5432", "boss",
       "", "shop", "verify-full");
    is("postgres://b%40x:p%2Fq%3A@h:1/s%20t", "h", "1", "b@x", "p/q:", "s t", "prefer");
    is("postgres:///x?host=h&user=u&password=p", "h", "5432", "u", "p", "x", "prefer");
}

static void words_are_read(void **state) {
    (void)state;
    is("host=h user=u dbname=d", "h", "5432", "u", "", "d", "prefer");
    is("  dbname='a b'  password='it\\'s \\\\' user=u\thost=10.0.0.1 port=7 sslmode=disable",
       "10.0.0.1", "7", "u", "it's \\", "a b", "disable");
}

static void nothing_of_the_hosts_files_can_be_named(void **state) {
    static const char *const bad[] = {
        "host=/run/postgresql user=u dbname=d",
        "host=@socket user=u dbname=d",
        "user=u dbname=d",
        "host=h user=u dbname=d passfile=/etc/shadow",
        "host=h user=u dbname=d sslkey=/etc/ssl/private/key",
        "host=h user=u dbname=d service=x",
        "host=h hostaddr=127.0.0.1 user=u dbname=d",
        "postgres://u:p@%2Frun%2Fpostgresql/d",
        "postgres://u:p@/d",
        "postgres://u:p@h1,h2/d",
        "postgres://u:p@h/d?sslrootcert=/etc/passwd",
    };
    struct dsn d;
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(dsn_read(bad[i], &d, &err), -1);
}

static void what_makes_no_sense_is_refused_and_not_repeated(void **state) {
    static const char *const bad[] = {
        "",
        "hidden",
        "host",
        "host=h",
        "host=h host=h user=u dbname=d",
        "host=h user=u dbname='hidden",
        "host=h user=u dbname=hidden\\",
        "postgres://u:hidden@h:0/d",
        "postgres://u:hidden@h:65536/d",
        "postgres://u:hidden@h:/d%",
        "postgres://u:hidden%4@h/d",
        "postgres://u:hidden%00@h/d",
        "postgres://u:hidden@[::1/d",
        "postgres://u:hidden@h/d?sslmode=hidden",
        "postgres://u:hidden@h/d?sslmode",
        "postgres://u:hidden@h/",
    };
    struct dsn d;
    struct err err;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(dsn_read(bad[i], &d, &err), -1);
        assert_null(strstr(err.text, "hidden"));
    }
    char long_one[DSN_TEXT_MAX + 1];
    memset(long_one, 'x', sizeof(long_one) - 1);
    long_one[sizeof(long_one) - 1] = '\0';
    assert_int_equal(dsn_read(long_one, &d, &err), -1);
}

UNIT_MAIN(cmocka_unit_test(an_address_is_read), cmocka_unit_test(words_are_read),
          cmocka_unit_test(nothing_of_the_hosts_files_can_be_named),
          cmocka_unit_test(what_makes_no_sense_is_refused_and_not_repeated))
