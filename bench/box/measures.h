/*
 * The measures, one file each. Every one fills its sections of the report; bars go to the end.
 */
#pragma once

#include "bench/report.h"
#include "outside.h"
#include "world.h"

struct bench {
    struct world world;
    struct peers peers;
    struct report *report;
    const char *build;
    bool quick; /* a smoke run: few samples, no figure to be believed */
};

/* Start, exec and whole-process times, interleaved with the floor and the peers. */
int measure_latency(struct bench *b, struct err *err);

/* Back-to-back creation with refill, and boxes per second with 1 and 2 workers. */
int measure_rate(struct bench *b, struct err *err);

/* Memory of an idle box. Starts a spawner of its own. */
int measure_memory(struct bench *b, struct err *err);

/* 1,000 live boxes, and the end of them all. */
int measure_crowd(struct bench *b, struct err *err);

/* System calls, files, and build-like work inside and outside. */
int measure_inside(struct bench *b, struct err *err);

/* Files created and deleted again and again, on a disk that is an image file. */
int measure_churn(struct bench *b, struct err *err);
