/*
 * Parts of `carrel ssh`: OpenSSH's own client talks to an sshd that runs in the machine only while
 * a connection does. The bytes go through the daemon (cli/forward), so nothing listens on the host.
 *
 * The client's key and the host keys of machines are in a directory of this user. The daemon brings
 * the host key from the machine, so it is known before the client asks for it.
 */
#pragma once

#include <limits.h>

#include "base/err.h"
#include "base/id.h"
#include "base/text/accounts.h"

enum { SSH_KEY_MAX = 200 };

/* Files of this user. */
struct ssh_files {
    char dir[PATH_MAX / 2];
    char key[PATH_MAX];   /* private key of the client */
    char known[PATH_MAX]; /* host key of the machine */
};

/* Makes the directory, and the key if there is none yet. */
int ssh_files_make(const char *machine_id, struct ssh_files *ret, struct err *err);
/* Reads the public key of the client: "ssh-ed25519 ...". */
int ssh_files_public(const struct ssh_files *f, char ret[SSH_KEY_MAX], struct err *err);
/* Writes down the host key of the machine. A wrong one is refused. */
int ssh_files_know(const struct ssh_files *f, const char *machine_id, const char *key,
                   struct err *err);

/*
 * Starts sshd in the machine, connects it to standard input and output, and ends it afterwards.
 * user: NULL for the default. Returns an exit status; errors are printed.
 */
int ssh_way(const struct ssh_files *f, const char *machine_id, const char *user);

/* Asks the machine for the name of its user. user: NULL for the default. */
int ssh_account(const char *machine_id, const char *user, char ret[ACCOUNT_NAME_MAX + 1],
                struct err *err);
