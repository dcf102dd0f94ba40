/*
 * Results of tools as plain text: what a model reads. Programs read the JSON of the same result.
 *
 * The text comes from the same struct as the JSON and contains nothing that the JSON does not
 * contain.
 */
#pragma once

#include "base/buf.h"
#include "tools/tool.h"

/* Writes the result of a call. json: the result as JSON, for tools without a function `plain`. A
 * text that does not fit into `out` ends early. */
void plain_text(const struct tool *t, const void *view, const char *json, struct buf *out);

/* The functions `plain` of the tools. Each takes the struct of the tool's output. */
void plain_exec(const void *view, struct buf *out);
void plain_read(const void *view, struct buf *out);
void plain_edit(const void *view, struct buf *out);
void plain_patch(const void *view, struct buf *out);
void plain_search(const void *view, struct buf *out);
void plain_list(const void *view, struct buf *out);
void plain_python(const void *view, struct buf *out);
void plain_browser(const void *view, struct buf *out);
void plain_fetch(const void *view, struct buf *out);
void plain_diff(const void *view, struct buf *out);
