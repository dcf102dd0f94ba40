/*
 * The priority (nice value) of work that nobody waits for. Such work still gets about a tenth of
 * the CPU time of an ordinary process. With the lowest priority it could stop for minutes on a busy
 * host, and other work would wait for its thread.
 */
#pragma once

enum { BACKGROUND_NICE = 10 };
