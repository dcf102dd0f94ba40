/*
 * The console: the page that a browser gets at "/", and the requests with which it gets its token
 * and tickets (service/console/console.h). Not routes: they are no part of the public API.
 *
 * Machines and models cannot influence anything that is sent from here as a page.
 */
#pragma once

#include "io/http_server.h"
#include "service/service.h"

/* Authenticates an exchange (api.c). 0, or -1 with the error. */
typedef int console_caller_fn(void *arg, const struct http_exchange *x, struct caller *ret,
                              struct err *err);
/* Listens for browsers if nothing does yet. */
typedef int console_listen_fn(void *arg, struct err *err);

struct console_face;

/* Reads the files of the page. `arg` is passed to both functions. */
struct console_face *console_face_new(struct service *service, console_caller_fn *caller,
                                      console_listen_fn *listen, void *arg);
void console_face_free(struct console_face *f);

/* True: the request was for the console and has been taken. */
bool console_face_take(struct console_face *f, struct http_exchange *x);

/* The files of the page, from the folder "console" beside the daemon. */
struct page_files;

struct page_files *page_files_new(const char *dir);
void page_files_free(struct page_files *p);
/* frames: the origins that the page may show in frames; NULL: none. */
void page_files_serve(struct page_files *p, struct http_exchange *x, const char *frames);
