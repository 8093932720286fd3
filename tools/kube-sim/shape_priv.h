/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/jsonx_priv.h"

/*
 * The types of the members that we know of each kind. A real server decodes into typed
 * structs and refuses a body in which a member has another type; members that are not
 * listed here are kept as they are.
 */

enum shape_type {
    SHAPE_OBJECT,
    SHAPE_STRING,
    SHAPE_INT,
    SHAPE_BOOL,
    SHAPE_OBJECTS, /* array of objects */
    SHAPE_STRINGS, /* array of strings */
    SHAPE_TEXTS,   /* object whose values are strings */
    SHAPE_AMOUNTS, /* object whose values are quantities; brought to their shortest form
                    */
    SHAPE_TIME,    /* RFC 3339 */
    SHAPE_MICRO,   /* RFC 3339 with six decimals */
};

struct shape {
    const char *path; /* "spec.containers[].name"; parts behind [] are of each element */
    enum shape_type type;
};

extern const struct shape sim_shape_meta[]; /* of every kind; ends with a NULL path */
extern const struct shape sim_shape_namespace[], sim_shape_node[], sim_shape_pod[],
    sim_shape_event[], sim_shape_event_v1[], sim_shape_configmap[], sim_shape_lease[],
    sim_shape_scv[], sim_shape_binding[], sim_shape_delete_options[];

/* The first member of a wrong type. */
struct shape_fault {
    struct buf where;   /* "status.cardList[0].id" */
    const char *given;  /* the type that is there, or the text where that is wrong */
    const char *wanted; /* as schemas call it: "integer" */
};

/* False: there is none. Else release fault->where. */
bool sim_shape_find(const struct shape *rows, json_t *object, struct shape_fault *fault);
/* -1 when a member has the wrong type; the message is the one of Go's decoder. */
int sim_shape_check(const struct shape *rows, json_t *object, struct err *err);
