/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/step.h"
#include "domain/dialect.h"
#include "domain/ids.h"
#include "node/card_inventory.h"

/*
 * The cards of this node as ListAndWatch lists them. Pure.
 *
 * A card that was listed once stays listed as long as the process lives: a kubelet that
 * is allocating an id at that moment crashes when the id vanishes. A card that is lost,
 * unhealthy or smaller than before has unhealthy devices.
 *
 * node/card_inventory.h decides which card is there, and its health.
 */

/* The slots of CARDS_MAX cards fit into one message to the kubelet. */
enum { CARDS_SLOTS_MAX = 1000 };

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
    int64_t slots;                 /* of each card, up to CARDS_SLOTS_MAX */
    const struct dialect *dialect; /* they are served as nvidia.com/gpu, too; or NULL */
    int64_t silent_ms; /* the driver hangs if no sample ends in this time; 0: no limit */
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
};

void cards_init(struct cards *cards, const struct cards_settings *settings);

/* Takes the cards of the inventory after a sample, which failed with `why`, NULL if it succeeded.
 * Returns whether the device list changed. `say` gets what is to be logged: a new failure, or a
 * card that cannot be listed (too many, or two with the same tag); code ERR_NONE: nothing. */
bool cards_take(struct cards *cards, int64_t now_ms, const struct card_seen *seen,
                size_t n, const struct err *why, struct err *say);
/* Time has passed. The process itself was suspended for `suspended_ms` of it; that does
 * not count as silence of the driver, which makes every card unhealthy until the next sample.
 * Returns whether the device list changed. */
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
