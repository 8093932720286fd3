/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/err.h"
#include "kube-sim/jsonx_priv.h"

/*
 * Bodies in Kubernetes' protobuf form, for the kinds that `kubectl create` makes itself:
 * new kubectls send them so, and do not try JSON when that is refused.
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

/* The object in the envelope. New; NULL when the bytes are not that. */
json_t *sim_proto_parse(const struct proto_field *fields, struct span body,
                        struct err *err);
