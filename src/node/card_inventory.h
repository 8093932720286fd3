/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/links.h"
#include "domain/scv.h"
#include "node/card_health.h"

/*
 * The cards of the node: which card of a sample is which, whether it is there, its health, and
 * what is known of it. Publishing and allocating both have an inventory of the same samples, so
 * that the Scv and the kubelet's device list agree. Pure. The rules:
 *
 * - node/card_health.h decides the health of each card. While it tolerates an unreadable
 *   card, or failed samples of the whole node, the last readings are published.
 * - A card that cannot be read keeps its last known values, without those that change. So
 *   does a card that NVML no longer lists: it stays as lost, because pods may hold promises
 *   on it. It is dropped after NVML has worked without it for `keep_lost_ms`. It keeps its
 *   index, unless another card has that index now: then it gets the lowest free one.
 * - Cards in MIG mode are left out; their instances are cards. One that is destroyed is lost.
 */

enum { CARDS_MAX = GPU_MAX_CARDS };
#define CARD_NOT_LISTED "NVML no longer lists the card"

/* Where the device nodes of a card are. An instance has those of its card, and two files of its
 * own. */
struct card_place {
    int32_t minor; /* of /dev/nvidia<minor>; -1: unknown */
    /* Numbers on the card; -1: a full card. INT32_MAX, if unknown, is in no list of files. */
    int32_t gpu_instance, compute_instance;
};

/* What connects a card of a sample with the others. */
struct card_near {
    int32_t numa_node; /* -1: unknown */
    uint8_t at;        /* its position in the sample */
    /* Of its connection to the card at each position, as link_width of the word. */
    uint8_t width[CARDS_MAX];
};

/* A card as the allocator sees it. */
struct card_seen {
    char uuid[96];   /* empty: unknown; the index identifies the card */
    char parent[96]; /* of an instance: the UUID of its card; empty: a full card */
    int32_t index;
    bool present; /* in the last sample */
    struct card_place place;
    struct card_near near;
    int64_t mib; /* with the driver's reserve; 0: unknown */
    struct card_health health;
};

struct card_inventory_settings {
    int64_t keep_lost_ms; /* INT64_MAX: for ever */
    struct card_health_settings health;
};

struct card_inventory;

struct card_inventory *
card_inventory_new(const struct card_inventory_settings *settings); /* new */
void card_inventory_free(struct card_inventory *inv);               /* NULL is accepted */

/* Takes a sample. `now_ms` is of a clock that never goes back. */
void card_inventory_sample(struct card_inventory *inv, int64_t now_ms,
                           const struct gpu_sample *s);
/* Takes a failed sample. `at_once`: every card is unhealthy, without tolerance. */
void card_inventory_failed(struct card_inventory *inv, int64_t now_ms, const char *reason,
                           bool at_once);
/* Takes an event. True: it made a card unhealthy, or keeps it so. Its cards:
 *
 * - With a UUID: the card with that UUID and its instances, or none.
 * - With an index alone: the present card with that index, with or without a UUID. NVML's
 *   handle of an event belongs to the index of the last sample.
 * - With neither, or with an index that no present card has: every card. Cards that wait
 *   needlessly cost less than a container on a broken card. */
bool card_inventory_event(struct card_inventory *inv, int64_t now_ms,
                          const struct gpu_event *event);
/* Takes the Scv that the previous process published: adds the cards that are not known
 * yet. Cards that were Unhealthy must recover first. */
void card_inventory_adopt(struct card_inventory *inv, int64_t now_ms,
                          const struct scv *scv);

/* The health of the next card for which it changed since the last call that returned it, or
 * that is unhealthy and was not returned yet; NULL: none. Valid until the next change, as
 * *uuid, which is empty when unknown. */
const struct card_health *card_inventory_changed(struct card_inventory *inv,
                                                 int32_t *index, const char **uuid);
/* Sets the cards and versions of *scv; leaves its other members alone. Bytes are MiB,
 * rounded down per card. Unknown values are left out. The array is in the arena; strings
 * are valid until the next change. */
void card_inventory_report(const struct card_inventory *inv, struct arena *a,
                           struct scv *scv);
/* Whether XIDs of the card at this position of the report are watched. */
bool card_inventory_has_events(const struct card_inventory *inv, size_t i);
/* Fills `seen` with the cards, first those of the last sample, *n_present. Returns their number. */
size_t card_inventory_seen(const struct card_inventory *inv,
                           struct card_seen seen[CARDS_MAX], size_t *n_present);
/* Whether a card, not an instance, is lost. NVML finds one that came back only after a reopen. */
bool card_inventory_any_lost(const struct card_inventory *inv);
bool card_inventory_is_empty(const struct card_inventory *inv);
/* Appends one clause per problem, separated by "; "; nothing when there is none. */
void card_inventory_message(const struct card_inventory *inv, struct buf *out);
