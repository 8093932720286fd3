/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "kube-sim/api.h"

/*
 * Generates a cluster: nodes with cards, their Scv objects and Leases, and pods that hold
 * memory on the cards, all of realistic size. The same parameters give the same objects.
 */

struct generate {
    int64_t nodes, cards, pods; /* cards and pods: per node */
    int64_t mib;                /* per card */
    int64_t unit;               /* MiB of one aliyun.com/gpu-mem */
    int64_t full;               /* percent of the nodes that have no free GPU memory */
    int64_t node_bytes,
        pod_bytes; /* approximate size, padded with managedFields; 0: no padding */
    int64_t seed;
    bool uuid;   /* write card UUIDs into Scv objects and pods */
    bool scvs;   /* create Scv objects */
    bool leases; /* create heartbeat Leases */
};

/* "nodes=100,cards=8,pods=4,mib=81920,full=30,uuid=1,...": absent
 * parameters keep their default (generate_defaults). */
int generate_parse(struct span text, struct generate *g, struct err *err);
extern const struct generate generate_defaults;

int generate_run(const struct generate *g, struct api *api, int64_t now_ms,
                 struct err *err);
