/* Five bodies under gravity: double arithmetic with divisions and roots. */
#include "kernel.h"

enum { BODIES = 5 };

struct body {
    double x, y, z, vx, vy, vz, mass;
};

static struct body bodies[BODIES];

static void place_bodies(void) {
    uint32_t seed = 99;
    for (int i = 0; i < BODIES; i++) {
        double unit = (double)(next_random(&seed) & 0xffff) / 65536;
        bodies[i] = (struct body){.x = 5.0 * i + unit,
                                  .y = 3.0 - 2.0 * i,
                                  .z = unit - 0.5,
                                  .vx = 0.1 * i,
                                  .vy = unit * 0.3,
                                  .vz = -0.02 * i,
                                  .mass = i ? 0.01 * i : 39.0};
    }
}

static void attract(struct body *a, struct body *b, double dt) {
    double dx = a->x - b->x, dy = a->y - b->y, dz = a->z - b->z;
    double square = dx * dx + dy * dy + dz * dz + 0.01;
    double pull = dt / (square * __builtin_sqrt(square));
    a->vx -= dx * b->mass * pull;
    a->vy -= dy * b->mass * pull;
    a->vz -= dz * b->mass * pull;
    b->vx += dx * a->mass * pull;
    b->vy += dy * a->mass * pull;
    b->vz += dz * a->mass * pull;
}

static NOINLINE void step(double dt) {
    for (int i = 0; i < BODIES; i++)
        for (int j = i + 1; j < BODIES; j++)
            attract(&bodies[i], &bodies[j], dt);
    for (int i = 0; i < BODIES; i++) {
        bodies[i].x += dt * bodies[i].vx;
        bodies[i].y += dt * bodies[i].vy;
        bodies[i].z += dt * bodies[i].vz;
    }
}

KERNEL uint32_t run(uint32_t n) {
    place_bodies();
    for (uint32_t i = 0; i < n * 100; i++)
        step(0.001);
    double scaled = bodies[1].x * 65536;
    return (uint32_t)(int32_t)scaled;
}
