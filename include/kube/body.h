/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * The bodies of writes that more than one program sends to the API server, as JSON. All
 * functions append to `out`. (Events: kube/event_recorder.h. Secrets: kube/secret.h. The
 * Lease and the Scv: domain.)
 */

/* Appends `text`, and the value as a JSON string. */
void body_member(struct buf *out, const char *text, struct span value);

/* One write with node, annotations and UID: the API server rejects it for another pod of the
 * same name. */
struct body_binding {
    struct span ns, name, uid, node;
    const char *annotations; /* a JSON object, or NULL */
};
void body_binding(struct buf *out, const struct body_binding *b);

/* An Eviction. A pod of the same name with another UID is not evicted. `grace_s`: bounds the
 * time that the pod has to end; negative: the pod's own. */
void body_eviction(struct buf *out, struct span ns, struct span name, struct span uid,
                   int grace_s);

/* Merge patches. A UID makes the API server reject the patch for another object of the same
 * name. */

/* Of a pod's status; `node` empty: none any more. */
void body_nomination(struct buf *out, struct span uid, struct span node);
/* Annotations of any object, as a JSON object; `uid` empty: not checked. */
void body_annotations(struct buf *out, struct span uid, const char *annotations);
