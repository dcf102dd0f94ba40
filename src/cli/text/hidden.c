#include "cli/text/hidden.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static struct termios terminal_before; /* for the signal handler */

static void restore_and_end(int number) {
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
    signal(number, SIG_DFL);
    raise(number);
}

/* Reads one line without showing it. A signal that ends the command turns the echo on again. */
static size_t read_hidden(const char *what, char *value, size_t size) {
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct termios hidden;
    size_t n = 0;
    if (tcgetattr(STDIN_FILENO, &terminal_before) == 0) {
        for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
            signal(ends[i], restore_and_end);
        signal(SIGTSTP, SIG_IGN);
        hidden = terminal_before;
        hidden.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
    }
    /* after the echo is off: a user who types at once would see the secret, and lose its start */
    fprintf(stderr, "%s (not shown, end with Enter): ", what);
    while (n < size && read(STDIN_FILENO, value + n, 1) == 1 && value[n] != '\n')
        n++;
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
    fputc('\n', stderr);
    return n;
}

static size_t read_piped(char *value, size_t size) {
    size_t n = 0;
    ssize_t got;
    while (n < size && (got = read(STDIN_FILENO, value + n, size - n)) > 0)
        n += (size_t)got;
    return n && n < size && value[n - 1] == '\n' ? n - 1 : n;
}

int hidden_read(const char *what, char *value, size_t max, struct err *err) {
    size_t n =
        isatty(STDIN_FILENO) ? read_hidden(what, value, max + 1) : read_piped(value, max + 2);
    if (n > max)
        return err_set(err, ERR_INVALID, "the value of the %s is longer than %zu bytes", what, max);
    value[n] = '\0';
    return strlen(value) == n
               ? 0
               : err_set(err, ERR_INVALID, "the value of the %s contains a NUL byte", what);
}
