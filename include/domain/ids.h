/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Device ids: what the kubelet knows of a card. The device plugin makes and checks ours;
 * scv-agent reads them, and NVIDIA's, to say which container holds which card.
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
bool ids_resource_read(struct span name, enum ids_resource *r); /* false: not ours */

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
/* Reads an id of that resource. False: it is not one of ours. */
bool ids_read(enum ids_resource r, struct span text, struct ids_id *id);
bool ids_is_of_go_plugin(struct span text);

/* A card, as ids name it. */
struct ids_card {
    struct span uuid; /* borrowed */
    struct ids_tag tag;
};
struct ids_card ids_card_of(struct span uuid);

/* Is an id, which a kubelet gave out for that resource, one of this card? Ours are, and
 * those of NVIDIA's plugin:
 *
 *     GPU-<uuid>                   the whole card
 *     GPU-<uuid>::<n>              a replica of it, where cards are shared in time or by
 * MPS MIG-GPU-<uuid>/<gi>/<ci>     an instance of it, as drivers before 470 name them
 *
 * MIG-<uuid>, as they are named since, does not say of which card it is; nor do the ids
 * of the Go plugin. */
bool ids_match_card(struct span resource, struct span id, const struct ids_card *card);

/* How many bytes the message has that lists cards of so many units each, at worst. */
int64_t ids_message_bytes(const int64_t *units, size_t cards);
/* The smallest unit, a power of two in MiB, with which cards of so many MiB each can be
 * listed. */
int64_t ids_smallest_unit(const int64_t *mib, size_t cards);
