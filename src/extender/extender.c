/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/extender.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/ticker.h"
#include "base/worker.h"
#include "extender/forward.h"
#include "extender/nodenews.h"
#include "extender/server.h"
#include "extender/store.h"
#include "extender/sync.h"
#include "kube/connect.h"

enum {
    BODIES_MAX = 256 << 20,
    GIVE_BACK_MS = 3000, /* for the lease at the end */
};

struct extender {
    struct kube_client *client;
    struct store *store;
    struct sync *sync;
    struct worker *leases, *checks, *marks; /* so that none waits behind another kind */
    struct ticker *ticker;
    struct certs *certs;
    struct forward *forward;
    struct observe *observe;
    struct tally *tally;
    struct recorder *recorder; /* NULL: no events */
    struct nodenews *news;     /* the same */
    struct server *server;
    int64_t drain_delay_ms, drain_ms;
};

static enum tally_call tally_of(enum core_output_type type)
{
    switch (type) {
    case CORE_CALL_BIND:
        return TALLY_CALL_BIND;
    case CORE_CALL_GET_POD:
        return TALLY_GET_POD;
    case CORE_CALL_LEASE_GET:
        return TALLY_LEASE_GET;
    case CORE_CALL_LEASE_WRITE:
        return TALLY_LEASE_WRITE;
    default:
        return TALLY_MARK_ROOM;
    }
}

static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct call_answer *answer)
{
    struct extender *e = ctx;
    struct kube_request request;
    struct httpc_reply reply;
    struct err err = {0};
    call_request(call, arena, &request);
    int rc = kube_call(e->client, &request, &reply, &err);
    struct call_result result = {.status = rc ? 0 : reply.status,
                                 .body = arena_copy(arena, buf_span(&reply.body)),
                                 .why = &err,
                                 .sent = reply.sent};
    httpc_reply_fini(&reply);
    call_answer(call, &result, arena, answer);
    tally_call(e->tally, tally_of(call->type),
               answer->input.err ? answer->input.err->code : ERR_NONE);
}

static int post_event(void *ctx, const struct kube_request *request, struct err *err)
{
    struct extender *e = ctx;
    struct httpc_reply reply;
    int rc = kube_call(e->client, request, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    httpc_reply_fini(&reply);
    return rc;
}

static void stream(void *ctx, const struct core_output *output)
{
    struct extender *e = ctx;
    sync_add(e->sync, output);
}

static void defer(void *ctx, const struct core_output *call)
{
    struct extender *e = ctx;
    bool lease = call->type == CORE_CALL_LEASE_GET || call->type == CORE_CALL_LEASE_WRITE;
    worker_add(lease                               ? e->leases
               : call->type == CORE_CALL_WAKEUP ? e->marks
                                                   : e->checks,
               core_output_dup(call));
}

/* A worker's job: the call, and then the core hears of its end. */
static void work(void *ctx, void *job)
{
    struct extender *e = ctx;
    cleanup_arena struct arena arena = {0};
    struct call_answer answer;
    perform(e, job, &arena, &answer);
    store_input(e->store, &answer.input);
}

static void tick(void *ctx)
{
    struct extender *e = ctx;
    store_input(e->store, &(struct core_input){.type = CORE_TICK});
    forward_trim(e->forward);
}

static int64_t due(void *ctx)
{
    struct extender *e = ctx;
    return store_due(e->store);
}

static const struct ticker_fns ticker_fns = {tick, due};

static void hurry(void *ctx)
{
    struct extender *e = ctx;
    ticker_hurry(e->ticker);
}

/* Like no other process: two pods of one name, one after the other, differ too. */
static char *make_identity(void)
{
    char host[256] = "unknown";
    gethostname(host, sizeof host - 1);
    return xasprintf("%s_%016llx", host, (unsigned long long)rng_entropy());
}

static int start_certs(struct extender *e, const struct extender_config *config,
                       struct err *err)
{
    struct certs_config certs = {
        .cert_file = config->tls_cert,
        .key_file = config->tls_key,
        .client_ca_file = config->client_ca,
        .client_names = &config->client_names,
        .front_ca_file = config->front_ca,
        .front_names = &config->front_names,
        .observe_ca_file = config->observe_ca,
    };
    e->certs = certs_start(&certs, err);
    return e->certs ? 0 : -1;
}

static int start_forward(struct extender *e, const struct extender_config *config,
                         struct err *err)
{
    struct forward_config forward = {
        .tls = certs_verbs(e->certs),
        .ca_file = config->replica_ca ? config->replica_ca : config->client_ca,
        .name = config->replica_name,
    };
    if (config->replica_ca && !forward.tls)
        return err_set(err, ERR_INVALID, "--replica-ca needs --tls-cert and --tls-key");
    e->forward = forward_new(&forward, err);
    return e->forward ? 0 : -1;
}

/* It becomes a part of a URL. */
static int check_advertise(const struct extender_config *config, struct err *err)
{
    const char *host = config->advertise ? config->advertise : "";
    if (host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789.:-")])
        return err_set(err, ERR_INVALID,
                       "--advertise: \"%s\" is neither an IP address nor a name", host);
    return 0;
}

/* Tells the others where binds can be sent to while we hold the lease. */
static void advertise(struct extender *e, const struct extender_config *config)
{
    const char *host = config->advertise && *config->advertise ? config->advertise
                                                               : config->entry.listen;
    struct in_addr v4;
    struct in6_addr v6;
    bool is_v6 = inet_pton(AF_INET6, host, &v6) == 1;
    if ((is_v6 && IN6_IS_ADDR_UNSPECIFIED(&v6)) ||
        (inet_pton(AF_INET, host, &v4) == 1 && v4.s_addr == INADDR_ANY)) {
        log_info("extender", "no address for other replicas: see --advertise");
        return;
    }
    cleanup_free char *address =
        xasprintf(is_v6 ? "[%s]:%u" : "%s:%u", host, server_port(e->server));
    store_advertise(e->store, address);
    if (config->tls_cert && !config->replica_ca && !config->client_ca)
        log_warn("extender", "neither --replica-ca nor --client-ca: binds are handed on "
                             "only to replicas of the system's authorities");
}

/* Before anything else is done with the store. */
static void start_observe(struct extender *e, const struct extender_config *config)
{
    struct observe_config observe = {.has_front = certs_has_front(e->certs),
                                     .grace_s = (config->node_grace_ms + 999) / 1000,
                                     .idle_ms = OBSERVE_IDLE_MS,
                                     .heartbeat_ms = OBSERVE_HEARTBEAT_MS};
    e->observe = observe_start(e->store, &observe);
    store_on_change(e->store, observe_changed, e->observe);
}

static void start_events(struct extender *e, const char *identity)
{
    struct recorder_settings recorder = {.post = post_event,
                                         .ctx = e,
                                         .instance = identity,
                                         .tally = e->tally,
                                         .seed = rng_entropy()};
    e->recorder = recorder_start(&recorder);
    e->news = nodenews_start(e->store, e->recorder, rng_entropy());
}

static void start_threads(struct extender *e, const struct extender_config *config)
{
    e->leases = worker_start("lease", work, e);
    e->checks = worker_start("checks", work, e);
    e->marks = worker_start("marks", work, e);
    e->sync = sync_start_thread(e->store, e->client, e->tally, config->api_compression);
}

struct extender *extender_start(const struct extender_config *config, struct err *err)
{
    struct extender *e = xcalloc(1, sizeof *e);
    cleanup_free char *identity = make_identity();
    struct core_settings settings = {
        .ledger = {.unit_mib = config->unit_mib,
                   .external_tolerance_mib = config->external_tolerance_mib,
                   .require_scv = config->require_scv,
                   .require_node = true,
                   .clock_exact = config->clock_exact,
                   .number_shares = config->number_shares},
        .identity = identity,
        .lease_namespace = config->lease_namespace,
        .lease_name = "gpushare-extender",
        .node_grace_ms = config->node_grace_ms,
        .bind_any = config->bind_any,
        .seed = rng_entropy(),
    };
    struct store_io io = {stream, defer, perform, hurry, e};
    struct server_config server = {
        .address = config->entry.listen,
        .port = (unsigned)config->port,
        .observe_port = (unsigned)config->observe_port,
        .connections = (unsigned)config->connections,
        .max_body = (size_t)config->max_body,
        .max_bodies = BODIES_MAX,
        .node_score = config->node_score,
        .metrics_detail = config->metrics_detail,
    };
    e->drain_delay_ms = config->drain_delay_ms;
    e->drain_ms = config->drain_ms;
    e->ticker = ticker_new();
    server.tally = e->tally = tally_new();
    if (check_advertise(config, err) == 0)
        e->client = kube_connect(config->entry.kubeconfig, config->entry.context, err);
    if (!e->client || start_certs(e, config, err) || start_forward(e, config, err)) {
        extender_stop(e);
        return NULL;
    }
    server.certs = e->certs;
    server.forward = e->forward;
    e->store = store_new(&settings, &io);
    start_observe(e, config);
    server.observe = e->observe;
    start_threads(e, config);
    if (config->events)
        start_events(e, identity);
    server.recorder = e->recorder;
    e->server = server_start(&server, e->store, err);
    if (!e->server) {
        extender_stop(e);
        return NULL;
    }
    advertise(e, config);
    ticker_start(e->ticker, &ticker_fns, e);
    return e;
}

/* First the lease is handed over, so that binds go on elsewhere; those that still come
 * here are handed on. Then those who send calls get time to find another replica. */
static void go_away(struct extender *e)
{
    struct timespec delay = {e->drain_delay_ms / 1000,
                             e->drain_delay_ms % 1000 * 1000000};
    server_unready(e->server);
    store_begin_stop(e->store);
    while (nanosleep(&delay, &delay) && errno == EINTR)
        ;
}

void extender_stop(struct extender *e)
{
    if (e->server) {
        go_away(e);
        if (!server_drain(e->server, e->drain_ms))
            log_warn("extender", "requests were still in flight and are cut");
        if (!store_stop(e->store, GIVE_BACK_MS))
            log_warn("extender", "the lease could not be given back and will run out");
    }
    struct worker *workers[] = {e->leases, e->checks, e->marks};
    server_stop(e->server);
    if (e->observe)
        observe_stop(e->observe);
    certs_stop(e->certs);
    ticker_stop(e->ticker);
    nodenews_stop(e->news);
    recorder_stop(e->recorder);
    sync_stop(e->sync);
    for (size_t i = 0; i < ARRAY_LEN(workers); i++)
        worker_stop(workers[i]);
    /* No thread is left. */
    for (size_t i = 0; i < ARRAY_LEN(workers); i++)
        worker_free(workers[i]);
    forward_free(e->forward);
    sync_free(e->sync);
    nodenews_free(e->news);
    recorder_free(e->recorder);
    observe_free(e->observe);
    ticker_free(e->ticker);
    store_free(e->store);
    tally_free(e->tally);
    kube_client_free(e->client);
    free(e);
}
