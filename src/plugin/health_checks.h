/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/dispatcher.h"
#include "plugin/plugin_api.h"

/*
 * The checks of /livez, /readyz, /healthz and the metric healthcheck. Pure.
 *
 * - /livez: the threads. Only a restart repairs a thread that hangs.
 * - /healthz: every check.
 * - /readyz: the checks that a rolling update must wait for. It does not wait for a
 *   driver that is gone, which no version of the plugin repairs. But it waits
 *   HEALTH_CHECKS_CARDS_MS for the first sample, so that a version that sees no card
 *   anywhere does not replace every pod at once.
 */

enum { HEALTH_CHECKS_CARDS_MS = 2 * 60 * 1000 };

enum health_check {
    HEALTH_CHECK_CARDS,        /* the driver responds, and a card is healthy */
    HEALTH_CHECK_PODS,         /* the pods of this node are listed and watched */
    HEALTH_CHECK_NODE,         /* the Node can be read */
    HEALTH_CHECK_PODRESOURCES, /* the kubelet answers podresources calls */
    HEALTH_CHECKS
};
const char *health_checks_name(enum health_check check); /* "cards", ... */

enum health_check_thread {
    HEALTH_CHECK_DISPATCHER,
    HEALTH_CHECK_WATCH,
    HEALTH_CHECK_THREADS
};
const char *health_checks_thread_name(enum health_check_thread thread);

/* The state to check; borrowed. */
struct health_checks {
    const struct dispatcher_stats *dispatcher;
    const struct plugin_api_stats *api;
    int64_t now_ms, started_ms; /* of clock_mono_ms */
    int64_t late_ms;            /* shorter failures are not reported */
};

/* Each returns 0, or -1 with the reason. */
int health_checks_thread(const struct health_checks *c, enum health_check_thread thread,
                         struct err *err);
int health_checks_run(const struct health_checks *c, enum health_check check,
                      struct err *err);
int health_checks_registered(const struct health_checks *c, enum ids_resource r,
                             struct err *err);

/* Whether readiness requires the check. */
bool health_checks_required(const struct health_checks *c, enum health_check check);
bool health_checks_resource_required(const struct health_checks *c, enum ids_resource r);
