/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "node/usage.h"

/*
 * What is done about containers that use more of a card than they were promised. Pure:
 * measurements go in, actions come out.
 *
 * Which containers use too much
 *
 * - A measurement of a card counts when it is at most OVERUSE_MAX_AGE_MS old and has the
 *   processes of the card. Every other measurement changes nothing, so a driver that fails
 *   accuses nobody and acquits nobody. A process that cannot be mapped accuses and exempts
 *   nobody: pods that overuse the card without it do so, and no sum drains meanwhile.
 * - The tolerance of a pod on a card is that of its processes: of each with a slot its context,
 *   as NVML shows it, at most tolerance_mib; of all others one tolerance_mib together, because
 *   a pod can have any number of them. A pod can forge its slots, so it is at most half the
 *   promise and OVERUSE_TOLERANCES times tolerance_mib, but one tolerance_mib for the smallest.
 *   Processes of a container that the driver measures (usage.h) have none: the driver's limit
 *   counts contexts.
 * - A pod overuses a card in a measurement when it uses more than its promise and the
 *   tolerance there. Its containers that do so overuse it, or the one that is furthest beyond
 *   its promise. A pod inside its promise never overuses the card, whatever one of its
 *   containers uses.
 * - A process that uses the card without the limit that its pod has (usage.h) overuses it with
 *   all its memory, also inside the promise and the tolerance.
 * - Each pod has a sum of time for each card: overuse fills it, and it drains OVERUSE_DRAIN
 *   times as slowly. It fills by the time since the last measurement, in proportion to the
 *   excess if that is below OVERUSE_FULL_RATE times the tolerance. It is full at the grace, so
 *   steady overuse fills it within twice the grace. Of each time at most half the grace
 *   counts, so a gap, or a clock that jumps, never fills it alone. A restart of a container
 *   changes nothing; a restart of the agent empties all sums.
 * - Nothing is done before the promises were read after the overuse began: promises are found
 *   by the name of the pod, and a pod that was recreated under its name may have been promised
 *   more than its predecessor.
 * - A container without a promise, in a pod that has one, was promised 0. So is every container
 *   of a pod without one, on a card of which others were promised a part, if such pods are acted
 *   on. Exempt are other pods without any known promise, and pods that were promised a whole
 *   card (whole cards and nvidia.com/gpu), and containers whose name is unknown. On one card, a
 *   pod is exempt while the promise of one of its containers there is not clear (usage.h).
 * - The promise of a pod on a card is the sum of those of its containers, or that of a plain
 *   init container and the sidecars, whichever is more, whether the init container runs now
 *   or has ended: so the ledger counts the pod. An init container is known by the UID of its
 *   pod.
 *
 * Where it hurts
 *
 * - A card hurts when its free memory is below the sum of what the pods on it were promised
 *   and do not use yet: some pod cannot get what it was promised. A card whose free memory
 *   or use is unknown never hurts. What a container without a name, or a process that was
 *   not mapped, uses is taken from that sum, because a promise may have been made to it.
 *
 * Actions, while a container overuses a card and the sum of its pod is full, on a card that
 * hurts, or on any card with `always`
 *
 * - OVERUSE_REPORT, once in OVERUSE_REPORT_AGAIN_MS for a pod, container and card; of a process
 *   without its limit also where it does not hurt, and of a container that MPS should limit:
 *   CUDA drops all limits of a process if one names a card that it does not see.
 * - OVERUSE_EVICT, once in OVERUSE_EVICT_AGAIN_MS for a pod. A rejected eviction is
 *   repeated with back-off, but only while all of the above still holds.
 * - OVERUSE_KILL, once in OVERUSE_KILL_AGAIN_MS for a pod, container and card.
 *
 * Without `always`, pods are evicted and containers killed in the order of what they use
 * beyond their promise, the most first, and only until what they use covers what the other
 * pods lack. One that was acted on counts until its limit has passed, unless the action
 * failed.
 */

enum {
    OVERUSE_MAX_AGE_MS = 5 * 1000,
    OVERUSE_REPORT_AGAIN_MS = 10 * 60 * 1000,
    OVERUSE_EVICT_AGAIN_MS = 5 * 60 * 1000, /* terminating takes time */
    OVERUSE_KILL_AGAIN_MS = 60 * 1000,
    OVERUSE_BACKOFF_MS = 1000, /* after a rejected eviction; doubles each time */
    OVERUSE_BACKOFF_MAX_MS = 5 * 60 * 1000,
    OVERUSE_MAX_LIMITS = 4096, /* actions remembered; beyond that there are none */
    OVERUSE_DRAIN = 10,
    OVERUSE_TOLERANCES = 4, /* of the processes of a pod, at most */
};
#define OVERUSE_FULL_RATE 1.5

enum overuse_type { OVERUSE_REPORT, OVERUSE_EVICT, OVERUSE_KILL };

struct overuse_settings {
    enum overuse_type most; /* the strongest action; OVERUSE_EVICT never kills */
    /* 0: pods without a promise are exempt; else 1 + the strongest action against them */
    int unpromised;
    bool always;           /* also on cards that do not hurt */
    int64_t grace_ms;      /* at least 1 */
    int64_t tolerance_mib; /* of a process; at least 0 */
};

struct overuse_action {
    enum overuse_type type;
    size_t container;    /* in usage.containers */
    int64_t used_mib;    /* by the container on the card */
    int64_t lacking_mib; /* what other pods were promised and cannot get; 0: nothing */
    int64_t over_ms;     /* that the pod has overused the card, in sum */
};

struct overuse_actions {
    struct overuse_action *items;
    size_t n, cap;
};
void overuse_actions_fini(struct overuse_actions *a);
#define cleanup_overuse_actions __attribute__((cleanup(overuse_actions_fini)))

struct overuse;

struct overuse *overuse_new(const struct overuse_settings *settings); /* new */
void overuse_free(struct overuse *o); /* NULL is accepted */

/* Takes a measurement; appends what must be done now. `now_ms` and usage.taken_ms are of
 * one monotonic clock. */
void overuse_step(struct overuse *o, int64_t now_ms, const struct usage *u,
                  struct overuse_actions *actions);

/* Takes the answer to an eviction. False: it was rejected or lost, so the pod may be
 * evicted again after the back-off, and not before `retry_after_ms` (-1: none). */
void overuse_evicted(struct overuse *o, int64_t now_ms, struct span pod_uid,
                     bool accepted, int64_t retry_after_ms);

/* A kill of this step reached no process: other containers are killed instead, and this one
 * again after OVERUSE_KILL_AGAIN_MS. */
void overuse_kill_failed(struct overuse *o, const struct usage *u, size_t container);

/* Containers that overuse their card in its last measurement that counts. */
size_t overuse_count(const struct overuse *o);
