/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"
#include "node/podresources.h"
#include "node/usage.h"

/*
 * The status of this node's Scv, beside its cards (node/card_inventory.h): the devices of
 * containers (podList), and what containers and processes use. Pure. Strings are borrowed
 * from the sources, arrays are in the arena.
 */

/* Sets scv->held. The cards follow from the device ids; see ids_match_card. */
void node_scv_add_pods(const struct podresources *pods, struct scv *scv, struct arena *a);

/*
 * Sets the uses of scv->held, the processes, and use_complete of scv->cards.
 *
 * - A container of podList gets its use in its item: that of the resource that has the
 *   card, else its first one.
 * - Every other container that uses a card, and every process outside Kubernetes, is in
 *   processList, up to SCV_MAX_PROCESSES. A container whose name is unknown has the UID of
 *   its pod as the name of its pod.
 * - A card of which every process is in one of the two lists, with what it used when the
 *   card's memory was read, is marked (use_complete): the ledger then knows whose memory
 *   is used. The Scv is written at once when the memory of a card changes, with the use of
 *   the same sample.
 */
void node_scv_add_usage(const struct usage *u, struct scv *scv, struct arena *a);

/* Appends the status for a merge patch: members that an earlier one may have and this one
 * lacks are null. */
void node_scv_status_patch(struct buf *out, const struct scv *scv);

/* The numbers of an Scv, for the comparison with those of a later one. Equal Scvs have their
 * rows in the same order. */
struct node_scv_numbers {
    struct node_scv_row {
        uint64_t key; /* hash of the card and the container or process, or of the card */
        bool of_card;
        /* -1: not known. Of a card: whether its use is complete, utilization, temperature;
         * else the promise, the use, the share of SM time. */
        int64_t values[3];
    } * rows; /* owned */
    size_t n, cap;
};
/* Replaces the numbers by those of the Scv. */
void node_scv_numbers_read(struct node_scv_numbers *numbers, const struct scv *scv);
void node_scv_numbers_fini(struct node_scv_numbers *numbers);

/* Whether a container or process came or left, its promise changed, or whether a card is
 * complete; or a number changed enough to be worth a write of the Scv. */
bool node_scv_numbers_differ(const struct node_scv_numbers *numbers,
                             const struct scv *scv);
