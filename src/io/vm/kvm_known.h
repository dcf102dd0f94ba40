/*
 * Whether vms use KVM: what was found out about it since the host started, with this QEMU.
 *
 * The answer is in the file `vm/kvm` of the daemon's directory. A vm that starts only without KVM
 * makes it "no", until the host starts again or QEMU changes.
 */
#pragma once

#include "io/vm/kvm_probe.h"

enum { KVM_HOST_SIZE = 160, KVM_TEXT_SIZE = KVM_HOST_SIZE + KVM_REASON_SIZE + 16 };

/* What an answer holds for: this start of the host, and the file of QEMU. */
void kvm_host(char ret[KVM_HOST_SIZE]);

/* The text of the file: three lines. Pure. */
void kvm_known_print(const char *host, const struct kvm_probe *p, char ret[KVM_TEXT_SIZE]);
/* False if the text is damaged or of another host; then *ret is untouched. Pure. */
bool kvm_known_parse(const char *text, const char *host, struct kvm_probe *ret);

/* Only reads the answer. False: there is none. */
bool kvm_recall(const char *home, struct kvm_probe *ret);

/* Reads the answer, or tries KVM and writes it. Blocks as kvm_probe() does. */
void kvm_decide(const char *home, struct kvm_probe *ret);

/* Remembers not to use KVM: a vm did not start with KVM, and started without it. Writes a file. */
void kvm_remember_failure(const char *home, const char *why);
