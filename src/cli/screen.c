/* carrel-top ORDER: draws the live table of `carrel top` on the whole screen. */
#include <curses.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/clock.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/safe.h"
#include "cli/top.h"

enum { EVERY_MS = 1000, HEAD_LINES = 2, FOOT_LINES = 1 };

struct screen {
    struct top top;
    enum top_order order;
    size_t from; /* index of the first visible row */
    struct err err;
    bool failed, leave;
};

static const char keys[TOP_ORDERS] = {'c', 'm', 'd', 'a', 'n'};

static size_t rows_shown(void) {
    int lines = LINES - HEAD_LINES - FOOT_LINES;
    return lines > 0 ? (size_t)lines : 0;
}

/* ---- drawing ---- */

/* Draws as much as fits into `width` columns; returns the columns used. */
static int screen_put_text(int y, int x, int width, const char *text) {
    mbstate_t state = {0};
    int used = 0;
    if (y < 0 || y >= LINES || move(y, x) == ERR)
        return 0;
    for (size_t left = strlen(text); left;) {
        wchar_t c;
        size_t n = mbrtowc(&c, text, left, &state);
        if (n == (size_t)-1 || n == (size_t)-2) {
            memset(&state, 0, sizeof(state));
            c = L'?';
            n = 1;
        }
        int wide = wcwidth(c);
        if (wide < 0) {
            c = L'?';
            wide = 1;
        }
        if (used + wide > width)
            break;
        addnwstr(&c, 1);
        used += wide;
        text += n;
        left -= n;
    }
    return used;
}

static int columns_of(const char *text) {
    wchar_t wide[64];
    size_t n = mbstowcs(wide, text, 64);
    int width = n < 64 ? wcswidth(wide, n) : -1;
    return width >= 0 ? width : (int)strlen(text);
}

static void put_cell(int y, int *x, const struct top_column *c, const char *text) {
    int width = c->width && c->width < COLS - *x ? c->width : COLS - *x;
    int taken = columns_of(text);
    if (width <= 0)
        return;
    screen_put_text(y, *x + (c->right && taken < width ? width - taken : 0), width, text);
    *x += c->width + 2;
}

static void draw_titles(void) {
    int x = 0;
    attron(A_REVERSE);
    for (int i = 0; i < COLS; i++)
        mvaddch(1, i, ' ');
    for (size_t k = 0; k < TOP_COLUMNS; k++)
        put_cell(1, &x, &top_columns[k], top_columns[k].title);
    attroff(A_REVERSE);
}

static void draw_row(int y, const json_t *row) {
    int x = 0;
    for (size_t k = 0; k < TOP_COLUMNS; k++) {
        char *text DEFER_FREE = top_cell(row, k);
        put_cell(y, &x, &top_columns[k], text);
    }
}

static void draw_foot(const struct screen *s) {
    int x = 0, y = LINES - 1;
    for (size_t i = 0; i < TOP_ORDERS; i++) {
        char text[24];
        snprintf(text, sizeof(text), "%c %s", keys[i], top_order_names[i]);
        if (i == s->order)
            attron(A_BOLD | A_UNDERLINE);
        x += screen_put_text(y, x, COLS - x, text);
        attroff(A_BOLD | A_UNDERLINE);
        x += 3;
    }
    screen_put_text(y, x, COLS - x, "q leave");
}

static void draw(const struct screen *s) {
    char *summary DEFER_FREE = top_summary(&s->top);
    char *why DEFER_FREE = safe_copy(s->failed ? s->err.text : "");
    erase();
    screen_put_text(0, 0, COLS, s->failed ? why : summary);
    draw_titles();
    for (size_t i = 0; i < rows_shown() && s->from + i < s->top.count; i++)
        draw_row(HEAD_LINES + (int)i, s->top.rows[s->from + i]);
    draw_foot(s);
    refresh();
}

/* Sorts and draws the rows. Asks the daemon for the commands of visible rows only. */
static void screen_show(struct screen *s) {
    size_t rows = rows_shown(), last = s->top.count > rows ? s->top.count - rows : 0;
    s->from = s->from < last ? s->from : last;
    top_sort(&s->top, s->order);
    if (!s->failed)
        s->failed = top_commands(&s->top, s->from, rows, &s->err) < 0;
    draw(s);
}

/* ---- keys ---- */

static void scroll_by(struct screen *s, long rows) {
    s->from = rows < 0 && (size_t)-rows > s->from ? 0 : s->from + (size_t)rows;
}

static void take_key(struct screen *s, int key) {
    for (size_t i = 0; i < TOP_ORDERS; i++)
        if (key == keys[i])
            s->order = (enum top_order)i;
    switch (key) {
    case 'q':
        s->leave = true;
        break;
    case KEY_UP:
        scroll_by(s, -1);
        break;
    case KEY_DOWN:
        scroll_by(s, 1);
        break;
    case KEY_PPAGE:
        scroll_by(s, -(long)rows_shown());
        break;
    case KEY_NPAGE:
        scroll_by(s, (long)rows_shown());
        break;
    case KEY_HOME:
        s->from = 0;
        break;
    default: /* also KEY_RESIZE: draw again */
        break;
    }
}

/* Shows the table for `ms` and handles keys; sets s->leave if the terminal was closed. */
static void show_for(struct screen *s, long ms) {
    long end = (long)monotonic_ms() + ms, left;
    screen_show(s);
    while (!s->leave && (left = end - (long)monotonic_ms()) > 0) {
        timeout((int)left);
        int key = getch();
        if (key == ERR && end > (long)monotonic_ms())
            s->leave = !isatty(STDIN_FILENO);
        if (key != ERR) {
            take_key(s, key);
            screen_show(s);
        }
    }
}

static void screen_watch(struct screen *s) {
    for (long ms = TOP_FIRST_MS; !s->leave; ms = EVERY_MS) {
        s->failed = top_look(&s->top, &s->err) < 0;
        show_for(s, ms);
    }
}

static int open_terminal(SCREEN **ret, struct err *err) {
    const char *term = getenv("TERM");
    *ret = newterm(NULL, stdout, stdin);
    if (*ret && tigetstr("cup")) {
        cbreak();
        noecho();
        keypad(stdscr, TRUE);
        curs_set(0);
        return 0;
    }
    if (*ret)
        endwin();
    err_set(err, ERR_UNSUPPORTED, "terminal '%s' cannot show a live table", term ? term : "");
    return err_remedy(err, "set TERM, or use carrel top --once");
}

int main(int argc, char **argv) {
    struct screen s = {.order = TOP_CPU};
    SCREEN *terminal;
    setlocale(LC_ALL, "");
    if (top_order_named(argc > 1 ? argv[1] : "cpu", &s.order, &s.err) < 0 ||
        open_terminal(&terminal, &s.err) < 0)
        return cli_fail(&s.err);
    screen_watch(&s);
    endwin();
    delscreen(terminal);
    top_done(&s.top);
    return 0;
}
