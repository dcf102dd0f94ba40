/*
 * The output log of a command (base/wire/outlog.h) in the guest: mapped, and filled directly from a
 * pipe.
 *
 * Writing never waits for a reader.
 */
#pragma once

#include "guest/guest.h"

/*
 * Maps the log behind a descriptor from the host, which the log then owns. Its size must be sealed,
 * or a shrunk file could kill this process with SIGBUS. On failure it closes the descriptor and
 * returns -1 with errno. continues: the log is that of a stored command, and goes on where it
 * ended.
 */
int log_open(struct log *l, int fd, bool continues);
void log_close(struct log *l);

/*
 * Makes a sealed file for log_open(), for a host that cannot pass one. Its size depends on the
 * memory of the machine, because it is charged to it. stdio: of the command. -1 with errno.
 */
int log_make(const uint8_t stdio[3]);

/* Reads up to max bytes of a stream from an offset on; *ret points to `to`. -1 with errno. */
int log_fetch(const struct log *l, int stream, uint64_t offset, uint8_t *to, uint32_t max,
              struct msg_log_data *ret);

/*
 * Reads once from fd into the log; returns the same as read(2). If a page of the log cannot be
 * allocated, the bytes are lost for the log, and go to `spill`; NULL: nobody needs them.
 */
ssize_t log_fill(struct log *l, int stream, int fd, size_t max, uint8_t *spill);

/* Returns the spill of a copied stream, with its memory allocated in advance. */
uint8_t *log_spill(size_t command, int stream);
/* Gives back the memory of all spills. No command may have one. */
void log_drop_spills(void);

void log_end(struct log *l, int stream);

struct msg_log log_state(const struct log *l);

/*
 * True if the log has new output for the host, so that the pending LOG_WAIT request can be
 * answered.
 */
bool log_has_news(const struct log *l);
