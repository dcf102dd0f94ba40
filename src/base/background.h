/*
 * The priority of work that nobody waits for. It gives way to everybody else, but still gets about
 * a tenth of what an ordinary process gets: the lowest priority would let it stand still for
 * minutes on a busy host, and others wait behind it for its thread.
 */
#pragma once

enum { BACKGROUND_NICE = 10 };
