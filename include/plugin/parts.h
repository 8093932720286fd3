/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "plugin/dispatcher.h"
#include "plugin/plugin_api.h"

/*
 * How the parts of the plugin are, each with its reason: what /livez, /readyz, /healthz
 * and the metric part_ok say. Pure.
 *
 * - /livez: a thread does not come by any more. A restart helps there, and nowhere else.
 * - /healthz: anything at all is wrong.
 * - /readyz: what a rolling update waits for. It goes on past a node whose driver is
 * gone, which no version of the plugin can do anything about; but it waits PARTS_CARDS_MS
 * for cards to be seen for the first time, because a version that sees none anywhere must
 *   not run through the cluster at once.
 */

enum { PARTS_CARDS_MS = 2 * 60 * 1000 };

enum part {
    PART_CARDS,        /* the driver answers, and one of the cards is healthy */
    PART_PODS,         /* the API server tells which pods there are */
    PART_NODE,         /* and how the Node is */
    PART_PODRESOURCES, /* the kubelet tells what its containers hold */
    PARTS
};
const char *part_name(enum part part); /* "cards", ... */

enum part_thread { PART_THREAD_DISPATCHER, PART_THREAD_PODS, PART_THREADS };
const char *part_thread_name(enum part_thread thread);

/* What is known; borrowed. */
struct parts {
    const struct dispatcher_stats *dispatcher;
    const struct plugin_api_stats *api;
    int64_t now_ms, started_ms; /* of clock_mono_ms */
    int64_t late_ms;            /* trouble that is younger is let pass */
};

int parts_alive(const struct parts *p, enum part_thread thread, struct err *err);
int parts_check(const struct parts *p, enum part part, struct err *err);
int parts_registered(const struct parts *p, enum ids_resource r, struct err *err);

/* Does a rolling update wait until that is well? */
bool parts_waits(const struct parts *p, enum part part);
bool parts_waits_for_resource(const struct parts *p, enum ids_resource r);
