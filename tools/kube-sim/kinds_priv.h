/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * The served resources: one row each. Everything that differs between them is in the row or
 * in a function of the row.
 *
 * Private functions of this folder begin with sim_: test programs link kube-sim together
 * with the product, which has stores, pods and quantities too.
 */

struct column;
struct faultlist;
struct proto_field;
struct shape;

enum { KINDS_N = 9 };

struct field {
    const char *name;      /* in the selector: "spec.nodeName" */
    const char *path;      /* of the value in the object; NULL: same as name */
    const char *otherwise; /* value if the member is absent; NULL: "" */
};

struct kind {
    const char *group, *version;                        /* "" is the core group */
    const char *plural, *singular, *kind, *short_names; /* short names joined by commas */
    bool namespaced;
    bool status;        /* has a status subresource; other updates keep the status */
    bool binding;       /* has the binding subresource */
    bool graceful;      /* deleted with a grace period (pods) */
    bool custom;        /* a custom resource */
    bool unconditional; /* PUT needs no metadata.resourceVersion */
    bool create_on_put;
    bool core_faults;           /* validation errors name the kind without its group */
    bool generation;            /* has metadata.generation */
    bool passing;               /* removed an hour after the last change (events) */
    const struct field *fields; /* for field selectors; ends with a NULL name */
    const struct shape *shape;  /* types of known members */
    const struct column *columns;
    const struct proto_field *message; /* NULL: bodies are JSON only */

    /* Sets the defaults of the API server at creation. May be NULL. */
    void (*fill)(json_t *object);
    /* Validates the object. `old` is NULL at creation. May be NULL. */
    void (*check)(const json_t *object, const json_t *old, struct faultlist *f);
};

extern const struct kind sim_kinds[KINDS_N];

size_t sim_kind_index(const struct kind *k);
/* NULL: not served. `group_version` is "v1" or "group/version". */
const struct kind *sim_kind_by_plural(struct span group, struct span version,
                                      struct span plural);
const struct kind *sim_kind_by_type(struct span group_version, struct span kind);
/* The first kind with this plural in any group. */
const struct kind *sim_kind_by_resource(struct span plural);
void sim_kind_add_group_version(const struct kind *k, struct buf *out);
/* Does the path begin with a served group and version ("/api/v1/...")? */
bool sim_kind_knows_path(struct span path);
/* "pods", or "leases.coordination.k8s.io". */
void sim_kind_add_resource(const struct kind *k, struct buf *out);
/* The key of an object: "default/p1", or "n1" in cluster scope. Clears `out`. */
struct span sim_kind_key(const struct kind *k, struct span ns, struct span name,
                         struct buf *out);
/* Index of the path in kind->fields; -1: not a selectable field. */
int sim_kind_field(const struct kind *k, struct span path);
