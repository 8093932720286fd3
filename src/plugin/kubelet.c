/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/kubelet.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/worker.h"
#include "kube/deviceplugin.h"
#include "kube/podresources.h"
#include "wire/grpcc.h"

enum {
    PODRESOURCES_MS = 2000,
    /* The kubelet connects back, for at most 10 s, before it answers. */
    REGISTER_MS = 15 * 1000,
    BUSY_TRIES = 20, /* the kubelet limits podresources to 100 calls/s */
    BUSY_MS = 25,
};

struct kubelet {
    struct kubelet_settings settings;
    struct dispatcher *dispatcher;
    struct worker *queries, *registrations;
};

struct query {
    uint64_t query;
    bool get;
    char names[]; /* namespace and name, each with its NUL */
};

struct endpoint_name {
    enum ids_resource resource;
    char endpoint[];
};

/* Collects the ids of our resources; a resource can have several entries. */
static void add_container(const struct podres_container *from, struct arena *a,
                          struct alloc_kubelet_container *to)
{
    to->name = from->name;
    for (int r = 0; r < IDS_RESOURCES; r++) {
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
    m->view.pods = view;
    m->view.n_pods = n;
}

static int call(const struct kubelet *k, const char *method, struct span message,
                struct buf *reply, enum grpc_status *status, struct err *err)
{
    struct grpcc_request request = {.socket = k->settings.podresources,
                                    .method = method,
                                    .message = message,
                                    .timeout_ms = PODRESOURCES_MS,
                                    .max_message = PODRES_MESSAGE_MAX};
    int rc;
    for (int i = 0;; i++) {
        buf_clear(reply);
        rc = grpcc_call(&request, reply, status, err);
        if (rc == 0 || *status != GRPC_RESOURCE_EXHAUSTED || i == BUSY_TRIES ||
            err->code == ERR_TOO_LARGE)
            return rc;
        clock_sleep_ms(BUSY_MS);
    }
}

static int list(const struct kubelet *k, struct dispatcher_msg *m)
{
    cleanup_buf struct buf reply = {0};
    struct podres_list all;
    enum grpc_status status;
    if (call(k, PODRES_LIST, (struct span){0}, &reply, &status, &m->err) ||
        podres_list_decode(arena_copy(&m->arena, buf_span(&reply)), &m->arena, &all,
                           &m->err))
        return -1;
    add_pods(all.pods, all.n, m);
    return 0;
}

/* UNIMPLEMENTED: the kubelet has no such call. FAILED_PRECONDITION, or UNKNOWN with
 * "disabled": its feature gate is off. */
static bool is_unsupported(enum grpc_status status, const struct err *err)
{
    return status == GRPC_UNIMPLEMENTED || status == GRPC_FAILED_PRECONDITION ||
           (status == GRPC_UNKNOWN && strstr(err->msg, "disabled"));
}

/* The error for a missing pod has a code that depends on the kubelet's version. */
static bool is_absent(enum grpc_status status, const struct err *err)
{
    return status == GRPC_NOT_FOUND ||
           (status == GRPC_UNKNOWN && strstr(err->msg, "not found"));
}

static int get(const struct kubelet *k, const struct query *query,
               struct dispatcher_msg *m)
{
    cleanup_buf struct buf message = {0}, reply = {0};
    struct podres_pod pod;
    enum grpc_status status = GRPC_OK;
    struct span ns = span_of(query->names), name = span_of(query->names + ns.n + 1);
    if (podres_get_request_encode(ns, name, &message, &m->err))
        return -1;
    if (call(k, PODRES_GET, buf_span(&message), &reply, &status, &m->err)) {
        m->view.unsupported = is_unsupported(status, &m->err);
        return is_absent(status, &m->err) ? 0 : -1;
    }
    if (podres_get_decode(arena_copy(&m->arena, buf_span(&reply)), &m->arena, &pod,
                          &m->err))
        return -1;
    add_pods(&pod, 1, m);
    return 0;
}

static void on_query(void *ctx, void *job)
{
    struct kubelet *k = ctx;
    const struct query *query = job;
    struct dispatcher_msg *m = dispatcher_msg_new(DISPATCHER_PODRESOURCES);
    m->view.query = query->query;
    if (query->get ? get(k, query, m) : list(k, m))
        m->view.err = &m->err;
    dispatcher_post(k->dispatcher, m);
}

static void on_register(void *ctx, void *job)
{
    struct kubelet *k = ctx;
    const struct endpoint_name *e = job;
    struct dp_register r = {.version = SPAN(DP_VERSION),
                            .endpoint = span_of(e->endpoint),
                            .resource = span_of(ids_resource_name(e->resource)),
                            .options = {.preferred_allocation = true}};
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

struct kubelet *kubelet_start(const struct kubelet_settings *settings)
{
    struct kubelet *k = xcalloc(1, sizeof *k);
    k->settings = *settings;
    k->queries = worker_start("podresources", on_query, k);
    k->registrations = worker_start("register", on_register, k);
    return k;
}

void kubelet_set_dispatcher(struct kubelet *k, struct dispatcher *dispatcher)
{
    k->dispatcher = dispatcher;
}

void kubelet_query_pods(struct kubelet *k, uint64_t query, const char *ns,
                        const char *name)
{
    size_t n = ns ? strlen(ns) + 1 : 0, m = ns ? strlen(name) + 1 : 0;
    struct query *job = xmalloc(sizeof *job + n + m);
    job->query = query;
    job->get = ns != NULL;
    if (n) {
        memcpy(job->names, ns, n);
        memcpy(job->names + n, name, m);
    }
    worker_add(k->queries, job);
}

void kubelet_register(struct kubelet *k, enum ids_resource r, const char *endpoint)
{
    size_t n = strlen(endpoint) + 1;
    struct endpoint_name *e = xmalloc(sizeof *e + n);
    e->resource = r;
    memcpy(e->endpoint, endpoint, n);
    worker_add(k->registrations, e);
}

void kubelet_stop(struct kubelet *k)
{
    if (!k)
        return;
    worker_stop(k->queries);
    worker_stop(k->registrations);
}

void kubelet_free(struct kubelet *k)
{
    if (!k)
        return;
    worker_free(k->queries);
    worker_free(k->registrations);
    free(k);
}
