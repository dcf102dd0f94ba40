/*
 * Modes of a terminal that a command has set, read from its output. Carrel takes the screen for a
 * question of its own, and gives it back with the same modes.
 *
 * Pure: sequences are written to a buffer. The output is untrusted, so no text of it is repeated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Title of the window while the screen is Carrel's. */
#define MODES_TITLE "carrel: questions"

enum { MODES_SEQUENCE_MAX = 64, MODES_WRITTEN_MAX = 1024, MODES_FORMS_MAX = 16 };

struct modes {
    enum {
        MODES_TEXT,
        MODES_ESCAPE,
        MODES_SKIP, /* one more byte belongs to the sequence */
        MODES_CONTROL,
        MODES_STRING,
        MODES_STRING_ESCAPE
    } state;
    char sequence[MODES_SEQUENCE_MAX]; /* parameters of the control sequence so far */
    size_t len;                        /* MODES_SEQUENCE_MAX: too long, so it is ignored */
    uint32_t changed;                  /* rows of the table that differ from a new terminal */
    char other_keys;                   /* digit of modifyOtherKeys; 0: off */
    unsigned key_forms;                /* entries of the terminal's stack of forms of keys */
    bool keypad;                       /* its keys write sequences of their own */
    bool inserts;                      /* text moves what is behind it */
    unsigned rows[2], columns[2];      /* margins; both 0: none */
};

/* Reads output of the command. */
void modes_feed(struct modes *m, const char *bytes, size_t n);
/* True if the output ended between two sequences, so text can be written. */
bool modes_is_between(const struct modes *m);
/* True if the command draws on the alternate screen, which it must draw again itself. */
bool modes_is_alternate(const struct modes *m);

/* Writes sequences that give Carrel an empty screen in an ordinary state, whatever the command has
 * written before. Colours that it has changed stay reset. */
void modes_put_away(const struct modes *m, struct buf *to);
/* Writes sequences that give the screen back. */
void modes_put_back(const struct modes *m, struct buf *to);
/* Writes sequences that give the terminal back to the shell, while the command goes on elsewhere.
 */
void modes_put_first(const struct modes *m, struct buf *to);
/* Writes a line on top of the screen. text: printable ASCII, without line breaks. */
void modes_put_line(const char *text, size_t cols, struct buf *to);

/* A key in input: as a control character, or as terminals write it that an application has told to
 * (CSI CODE;5u, CSI 27;5;CODE~). */
enum modes_key { MODES_KEY_OTHER, MODES_KEY_PRESSED, MODES_KEY_NEUTRAL };
/*
 * Looks whether input starts with Ctrl and this character. *ret_len is the length of the key, at
 * least 1. NEUTRAL: the release of a key, or a modifier alone.
 */
enum modes_key modes_key_read(const char *bytes, size_t n, char character, size_t *ret_len);
