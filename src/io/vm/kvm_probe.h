/*
 * Whether KVM of this host runs code at the speed of the processor.
 *
 * A device /dev/kvm proves nothing: a host that is itself a vm may emulate each instruction, or
 * stop in the middle. So a process of its own lets KVM run a loop, and has a limit of time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { KVM_REASON_SIZE = 160 };

/* What the process tells. */
struct kvm_trial {
    const char *failed; /* the action that failed; NULL: none */
    int error;          /* the errno of it; 0: it went otherwise than it must */
    bool has_ended;     /* false: the process was killed because its time was over */
    uint64_t loop_us;   /* time of the loop */
};

struct kvm_probe {
    bool is_usable;
    char reason[KVM_REASON_SIZE]; /* why not, or how fast the loop was */
};

/* Decides; pure. */
void kvm_judge(const struct kvm_trial *trial, struct kvm_probe *ret);

/* Tries a device, usually /dev/kvm. Blocks for less than a second, even if KVM hangs. */
void kvm_probe(const char *device, struct kvm_probe *ret);
