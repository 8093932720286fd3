/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/dispatcher.h"

/*
 * What /livez, /readyz, /healthz and /metrics of the device plugin say
 * (node/status_server.h). Pure.
 *
 * - /livez: the threads. Only a restart repairs a thread that hangs.
 * - /healthz: every check.
 * - /readyz: the checks that a rolling update must wait for. It does not wait for a
 *   driver that is gone, which no version of the plugin repairs. But it waits
 *   STATUS_CARDS_MS for the first sample, so that a version that sees no card anywhere
 *   does not replace every pod at once.
 */

enum { STATUS_CARDS_MS = 2 * 60 * 1000 };

enum status_check {
    STATUS_DISPATCHER, /* threads */
    STATUS_WATCH,
    STATUS_THREADS,

    STATUS_CARDS = STATUS_THREADS, /* the driver responds, and a card is healthy */
    STATUS_PODS,                   /* the pods of this node are listed and watched */
    STATUS_NODE,                   /* the Node can be read */
    STATUS_PODRESOURCES,           /* the kubelet answers podresources calls */
    STATUS_REGISTRATIONS,          /* one of each resource: enum ids_resource */
    STATUS_CHECKS = STATUS_REGISTRATIONS + IDS_RESOURCES
};

/* The state to check. */
struct status_facts {
    struct dispatcher_stats dispatcher;
    int64_t now_ms, started_ms; /* of clock_mono_ms */
    int64_t late_ms;            /* shorter failures are not reported */
};

const char *status_check_name(enum status_check check);
/* 0, or -1 with the reason. *required: readiness requires the check. */
int status_check(const struct status_facts *f, enum status_check check, bool *required,
                 struct err *err);
/* The dialect of the node for its Scv, borrowed: HAMi's while the kubelet has nvidia.com/gpu from
 * us, so that no pod comes for the ids of another plugin. {NULL, 0}: what the Scv has is right;
 * *waits: if it has one. */
struct span status_dialect(const struct dispatcher_stats *d, bool *waits);
/* Appends the device plugin's metrics; docs/metrics.md describes each. */
void status_write_metrics(struct buf *out, const struct status_facts *f);
