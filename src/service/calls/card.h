/*
 * The card of a machine: what it is, may do and has left. One text for the command `carrel me` in
 * the machine, for MCP clients and for runs.
 *
 * It shows only what the machine may know: placeholders of secrets, paths inside the machine.
 */
#pragma once

#include "base/buf.h"
#include "service/service.h"

enum { CARD_MAX = 28 << 10 };

/* machine: an id. False: it does not exist, or the card is longer than CARD_MAX. */
bool service_card(struct service *s, const char *machine, struct buf *to);
/* As service_card(), for a caller: ref is an id or a name, and the caller must have the right to
 * see the machine. */
bool service_card_for(struct service *s, const struct caller *who, const char *ref, struct buf *to);
/* The same as one JSON object. */
bool service_card_json(struct service *s, const char *machine, struct buf *to);
