/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/certs.h"
#include "extender/verbs.h"
#include "extender/view_gpuapi.h"
#include "extender/view_metrics.h"
#include "wire/httpd.h"

/*
 * The HTTP face of the extender: two listeners, the verbs for kube-scheduler (a thread
 * per connection, because bind blocks) and one for observers.
 */

struct server_config {
    const char *address;
    unsigned port, observe_port;
    unsigned connections; /* of the verbs' listener */
    size_t max_body;
    size_t max_bodies;          /* of all requests together */
    struct certs *certs;        /* borrowed; NULL: plain HTTP */
    struct forward *forward;    /* borrowed; NULL: binds are not handed on */
    struct view_gpuapi *gpuapi; /* borrowed */
    enum score_policy node_score;
    struct counters *counters;       /* borrowed */
    struct event_recorder *recorder; /* borrowed; NULL: no events */
    enum view_metrics_detail metrics_detail;
};

struct server;

/* New; answers at once. Prints where it listens. `store` is borrowed. */
struct server *server_start(const struct server_config *config, struct store *store,
                            struct err *err);
unsigned server_port(const struct server *s); /* of the verbs */
/* No longer ready, for who asks; all else goes on, but each connection is closed after
 * its reply, so that the next call finds another replica. */
void server_unready(struct server *s);
/* No longer ready, no new connections; waits for what is in flight, at most so long. */
bool server_drain(struct server *s, int64_t timeout_ms);
void server_stop(struct server *s); /* NULL is accepted */
