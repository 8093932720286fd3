/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage_history.h"

/* The history gets a sample of a node with one card: container c of the pod was promised
 * 4000 MiB of it and uses `used` MiB. */
static inline void usage_taken(struct usage_history *history, int64_t ms,
                               const struct usage_card *card, const char *ns,
                               const char *pod, int64_t used)
{
    const struct usage_container c = {.pod_uid = SPAN("u"),
                                      .container_id = SPAN("i"),
                                      .ns = span_of(ns),
                                      .pod = span_of(pod),
                                      .name = SPAN("c"),
                                      .used_mib = used,
                                      .promised_mib = 4000};
    const struct usage u = {
        .taken_ms = ms, .cards = card, .n_cards = 1, .containers = &c, .n_containers = 1};
    usage_history_take(history, ms, &u);
}
