/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "extender/forward.h"
#include "extender/server_priv.h"

typedef unsigned (*verb_fn)(struct verbs *v, struct span body, struct buf *reply);

static void charge_reply(struct server *s, struct httpd_reply *reply)
{
    if (server_charge(&s->verbs_budget, reply))
        return;
    buf_fini(&reply->body);
    buf_adds(&reply->body,
             "{\"Error\":\"too many bytes of requests and replies in memory\"}");
    reply->status = 503;
}

static void run_verb(void *ctx, const struct httpd_request *req,
                     struct httpd_reply *reply, enum counters_verb name, verb_fn verb)
{
    struct server *s = ((struct server_port *)ctx)->server;
    int64_t began_us = clock_mono_us();
    reply->status = verb(s->verbs, req->body, &reply->body);
    charge_reply(s, reply);
    counters_verb(s->counters, name, reply->status, (clock_mono_us() - began_us) * 1000);
    if (reply->status == 503)
        server_add_header(reply, "Retry-After", "1");
    if (atomic_load(&s->draining)) /* so that the next call reaches another replica */
        server_add_header(reply, "Connection", "close");
}

void server_verbs_filter(void *ctx, const struct httpd_request *req,
                         struct httpd_reply *reply)
{
    bool forwarded = httpd_header(req, FORWARD_HEADER) != NULL;
    run_verb(ctx, req, reply, COUNTERS_FILTER,
             httpd_header(req, REPORT_HEADER) ? verb_filter_report
             : forwarded                      ? verb_filter_forwarded
                                              : verb_filter);
}

void server_verbs_prioritize(void *ctx, const struct httpd_request *req,
                             struct httpd_reply *reply)
{
    run_verb(ctx, req, reply, COUNTERS_PRIORITIZE, verb_prioritize);
}

void server_verbs_preempt(void *ctx, const struct httpd_request *req,
                          struct httpd_reply *reply)
{
    run_verb(ctx, req, reply, COUNTERS_PREEMPT, verb_preempt);
}

void server_verbs_bind(void *ctx, const struct httpd_request *req,
                       struct httpd_reply *reply)
{
    bool forwarded = httpd_header(req, FORWARD_HEADER) != NULL;
    run_verb(ctx, req, reply, COUNTERS_BIND, forwarded ? verb_bind_forwarded : verb_bind);
}

void server_verbs_not_post(void *ctx, const struct httpd_request *req,
                           struct httpd_reply *reply)
{
    (void)ctx;
    (void)req;
    view_gpuapi_not_allowed(reply, "POST");
}
