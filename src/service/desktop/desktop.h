/*
 * The desktop of a machine: an X server and a window manager that run inside it, looked at and
 * driven over RFB (io/screen/rfb.h).
 *
 * The X server is Xtigervnc of the machine's own image. It listens on a unix socket in the machine,
 * on no port, and its clipboard is off. Each operation connects through the guest's tool `connect`
 * and ends with the connection, so nothing has to be adopted after a restart. The first operation
 * starts the desktop. Its programs use DESKTOP_DISPLAY.
 */
#pragma once

#include "service/service.h"

#define DESKTOP_DISPLAY ":0"
#define DESKTOP_DIR "/tmp/.carrel-desktop"
#define DESKTOP_SOCKET DESKTOP_DIR "/vnc"

enum {
    DESKTOP_WIDTH = 1280,
    DESKTOP_HEIGHT = 800,
    DESKTOP_SIDE_MIN = 64,
    DESKTOP_WIDTH_MAX = 3840,
    DESKTOP_HEIGHT_MAX = 2160,
    DESKTOP_TEXT_MAX = 4096, /* bytes of `text` */
    DESKTOP_CLICKS_MAX = 3,
    DESKTOP_SCROLL_MAX = 100,
    DESKTOP_ACTS = 16, /* operations at the same time, of all machines */
};

/* The size of a desktop that is to be started. */
struct desktop_request {
    struct given width, height;
};

extern const char *const desktop_actions[];    /* click, move, scroll, type, key; NULL-terminated */
extern const char *const desktop_buttons[];    /* left, middle, right */
extern const char *const desktop_directions[]; /* up, down, left, right */

/* Input of one action. Coordinates are pixels of the screenshot, from its top left corner. */
struct desktop_input {
    const char *action;
    struct given x, y;       /* click, move, scroll */
    struct given to_x, to_y; /* click: drag to here */
    const char *button;      /* click; NULL: left */
    struct given count;      /* click: 1 to DESKTOP_CLICKS_MAX */
    const char *direction;   /* scroll */
    struct given amount;     /* scroll: steps of the wheel */
    const char *text;        /* type: the text; key: chords, separated by spaces */
    const char *hold;        /* click, scroll: keys that are held down meanwhile */
};

struct desktop_view {
    uint64_t width, height;
    const char *display;
    const void *png; /* the screenshot, or NULL */
    size_t png_bytes;
};

typedef void service_desktop_fn(void *arg, const struct desktop_view *view, const struct err *err);

/* Requests must stay valid until `done`. Answers when the desktop runs, at once if it did. */
void service_desktop_start(struct service *s, const struct caller *who, const char *machine,
                           const struct desktop_request *r, service_desktop_fn *done, void *arg);
void service_desktop_screenshot(struct service *s, const struct caller *who, const char *machine,
                                service_desktop_fn *done, void *arg);
/* Answers when the X server has read all of the input. */
void service_desktop_input(struct service *s, const struct caller *who, const char *machine,
                           const struct desktop_input *in, service_desktop_fn *done, void *arg);
