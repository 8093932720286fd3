/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Functions of this folder that are no part of its public headers begin with sim_: it is
 * linked beside the folders that it is the independent opinion on, and these have stores,
 * pods and quantities of their own.
 *
 * The resources that are served: one row each. Everything that differs between them is
 * here or in a function that the row names.
 */

struct column;
struct faultlist;
struct proto_field;
struct shape;

enum { KINDS_N = 8 };

struct field {
    const char *name;      /* in the selector: "spec.nodeName" */
    const char *path;      /* where the value is; NULL: the same */
    const char *otherwise; /* the value when nothing is there; NULL: "" */
};

struct kind {
    const char *group, *version;                        /* "" is the core group */
    const char *plural, *singular, *kind, *short_names; /* short names joined by commas */
    bool namespaced;
    bool status;        /* has a status subresource; the main path leaves status alone */
    bool binding;       /* has the binding subresource */
    bool graceful;      /* is deleted with a grace period (pods) */
    bool custom;        /* served as custom resources are */
    bool unconditional; /* PUT may leave out metadata.resourceVersion */
    bool create_on_put;
    bool core_faults; /* what is wrong with it is said as of a kind of the core group */
    bool generation;  /* counts changes in metadata.generation */
    bool passing;     /* objects vanish an hour after their last change (events) */
    const struct field *fields; /* for field selectors; ends with a NULL name */
    const struct shape *shape;  /* types of the known members */
    const struct column *columns;
    const struct proto_field *message; /* NULL: bodies are JSON only */

    /* Fills in what the API server fills in at creation. NULL: nothing. */
    void (*fill)(json_t *object);
    /* What is wrong with it. `old` is NULL at creation. NULL: nothing can be. */
    void (*check)(const json_t *object, const json_t *old, struct faultlist *f);
};

extern const struct kind sim_kinds[KINDS_N];

size_t sim_kind_index(const struct kind *k);
/* NULL when it is not served. `group_version` is "v1" or "group/version". */
const struct kind *sim_kind_by_plural(struct span group, struct span version,
                                      struct span plural);
const struct kind *sim_kind_by_type(struct span group_version, struct span kind);
/* The first kind of that plural, in any group. */
const struct kind *sim_kind_by_resource(struct span plural);
void sim_kind_add_group_version(const struct kind *k, struct buf *out);
/* Does a path begin with a group and version that is served: "/api/v1/..."? */
bool sim_kind_knows_path(struct span path);
/* "pods", or "leases.coordination.k8s.io". */
void sim_kind_add_resource(const struct kind *k, struct buf *out);
/* The key of an object: "default/p1", or "n1" in cluster scope. `out` is cleared before.
 */
struct span sim_kind_key(const struct kind *k, struct span ns, struct span name,
                         struct buf *out);
/* Position of the path among the selectable fields, -1 when it is none of them. */
int sim_kind_field(const struct kind *k, struct span path);
