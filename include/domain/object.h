/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/jread.h"
#include "base/jwrite.h"

/*
 * The metadata of all Kubernetes objects.
 *
 * The readers of this folder (object, pod, node, scv, lease, configmap) turn the bytes of
 * one object into a struct. Strings of the struct are borrowed from the input or from the
 * arena and live as long as both. Other fields are skipped, but
 * validated. A value of the wrong type is a fault (base/jread.h); the struct must not be
 * used then.
 */

struct object_meta {
    struct span ns, name, uid, version; /* version: resourceVersion, opaque */
    struct span labels;                 /* JSON, borrowed; {NULL, 0}: absent */
    int64_t created_s;                  /* creationTimestamp, since 1970; 0: absent */
    bool deleting;                      /* has a deletionTimestamp */
};

/* A label or annotation to extract; the name or the UID of an owner of that kind; or the kind
 * of an owner of another one. *out is unchanged if it is absent. */
struct object_field {
    enum object_map {
        OBJECT_LABEL,
        OBJECT_ANNOTATION,
        OBJECT_OWNER,
        OBJECT_OWNER_UID,
        OBJECT_OTHER_OWNER
    } map;
    struct span key;
    struct span *out;
};

/* With etcd, resource versions are increasing integers (guaranteed since Kubernetes 1.35).
 * Otherwise no version is older. */
bool object_version_is_older(struct span version, struct span than);

/* Reads the value of "metadata". */
void object_meta_read(struct jread *j, struct arena *a, struct object_meta *meta,
                      const struct object_field *fields, size_t n);

/* Appends the member ownerReferences: the Node with this name and UID owns the object, for
 * garbage collection. */
void object_write_owner(struct jwrite *w, struct span node, struct span uid);

/* Is it valid as an object name: 1 to 253 bytes, no control character, space, quote, slash
 * or backslash? (The API server is stricter; this keeps a name from being misread in a
 * URL or log line.) */
enum { OBJECT_NAME_MAX = 253 };
bool object_is_name(struct span name);
/* Is it a valid name of a namespace, a DNS label? */
bool object_is_namespace(const char *name);
/* object_is_name for a string that is `plain` (base/jread.h). */
static inline bool object_is_plain_name(struct span name)
{
    return name.n > 0 && name.n <= OBJECT_NAME_MAX;
}

/* A fault if the object has no valid name. */
void object_meta_check(struct jread *j, const struct object_meta *meta);
