/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/event_recorder.h"
#include "extender/store.h"
#include "extender/verb_args.h"

/*
 * What people are told of their pods, as events. kube-scheduler tells for itself that a
 * pod was scheduled or not; here is told which card it has, or which node came closest.
 */

/* No candidate has room. `later`: on some it is a matter of time. Called for each such
 * filter; most of them cost a look into a table. */
void event_pod_rejected(struct event_recorder *r, struct store *store,
                        const struct verb_args *args, bool later);
/* A bind has succeeded here. */
void event_pod_placed(struct event_recorder *r, struct store *store,
                      const struct store_bind *bind);
