#include "cli/guard.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { GUARD_TEXT = 400 };

static const int guarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
enum { GUARDED = sizeof(guarded) / sizeof(*guarded) };

/* For the handlers. */
static volatile sig_atomic_t guard_first, guard_second;
static volatile sig_atomic_t guard_is_new; /* guard_first came while the guard was there */
static char guard_fate[GUARD_TEXT];
static struct termios guard_terminal;
static bool guard_has_terminal;
static struct sigaction guard_before[GUARDED + 1];

static void guard_end_client(int number) {
    if (guard_has_terminal)
        tcsetattr(STDIN_FILENO, TCSANOW, &guard_terminal);
    (void)!write(STDERR_FILENO, guard_fate, strlen(guard_fate));
    _exit(128 + number);
}

static void guard_arm(int ms) {
    struct itimerval t = {.it_value = {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &t, NULL);
}

static void guard_take(int number) {
    if (guard_second)
        guard_end_client(number);
    if (guard_first) {
        guard_second = number;
        guard_arm(GUARD_SECOND_MS);
        return;
    }
    guard_first = number;
    guard_is_new = 1;
    guard_arm(GUARD_FIRST_MS);
}

static void guard_time_up(int number) {
    (void)number;
    guard_end_client(guard_second ? guard_second : guard_first);
}

/*
 * A signal that our caller ignores, as with nohup, is not taken and stays blocked, so that the
 * session forwards it later. Its action must not be set, not even to SIG_IGN again: that would
 * discard the signal if it is pending. System calls go on after other signals.
 */
static void guard_handle(int number, void (*handler)(int), struct sigaction *before) {
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&act.sa_mask);
    sigaction(number, NULL, before);
    if (before->sa_handler != SIG_IGN)
        sigaction(number, &act, NULL);
}

static void guard_restore(int number, const struct sigaction *before) {
    if (before->sa_handler != SIG_IGN)
        sigaction(number, before, NULL);
}

static void guard_mask(int how) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < GUARDED; i++)
        if (guard_before[i].sa_handler != SIG_IGN)
            sigaddset(&set, guarded[i]);
    sigprocmask(how, &set, NULL);
}

void guard_begin(int first, const char *fate, const struct termios *terminal) {
    guard_first = first;
    guard_second = guard_is_new = 0;
    snprintf(guard_fate, sizeof(guard_fate), "%s", fate);
    guard_has_terminal = terminal != NULL;
    if (terminal)
        guard_terminal = *terminal;
    for (int i = 0; i < GUARDED; i++)
        guard_handle(guarded[i], guard_take, &guard_before[i]);
    guard_handle(SIGALRM, guard_time_up, &guard_before[GUARDED]);
    if (first)
        guard_arm(GUARD_FIRST_MS);
    guard_mask(SIG_UNBLOCK);
}

void guard_end(void) {
    guard_mask(SIG_BLOCK);
    guard_arm(0);
    for (int i = 0; i < GUARDED; i++)
        guard_restore(guarded[i], &guard_before[i]);
    guard_restore(SIGALRM, &guard_before[GUARDED]);
    if (guard_is_new)
        kill(getpid(), guard_first);
    if (guard_second)
        kill(getpid(), guard_second);
}
