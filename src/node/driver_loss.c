/* SPDX-License-Identifier: Apache-2.0 */
/* When the process ends because its container has lost the driver. */
#include "node/driver_loss.h"

bool driver_loss_step(struct driver_loss *l, int64_t now_ms, enum err_code outcome)
{
    const bool was_lost = l->lost;
    l->lost = outcome == ERR_GONE;
    l->sampled |= outcome == ERR_NONE;
    if (!was_lost)
        l->since_ms = now_ms;
    return l->lost &&
           now_ms - l->since_ms >= (l->sampled ? DRIVER_LOSS_MS : DRIVER_LOSS_FIRST_MS);
}
