/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "kube-sim/api.h"
#include "kube-sim/faults.h"
#include "kube-sim/kinds_priv.h"
#include "wire/httpd.h"

/* Shared by the files of the HTTP server. */

struct stream;

enum { RETRY_AFTER_MAX = 60 };

struct sim_server {
    struct httpd *httpd;
    char *authorization;                  /* required Authorization header, or NULL */
    char seconds[RETRY_AFTER_MAX + 1][4]; /* "0".."60", for Retry-After headers */

    pthread_mutex_t lock; /* protects the members below and the API */
    pthread_cond_t stop;  /* stopping was set */
    bool stopping;
    struct api *api;
    struct faults *faults;
    struct stream *streams; /* linked list of open watches */
    uint64_t compressed;    /* compressed replies so far */
    bool stalled[KINDS_N];  /* index: the first kind of that plural */
};

static inline int64_t front_now_ms(void)
{
    return clock_wall_ns() / 1000000;
}
