/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "bench/ask.h"
#include "bench/server.h"

/*
 * What make soak runs: kube-sim with a cluster, and an extender. Each function ends the
 * program with a message when a program does not start.
 */

struct world {
    const char *build; /* where the programs are; borrowed */
    char *dir;         /* of its own: logs, kubeconfig, what kube-sim had */
    char *kubeconfig;
    struct server sim, extender;
    unsigned restarts;
};

/* Until the extender is ready. `generate`: kube-sim's option. */
void world_start(struct world *w, const char *build, const char *generate);
void world_stop(struct world *w);

/* Kills kube-sim and starts it again on the same port, as an API server whose database
 * was left alone: the same objects, at higher versions. */
void world_restart_sim(struct world *w, struct ask *ask);

/* kubectl-inspect-gpushare --check finds that ledger, annotations, Scvs and the
 * extender's view agree; it is asked again for `limit_ms` at most. What it says at last
 * is on standard output. */
bool world_agrees(const struct world *w, long limit_ms);
