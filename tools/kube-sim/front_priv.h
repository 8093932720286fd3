/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"
#include "kube-sim/api.h"
#include "kube-sim/faults.h"
#include "kube-sim/kinds_priv.h"
#include "wire/httpd.h"

/* What the parts of the HTTP front share. */

struct stream;

enum { RETRY_AFTER_MAX = 60 };

struct sim_server {
    struct httpd *httpd;
    char *authorization;                  /* what the header must be, or NULL */
    char seconds[RETRY_AFTER_MAX + 1][4]; /* "0".."60": headers live as long as this */

    pthread_mutex_t lock; /* over all below, and the API */
    pthread_cond_t stop;  /* stopping was set */
    bool stopping;
    struct api *api;
    struct faults *faults;
    struct stream *streams; /* watches that are open, a list */
    uint64_t compressed;    /* answers so far */
    bool stalled[KINDS_N];  /* by the first kind of that plural */
};

static inline int64_t front_now_ms(void)
{
    return clock_wall_ns() / 1000000;
}
