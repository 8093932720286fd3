/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "kube/client.h"
#include "kube/credential_priv.h"

struct kube_client {
    struct kube_config config;
    struct kube_credential *credential;
    int64_t (*now_ms)(void); /* clock_mono_ms; tests of long intervals replace it */
    pthread_mutex_t lock;    /* protects the fields below */
    struct httpc *http;
    uint64_t tls_version; /* of the identity that http was made for */
};
