/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "bench/ask.h"
#include "bench/server.h"

/*
 * The programs of make soak: kube-sim with a generated cluster, and an extender. Each
 * function ends the program with a message if a program does not start.
 */

struct testbed {
    const char *build; /* folder of the programs; borrowed */
    char *dir;         /* own folder: logs, kubeconfig, saved objects */
    char *kubeconfig;
    struct server sim, extender;
    unsigned restarts;
};

/* Starts both. `generate`: option of kube-sim; `more`: further options of the extender,
 * ending with NULL. */
void testbed_start(struct testbed *w, const char *build, const char *generate,
                   const char *const *more);
void testbed_stop(struct testbed *w);

/* Kills kube-sim and restarts it on the same port with the same objects at higher versions,
 * like an API server whose etcd kept running. */
void testbed_restart_sim(struct testbed *w, struct ask *ask);

/* Repeats kubectl-inspect-gpushare --check until ledger, annotations, Scvs and the extender's
 * view agree, for at most `limit_ms`. Prints its last output. */
bool testbed_agrees(const struct testbed *w, long limit_ms);
