/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/step.h"
#include "domain/ids.h"
#include "domain/links.h"
#include "node/card_health.h"

/*
 * The cards of this node as ListAndWatch lists them. Pure.
 *
 * A card that was listed once stays listed as long as the process lives: a kubelet that
 * is allocating an id at that moment crashes when the id vanishes. A card that is lost,
 * unhealthy or smaller than before has unhealthy devices.
 *
 * node/card_health.h decides the health of each card.
 */

enum { CARDS_MAX = 64 };

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

/* A card of a sample. */
struct card_seen {
    char uuid[96];   /* empty: unknown; the index identifies the card */
    char parent[96]; /* of an instance: the UUID of its card; empty: a full card */
    int32_t index;
    struct card_place place;
    struct card_near near;
    int64_t mib;
    enum card_health_reading reading;
    char reason[200]; /* unless the reading is CARD_HEALTH_GOOD */
};

struct plugin_card {
    char uuid[96];   /* "index-3" for a card without UUID */
    char parent[96]; /* as in struct card_seen */
    bool has_uuid;
    struct ids_tag tag;
    int32_t index;
    struct card_place place;
    struct card_near near;
    bool present; /* in the last sample */
    int64_t mib;
    int64_t units;      /* of gpu-mem, now */
    int64_t most_units; /* that were ever listed */
    struct card_health health;
};

struct cards_settings {
    int64_t unit_mib;
    int64_t silent_ms; /* the driver hangs if no sample ends in this time; 0: no limit */
    struct card_health_settings health;
};

struct cards {
    struct cards_settings settings;
    struct plugin_card items[CARDS_MAX]; /* in the order of their first samples */
    size_t n;
    /* The most that were present, or lost and allocated, at one time. A card that was lost
     * before the process started is not in `items`. */
    size_t most_in_use;
    int64_t sampled_ms;          /* when the last sample ended, successful or not */
    struct step_failure failure; /* of the samples */
    bool failed;                 /* for so long that every card is unhealthy */
};

void cards_init(struct cards *cards, const struct cards_settings *settings);

/* Each of the following returns whether the device list changed. */

/* Takes a sample. A card that cannot be listed (too many, or two with the same tag) is
 * left out and reported in `err`, whose code is ERR_NONE otherwise. */
bool cards_sampled(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                   size_t n, struct err *err);
/* Takes a failed sample. Sets *log if it is to be logged, as step_failed. */
bool cards_sample_failed(struct cards *cards, int64_t now_ms, const struct err *why,
                         bool *log);
/* Takes an XID or an ECC error. */
bool cards_event(struct cards *cards, int64_t now_ms, const struct gpu_event *event);
/* Time has passed. The process itself was suspended for `suspended_ms` of it; that does
 * not count as silence of the driver. */
bool cards_tick(struct cards *cards, int64_t now_ms, int64_t suspended_ms);

const struct plugin_card *cards_by_tag(const struct cards *cards,
                                       const struct ids_tag *tag);
const struct plugin_card *cards_by_uuid(const struct cards *cards, struct span uuid);
const struct plugin_card *cards_by_index(const struct cards *cards, int32_t index);

/* -1 when the driver does not respond, or no card is healthy. */
int cards_check(const struct cards *cards, int64_t now_ms, struct err *err);
/* Whether the device list fits into one gRPC message; -1 with the reason and a memory
 * unit that fits. */
int cards_fit(const struct cards *cards, struct err *err);
