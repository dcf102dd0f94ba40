/*
 * Reads a DSN: the address of a PostgreSQL server and a role that may create databases, as owners
 * write it:
 *
 *   postgres://USER:PASSWORD@HOST[:PORT]/TEMPLATE[?sslmode=MODE]
 *   host=HOST port=PORT user=USER password=PASSWORD dbname=TEMPLATE sslmode=MODE
 *
 * The daemon has more rights than the author of a DSN. So a DSN cannot name files or sockets of the
 * host, and errors never repeat its text. Pure (no I/O).
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

enum { DSN_TEXT_MAX = 2048, DSN_HOST_SIZE = 256, DSN_NAME_SIZE = 64, DSN_PASSWORD_SIZE = 512 };

struct dsn {
    char host[DSN_HOST_SIZE]; /* a name or an IP address */
    char port[6];
    char user[DSN_NAME_SIZE];
    char password[DSN_PASSWORD_SIZE];
    char dbname[DSN_NAME_SIZE]; /* the template database, which is copied */
    char sslmode[16];
};

int dsn_read(const char *text, struct dsn *ret, struct err *err);
void dsn_wipe(struct dsn *d);
