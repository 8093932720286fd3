/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage.h"

/*
 * Reads where processes run, from the /proc of the host.
 *
 * NVML has pids of the host, so /proc must be that of the first PID namespace: the pod has
 * hostPID, or the host's /proc is mounted. Elsewhere a pid may be that of another process;
 * then every process is USAGE_UNMAPPED.
 *
 * A pid can end and be reused at any time. All files of a process are read through one
 * file descriptor of its folder, which the kernel never turns into that of another
 * process, and the start time must be the same before and after.
 */

struct process_reader;

/* `host_root` has the host's proc folder: "/" or a mount of the host's root. New. */
struct process_reader *process_reader_new(const char *host_root);
void process_reader_free(struct process_reader *r); /* NULL is accepted */

/* Whether /proc is that of the host. The reason is in `err`. */
int process_reader_check(const struct process_reader *r, struct err *err);

/* Reads the places of the processes of the sample, each pid once, by rising pid. Cards in
 * MIG mode are left out. Arrays and strings are in the arena. */
void process_reader_places(const struct process_reader *r, const struct gpu_sample *s,
                           struct arena *a, const struct usage_place **places, size_t *n);

/* Whether this process still exists: the same pid with the same start time. */
bool process_reader_is_alive(const struct process_reader *r, const struct usage_pid *pid);
