/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Device ids: what the kubelet knows of a card.
 *
 *     aliyun.com/gpu-mem     <tag>-<n>   the unit n of a card, from 0
 *     aliyun.com/gpu-count   <tag>       the whole card
 *
 * The tag is made from the card's UUID and from nothing else, so that the kubelet's
 * checkpoint still means the same card after a restart, another driver, or a card that
 * was moved to another slot. It is short because a node lists all its ids in one message,
 * which the kubelet takes up to 4 MiB: 140,000 of them fit.
 *
 * The Go plugin's ids, <UUID>-_-<n>, are in the kubelet's checkpoint after a take-over.
 * Its containers may be on any card, whatever the UUID in the id says.
 */

enum ids_resource { IDS_MEM, IDS_COUNT, IDS_RESOURCES };
const char *ids_resource_name(enum ids_resource r); /* "aliyun.com/gpu-mem", ... */

enum {
    IDS_TAG = 7,
    IDS_LENGTH_MAX = IDS_TAG + 1 + 6, /* the protocol allows 63 */
    IDS_UNITS_MAX = 1000000,          /* of one card; MiB of a card of 976 GiB */
    IDS_MESSAGE_MAX = 4 << 20,        /* what a kubelet takes */
};

struct ids_tag {
    char text[IDS_TAG + 1];
};

struct ids_tag ids_tag_of(struct span uuid);

struct ids_id {
    struct ids_tag tag;
    int64_t unit; /* -1: the whole card */
};

/* Appends the id. */
void ids_write(struct buf *out, const struct ids_id *id);
/* False: it is not one of ours. */
bool ids_read(struct span text, struct ids_id *id);
bool ids_is_of_go_plugin(struct span text);

/* How many bytes the message has that lists cards of so many units each, at worst. */
int64_t ids_message_bytes(const int64_t *units, size_t cards);
/* The smallest unit, a power of two in MiB, with which cards of so many MiB each can be
 * listed. */
int64_t ids_unit_that_fits(const int64_t *mib, size_t cards);
