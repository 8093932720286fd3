/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/core_driver.h"
#include "extender/verb.h"
#include "kube/event_recorder.h"

/*
 * Events of pods. kube-scheduler's own events say whether a pod was scheduled; these say
 * which card it has, or which node came closest.
 */

/* No candidate fits. `later`: the pod may fit on some candidate later. To be called for
 * each such filter; most calls cost two table lookups. A pod that no list or watch has
 * shown gets no event. `gang`: why its gang cannot start, though it fits; or NULL.
 * `elsewhere`: a node that was not offered and on which the pod fits; or empty. `r` may be NULL. */
void event_pod_rejected(struct event_recorder *r, struct core_driver *driver,
                        const struct verb_args *args, bool later, const char *gang,
                        struct span elsewhere);
/* The pod of a successful CORE_CALL_NOMINATE or CORE_CALL_EVICT. `r` may be NULL. */
void event_pod_preemption(struct event_recorder *r, const struct core_output *call);
/* A bind succeeded in this process. `r` may be NULL. */
void event_pod_placed(struct event_recorder *r, struct core_driver *driver,
                      const struct core_driver_bind *bind);
