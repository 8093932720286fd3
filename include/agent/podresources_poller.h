/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/publisher.h"

/*
 * The thread that asks the kubelet which container holds which devices.
 *
 * It asks seldom: a kubelet that answers List in the middle of an allocation forgets
 * which ids it is about to give out (our device plugin checks for itself, others may
 * not).
 */

struct podresources_poller;

struct podresources_poller_settings {
    const char *socket; /* of podresources; borrowed */
    int64_t interval_ms;
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
};

/* New; the thread runs at once. `settings` is copied. */
struct podresources_poller *podresources_poller_start(const struct podresources_poller_settings *settings);
void podresources_poller_stop(struct podresources_poller *l); /* joins the thread; NULL is accepted */
void podresources_poller_free(struct podresources_poller *l); /* NULL is accepted */

/* One look. Fills *pods; strings and arrays are in the arena. */
int podresources_poller_ask(const char *socket, struct arena *a, struct container_devices *pods, struct err *err);
