/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "wire/httpd.h"

/*
 * What pods that request GPU memory get if they leave it empty: schedulerName, which the API
 * server has set to default-scheduler by then, and runtimeClassName. The chart's
 * MutatingAdmissionPolicy does this where the API server has such policies; else this webhook
 * (admission.k8s.io/v1), for pods that the same matchConditions select.
 *
 * An API server shows webhooks no certificate by default, so everybody may ask. The answer
 * depends on the body and the options alone.
 */

/* Options; NULL or "": not set in pods. */
struct dialect;
struct pod_defaults {
    char *scheduler, *runtime_class;
    /* A container with limits of HAMi's, but of cards, gets a limit of one card: without, the
     * kubelet gives it none. */
    const struct dialect *hami; /* NULL: not so */
};

#define POD_DEFAULTS_PATH "/pod-defaults"
enum { POD_DEFAULTS_BODY = 4 << 20 }; /* bytes: a pod has at most 3 MiB */

/* Answers an AdmissionReview: allowed, with a JSON Patch, if it is about a Pod; any other object
 * is denied. 400 if it is no AdmissionReview. */
void pod_defaults_answer(const struct pod_defaults *d, struct span body,
                         struct httpd_reply *reply);

/* Waits until the API server sets both in a dry run of a pod in the namespace: for two seconds
 * without a break, because each of several API servers reads new policies once a second. -1
 * after limit_ms, with the last reason. */
int pod_defaults_await(const struct pod_defaults *d, struct kube_client *client,
                       const char *ns, int64_t limit_ms, struct err *err);
