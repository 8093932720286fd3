/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "base/str.h"
#include "kube/topology.pb-c.h"

/*
 * protobuf-c, kept on a short lead. A few bytes of a message can become a struct of a
 * hundred, so what a message may take in memory is bounded by its size; strings are
 * checked, which protobuf-c does not do.
 *
 * The .pb-c.h files are made from the .proto files beside this one; they and protobuf-c
 * are seen by deviceplugin*.c and podresources.c alone.
 */

/* New: release with proto_free. ERR_INVALID: the bytes are no such message;
 * ERR_TOO_LARGE: it takes too much memory. */
void *proto_unpack(const ProtobufCMessageDescriptor *type, struct span bytes,
                   struct err *err);
void proto_free(void *message);
void proto_cleanup_free(void *message_p);
#define cleanup_proto __attribute__((cleanup(proto_cleanup_free)))

/* Appends. ERR_TOO_LARGE: it has more than `max` bytes; the words say how many. */
int proto_pack(const ProtobufCMessage *message, size_t max, struct buf *out,
               struct err *err);

/* Strings. `what` and `i` name it when it is refused: not UTF-8, a NUL in it. */
int proto_text_check(struct span s, const char *what, size_t i, struct err *err);
/* The bytes as a string in the arena. */
int proto_text(const ProtobufCBinaryData *b, struct arena *a, const char *what, size_t i,
               struct span *out, struct err *err);
int proto_texts(const ProtobufCBinaryData *b, size_t n, struct arena *a, const char *what,
                const struct span **out, struct err *err);
/* The string as bytes, which are borrowed; the array is in the arena. */
int proto_bytes(struct span s, const char *what, size_t i, ProtobufCBinaryData *out,
                struct err *err);
int proto_bytes_list(const struct span *s, size_t n, struct arena *a, const char *what,
                     ProtobufCBinaryData **out, struct err *err);

/* n structs in the arena, zeroed, and an array of pointers to them. */
void *proto_array(struct arena *a, size_t n, size_t size, void ***pointers);

/* Numbers of NUMA nodes; none is NULL. */
Topology__Topology *proto_topology_of(const int64_t *numa, size_t n, struct arena *a);
size_t proto_topology_from(const Topology__Topology *t, struct arena *a,
                           const int64_t **numa);
