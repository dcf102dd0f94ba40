/*
 * Makes a btrfs disk in a process of its own: mkfs.btrfs and the first mount take a tenth of a
 * second, in which the spawner serves other boxes. The process ends with the spawner.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct disk_job {
    pid_t pid;  /* 0: no disk is being made */
    int socket; /* readable when the disk is made, or could not be made; or -1 */
    uint64_t bytes;
};

#define DISK_JOB_NONE ((struct disk_job){.socket = -1})

/* Starts to make a disk whose file is in the directory `store`. Returns 0 or -errno. */
int disk_job_start(struct disk_job *job, int store, uint64_t bytes);
/*
 * Ends the job and waits for its process. Returns the mount, or -1 if the disk could not be made:
 * disk_new() then says why.
 */
int disk_job_take(struct disk_job *job);
/* Ends the job and throws the disk away. */
void disk_job_cancel(struct disk_job *job);
