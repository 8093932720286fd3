/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "base/str.h"
#include "kube/topology.pb-c.h"

/*
 * A safe wrapper of protobuf-c. Two bytes of a message can become a struct of a hundred
 * bytes, so the memory for a message is bounded by its size; strings are validated, which
 * protobuf-c does not do.
 *
 * The .pb-c.h files are generated from the .proto files in this folder; only
 * deviceplugin*.c, podresources.c and proto.c include them and protobuf-c.
 */

/* New; release with proto_free. ERR_INVALID: malformed; ERR_TOO_LARGE: needs too much
 * memory. */
void *proto_unpack(const ProtobufCMessageDescriptor *type, struct span bytes,
                   struct err *err);
void proto_cleanup_free(void *message_p);
#define cleanup_proto __attribute__((cleanup(proto_cleanup_free)))

/* Appends the encoded message. ERR_TOO_LARGE: more than `max` bytes. */
int proto_pack(const ProtobufCMessage *message, size_t max, struct buf *out,
               struct err *err);

/* Copies the bytes to the arena, as a string. */
int proto_text(const ProtobufCBinaryData *b, struct arena *a, const char *what, size_t i,
               struct span *out, struct err *err);
int proto_texts(const ProtobufCBinaryData *b, size_t n, struct arena *a, const char *what,
                const struct span **out, struct err *err);
/* Converts a string to bytes, which are borrowed; the array is allocated in the arena. */
int proto_bytes(struct span s, const char *what, size_t i, ProtobufCBinaryData *out,
                struct err *err);
int proto_bytes_list(const struct span *s, size_t n, struct arena *a, const char *what,
                     ProtobufCBinaryData **out, struct err *err);

/* Allocates n zeroed structs in the arena, and an array of pointers to them. */
void *proto_array(struct arena *a, size_t n, size_t size, void ***pointers);

/* TopologyInfo from and to a list of NUMA node ids; an empty list is NULL. */
Topology__Topology *proto_topology_of(const int64_t *numa, size_t n, struct arena *a);
size_t proto_topology_from(const Topology__Topology *t, struct arena *a,
                           const int64_t **numa);
