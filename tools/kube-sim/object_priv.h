/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "kube-sim/jsonx_priv.h"
#include "kube-sim/kinds_priv.h"

/*
 * One state of one object: its serialised bytes, and what selectors look at.
 *
 * Immutable and shared by reference count, so that the store, the history, lists that are
 * being sent and frozen snapshots hold the same bytes. The count is atomic: a list may be
 * released by a thread that does not hold the API's lock.
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
    size_t head;        /* bytes up to and with "apiVersion":"...", */
    size_t rv_at, rv_n; /* the digits of metadata.resourceVersion in bytes */
    bool deleting;      /* metadata.deletionTimestamp is set */
    size_t n_labels;
    struct object_label *labels;
    struct span *fields; /* one for each of kind->fields */
};

/* Sets metadata.resourceVersion in `root` and serialises it. root's members are put in
 * order: kind, apiVersion, metadata (names, uid and version first), the rest. New. */
struct object *sim_object_new(const struct kind *kind, json_t *root, uint64_t rv);
struct object *sim_object_ref(struct object *o);
void sim_object_unref(struct object *o); /* NULL is accepted */

/* The same state under another resourceVersion, as in the event of a deletion. New. */
struct object *sim_object_with_rv(const struct object *o, uint64_t rv);
/* The object as a tree. New. */
json_t *sim_object_parse(const struct object *o);
/* Appends the bytes with another resourceVersion in them. */
void sim_object_add_bytes(const struct object *o, uint64_t rv, struct buf *out);
/* Appends the object as an item of a list: built-in kinds do not repeat their type.
 */
void sim_object_add_item(const struct object *o, struct buf *out);
