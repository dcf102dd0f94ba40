/*
 * A machine's own database on a server of its owner's: the way to that one and to no other.
 *
 * A server lets a role into every database that is everybody's. So the gate reads the first packet
 * of each session: it must be the machine's role, in the machine's database. TLS with the server is
 * the gate's: it ends here, where it is known what the server has to prove, and the machine speaks
 * without it to the gate, over loopback. A request to stop what a session does must be about one of
 * the machine's own. From then on bytes go through, unlooked at.
 */
#pragma once

#include "gate/name.h"

#define PG_HOSTS_BELOW "db.carrel"

/* As libpq's sslmode; what the server has to prove. */
enum pg_tls { PG_TLS_NEVER, PG_TLS_IF_OFFERED, PG_TLS_ALWAYS, PG_TLS_CHAIN, PG_TLS_NAME };
/* NULL or unknown: as libpq has it, if it is offered. */
enum pg_tls pg_tls_read(const char *sslmode);

struct pg_database {
    char host[NAME_SIZE];   /* what the machine calls the server: below PG_HOSTS_BELOW */
    char server[NAME_SIZE]; /* what its owner calls it, and what it has to prove */
    char name[64];          /* of the database, and of the role */
    enum pg_tls tls;
};
