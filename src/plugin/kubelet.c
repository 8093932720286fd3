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
#include "node/podresources_client.h"
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

/* Collects the ids of our resources; a resource can have several entries. */
static void add_container(const struct podres_container *from, struct arena *a,
                          struct alloc_kubelet_container *to)
{
    to->name = from->name;
    for (int r = 0; r < IDS_CARD_RESOURCES; r++) {
        struct span name = span_of(ids_resource_name((enum ids_resource)r));
        size_t n = 0;
        for (size_t i = 0; i < from->n_devices; i++)
            if (span_eq(from->devices[i].resource, name))
                n += from->devices[i].n_ids;
        struct span *ids = arena_alloc(a, n * sizeof *ids);
        to->ids[r] = ids;
        for (size_t i = 0; i < from->n_devices; i++)
            for (size_t k = 0; k < from->devices[i].n_ids; k++)
                if (span_eq(from->devices[i].resource, name))
                    ids[to->n_ids[r]++] = from->devices[i].ids[k];
    }
}

static void add_pods(const struct podres_pod *pods, size_t n, struct dispatcher_msg *m)
{
    struct alloc_kubelet_pod *view = arena_zalloc(&m->arena, (n + 1) * sizeof *view);
    for (size_t i = 0; i < n; i++) {
        struct alloc_kubelet_container *cs =
            arena_zalloc(&m->arena, (pods[i].n_containers + 1) * sizeof *cs);
        for (size_t k = 0; k < pods[i].n_containers; k++)
            add_container(&pods[i].containers[k], &m->arena, &cs[k]);
        view[i] = (struct alloc_kubelet_pod){pods[i].ns, pods[i].name, cs,
                                             pods[i].n_containers};
    }
    m->in.view.pods = view;
    m->in.view.n_pods = n;
}

static void on_query(void *ctx, void *job)
{
    struct kubelet *k = ctx;
    const struct query *query = job;
    const char *socket = k->settings.podresources;
    struct dispatcher_msg *m = dispatcher_input_new(ALLOC_IN_PODRESOURCES);
    struct podres_list all;
    struct podres_pod pod;
    m->in.view.query = query->query;
    if (!query->get) {
        if (podresources_client_list(socket, &m->arena, &all, &m->err))
            m->in.view.err = &m->err;
        else
            add_pods(all.pods, all.n, m);
        dispatcher_post(k->dispatcher, m);
        return;
    }
    switch (podresources_client_get(socket, span_of(query->ns), span_of(query->name),
                                    &m->arena, &pod, &m->err)) {
    case PODRESOURCES_FOUND:
        add_pods(&pod, 1, m);
        break;
    case PODRESOURCES_ABSENT:
        break;
    case PODRESOURCES_UNSUPPORTED:
        m->in.view.unsupported = true;
        m->in.view.err = &m->err;
        break;
    case PODRESOURCES_FAILED:
        m->in.view.err = &m->err;
        break;
    }
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
