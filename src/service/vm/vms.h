/*
 * Machines of the kind vm: a box in which QEMU runs. Everything that a vm cannot do is refused here
 * with `unsupported`; docs/reference/vm.md has the same table.
 */
#pragma once

#include "service/request.h"
#include "service/state.h"

bool live_is_vm(const struct live *l);
/*
 * What the driver makes a vm of, in *ret, which points into the row; NULL: not a vm. memory: saved
 * memory, in which it goes on; NULL: it boots.
 */
const struct machine_vm *live_vm(const struct live *l, const char *memory, struct machine_vm *ret);
/* Refuses what a vm does not support in a request to create it. */
int vm_check_request(const struct machine_request *r, struct err *err);
/* Refuses changes of limits that would need another boot. */
int vm_check_limits(const struct live *l, const struct machine_request *r, struct err *err);
/* Refuses a vm with this much memory: too little for a kernel, or more than this host has. */
int vm_check_memory(uint64_t mem_bytes, struct err *err);
/* Blocks. `unsupported`: this host cannot run vms. kernel: of carrel.conf; empty: of the host. */
int vm_check_host(const char *kernel, struct err *err);
/* Memory of a vm for which no limit is given. */
uint64_t vm_default_mem(const char *kind, uint64_t otherwise);
