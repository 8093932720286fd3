/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/machine.h"

/*
 * The thread that asks the kubelet which container holds which devices.
 *
 * It asks seldom: a kubelet that answers List in the middle of an allocation forgets
 * which ids it is about to give out (our device plugin checks for itself, others may
 * not).
 */

struct lister;

struct lister_settings {
    const char *socket; /* of podresources; borrowed */
    int64_t interval_ms;
    void (*input)(void *ctx, const struct machine_input *in);
    void *ctx;
};

/* New; the thread runs at once. `settings` is copied. */
struct lister *lister_start(const struct lister_settings *settings);
void lister_stop(struct lister *l); /* joins the thread; NULL is accepted */
void lister_free(struct lister *l); /* NULL is accepted */

/* One look. Fills *pods; strings and arrays are in the arena. */
int lister_ask(const char *socket, struct arena *a, struct pods *pods, struct err *err);
