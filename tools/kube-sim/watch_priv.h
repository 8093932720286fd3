/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube-sim/call_priv.h"

/* GET of a collection with ?watch. */
void sim_watch_handle(struct call *c);

/* Wakes the watches of a kind that deliver this event. */
void sim_watch_notify(struct api *api, size_t kind, const struct event *e);
