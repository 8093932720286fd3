/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/*
 * Protobuf messages from and to structs, which tables describe (kube/deviceplugin.h,
 * kube/podresources.h). protobuf-c parses; texts are validated here, which it does not do.
 *
 * The .pb-c.h files are generated from the .proto files in src/kube; only deviceplugin.c and
 * podresources.c include them.
 */

/* A field. A text is a struct span; int32_t is never negative. A repeated field is a pointer
 * to the first item, followed by the number of items in a size_t. */
struct proto_field {
    size_t at;                     /* offset in the struct */
    const struct proto_type *type; /* of a message; NULL: a text, number or bool */
    size_t max; /* bytes of a text that is encoded, which must not be empty; 0: any */
};

#define PROTO_AT(in, member) .at = offsetof(struct in, member)

struct proto_type {
    const struct ProtobufCMessageDescriptor *wire;
    const char *name; /* for errors: as Kubernetes calls the message; or NULL */
    size_t size;      /* of the struct */
    /* Those of the .proto file, all of them and in its order. */
    struct proto_field fields[5];
};

/* Appends the message. ERR_INVALID: a text is not UTF-8, contains a NUL, or has a wrong
 * length; the error names the field. ERR_TOO_LARGE: more than `max` bytes. After an error,
 * `out` is unchanged. */
int proto_encode(const struct proto_type *type, const void *from, size_t max,
                 struct buf *out, struct err *err);
/* Fills the struct `to`; texts, which end with NUL, and lists are in the arena. Unknown fields
 * are skipped. ERR_INVALID: malformed, a text as above, or a negative number. The memory is up
 * to a hundred times the message, which the caller bounds. After an error, *to is undefined. */
int proto_decode(const struct proto_type *type, struct span bytes, struct arena *a,
                 void *to, struct err *err);
