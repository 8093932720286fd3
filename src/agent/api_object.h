/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"

/*
 * The members that scv-agent reads of its API objects: the Scv, the Lease and the Node.
 */

/* Annotation of an Scv: its problems in words; absent when there is none. */
#define KEY_MESSAGE "gpushare/message"

struct api_object {
    struct object_meta meta;
    bool owned;          /* it has an owner reference */
    struct span message; /* annotation; {NULL, 0}: none */
    bool has_interval;
    int64_t interval_ms; /* spec.updateInterval */
    struct span status;  /* its JSON */
    struct scv scv;      /* only the cards; none when the status is malformed */
};

/* Reads one object. Strings are borrowed from the bytes and the arena. -1: malformed, or
 * without a name. */
int api_object_read(struct span bytes, struct arena *a, struct api_object *o,
                    struct err *err);

/* Reads the last item of a list; *found: whether there is one. *version is the list's
 * resourceVersion. */
int api_object_read_list(struct span bytes, struct arena *a, struct api_object *o,
                         bool *found, struct span *version, struct err *err);

/* Appends a status (of scv_write_status) for a merge patch: members that an earlier
 * status may have and this one lacks are null. */
void api_object_status_patch(struct buf *out, struct span status);
