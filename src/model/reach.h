/*
 * What a request makes its provider do besides answering: fetch an address, search, run code, call
 * another server, or read what is kept there. A machine could send data out by that, or hear a
 * stranger.
 *
 * Each format has a table of the members, blocks and tools that cause nothing of the kind. What is
 * not in it counts as reaching out: a provider may learn new words before we do.
 */
#pragma once

#include <jansson.h>

#include "model/codec.h"

enum { MODEL_REACH_SIZE = 120 };

/* True: it may, and ret says by what ("tools[0].type web_search_20250305"). */
bool model_reaches_out(const struct model_codec *codec, const json_t *request,
                       char ret[MODEL_REACH_SIZE]);
