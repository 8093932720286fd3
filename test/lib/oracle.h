/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/extender.h"

/*
 * The promises, computed from the objects of the API server `api` alone.
 */

/* Units promised per card by the annotations of pods, without the pod `but` (may be NULL):
 * {"<node>/<card>": units}, without cards that have no promise. Kept. */
json_t *oracle_promised(const struct peer *api, const char *but);
/* Fails if the promises on a card exceed its size in the Scv. */
void oracle_check(const struct peer *api);
/* Waits until inspect matches the annotations and no bind is in flight, then calls
 * oracle_check. */
void oracle_agrees(const struct peer *api, const struct extender *e);
void oracle_agrees_within(const struct peer *api, const struct extender *e, int64_t ms);
