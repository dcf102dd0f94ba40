/* Desktops of machines: start, screenshot, input. */
#include "service/desktop/desktop.h"

#include "api/bodies.h"
#include "api/route.h"

static void desktop_answered(void *arg, const struct desktop_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else if (view->png)
        call_text(c, 200, "image/png", view->png, view->png_bytes);
    else
        call_view(c, 200, c->route->response, view);
}

void api_desktop_start(struct call *c) {
    service_desktop_start(c->service, &c->who, c->params[0], c->request, desktop_answered, c);
}

void api_desktop_screenshot(struct call *c) {
    service_desktop_screenshot(c->service, &c->who, c->params[0], desktop_answered, c);
}

void api_desktop_input(struct call *c) {
    service_desktop_input(c->service, &c->who, c->params[0], c->request, desktop_answered, c);
}
