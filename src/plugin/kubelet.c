/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Calls to the kubelet: podresources in one thread, Register in another.
 */

#include "plugin/kubelet.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "kube/deviceplugin.h"
#include "kube/podresources.h"
#include "wire/grpcc.h"

enum {
    /* The kubelet connects back, for at most 10 s, before it answers. */
    REGISTER_MS = 15 * 1000,
};

struct kubelet {
    struct kubelet_settings settings;
    struct dispatcher *dispatcher;
    struct worker *queries, *registrations;
};

struct query {
    uint64_t query;
    bool get;
    char ns[64], name[256]; /* as long as Kubernetes allows */
};

struct endpoint_name {
    enum ids_resource resource;
    char endpoint[64];
};

static void on_query(void *ctx, void *job)
{
    struct kubelet *k = ctx;
    const struct query *query = job;
    const char *socket = k->settings.podresources;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_PODRESOURCES);
    struct podres_list all = {0};
    struct podres_pod *pod = arena_alloc(&m->arena, sizeof *pod);
    enum podresources_result result = PODRESOURCES_FOUND;
    if (query->get) {
        result = podresources_client_get(socket, span_of(query->ns), span_of(query->name),
                                         &m->arena, pod, &m->err);
        all = (struct podres_list){pod, result == PODRESOURCES_FOUND};
    } else if (podresources_client_list(socket, &m->arena, &all, &m->err)) {
        result = PODRESOURCES_FAILED;
    }
    bool failed = result == PODRESOURCES_FAILED || result == PODRESOURCES_UNSUPPORTED;
    m->in.view = (struct alloc_kubelet_view){
        .query = query->query,
        .pods = all.pods,
        .n_pods = failed ? 0 : all.n,
        .err = failed ? &m->err : NULL,
        .unsupported = result == PODRESOURCES_UNSUPPORTED};
    dispatcher_post(k->dispatcher, m);
}

static void on_register(void *ctx, void *job)
{
    struct kubelet *k = ctx;
    const struct endpoint_name *e = job;
    struct dp_register r = {.version = SPAN(DP_VERSION),
                            .endpoint = span_of(e->endpoint),
                            .resource = span_of(ids_resource_name(e->resource)),
                            .options = {.preferred_allocation = e->resource != IDS_CORE}};
    cleanup_buf struct buf message = {0}, reply = {0};
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_REGISTERED);
    int rc = dp_register_encode(&r, &message, &m->err);
    struct grpcc_request request = {.socket = k->settings.registration,
                                    .method = DP_REGISTER,
                                    .message = buf_span(&message),
                                    .timeout_ms = REGISTER_MS};
    if (rc == 0)
        rc = grpcc_call(&request, &reply, NULL, &m->err);
    if (rc)
        log_warn("kubelet", "rejected the registration; retrying",
                 LOG_SPAN("resource", r.resource), LOG_ERR(&m->err));
    else
        log_info("kubelet", "accepted the registration", LOG_SPAN("resource", r.resource),
                 LOG_S("endpoint", e->endpoint));
    m->resource = e->resource;
    m->flag = rc == 0;
    dispatcher_post(k->dispatcher, m);
}

struct kubelet *kubelet_start(const struct kubelet_settings *settings,
                              struct dispatcher *dispatcher)
{
    struct kubelet *k = xcalloc(1, sizeof *k);
    k->settings = *settings;
    k->dispatcher = dispatcher;
    k->queries = worker_start("podresources", on_query, k);
    k->registrations = worker_start("register", on_register, k);
    return k;
}

void kubelet_query(struct kubelet *k, const struct alloc_output *o)
{
    struct query *job = xcalloc(1, sizeof *job);
    job->query = o->query;
    job->get = o->type == ALLOC_GET;
    snprintf(job->ns, sizeof job->ns, "%s", o->ns ? o->ns : "");
    snprintf(job->name, sizeof job->name, "%s", o->name ? o->name : "");
    worker_add(k->queries, job);
}

void kubelet_register(struct kubelet *k, enum ids_resource r, const char *endpoint)
{
    struct endpoint_name *e = xcalloc(1, sizeof *e);
    e->resource = r;
    snprintf(e->endpoint, sizeof e->endpoint, "%s", endpoint);
    worker_add(k->registrations, e);
}

bool kubelet_stop(struct kubelet *k, int64_t until_ms)
{
    return !k || (worker_stop_until(k->queries, until_ms) &&
                  worker_stop_until(k->registrations, until_ms));
}

void kubelet_free(struct kubelet *k)
{
    if (!k)
        return;
    worker_free(k->queries);
    worker_free(k->registrations);
    free(k);
}
