/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "gpu/gpu.h"

/*
 * Which cards are healthy, from samples and events; pure.
 *
 * A card is ill at once: when its state is not GPU_OK, when an error of ECC is told, and
 * when an XID is that does not speak of the program (gpu_xid_is_of_program). An event
 * that cannot be told which card it is of makes all of them ill. A card is healthy again
 * when every sample for `recover_ms` was fine, and for `hold_ms` no such event came: so a
 * card that flickers stays out, and one that was reset comes back by itself. A card that
 * is seen for the first time and is fine is healthy. Cards are known by their uuid, and
 * by their index where they have none.
 *
 * An XID leaves no trace that a later sample could see, except where the driver asks for
 * a reset (GPU_RESET, drivers of 2025 on). Where older drivers are in use and nobody
 * looks after the cards, make `hold_ms` long.
 */

struct card_health_settings {
    int64_t recover_ms; /* 30000 is sensible */
    int64_t hold_ms;    /* 600000; INT64_MAX: for as long as the process lives */
};

struct health;

struct card_health *card_health_new(const struct card_health_settings *settings); /* new */
void card_health_free(struct card_health *h);                                /* NULL is fine */

/* `now_ms` is of a clock that never goes back. */
void card_health_sample(struct card_health *h, int64_t now_ms, const struct gpu_sample *s);
/* True when it made a card ill, or keeps one so for longer. */
bool card_health_event(struct card_health *h, int64_t now_ms, const struct gpu_event *event);

/* Of a card of the last sample. *why (may be NULL) is the reason in words when it is not
 * healthy, and valid until the next sample or event. */
bool card_health_is_good(const struct card_health *h, const struct gpu_card *card,
                    const char **why);
