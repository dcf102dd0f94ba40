/* The tool transfer: a URL by which the client moves one file (service/tickets.h). */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "service/tickets.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

/* Without a TCP address, the client reaches the URL by the daemon's unix socket. */
static void transfer_told(struct act *a, const char *ticket, bool is_upload, uint64_t life_s) {
    const struct transfer_input *in = a->request;
    const char *base = service_address(act_service(a)), *socket = service_socket(act_service(a));
    struct buf url DEFER(buf_done) = BUF(512), command DEFER(buf_done) = BUF(1024);
    bool has_tcp = base[0] != '\0';
    (void)!buf_addf(&url, "%s/v1/transfers/%s", has_tcp ? base : "http://localhost", ticket);
    (void)!buf_addf(&command, "curl -f %s FILE%s%s %s", is_upload ? "-T" : "-C - -o",
                    has_tcp ? "" : " --unix-socket ", has_tcp ? "" : socket, url.data);
    act_done(a, &(struct transfer_output){.url = url.data,
                                          .method = is_upload ? "PUT" : "GET",
                                          .socket = has_tcp ? NULL : socket,
                                          .command = command.data,
                                          .life_s = life_s,
                                          .path = in->path,
                                          .machine = a->machine});
    explicit_bzero(url.data, url.len);
    explicit_bzero(command.data, command.len);
}

void tool_transfer(struct act *a) {
    const struct transfer_input *in = a->request;
    bool is_upload = strcmp(in->way, "upload") == 0;
    char ticket[TICKET_SIZE];
    struct err err;
    const struct ticket_request r = {.machine = a->machine,
                                     .path = in->path,
                                     .user = in->user,
                                     .way = is_upload ? TICKET_UPLOAD : TICKET_DOWNLOAD,
                                     .life_s = in->life_s.is ? in->life_s.value : TICKET_LIFE_S,
                                     .talk = a->box->talk};
    if (service_ticket_new(act_service(a), act_who(a), &r, ticket, &err) < 0)
        act_fail(a, &err);
    else
        transfer_told(a, ticket, is_upload, r.life_s);
    explicit_bzero(ticket, sizeof(ticket));
}
