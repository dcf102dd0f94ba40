/*
 * Detects requests that make the provider do more than answer: fetch a URL, search, run code, call
 * another server, or read stored data. A machine could leak data that way, or receive untrusted
 * data.
 *
 * Each format has an allow-list of members, blocks and tools. Anything else counts as reaching out,
 * because a provider may add features that we do not know.
 */
#pragma once

#include <jansson.h>

#include "model/codec.h"

enum { MODEL_REACH_SIZE = 120 };

/* True: the request reaches out, and ret says where ("tools[0].type web_search_20250305"). */
bool model_reaches_out(const struct model_codec *codec, const json_t *request,
                       char ret[MODEL_REACH_SIZE]);
