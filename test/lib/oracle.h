/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/extender.h"

/*
 * What has been promised, worked out from the objects of the API server `api` alone.
 */

/* Units promised per card by the annotations of pods that hold them:
 * {"<node>/<card>": units}, cards without any left out. New. */
json_t *oracle_promised(const struct peer *api);
/* Fails when a card is promised more than its Scv says it has. */
void oracle_check(const struct peer *api);
/* Waits until inspect says the same as the annotations and no bind is in flight; then
 * checks the sizes. */
void oracle_agrees(const struct peer *api, const struct extender *e);
void oracle_agrees_within(const struct peer *api, const struct extender *e, int64_t ms);
