/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"

/*
 * What all Kubernetes objects have in common: metadata.
 *
 * The readers of this folder (object, pod, node, scv, lease, configmap) turn the bytes of
 * one object into a struct. Strings of the struct are borrowed from the input or from the
 * arena and live as long as both. What the struct does not name is skipped, but
 * validated. A value of the wrong type is a fault (base/jread.h); the struct must not be
 * used then.
 */

struct object_meta {
    struct span ns, name, uid, version; /* version: resourceVersion, opaque */
    int64_t created_s;                  /* creationTimestamp, since 1970; 0: not said */
    bool deleting;                      /* has a deletionTimestamp */
};

/* A label or annotation that the caller wants, or the name of an owner of that kind.
 * *out is left alone when it is absent. */
struct object_field {
    enum object_map { OBJECT_LABEL, OBJECT_ANNOTATION, OBJECT_OWNER } map;
    struct span key;
    struct span *out;
};

/* Reads the value of "metadata". */
void object_meta_read(struct jread *j, struct arena *a, struct object_meta *meta,
                      const struct object_field *fields, size_t n);

/* Can that be the name of an object? Not empty, at most 253 bytes, none of them a control
 * character, a space, a quote, a slash or a backslash. (The API server is stricter; this
 * is what keeps a name from meaning something else where it is written.) */
bool object_is_name(struct span name);

/* A fault if the object has no name that can be one. */
void object_meta_check(struct jread *j, const struct object_meta *meta);
