/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "node/overuse.h"

/*
 * Carries out what node/overuse.h decides: writes Events, evicts pods through the Eviction
 * API, and kills processes.
 *
 * A thread makes the calls. Processes are killed by the thread that measured, at once: the
 * measurement is never older than in the decision. An eviction names the UID of the pod, so
 * that a pod of the same name that was created since is never evicted.
 */

struct overuse_actor;

struct overuse_actor_settings {
    struct overuse_settings decide;
    const char *node;           /* borrowed */
    struct kube_client *client; /* borrowed */
};

/* New; its thread runs at once. */
struct overuse_actor *overuse_actor_start(const struct overuse_actor_settings *settings);
/* Takes a measurement, which is borrowed for the call. From one thread at a time. */
void overuse_actor_take(struct overuse_actor *a, const struct usage *u);
/* Appends the metrics. From any thread. */
void overuse_actor_metrics(struct overuse_actor *a, struct buf *out);
/* As worker_stop_until. NULL is accepted. */
bool overuse_actor_stop(struct overuse_actor *a, int64_t until_ms);
void overuse_actor_free(struct overuse_actor *a); /* NULL is accepted */
