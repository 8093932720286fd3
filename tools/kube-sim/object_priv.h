/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "kube-sim/jsonx_priv.h"
#include "kube-sim/kinds_priv.h"

/*
 * One state of one object: its serialized bytes, and the values that selectors match.
 *
 * Immutable and reference-counted: the store, the history, lists that are being sent and
 * frozen snapshots share the bytes. The count is atomic, because a thread without the
 * API's lock may release a list.
 */

struct object_label {
    struct span key, value;
};

struct object {
    unsigned refs;
    const struct kind *kind;
    uint64_t rv;
    struct span key; /* "namespace/name", or "name" in cluster scope */
    struct span ns;  /* {NULL, 0} in cluster scope */
    struct span name;
    struct span uid;
    struct span bytes;  /* the object as JSON, starting with kind and apiVersion */
    size_t head;        /* bytes up to the end of "apiVersion":"...", */
    size_t rv_at, rv_n; /* the digits of metadata.resourceVersion in bytes */
    bool deleting;      /* metadata.deletionTimestamp is set */
    size_t n_labels;
    struct object_label *labels;
    struct span *fields; /* one for each of kind->fields */
};

/* Sets metadata.resourceVersion in `root` and serializes it, with members in this order:
 * kind, apiVersion, metadata (names, uid and version first), others. New. */
struct object *sim_object_new(const struct kind *kind, json_t *root, uint64_t rv);
struct object *sim_object_ref(struct object *o);
void sim_object_unref(struct object *o); /* NULL is accepted */

/* The same state under another resourceVersion, as in the event of a deletion. New. */
struct object *sim_object_with_rv(const struct object *o, uint64_t rv);
/* The object as a tree. New. */
json_t *sim_object_parse(const struct object *o);
/* Appends the bytes with this resourceVersion. */
void sim_object_add_bytes(const struct object *o, uint64_t rv, struct buf *out);
/* Appends the object as an item of a list: without kind and apiVersion for built-in
 * kinds. */
void sim_object_add_item(const struct object *o, struct buf *out);
