/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/scv.h"
#include "node/usage.h"

/*
 * What containers use, as the Scv publishes it. Pure.
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

/* Sets the uses of scv->held, which are sorted by namespace, pod and container, the
 * processes, and use_complete of scv->cards. Strings are borrowed from `u`, arrays are in
 * the arena. */
void usage_scv_build(const struct usage *u, struct scv *scv, struct arena *a);

/* The numbers of an Scv, for the comparison with those of a later one. */
struct usage_scv_written {
    struct usage_scv_row {
        uint64_t key; /* hash of the card and the container or process, or of the card */
        int64_t promised_mib, used_mib, sm_percent;
    } * rows; /* owned; sorted by key */
    size_t n;
};
void usage_scv_record(const struct scv *scv, struct usage_scv_written *w);
void usage_scv_written_fini(struct usage_scv_written *w);

enum {
    /* The smallest changes that are worth a write of the Scv. */
    USAGE_SCV_STEP_MIB = 64,
    USAGE_SCV_STEP_PERCENT = 5,
};
/* Whether a container or process came or left, its promise changed, or its use by a step,
 * or whether a card is complete. */
bool usage_scv_differs(const struct usage_scv_written *w, const struct scv *scv);
