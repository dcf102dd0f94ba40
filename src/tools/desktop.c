/* The tools of the desktop: screenshot, click, move, scroll, type and key. */
#include "service/desktop/desktop.h"

#include "tools/requests.h"
#include "tools/toolbox.h"

static void desktop_told(void *arg, const struct desktop_view *view, const struct err *err) {
    struct act *a = arg;
    if (err) {
        act_fail(a, err);
        return;
    }
    const struct desktop_output out = {.machine = a->machine,
                                       .display = view->display,
                                       .width = view->width,
                                       .height = view->height};
    if (view->png)
        act_done_image(a, &out, view->png, view->png_bytes, "image/png");
    else
        act_done(a, &out);
}

void tool_desktop_screenshot(struct act *a) {
    service_desktop_screenshot(act_service(a), act_who(a), a->machine, desktop_told, a);
}

static void desktop_act(struct act *a, const char *action) {
    struct desktop_tool_input *in = a->request;
    in->in.action = action;
    service_desktop_input(act_service(a), act_who(a), a->machine, &in->in, desktop_told, a);
}

void tool_desktop_click(struct act *a) {
    desktop_act(a, "click");
}

void tool_desktop_move(struct act *a) {
    desktop_act(a, "move");
}

void tool_desktop_scroll(struct act *a) {
    desktop_act(a, "scroll");
}

void tool_desktop_type(struct act *a) {
    desktop_act(a, "type");
}

void tool_desktop_key(struct act *a) {
    desktop_act(a, "key");
}
