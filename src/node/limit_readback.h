/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "gpu/gpu.h"
#include "node/usage.h"

/*
 * Reads the driver's limits of containers back (gpu/gpu.h), and with --set-limits sets them.
 *
 * Only what is read back is a limit: a hook can be left out, a container can name another limit, a
 * cgroup that is made again has none, and a driver that is loaded again has forgotten all of them.
 * A limit is expected where the allocation of the container set one, and nowhere else. One that is
 * missing or higher for LIMIT_READBACK_MISSING_MS is reported: the hook runs after the cgroup is
 * made.
 *
 * With --set-limits, each cgroup of a container gets the limit of its allocation without a soft
 * one, which would be left behind in its ancestors. The cgroup of the pod gets what the pod may use
 * in all, if all its containers on the card have a limit. That holds ephemeral containers, too, and
 * containers of which the cgroup is not found.
 */

enum {
    LIMIT_READBACK_MISSING_MS = 10 * 1000,
    LIMIT_READBACK_FAILING_MS = 30 * 1000,
};

struct limit_readback;

struct limit_readback_settings {
    const char *node, *host_root, *cgroup_root; /* borrowed */
    bool sets;                                  /* --set-limits */
    /* The pod's container has not the limit that its allocation set; once for each container ID
     * and card. */
    void (*missing)(void *ctx, const char *pod_uid, const char *why);
    void *ctx;
};

struct limit_readback *
limit_readback_new(const struct limit_readback_settings *settings); /* new */
void limit_readback_free(struct limit_readback *r);                 /* NULL is accepted */

/* Takes the allocations, in the format of the state file. From any thread; never blocks. */
void limit_readback_allocations(struct limit_readback *r, struct span state);
/* Reads the limits on the cards of the sample that `gpu` has just taken. Of the sampler's thread,
 * because no other may call the driver. Each card is asked; what takes longer than a second for
 * containers is left to the next sample. */
void limit_readback_sample(struct limit_readback *r, struct gpu *gpu,
                           const struct gpu_sample *sample, int64_t now_ms);

/* The following are from any thread. */

/* Whether a card answers that it has no limits, or its answers have failed for
 * LIMIT_READBACK_FAILING_MS: then `driver` holds nothing on this node. */
bool limit_readback_fails(const struct limit_readback *r);
/* Whether this process sets limits on every card that has them, so that containers need no hook:
 * it has tried. */
bool limit_readback_sets(const struct limit_readback *r);

/* What the last sample read. It does not change, and its owners share it. */
struct limit_readings {
    atomic_uint refs;
    struct arena arena; /* has the strings */
    struct usage_limit *limits;
    size_t n, cap;
    struct span *readable; /* UUIDs of the cards that have limits */
    size_t n_readable;
};
/* A reference; NULL: nothing was read yet. */
struct limit_readings *limit_readback_readings(struct limit_readback *r);
void limit_readings_unref(struct limit_readings *l); /* NULL is accepted */

void limit_readback_metrics(struct limit_readback *r, struct buf *out);

/* A card, by what it answers. {0}: nothing yet. */
struct limit_readback_card {
    char uuid[96];
    int32_t index;
    bool readable; /* it has limits */
    bool asked;    /* in this sample, about a container */
    bool fails;
    int64_t failing_ms; /* the first of its failures in a row; 0: none */
    bool can_set;
    int64_t tried_ms; /* the last trial to set a limit; 0: none */
};
/* Takes an answer. A failure alone withdraws nothing, and one good answer ends it. Pure. */
void limit_readback_judge(struct limit_readback_card *card, enum gpu_limit_answer answer,
                          int64_t now_ms);
