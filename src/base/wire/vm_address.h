/*
 * Addresses in the network of a vm. They are the same in every vm: each has a network namespace of
 * its own, and so a clone of a vm keeps its addresses and what it knows of its gateway.
 *
 * They are from the benchmark range (RFC 2544), like the synthetic addresses of the gate.
 */
#pragma once

#define VM_GATEWAY "198.18.0.1" /* the gate: router, name server and explicit proxy */
#define VM_ADDRESS "198.18.0.2" /* the guest */
#define VM_GATEWAY_MAC "02:c6:12:00:00:01"
#define VM_MAC "02:c6:12:00:00:02"

#define VM_PORT "carrel.0"           /* name of the virtio port to the daemon */
#define VM_WAKE_PORT "carrel.wake"   /* that over which it is told what it is */
#define VM_FILES_PORT "carrel.files" /* that to the server of the files */

enum { VM_PREFIX = 30, VM_MTU = 1500 };
