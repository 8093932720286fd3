/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/*
 * A safe wrapper of protobuf-c, and the conversion between its messages and our structs,
 * which tables describe. Two bytes of a message can become a struct of a hundred bytes, so
 * the memory for a message is bounded by its size; strings are validated, which protobuf-c
 * does not do.
 *
 * The .pb-c.h files are generated from the .proto files in this folder; only
 * deviceplugin.c, podresources.c and proto.c include them and protobuf-c.
 */

enum proto_rule {
    PROTO_ANY,
    PROTO_ID,           /* encode: a device id, 1 to DP_ID_MAX bytes */
    PROTO_VARIABLE,     /* encode: a name of an environment variable */
    PROTO_NOT_NEGATIVE, /* a number */
    PROTO_HEALTH,       /* the text "Healthy" is true, any other is false */
    PROTO_IF_FILLED,    /* encode: a message that is a list, only if that has items */
    PROTO_REQUIRED,     /* decode: a message that must be present */
};

/* A field. A text is a struct span. A repeated field is a pointer to the first item, followed
 * by the number of items in a size_t. */
struct proto_field {
    size_t at;                     /* offset in the struct */
    const struct proto_type *type; /* of a message; NULL: a text, number or bool */
    enum proto_rule rule;
};

struct proto_type {
    const ProtobufCMessageDescriptor *wire;
    const char *name; /* for errors: as Kubernetes calls the message; or NULL */
    size_t size;      /* of the struct */
    /* Those of the .proto file, all of them and in its order. */
    struct proto_field fields[5];
};

/* Messages of kube/deviceplugin.h and kube/podresources.h. Tests speak the kubelet's side
 * with them. */
extern const struct proto_type dp_options_type, dp_register_type, dp_devices_type,
    dp_ids_type, dp_groups_type, dp_preferences_type, dp_allocations_type;
extern const struct proto_type podres_list_type, podres_get_request_type, podres_get_type,
    podres_allocatable_type;

/* TopologyInfo: a list of the NUMA nodes' ids. */
extern const struct proto_type proto_topology;

/* Appends the message. ERR_INVALID: a string is not UTF-8 or contains a NUL, or a rule;
 * the error names the field. ERR_TOO_LARGE: more than `max` bytes. After an error, `out` is
 * unchanged. */
int proto_encode(const struct proto_type *type, const void *from, size_t max,
                 struct buf *out, struct err *err);
/* Strings and lists are allocated in the arena. ERR_INVALID: malformed, or as above;
 * ERR_TOO_LARGE: needs too much memory. */
int proto_decode(const struct proto_type *type, struct span bytes, struct arena *a,
                 void *to, struct err *err);
