/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Device ids: how the kubelet names cards. The device plugin creates and checks ours;
 * scv-agent parses them, and NVIDIA's, to find the container that holds a card.
 *
 *     aliyun.com/gpu-mem     <tag>-<n>   unit n of a card, from 0
 *     aliyun.com/gpu-count   <tag>       the whole card
 *     aliyun.com/gpu-share   <tag>-s<n>  slot n of a card, from 0
 *     nvidia.com/gpu         <tag>-g<n>  the same, on a node of a dialect (domain/dialect.h)
 *     aliyun.com/gpu-core.percentage   core-<n>   one percent of the compute of some card
 *
 * The tag is a hash of the card's UUID only, so the kubelet's checkpoint names the same
 * card after a restart, with another driver, or in another slot. It is short because a
 * node lists all its ids in one message, which the kubelet limits to 4 MiB: 140,000 ids.
 *
 * The kubelet's checkpoint still has ids of the Go plugin, <UUID>-_-<n>, after a
 * migration. Their containers may be on any card, whatever the UUID in the id.
 */

/* The ids of IDS_CORE name no card: the kubelet only counts them, and the card is that of
 * the container's memory. */
enum ids_resource {
    IDS_MEM,
    IDS_COUNT,
    IDS_SHARE,
    IDS_DIALECT,        /* NVIDIA's device plugin has other ids of this resource */
    IDS_CARD_RESOURCES, /* those before have ids that name cards */
    IDS_CORE = IDS_CARD_RESOURCES,
    IDS_RESOURCES
};
const char *ids_resource_name(enum ids_resource r); /* "aliyun.com/gpu-mem", ... */
/* False: not ours, or its ids name no card. */
bool ids_resource_read(struct span name, enum ids_resource *r);
static inline bool ids_are_slots(enum ids_resource r)
{
    return r == IDS_SHARE || r == IDS_DIALECT;
}

enum {
    IDS_TAG = 7,
    IDS_LENGTH_MAX = IDS_TAG + 2 + 6, /* the limit of the protocol is 63 */
    IDS_UNITS_MAX = 1000000,          /* of one card: 976 GiB in MiB */
    IDS_MESSAGE_MAX = 4 << 20,        /* the kubelet's limit */
};

struct ids_tag {
    char text[IDS_TAG + 1];
};

struct ids_tag ids_tag_of(struct span uuid);

struct ids_id {
    struct ids_tag tag;
    int64_t unit; /* or slot; -1: the whole card */
};

void ids_write(struct buf *out, enum ids_resource r, const struct ids_id *id);
/* Parses an id of that resource. False: not one of ours. */
bool ids_read(enum ids_resource r, struct span text, struct ids_id *id);
/* Is it an id of the Go plugin, <UUID>-_-<n>, or of HAMi's, <UUID>-<n>? The containers may be on
 * any card. */
bool ids_name_no_card(struct span text);

/* A card and its tag. */
struct ids_card {
    struct span uuid; /* borrowed */
    struct ids_tag tag;
};
struct ids_card ids_card_of(struct span uuid);

/* Does the id, which a kubelet allocated for that resource, belong to this card? Knows our
 * ids and those of NVIDIA's plugin:
 *
 *     GPU-<uuid>                   the whole card
 *     GPU-<uuid>::<n>              a replica of it (time-slicing or MPS)
 *     MIG-GPU-<uuid>/<gi>/<ci>     a MIG instance, as drivers before 470 name it
 *
 * MIG-<uuid>, the name since then, names the instance and not its card. Ids of the Go plugin name
 * none. */
bool ids_match_card(struct span resource, struct span id, const struct ids_card *card);

/* The maximum size of the message that lists these cards. */
int64_t ids_message_bytes(const int64_t *mib, size_t cards, int64_t unit_mib);
/* The smallest unit (a power of two, MiB) with which these cards fit into one message. */
int64_t ids_smallest_unit(const int64_t *mib, size_t cards);
