#include "service/vm/vms.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/wire/vm_programs.h"
#include "io/vm/kernel.h"

#define VM_MEM_MIN (128ull << 20)

static bool kind_is_vm(const char *kind) {
    return kind && strcmp(kind, "vm") == 0;
}

bool live_is_vm(const struct live *l) {
    return kind_is_vm(l->row.kind);
}

const struct machine_vm *live_vm(const struct live *l, const char *memory, struct machine_vm *ret) {
    if (!live_is_vm(l))
        return NULL;
    *ret = (struct machine_vm){
        .hostname = l->row.name[0] ? l->row.name : l->row.id,
        .kernel = l->service->conf->vm_kernel,
        .mem_bytes = l->row.mem_bytes,
        .cpu_milli = l->row.cpu_milli,
        .memory = memory,
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
    return r->limits.mem.is ? vm_check_memory(r->limits.mem.value, err) : 0;
}

int vm_check_memory(uint64_t mem_bytes, struct err *err) {
    uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (mem_bytes < VM_MEM_MIN) {
        err_set(err, ERR_INVALID, "the memory of a vm must be at least 128M");
        return err_remedy(err, "use a higher --mem, or --kind box");
    }
    if (mem_bytes + LIMIT_VM_EXTRA <= host)
        return 0;
    err_set(err, ERR_LIMIT,
            "a vm with %" PRIu64 "M of memory and QEMU do not fit into the %" PRIu64
            "M of this host",
            mem_bytes >> 20, host >> 20);
    return err_remedy(err, "use a lower --mem, or --kind box");
}

static int vm_check_program(struct err *err) {
    if (access(VM_QEMU, X_OK) == 0)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "a vm needs " VM_QEMU ", which is not installed on this host");
    return err_remedy(err, "apt install " VM_QEMU_PACKAGE);
}

int vm_check_host(const char *kernel, struct err *err) {
    struct kernel found;
    struct modules modules;
    if (geteuid() != 0) {
        err_set(err, ERR_UNSUPPORTED, "a vm needs a daemon that runs as root");
        return err_remedy(err, "use a box, or run the daemon as root");
    }
    if (vm_check_program(err) < 0)
        return -1;
    if (kernel_find(kernel, &found, &modules, err) < 0) {
        err->code = ERR_UNSUPPORTED; /* nothing that the request names was not found */
        return -1;
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
