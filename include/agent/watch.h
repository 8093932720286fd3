/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/calls.h"

/*
 * The thread that has the watch of the Scv: one at a time, the newest that was asked for.
 */

struct watch;

struct watch_sink {
    void (*input)(void *ctx, const struct machine_input *in);
    void *ctx;
};

/* New; the thread runs at once. What is handed over is borrowed, `sink` is copied. */
struct watch *watch_start(struct kube_client *client, const struct calls_names *names,
                          const struct watch_sink *sink);
/* MACHINE_WATCH. From any thread; never blocks for long. */
void watch_begin(struct watch *w, const struct machine_output *output);
void watch_stop(struct watch *w); /* joins the thread; NULL is accepted */
void watch_free(struct watch *w); /* NULL is accepted */
