#include "service/vm/vms.h"

#include <string.h>

#include "base/limits.h"

#define VM_MEM_MIN (128ull << 20)

static bool kind_is_vm(const char *kind) {
    return kind && strcmp(kind, "vm") == 0;
}

bool live_is_vm(const struct live *l) {
    return kind_is_vm(l->row.kind);
}

const struct machine_vm *live_vm(const struct live *l, struct machine_vm *ret) {
    if (!live_is_vm(l))
        return NULL;
    *ret = (struct machine_vm){
        .hostname = l->row.name[0] ? l->row.name : l->row.id,
        .kernel = l->service->conf->vm_kernel,
        .mem_bytes = l->row.mem_bytes,
        .cpu_milli = l->row.cpu_milli,
    };
    return ret;
}

int vm_check_request(const struct machine_request *r, struct err *err) {
    if (!kind_is_vm(r->kind))
        return 0;
    if (r->limits.pids.is) {
        err_set(err, ERR_UNSUPPORTED, "a vm does not support a limit of processes (--pids)");
        return err_remedy(err, "leave it out: the vm's own kernel counts its processes");
    }
    if (r->limits.mem.is && r->limits.mem.value < VM_MEM_MIN) {
        err_set(err, ERR_INVALID, "the memory of a vm must be at least 128M");
        return err_remedy(err, "use a higher --mem, or --kind box");
    }
    return 0;
}

int vm_check_limits(const struct live *l, const struct machine_request *r, struct err *err) {
    if (!live_is_vm(l) || (!r->limits.mem.is && !r->limits.pids.is))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "the memory and the processes of a vm cannot be changed");
    return err_remedy(err, "fork it, or create another vm with --mem");
}

uint64_t vm_default_mem(const char *kind, uint64_t otherwise) {
    return kind_is_vm(kind) ? LIMIT_VM_MEM : otherwise;
}
