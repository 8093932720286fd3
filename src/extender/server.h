/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "extender/certs.h"
#include "extender/delegated_auth.h"
#include "extender/metrics.h"
#include "extender/pod_defaults.h"
#include "extender/verb.h"
#include "wire/httpd.h"

/*
 * The HTTP server of the extender, with two ports: the verbs for kube-scheduler (one
 * thread per connection, because bind blocks) and the observers' port.
 */

struct server_config {
    const char *address; /* borrowed, like all other pointers */
    int64_t port, observe_port;
    int64_t connections;         /* limit of the verbs' port */
    int64_t max_body;            /* bytes */
    struct certs *certs;         /* NULL: insecure */
    struct delegated_auth *auth; /* NULL: everyone may call the views */
    int64_t node_grace_s;        /* of heartbeats; 0: not checked */
    struct pod_defaults pod_defaults;
    struct verbs_config verbs; /* without budget */
    enum metrics_detail metrics_detail;
    const char *hami_values; /* to show; NULL: none */
};

struct server;

/* New; answers at once. Prints the addresses of both ports. */
struct server *server_start(const struct server_config *config, struct err *err);
unsigned server_port(const struct server *s); /* of the verbs */
/* /readyz fails from now on, and each connection of a verb closes after its reply, so
 * that the next call reaches another replica. */
void server_unready(struct server *s);
/* As server_unready, and accepts no new connections. Waits for requests in flight. False:
 * some are left after `timeout_ms`. */
bool server_drain(struct server *s, int64_t timeout_ms);
void server_stop(struct server *s); /* closes both ports; NULL is accepted */
void server_free(struct server *s); /* after server_stop; NULL is accepted */
/* Drops what was rendered and has no readers any more; to be called regularly. */
void server_trim(struct server *s);
