/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/jsonx_priv.h"

/*
 * The types of the known members of each kind. A real server decodes a body into typed
 * structs and refuses members of another type. Members that are not listed are kept
 * unchecked.
 */

enum shape_type {
    SHAPE_OBJECT,
    SHAPE_STRING,
    SHAPE_INT,
    SHAPE_BOOL,
    SHAPE_OBJECTS, /* array of objects */
    SHAPE_STRINGS, /* array of strings */
    SHAPE_TEXTS,   /* object whose values are strings */
    SHAPE_AMOUNTS, /* object whose values are quantities, which are normalized */
    SHAPE_TIME,    /* RFC 3339 */
    SHAPE_MICRO,   /* RFC 3339 with six decimals */
};

struct shape {
    const char *path; /* "spec.containers[].name"; [] means each element */
    enum shape_type type;
};

extern const struct shape sim_shape_meta[]; /* of every kind; ends with a NULL path */
extern const struct shape sim_shape_namespace[], sim_shape_node[], sim_shape_pod[],
    sim_shape_event[], sim_shape_event_v1[], sim_shape_configmap[], sim_shape_secret[],
    sim_shape_lease[], sim_shape_scv[], sim_shape_binding[], sim_shape_delete_options[],
    sim_shape_eviction[];

/* The first member with a wrong type. */
struct shape_fault {
    struct buf where;   /* "status.cardList[0].id" */
    const char *given;  /* the actual type, or the invalid text */
    const char *wanted; /* the schema's type: "integer" */
};

/* False: no fault. True: the caller releases fault->where. */
bool sim_shape_find(const struct shape *rows, json_t *object, struct shape_fault *fault);
/* Returns -1 with the message of Go's decoder if a member has the wrong type. */
int sim_shape_check(const struct shape *rows, json_t *object, struct err *err);
