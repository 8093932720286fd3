/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/extender.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "domain/dialect.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "extender/event_pod.h"
#include "extender/event_scan.h"
#include "extender/forward.h"
#include "extender/gang_minimum.h"
#include "extender/server.h"
#include "kube/client.h"

/* To release the lease at the end, beyond the limit of a request; the kubelet waits 20 s longer
 * than --drain-timeout. */
enum { RELEASE_MS = 1000, RELEASE_MAX_MS = 10 * 1000 };

/* Threads of calls, by what they are about. */
enum { LEASE_CALLS, POD_CALLS, NODE_CALLS, WORKERS };

struct extender {
    const struct extender_config *config;
    struct kube_client *client;
    struct core_driver *driver;
    struct apisync_streams streams;
    struct list_watch_loop *watches;
    struct worker *workers[WORKERS];
    struct worker *timer; /* of the core */
    struct certs *certs;
    struct forward *forward;
    struct gang_minimum *gangs;
    struct delegated_auth *auth; /* NULL: plain HTTP, everyone may call the views */
    struct counters *counters;
    struct dialect hami;
    struct event_recorder *recorder; /* NULL: no events */
    struct event_scan *scan;         /* NULL: no events */
    struct server *server;
};

/* -- the I/O of the core driver -- Executes the outputs of the core against the API server and
 * feeds the answers back as inputs. The thread of a bind makes its calls as long as it waits
 * (core_driver.c). One thread runs the lists and watches, one each the other calls for pods, for
 * the Lease and for Nodes, so that no kind waits for another; one is the timer of the core. */

/* How the calls are counted, and which worker makes them. Evictions may take seconds: not before
 * the GETs of binds. */
static const struct {
    enum counters_api_call counted;
    unsigned worker;
} calls[] = {
    [CORE_CALL_BIND] = {COUNTERS_API_BIND, POD_CALLS},
    [CORE_CALL_GET_POD] = {COUNTERS_API_GET_POD, POD_CALLS},
    [CORE_CALL_LEASE_GET] = {COUNTERS_API_LEASE_GET, LEASE_CALLS},
    [CORE_CALL_LEASE_WRITE] = {COUNTERS_API_LEASE_WRITE, LEASE_CALLS},
    [CORE_CALL_WAKEUP] = {COUNTERS_API_WAKEUP, NODE_CALLS},
    [CORE_CALL_NOMINATE] = {COUNTERS_API_NOMINATE, NODE_CALLS},
    [CORE_CALL_EVICT] = {COUNTERS_API_EVICT, NODE_CALLS},
};

static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer)
{
    struct extender *e = ctx;
    struct kube_request request;
    cleanup_reply struct httpc_reply reply = {0};
    struct err err = {0};
    apisync_call(call, arena, &request);
    int rc = kube_call(e->client, &request, &reply, &err);
    struct apisync_result result = {.status = rc ? 0 : reply.status,
                                    .body = arena_copy(arena, buf_span(&reply.body)),
                                    .why = &err,
                                    .sent = reply.sent,
                                    .retry_after_s = rc ? 0 : reply.retry_after_s};
    apisync_answer(call, &result, arena, answer);
    counters_api_call(e->counters, calls[call->type].counted,
                      answer->input.err ? answer->input.err->code : ERR_NONE);
}

/* A worker's job. */
static void perform_deferred(void *ctx, void *call)
{
    struct extender *e = ctx;
    cleanup_arena struct arena arena = {0};
    struct apisync_answer answer;
    perform(e, call, &arena, &answer);
    const struct core_output *made = call;
    bool preempts = made->type == CORE_CALL_NOMINATE || made->type == CORE_CALL_EVICT;
    if (preempts && !answer.input.err)
        event_pod_preemption(e->recorder, made);
    core_driver_input(e->driver, &answer.input);
}

static void defer(void *ctx, const struct core_output *call)
{
    struct extender *e = ctx;
    worker_add(e->workers[calls[call->type].worker], core_output_dup(call));
}

static void stream(void *ctx, const struct core_output *output)
{
    struct extender *e = ctx;
    apisync_streams_start(e->watches, output);
}

static void on_input(void *ctx, const struct core_input *in)
{
    struct extender *e = ctx;
    if (in->type == CORE_LIST_ENDED || in->type == CORE_LIST_FAILED ||
        in->type == CORE_WATCH_ENDED)
        counters_api_call(e->counters,
                          in->type == CORE_WATCH_ENDED ? COUNTERS_API_WATCH
                                                       : COUNTERS_API_LIST,
                          in->err ? in->err->code : ERR_NONE);
    core_driver_input(e->driver, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    log_warn("reflector", "invalid object", LOG_ERR(err));
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

static void hurry(void *ctx)
{
    struct extender *e = ctx;
    worker_wake(e->timer);
}

static void tick(void *ctx, void *job)
{
    struct extender *e = ctx;
    (void)job;
    core_driver_input(e->driver, &(struct core_input){.type = CORE_TICK});
    forward_trim(e->forward);
    server_trim(e->server);
}

static int64_t due(void *ctx)
{
    struct extender *e = ctx;
    return core_driver_due(e->driver);
}

/* Posts an event and waits for the answer. -1: not written. */
static int post_event(void *ctx, const struct kube_request *request, struct err *err)
{
    struct extender *e = ctx;
    int rc = kube_send(e->client, request, err);
    counters_api_call(e->counters, COUNTERS_API_EVENT, rc ? err->code : ERR_NONE);
    return rc;
}

/* -- the parts -- */

static int start_forward(struct extender *e, const struct extender_config *config,
                         struct err *err)
{
    bool secrets = certs_info(e->certs)->mode == CERTS_SECRETS;
    struct forward_config forward = {
        .tls = certs_info(e->certs)->verbs,
        .ca_file = config->replica_ca ? config->replica_ca
                   : secrets          ? NULL
                                      : config->certs.client_ca_file,
        .name = config->replica_name ? config->replica_name
                : secrets            ? CERTS_HOST
                                     : NULL,
    };
    if (config->replica_ca && !config->certs.cert_file)
        return err_set(err, ERR_INVALID, "--replica-ca needs --tls-cert and --tls-key");
    e->forward = forward_new(&forward, err);
    return e->forward ? 0 : -1;
}

static int read_values(struct dialect *hami, const struct extender_config *config,
                       struct err *err)
{
    if (dialect_configure(hami, span_of(config->hami_values), err))
        return err_wrap(err, "--hami-values");
    return span_eq(hami->limits[DIALECT_CARDS].key, SPAN(KEY_NVIDIA_GPU))
               ? 0
               : err_set(err, ERR_INVALID,
                         "--hami-values: resourceName: gpushare-node serves only "
                         "nvidia.com/gpu to HAMi's pods");
}

/* The value becomes part of a URL. */
static int check_advertise(const struct extender_config *config, struct err *err)
{
    const char *host = config->advertise ? config->advertise : "";
    struct in6_addr v6;
    if (strchr(host, ':') ? inet_pton(AF_INET6, host, &v6) != 1
                          : !span_has_only(span_of(host), ".-"))
        return err_set(err, ERR_INVALID,
                       "--advertise: \"%s\" is neither an IP address nor a host name",
                       host);
    return 0;
}

/* Publishes the address to which other replicas forward binds while this is the leader.
 */
static void advertise(struct extender *e, const struct extender_config *config)
{
    const char *host = config->advertise && *config->advertise ? config->advertise
                                                               : config->entry.listen;
    struct in_addr v4;
    struct in6_addr v6;
    if ((inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6)) ||
        (inet_pton(AF_INET, host, &v4) == 1 && v4.s_addr == INADDR_ANY)) {
        log_info("extender",
                 "no address for other replicas, so they cannot forward binds "
                 "to this one: set --advertise");
        return;
    }
    cleanup_free char *address =
        xasprintf(STR_HOST ":%u", STR_HOST_ARG(host), server_port(e->server));
    core_driver_advertise(e->driver, address);
    if (config->certs.cert_file && !config->replica_ca && !config->certs.client_ca_file)
        log_warn("extender", "neither --replica-ca nor --client-ca is set: binds are "
                             "forwarded only to replicas whose certificate is of the "
                             "system's certificate authorities");
}

static void start_calls(struct extender *e, bool gzip)
{
    static const char *const names[WORKERS] = {"lease", "checks", "wakeups"};
    for (int i = 0; i < WORKERS; i++)
        e->workers[i] = worker_start(names[i], perform_deferred, e);
    e->streams = (struct apisync_streams){.sink = &sink, .ctx = e, .gzip = gzip};
    e->watches =
        list_watch_loop_new(e->client, CORE_ALL_KINDS, &apisync_streams_fns, &e->streams);
    list_watch_loop_thread(e->watches, "watch");
}

/* The server, and who may call its views. */
static int start_server(struct extender *e, struct err *err)
{
    const struct delegated_auth_config auth = {.call = kube_ask, .client = e->client};
    struct server_config server = e->config->server;
    /* Without TLS a token could be read on the way, so no client is asked for one. */
    if (certs_info(e->certs)->mode != CERTS_INSECURE &&
        !(e->auth = delegated_auth_start(&auth, err)))
        return -1;
    server.address = e->config->entry.listen;
    server.certs = e->certs;
    server.auth = e->auth;
    server.node_grace_s = (e->config->core.node_grace_ms + 999) / 1000;
    server.pod_defaults.hami = e->config->requests_of ? &e->hami : NULL;
    server.hami_values = e->config->hami_values;
    server.verbs.driver = e->driver;
    server.verbs.lease_ms = e->config->core.lease_ms;
    server.verbs.preempts = e->config->core.preempt_after_ms > 0;
    server.verbs.forward = e->forward;
    server.verbs.gangs = e->gangs;
    server.verbs.counters = e->counters;
    server.verbs.recorder = e->recorder;
    e->server = server_start(&server, err);
    return e->server ? 0 : -1;
}

int extender_once(const void *config, struct err *err)
{
    const struct extender_config *c = config;
    if (!c->await_ms)
        return 0;
    struct kube_client *client = kube_connect(c->entry.kubeconfig, c->entry.context, err);
    if (!client)
        return -1;
    int rc = pod_defaults_await(&c->server.pod_defaults, client, c->core.lease_namespace,
                                c->await_ms, err);
    kube_client_free(client);
    return rc ? -1 : 1;
}

struct extender *extender_start(const struct extender_config *config, struct err *err)
{
    struct extender *e = xcalloc(1, sizeof *e);
    char host[256] = "unknown";
    gethostname(host, sizeof host - 1);
    /* Unique per process: a restarted pod of the same name differs too. */
    cleanup_free char *identity =
        xasprintf("%s_%016llx", host, (unsigned long long)rng_entropy());
    struct core_settings core = config->core;
    e->config = config;
    e->counters = counters_new();
    e->hami = dialect_hami;
    if (check_advertise(config, err) == 0 && read_values(&e->hami, config, err) == 0)
        e->client = kube_connect(config->entry.kubeconfig, config->entry.context, err);
    if (e->client)
        e->certs = certs_new(&config->certs, config->entry.listen, core.lease_namespace,
                             e->client, err);
    if (!e->certs || start_forward(e, config, err)) {
        extender_stop(e);
        return NULL;
    }
    core.ledger.require_node = true;
    core.ledger.clock_exact = config->clock_exact;
    core.ledger.number_shares = config->number_shares;
    core.ledger.ignore_links = config->ignore_links;
    core.ledger.dialect = config->requests_of ? &e->hami : NULL;
    core.quotas = config->requests_of;
    core.identity = identity;
    core.lease_name = "gpushare-extender";
    core.seed = rng_entropy();
    e->timer = worker_start("ticker", tick, e);
    e->driver = core_driver_new(
        &core, &(struct core_driver_io){stream, defer, perform, hurry, e});
    e->gangs =
        gang_minimum_new(&(struct pod_group_reader){kube_ask, e->client, clock_mono_ms});
    if (config->events) {
        e->recorder = event_recorder_start(
            &(struct event_recorder_settings){.post = post_event,
                                              .ctx = e,
                                              .controller = "gpushare-extender",
                                              .instance = identity,
                                              .seed = rng_entropy()});
        e->scan = event_scan_new();
        event_scan_start(e->scan, e->driver, e->recorder);
    }
    start_calls(e, config->api_compression);
    if (start_server(e, err)) {
        extender_stop(e);
        return NULL;
    }
    advertise(e, config);
    worker_tick(e->timer, due); /* and so everything that the core does */
    certs_start(e->certs, e->driver, e->forward, e->counters);
    return e;
}

void extender_stop(struct extender *e)
{
    if (e->server) {
        /* Releases the lease, so that another replica binds; binds that still arrive here
         * are forwarded. Then clients get --drain-delay to find another replica. */
        server_unready(e->server);
        core_driver_begin_stop(e->driver);
        int64_t until_ms = clock_mono_ms() + e->config->drain_delay_ms, left_ms;
        while ((left_ms = until_ms - clock_mono_ms()) > 0)
            clock_sleep_ms(left_ms); /* a signal ends it early */
        if (!server_drain(e->server, e->config->drain_ms))
            log_warn("extender", "shutdown: requests are still in flight after "
                                 "--drain-timeout; closing their connections");
        int64_t release_ms = e->config->core.lease_ms / 2 - 500 + RELEASE_MS;
        if (!core_driver_stop(e->driver, quantity_at_most(release_ms, RELEASE_MAX_MS)))
            log_warn("extender",
                     "shutdown: the lease is not released; it expires by itself");
    }
    server_stop(e->server);
    delegated_auth_stop(e->auth);
    certs_stop(e->certs);
    event_scan_stop(e->scan);
    event_recorder_stop(e->recorder, INT64_MAX);
    if (e->timer) {
        worker_stop(e->timer);
        list_watch_loop_stop(e->watches);
        for (int i = 0; i < WORKERS; i++)
            worker_stop(e->workers[i]);
    }
    /* No thread is left. */
    forward_free(e->forward);
    gang_minimum_free(e->gangs);
    certs_free(e->certs);
    event_scan_free(e->scan);
    event_recorder_free(e->recorder);
    server_free(e->server);
    delegated_auth_free(e->auth);
    core_driver_free(e->driver);
    for (int i = 0; i < WORKERS; i++)
        worker_free(e->workers[i]);
    list_watch_loop_free(e->watches);
    apisync_streams_fini(&e->streams);
    worker_free(e->timer);
    counters_free(e->counters);
    kube_client_free(e->client);
    free(e);
}
