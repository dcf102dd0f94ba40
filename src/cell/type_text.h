/* Writes types of imports and exports as the text format of WebAssembly does. */
#pragma once

#include "base/buf.h"
#include "wasm/wasm.h"

/* Appends for example "(func (param i32) (result i64))"; false: no room. */
bool type_text_add(struct buf *b, const struct wasm_extern_type *t);
