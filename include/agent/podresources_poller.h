/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"

/*
 * The thread that polls the kubelet's podresources API for the devices of each container.
 *
 * The interval is long: a kubelet that answers List during an allocation forgets which
 * ids it is about to allocate. Our device plugin detects that; other device plugins may
 * not.
 */

struct podresources_poller;

struct podresources_poller_settings {
    const char *socket; /* of podresources; borrowed */
    int64_t interval_ms;
    const char *plugin_state; /* state file of our device plugin; borrowed */
    struct span node;         /* its name; borrowed */
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
};

/* New; the thread runs at once. `settings` is copied. */
struct podresources_poller *
podresources_poller_start(const struct podresources_poller_settings *settings);
/* Joins the thread. NULL is accepted. */
void podresources_poller_stop(struct podresources_poller *p);
void podresources_poller_free(struct podresources_poller *p); /* NULL is accepted */

/* One List. Fills *devices; strings and arrays are in the arena. */
int podresources_poller_list(const char *socket, struct arena *a,
                             struct container_devices *devices, struct err *err);
