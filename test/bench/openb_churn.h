/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "bench/openb_cluster.h"

/*
 * The second run of gpushare-replay (replay_run, `churn`) in the real cluster: before a pod
 * arrives, random pods leave until at most `churn` percent of the cards and of the CPU would
 * be allocated with it. A pod that kube-scheduler rejects is deleted.
 */

struct openb_churned {
    double rejected; /* percent of the demand, at loads from 100 to 500 percent */
    double replay;   /* the same in gpushare-replay */
    double rate;     /* pods per second; one pod at a time */
};
struct openb_churned openb_churn(const struct openb_setup *setup,
                                 const struct trace *trace, int64_t churn, uint64_t seed);
