/*
 * The output log of a command (base/wire/outlog.h) in the guest: mapped, and filled directly from a
 * pipe.
 *
 * Writing never waits for a reader.
 */
#pragma once

#include "guest/guest.h"

/*
 * Takes over a descriptor of the host. It must be sealed in size, or writing to it could
 * end this process. errno on failure; the descriptor is closed then.
 */
int log_open(struct log *l, int fd);
void log_close(struct log *l);

/* One read of fd into the log; as read(2). */
ssize_t log_fill(struct log *l, int stream, int fd, size_t max);
void log_end(struct log *l, int stream);

struct msg_log log_state(const struct log *l);

/* Is there an answer to the LOG_WAIT that was stored? */
bool log_has_news(const struct log *l);
