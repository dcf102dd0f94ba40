/* Backups, for the rest of src/service. Only files of backups/ know struct service_backups. */
#pragma once

struct live;
struct service;
struct service_backups;

struct service_backups *service_backups_new(void);
/* Call it after all jobs of the loop have ended. */
void service_backups_free(struct service *s);
/* Called when the daemon starts: deletes what unfinished backups of the daemon before left. */
void backups_sweep(struct service *s);
/* Call it when a machine ends or loses its box: its layers are deleted, so its backup fails. */
void backups_machine_ends(struct live *l);
