/*
 * Where a PostgreSQL server is and who may make databases there, as owners write it:
 *
 *   postgres://USER:PASSWORD@HOST[:PORT]/TEMPLATE[?sslmode=MODE]
 *   host=HOST port=PORT user=USER password=PASSWORD dbname=TEMPLATE sslmode=MODE
 *
 * The daemon reads it, with more rights than whoever wrote it: so there is no word in it that names
 * a file or a socket of the host, and a message about it never repeats it. Pure.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

enum { DSN_TEXT_MAX = 2048, DSN_HOST_SIZE = 256, DSN_NAME_SIZE = 64, DSN_PASSWORD_SIZE = 512 };

struct dsn {
    char host[DSN_HOST_SIZE]; /* a name or an address */
    char port[6];
    char user[DSN_NAME_SIZE];
    char password[DSN_PASSWORD_SIZE];
    char dbname[DSN_NAME_SIZE]; /* the template */
    char sslmode[16];
};

int dsn_read(const char *text, struct dsn *ret, struct err *err);
void dsn_wipe(struct dsn *d);
