/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/* Why a request of the kubelet is rejected. docs/device-plugin.md lists the names. */

enum rejection_reason {
    /* A later event can end these. */
    REJECTED_NOT_SYNCED, /* the pods of this node are not listed yet, or the Node not read */
    REJECTED_NO_PENDING_POD, /* no pod of this node lacks these ids */
    REJECTED_AMBIGUOUS,      /* several pods lack these ids */
    REJECTED_UNKNOWN_POD,    /* the kubelet has a pod that the API server has not sent */
    REJECTED_IN_USE,         /* another container holds the ids or the card */
    REJECTED_PODRESOURCES,   /* podresources does not answer */
    REJECTIONS_TEMPORARY,

    REJECTED_NO_PROMISE =
        REJECTIONS_TEMPORARY,  /* the pod has no card: the extender did not
                                                 * bind it */
    REJECTED_INVALID_REQUEST,  /* the pod's limits or annotations are invalid */
    REJECTED_WRONG_CARD,       /* the ids are not those of the promised card */
    REJECTED_UNHEALTHY_CARD,   /* the promised card is lost or unhealthy */
    REJECTED_NO_CDI_NAME,      /* no CDI specification names the promised card */
    REJECTED_INSUFFICIENT_IDS, /* the kubelet offers too few ids of the promised card */
    REJECTED_UNKNOWN_ID,       /* the id belongs to no card of this node */
    REJECTED_NOT_PREFERRED,    /* Allocate without a GetPreferredAllocation before */
    REJECTED_ENV_OVERRIDE,     /* --strict-env */
    REJECTED_NO_DRIVER_LIMIT, /* the container must have the driver's limit, and cannot */
    REJECTIONS,
};

struct rejection {
    enum rejection_reason reason;
    char text[400];  /* read by those who may see the pod */
    char names[800]; /* of two pods that they may not see; for the log */
};

const char *rejection_name(enum rejection_reason reason); /* "not-synced", ... */
/* Sets reason and text, and clears `names`. Returns false. */
bool rejection_set(struct rejection *r, enum rejection_reason reason, const char *fmt,
                   ...) __attribute__((format(printf, 3, 4)));
