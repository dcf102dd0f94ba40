/*
 * Tokens of machines: credentials for one machine, which its programs and users of its files get.
 *
 * A token is a keyed hash of the machine's id and a generation, so that it can be computed again
 * and no table holds it. Revoking raises the generation (service_token_revoke() with the id of a
 * machine). The tokens of a machine end with it.
 */
#pragma once

#include "service/service.h"

enum { MACHINE_TOKEN_SIZE = SHA256_HEX };

/* What a token is for. One kind of token is never accepted for another purpose. */
enum machine_token_use {
    MACHINE_TOKEN_CONTROL, /* run commands, and read and write files */
    MACHINE_TOKEN_TRAFFIC, /* reach the ports of programs */
    MACHINE_TOKEN_USES
};

/* who NULL: for a front end that checks what a client computed from the token. */
int service_machine_token(struct service *s, const struct caller *who, const char *ref,
                          enum machine_token_use use, char ret[MACHINE_TOKEN_SIZE],
                          struct err *err);
/*
 * Authenticates the holder of a token of the live machine `id`. *ret acts for the machine's owner:
 * use it for this machine only. ERR_NOT_FOUND: there is no such machine. ERR_DENIED: the token is
 * wrong.
 */
int service_caller_by_machine_token(struct service *s, const char *id, enum machine_token_use use,
                                    const char *token, size_t len, const char *client,
                                    struct caller *ret, struct err *err);
/* Finds the live machine whose token fits, for what was computed from a token. */
bool service_machine_by_token(struct service *s, enum machine_token_use use,
                              bool (*fits)(void *arg, const char *token), void *arg,
                              char ret_id[ID_SIZE]);
/* True if the text is this token. Takes the same time wherever they differ. */
bool machine_token_is(const char *token, const char *given, size_t len);
/* Raises the generation. The caller flushes the store before it acknowledges. */
int machine_tokens_revoke(struct service *s, const struct caller *who, const char *id,
                          struct err *err);
