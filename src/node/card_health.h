/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"

/*
 * The health of one card, from samples and driver events. Pure.
 *
 * scv-agent and the device plugin both decide with this module, so that the Scv and the
 * kubelet's device list agree when the options of the two programs do.
 *
 * Transitions:
 *
 * - First sample: a good card is healthy at once, any other is unhealthy.
 * - A failed sample (lost, reset required, ECC) makes the card unhealthy at once.
 * - An unreadable sample of a card that was readable is ignored until the card has been
 *   unreadable for `unhealthy_after_ms`. It interrupts no recovery before that.
 * - An event (XID, uncorrectable ECC error) makes the card unhealthy for at least
 *   `xid_hold_ms`: samples do not show what an event reported, except where the driver
 *   asks for a reset (GPU_RESET, drivers of 2025 and later). XIDs that an application
 *   causes are ignored: those of NVIDIA's device plugin (13, 31, 43, 45, 68, 109) and of
 *   `xid_ignore`, unless `xid_fatal` has them.
 * - An unhealthy card is healthy again at the first good sample after which every sample
 *   for `healthy_after_ms` was good, and `xid_hold_ms` have passed since the last event.
 *
 * An event counts as a failed sample: the `healthy_after_ms` start at the first good
 * sample after it, also where `xid_hold_ms` is shorter or 0. One rule for every cause is
 * the only one that "healthy again after --healthy-after" in --help describes.
 */

enum { CARD_HEALTH_XIDS = 1024 }; /* of the driver: all are below */

/* XIDs, a bit each. `all`: also those that the driver does not know yet. {0}: none. */
struct card_health_xids {
    bool all;
    uint64_t bits[CARD_HEALTH_XIDS / 64];
};

/* The value of --xid-ignore and --xid-fatal: "all", or "69,45"; empty: none. `xids`: a struct
 * card_health_xids. */
int card_health_parse_xids(struct span text, void *xids, struct err *err);

struct card_health_settings {
    int64_t unhealthy_after_ms; /* tolerance for unreadable samples; 3000 is sensible */
    int64_t healthy_after_ms;   /* 30000 is sensible */
    int64_t xid_hold_ms;        /* 600000; INT64_MAX: as long as the process lives */
    struct card_health_xids xid_ignore, xid_fatal;
};

enum card_health_reading {
    CARD_HEALTH_GOOD,
    CARD_HEALTH_UNREADABLE,
    CARD_HEALTH_FAILED,
};

/* {0}: no sample yet. Read `healthy`, `reason` and `tolerated`; the rest is private. */
struct card_health {
    bool healthy;
    char reason[200]; /* why the card is unhealthy; empty when it is healthy */
    bool tolerated;   /* the last sample was unreadable and ignored */
    bool sampled;
    bool good; /* the last sample that was not ignored was good, since: */
    int64_t good_since_ms;
    bool unreadable; /* since: */
    int64_t unreadable_since_ms;
    bool held; /* by an event, at: */
    int64_t event_ms;
};

/* The health of a card in one sample, with the reason unless it is good. GPU_WARN is good. The
 * reason is borrowed from the card, or static. GPU_MIG is CARD_HEALTH_FAILED. */
enum card_health_reading card_health_read(const struct gpu_card *card,
                                          const char **reason);

/* Takes one sample of the card. `now_ms` is of a clock that never goes back; `reason` is
 * not read when the reading is CARD_HEALTH_GOOD. */
void card_health_sample(struct card_health *h, const struct card_health_settings *s,
                        int64_t now_ms, enum card_health_reading reading,
                        const char *reason);

/* Takes one event of the card. True: it made the card unhealthy, or keeps it so. */
bool card_health_event(struct card_health *h, const struct card_health_settings *s,
                       int64_t now_ms, const struct gpu_event *event);

/* True while samples of the whole node fail for less than `unhealthy_after_ms`: the
 * cards keep their health for that time. */
bool card_health_tolerates(const struct card_health_settings *s, int64_t failing_since_ms,
                           int64_t now_ms);
