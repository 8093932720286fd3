/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "agent/calls.h"

/*
 * The thread that watches the Scv: one watch at a time, the last one requested.
 */

struct scv_watch;

struct scv_watch_sink {
    void (*input)(void *ctx, const struct publisher_input *in);
    void *ctx;
};

/* New; the thread runs at once. `client` and `names` are borrowed, `sink` is copied. */
struct scv_watch *scv_watch_start(struct kube_client *client,
                                  const struct calls_names *names,
                                  const struct scv_watch_sink *sink);
/* PUBLISHER_WATCH. From any thread; never blocks for long. */
void scv_watch_begin(struct scv_watch *w, const struct publisher_output *output);
void scv_watch_stop(struct scv_watch *w); /* joins the thread; NULL is accepted */
void scv_watch_free(struct scv_watch *w); /* NULL is accepted */
