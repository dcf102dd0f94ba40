/*
 * CPU architecture and sanitizers of this build, as compile-time constants.
 *
 * Seccomp filters depend on both.
 */
#pragma once

#include <linux/audit.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#define NATIVE_OCI_ARCH "amd64" /* the name of the processor in images */
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#define NATIVE_OCI_ARCH "arm64"
#else
#error "add this CPU's audit architecture"
#endif

/* 1: the build has a sanitizer, which needs more memory and system calls. */
#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INSTRUMENTED 1
#endif
#endif
#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif
