/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"

/*
 * What scv-agent wants to know of the objects that it reads: its Scv, its Lease, its
 * Node.
 */

/* Annotation of an Scv: what people should know, when not all is well. */
#define KEY_MESSAGE "gpushare/message"

enum {
    OBJECT_MAX_OWNERS = 16,
};

struct api_object {
    struct object_meta meta;
    struct owner {
        struct span raw; /* the reference as it stands there */
        struct span kind, name, uid;
    } owners[OBJECT_MAX_OWNERS]; /* further ones are left out */
    size_t n_owners;
    struct span message; /* annotation; {NULL, 0}: none */
    bool has_interval;
    int64_t interval_ms; /* spec.updateInterval */
    struct span status;  /* its bytes */
    struct scv scv;      /* only the cards; none when the status has a fault */
};

/* Reads one object. Strings are borrowed from the bytes and the arena. -1: it is no
 * object with a name. */
int api_object_read(struct span bytes, struct arena *a, struct api_object *o,
                    struct err *err);

/* Reads a list of which at most one item matters: *found says whether there is one.
 * *version is the list's. */
int api_object_read_list(struct span bytes, struct arena *a, struct api_object *o,
                         bool *found, struct span *version, struct err *err);

/* Appends a status (of scv_write_status) for a merge patch: what an earlier one may hold
 * and this one does not is null. */
void api_object_status_patch(struct buf *out, struct span status);
