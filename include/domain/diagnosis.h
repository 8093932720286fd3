/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/ledger.h"

/*
 * What disagrees about a node: its objects, the promises on its cards, and what is measured
 * there. One list, of which --check and the log make sentences, /metrics numbers, and the leader
 * Events.
 */

/* Named as the label of gpushare_drift. */
enum drift {
    DRIFT_OVERCOMMITTED, /* cards with promises above their size */
    DRIFT_EXTERNAL_USE,  /* cards with external use above the tolerance */
    DRIFT_OVERUSE,       /* cards with overuse above the tolerance */
    DRIFT_CARD_MISSING,  /* promises on missing cards */
    DRIFT_NO_CARD,       /* pods without a card; limits get the only card of a node */
    DRIFT_WRONG_CARD, /* cards assigned by the kubelet to pods with a promise on others */
    DRIFT_CAPACITY,   /* resources of the Node that do not match its cards */
    DRIFT_CONFIGMAP_UNKNOWN_CARD, /* ConfigMaps that list a missing card */
    DRIFT_DUPLICATE_UUID,         /* cards with the UUID of another card of their Scv */
    DRIFT_FORGED,      /* pods whose annotations differ from their request or cards */
    DRIFT_MEMORY_UNIT, /* promises in another unit than the ledger's */
    DRIFTS,
};

/* Everything is borrowed; what does not concern the kind is 0. */
struct disagreement {
    enum drift kind;
    const struct card *card;
    const struct ledger_pod *pod;
    const struct ledger_share *share; /* CARD_MISSING */
    const char *resource;             /* CAPACITY */
    bool allocatable;                 /* CAPACITY: `is` is that, not the capacity */
    /* MiB, units, or a number: what is there (promised, used, offered), and what should be. */
    int64_t is, should;
};

typedef void (*disagreement_fn)(void *ctx, const struct disagreement *d);
/* Of the node and its cards. */
void diagnosis_node(const struct ledger *l, const struct ledger_node *node,
                    disagreement_fn add, void *ctx);
/* Of a pod on a node. */
void diagnosis_pod(const struct ledger *l, const struct ledger_pod *pod,
                   disagreement_fn add, void *ctx);
/* Of the card alone: its promises are more than it has. False: they are not. */
bool diagnosis_overcommit(const struct card *card, struct disagreement *d);
/* Adds the number of each kind, of the node and its pods. */
void diagnosis_count(const struct ledger *l, const struct ledger_node *node,
                     int64_t counts[DRIFTS]);

/* Appends it as a sentence about the node, without the node's name, which is untrusted text;
 * nothing for WRONG_CARD, of which the container is known to the Scv alone. */
void disagreement_write(struct buf *out, const struct ledger_node *node,
                        const struct disagreement *d);
/* Appends why the pod, which is on a node, is DRIFT_FORGED. False: it is not. Without
 * `differences` only because the podList shows other cards, which may also be the cards of a former
 * pod with the same name. */
bool diagnosis_forged(struct buf *out, const struct ledger_pod *pod);
