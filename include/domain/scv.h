/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/object.h"

/*
 * An Scv object (scvs.core.run-linux.com/v1): the cards of one node, as the sniffer on it
 * reads them from NVML. Memory is MiB. The sniffer leaves out zeros, so a number that is
 * missing is 0. `uuid` and `usedMemory` are ours and optional.
 */

enum {
    SCV_MAX_CARDS = 64,
};

struct scv_card {
    int32_t id; /* NVML index */
    bool healthy;
    bool has_used;
    int64_t total_mib, free_mib;
    int64_t used_mib; /* NVML memory v2: without what the driver reserves */
    struct span health, model, uuid;
};

struct scv {
    struct object_meta meta;
    struct scv_card *cards; /* by rising id; in the arena */
    size_t n_cards;
    bool damaged; /* it had a fault: nothing in it can be relied on */
    bool has_update_time;
    int64_t update_time; /* seconds since 1970: when the values were read */
};

/* Reads an Scv. More than SCV_MAX_CARDS cards, an id that comes twice, and a size that is
 * negative or above 2^40 MiB are faults. */
void scv_read(struct jread *j, struct arena *a, struct scv *scv);

/* What is in use on the card by anybody, without the driver's reserve where that is
 * known. */
int64_t scv_card_used(const struct scv_card *card);
