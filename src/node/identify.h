/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/alloc_state.h"

/*
 * Which container is a request of the kubelet for? The kubelet names none.
 *
 * It is never guessed by amount. These properties of the kubelet identify it:
 *
 * - The kubelet admits pods one at a time and adds each to its podresources answer just
 *   before admission. During GetPreferredAllocation the pod is therefore in podresources
 *   List, with fewer ids than it requests. A pod that the kubelet has just rejected for
 *   another reason can be there too, and so can a pod that the pod watch has not delivered
 *   yet. So exactly one listed pod may lack exactly this container, and no listed pod may
 *   be unknown here.
 * - Allocate follows its GetPreferredAllocation, and podresources Get confirms the pod
 *   (kubelets since 1.34). Ids of a plain init container that the kubelet reuses come
 *   without GetPreferredAllocation; their holder identifies the pod.
 */

struct identify;

/* New. The state is borrowed; a static pod is added to its pods. */
struct identify *identify_new(struct alloc_state *s);
void identify_free(struct identify *id);

/* GetPreferredAllocation: the container, by a podresources List. */
bool identify_by_list(struct identify *id, struct kubelet_request *req,
                      const struct alloc_kubelet_view *view, struct alloc_target *t);
/* The request was answered with ids for this container. NULL: the Allocate of the last
 * answer will not come any more. */
void identify_set_preferred(struct identify *id, const struct kubelet_request *req,
                            const struct alloc_target *t);
bool identify_awaits_allocate(const struct identify *id); /* of the last answer */
/* Allocate: the container of the last preferred ids. Only without one can the request be for
 * ids that a plain init container of the pod holds. */
bool identify_by_preference(const struct identify *id, struct kubelet_request *req,
                            struct alloc_target *t);
/* Does what identified the container of Allocate still hold, in an answer to Get? The kubelet
 * has the pod, and this container is the next one without ids. */
bool identify_confirm(const struct identify *id, struct kubelet_request *req,
                      const struct alloc_target *t,
                      const struct alloc_kubelet_view *view);
/* Has the container what it was given, and will the kubelet not ask for it? Since 1.27 it does
 * not allocate for containers that run when it starts, even if it has lost its checkpoint. What
 * the API server last heard does not count if it is from before the boot: after a power loss,
 * nothing runs. */
bool identify_is_settled(const struct alloc_state *s, const struct pod_allocation *pod,
                         const struct pod_allocation_container *c);

/* Events: requests after this one are not for the pod that was rejected; nor for a pod that is
 * about to leave the state. A kubelet that starts has forgotten all. */
void identify_rejected(struct identify *id, struct local_pod *p, uint64_t serial);
void identify_removed(struct identify *id, const struct local_pod *p);
void identify_kubelet_started(struct identify *id);
