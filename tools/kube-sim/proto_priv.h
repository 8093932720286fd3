/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/jsonx_priv.h"

/*
 * Bodies in Kubernetes' Protobuf encoding, for the kinds that `kubectl create` builds
 * itself: recent kubectl versions send Protobuf and do not fall back to JSON.
 */

enum proto_type {
    PROTO_STRING,
    PROTO_STRINGS, /* repeated */
    PROTO_TEXTS,   /* map from string to string */
    PROTO_BOOL,
    PROTO_MESSAGE,
};

struct proto_field {
    unsigned number; /* 0 ends the list; fields that are not listed are skipped */
    const char *name;
    enum proto_type type;
    const struct proto_field *fields; /* PROTO_MESSAGE */
};

extern const struct proto_field sim_proto_namespace[], sim_proto_configmap[];

/* Decodes the object in its envelope. New; NULL on error. */
json_t *sim_proto_parse(const struct proto_field *fields, struct span body,
                        struct err *err);
