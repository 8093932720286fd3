/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>

#include "extender/server.h"
#include "extender/view_inspect_stream.h"
#include "extender/view_snapshot.h"

/*
 * server.c        ports, routes, views
 * server_verbs.c  the verbs
 */

/* A port: the context of its handlers. */
struct server_port {
    struct server *server;
    bool main; /* the port of the verbs */
};

struct server {
    struct httpd *httpd;
    struct store *store;
    struct view_source source; /* the store */
    struct verbs *verbs;
    struct certs *certs;
    struct access *access;
    struct delegated_auth *auth;
    unsigned port;
    struct view_gpuapi *gpuapi;
    struct counters *counters;
    struct view_metrics_source metrics;
    struct view_inspect_stream *stream;
    struct view_snapshots *snapshots;
    struct budget verbs_budget, views_budget;
    _Atomic bool draining;
    struct server_port main, observers;
};

/* Charges the reply until it is sent. False: the budget is used up. */
bool server_charge(struct budget *budget, struct httpd_reply *reply);
/* `name` and `value` are static. */
void server_add_header(struct httpd_reply *reply, const char *name, const char *value);

/* server_verbs.c: handlers; ctx is the struct server_port. */
void server_verbs_filter(void *ctx, const struct httpd_request *req,
                         struct httpd_reply *reply);
void server_verbs_prioritize(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply);
void server_verbs_preempt(void *ctx, const struct httpd_request *req,
                          struct httpd_reply *reply);
void server_verbs_bind(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply);
/* Any method but POST on the paths of nvidia-gpu-scheduler. */
void server_verbs_not_post(void *ctx, const struct httpd_request *req,
                           struct httpd_reply *reply);
