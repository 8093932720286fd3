/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "simulator/sim.h"

struct oracle {
    struct api_watch *watch;
    struct oracle_pod *pods;
    unsigned listed[NODES]; /* held by the podList of the Scv written last */
    bool unhealthy[NODES][8], shrunk[NODES][8];
};

/* Does the card have the model, clock and size that the pod requests? */
bool oracle_card_matches(const struct oracle_pod *p, int node, int card);
/* MiB that the pod holds on each of its cards. */
int64_t oracle_pod_mib(const struct oracle_pod *p);
/* Percent of the compute of each of its cards that it holds at least. */
int oracle_pod_core(const struct oracle_pod *p);
/* Is its request unknown: its labels changed after another program bound it? */
bool oracle_is_vague(const struct oracle_pod *p);
/* Cards that match and are free, less those that the kubelet has not allocated yet.
 * `replica`: by what was delivered to it; NULL: by the API objects. */
int oracle_devices_left(const struct world *w, const struct oracle_pod *asking, int node,
                        const int *replica);
/* oracle_truth.c: the promise of a pod as it was made, and edits of it */
void truth_bound(struct oracle_pod *p, json_t *meta);
void truth_changed(struct world *w, struct oracle_pod *p, json_t *meta);
/* New: the annotations of a promise. */
char *truth_text(json_t *meta);
/* May replicas disagree about the cards of the pod? */
bool truth_is_unclear(const struct oracle_pod *p);
/* The amount that a ledger counts: never more than the request, never less. */
void truth_compare(struct world *w, const struct replica *r, const struct oracle_pod *p,
                   const struct ledger_pod *mine);
/* Checks the annotations of a pod that the extender has just bound. An older version of its
 * request becomes the current one if that is what was bound. */
void oracle_check_promise(struct world *w, struct oracle_pod *p, json_t *meta);
