/*
 * Access to a machine's own database on a PostgreSQL server of its owner, and to no other.
 *
 * A server lets a role connect to every database with public access. So the gate reads the first
 * packet of each session, which must name the machine's role and database. The gate does TLS with
 * the server and verifies it; the machine talks to the gate in the clear, over loopback. A cancel
 * request must name a session of the same machine. After authentication bytes are relayed without
 * inspection.
 */
#pragma once

#include "gate/name.h"

#define PG_HOSTS_BELOW "db.carrel"

/* The values of libpq's sslmode: what the server's certificate must prove. */
enum pg_tls { PG_TLS_NEVER, PG_TLS_IF_OFFERED, PG_TLS_ALWAYS, PG_TLS_CHAIN, PG_TLS_NAME };
/* Parses an sslmode. NULL or unknown: libpq's default, `prefer`. */
enum pg_tls pg_tls_read(const char *sslmode);

struct pg_database {
    char host[NAME_SIZE];   /* the server's host name in the machine, below PG_HOSTS_BELOW */
    char server[NAME_SIZE]; /* real name of the server, which its certificate must match */
    char name[64];          /* name of the database and of its role */
    enum pg_tls tls;
};
