/* SPDX-License-Identifier: Apache-2.0 */

#include "node/rejection.h"

#include <stdarg.h>
#include <stdio.h>

const char *rejection_name(enum rejection_reason reason)
{
    static const char *const names[REJECTIONS] = {
        [REJECTED_NOT_SYNCED] = "not-synced",
        [REJECTED_NO_PENDING_POD] = "no-pending-pod",
        [REJECTED_AMBIGUOUS] = "ambiguous",
        [REJECTED_UNKNOWN_POD] = "unknown-pod",
        [REJECTED_IN_USE] = "in-use",
        [REJECTED_PODRESOURCES] = "podresources",
        [REJECTED_NO_PROMISE] = "no-promise",
        [REJECTED_INVALID_REQUEST] = "invalid-request",
        [REJECTED_WRONG_CARD] = "wrong-card",
        [REJECTED_UNHEALTHY_CARD] = "unhealthy-card",
        [REJECTED_NO_CDI_NAME] = "no-cdi-name",
        [REJECTED_INSUFFICIENT_IDS] = "insufficient-ids",
        [REJECTED_UNKNOWN_ID] = "unknown-id",
        [REJECTED_NOT_PREFERRED] = "not-preferred",
        [REJECTED_ENV_OVERRIDE] = "env-override",
        [REJECTED_NO_DRIVER_LIMIT] = "no-driver-limit",
    };
    return names[reason];
}

bool rejection_set(struct rejection *r, enum rejection_reason reason, const char *fmt,
                   ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof r->text, fmt, ap);
    va_end(ap);
    r->names[0] = '\0';
    r->reason = reason;
    return false;
}
