/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "setup/facts.h"

/*
 * What the API server knows, into f->lists and f->denied. Only reads;
 * SubjectAccessReviews are POSTed, and nothing is kept of them.
 */

void cluster_read(struct kube_client *client, struct facts *f);

/* What the extender's account has to be allowed, as manifests/rbac.yaml has it. */
struct cluster_right {
    const char *verb, *group, *resource, *subresource, *ns,
        *name; /* NULL: any, or none */
};
extern const struct cluster_right cluster_rights[]; /* ends with a NULL verb */
/* Does the extender want it with the options that its Deployment gives it? The chart
 * grants no right that a value has made useless. */
bool cluster_right_is_needed(const struct facts *f, const struct cluster_right *r);
