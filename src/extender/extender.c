/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/extender.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "extender/api_workers.h"
#include "extender/event_scan.h"
#include "extender/forward.h"
#include "extender/gang_minimum.h"
#include "extender/server.h"
#include "kube/client.h"

enum {
    BODIES_MIN = 48 << 20,
    RELEASE_MS = 3000, /* to release the lease at the end */
};

struct extender {
    struct kube_client *client;
    struct api_workers *workers;
    struct core_driver *driver;
    struct certs *certs;
    struct forward *forward;
    struct gang_minimum *gangs;
    struct gpuapi *gpuapi;
    struct delegated_auth *auth; /* NULL: plain HTTP, everyone may call the views */
    struct counters *counters;
    struct event_recorder *recorder; /* NULL: no events */
    struct event_scan_thread *scan;  /* NULL: no events */
    struct server *server;
    int64_t drain_delay_ms, drain_ms;
};

/* Unique per process: a restarted pod of the same name differs too. */
static char *make_identity(void)
{
    char host[256] = "unknown";
    gethostname(host, sizeof host - 1);
    return xasprintf("%s_%016llx", host, (unsigned long long)rng_entropy());
}

static int start_forward(struct extender *e, const struct extender_config *config,
                         struct err *err)
{
    bool secrets = certs_mode(e->certs) == CERTS_SECRETS;
    struct forward_config forward = {
        .tls = certs_verbs(e->certs),
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

/* The value becomes part of a URL. */
static int check_advertise(const struct extender_config *config, struct err *err)
{
    const char *host = config->advertise ? config->advertise : "";
    if (host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789.:-")])
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
    bool is_v6 = inet_pton(AF_INET6, host, &v6) == 1;
    if ((is_v6 && IN6_IS_ADDR_UNSPECIFIED(&v6)) ||
        (inet_pton(AF_INET, host, &v4) == 1 && v4.s_addr == INADDR_ANY)) {
        log_info("extender",
                 "no address for other replicas, so they cannot forward binds "
                 "to this one: set --advertise");
        return;
    }
    cleanup_free char *address =
        xasprintf(is_v6 ? "[%s]:%u" : "%s:%u", host, server_port(e->server));
    core_driver_advertise(e->driver, address);
    if (config->certs.cert_file && !config->replica_ca && !config->certs.client_ca_file)
        log_warn("extender", "neither --replica-ca nor --client-ca is set: binds are "
                             "forwarded only to replicas whose certificate is of the "
                             "system's certificate authorities");
}

/* To be called before any other use of the driver. */
static void start_gpuapi(struct extender *e, const struct extender_config *config)
{
    struct gpuapi_config gpuapi = {.grace_s = (config->node_grace_ms + 999) / 1000,
                                   .idle_ms = GPUAPI_IDLE_MS,
                                   .heartbeat_ms = GPUAPI_HEARTBEAT_MS};
    e->gpuapi = gpuapi_start(e->driver, &gpuapi);
    core_driver_on_change(e->driver, gpuapi_changed, e->gpuapi);
}

static void *begin_wait(void *request)
{
    return httpd_defer(request);
}

static void end_wait(void *waiter)
{
    httpd_resume(waiter);
}

static int call_api(void *ctx, const struct kube_request *request,
                    struct httpc_reply *reply, struct err *err)
{
    return kube_call(ctx, request, reply, err);
}

/* Without TLS a token could be read on the way, so no client is asked for one. */
static int start_auth(struct extender *e, struct err *err)
{
    struct delegated_auth_config auth = {
        .call = call_api, .call_ctx = e->client, .wait = begin_wait, .wake = end_wait};
    if (certs_mode(e->certs) == CERTS_INSECURE)
        return 0;
    e->auth = delegated_auth_start(&auth, err);
    return e->auth ? 0 : -1;
}

static void start_events(struct extender *e, const char *identity)
{
    struct event_recorder_settings recorder = {.post = api_workers_post_event,
                                               .ctx = e->workers,
                                               .instance = identity,
                                               .seed = rng_entropy()};
    e->recorder = event_recorder_start(&recorder);
    e->scan = event_scan_start(e->driver, e->recorder);
}

static struct core_settings core_settings_of(const struct extender_config *config,
                                             const char *identity)
{
    return (struct core_settings){
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
        .preempt_after_ms = config->preempt_after_ms,
        .seed = rng_entropy(),
    };
}

/* Request bodies in memory, and as much for replies: room for one of the largest size
 * beside usual ones. */
static size_t bodies_max(const struct extender_config *config)
{
    size_t bytes = (size_t)config->max_body / 2 * 3;
    return bytes > BODIES_MIN ? bytes : BODIES_MIN;
}

static struct server *start_server(struct extender *e,
                                   const struct extender_config *config, struct err *err)
{
    struct server_config server = {
        .address = config->entry.listen,
        .port = (unsigned)config->port,
        .observe_port = (unsigned)config->observe_port,
        .connections = (unsigned)config->connections,
        .max_body = (size_t)config->max_body,
        .max_bodies = bodies_max(config),
        .certs = e->certs,
        .auth = e->auth,
        .gpuapi = e->gpuapi,
        .verbs = {.driver = e->driver,
                  .policy = config->node_score,
                  .answer = config->filter_answer,
                  .preempts = config->preempt_after_ms > 0,
                  .forward = e->forward,
                  .gangs = e->gangs,
                  .counters = e->counters,
                  .recorder = e->recorder},
        .metrics_detail = config->metrics_detail,
    };
    return server_start(&server, err);
}

struct extender *extender_start(const struct extender_config *config, struct err *err)
{
    struct extender *e = xcalloc(1, sizeof *e);
    cleanup_free char *identity = make_identity();
    struct core_settings settings = core_settings_of(config, identity);
    e->drain_delay_ms = config->drain_delay_ms;
    e->drain_ms = config->drain_ms;
    e->counters = counters_new();
    if (check_advertise(config, err) == 0)
        e->client = kube_connect(config->entry.kubeconfig, config->entry.context, err);
    if (e->client)
        e->certs =
            certs_new(&config->certs, config->entry.listen, config->lease_namespace, err);
    if (!e->certs || start_forward(e, config, err)) {
        extender_stop(e);
        return NULL;
    }
    e->workers = api_workers_new(e->client, e->counters);
    struct core_driver_io io = api_workers_io(e->workers);
    e->driver = core_driver_new(&settings, &io);
    start_gpuapi(e, config);
    e->gangs =
        gang_minimum_new(&(struct pod_group_reader){call_api, e->client, clock_mono_ms});
    if (config->events)
        start_events(e, identity);
    api_workers_start(e->workers, e->driver, e->recorder, config->api_compression);
    if (start_auth(e, err) == 0)
        e->server = start_server(e, config, err);
    if (!e->server) {
        extender_stop(e);
        return NULL;
    }
    advertise(e, config);
    api_workers_start_timer(e->workers, e->forward);
    certs_start(e->certs, e->client, e->driver, e->counters);
    return e;
}

/* Releases the lease, so that another replica binds; binds that still arrive here are
 * forwarded. Then clients get drain_delay_ms to find another replica. */
static void hand_over(struct extender *e)
{
    struct timespec delay = {e->drain_delay_ms / 1000,
                             e->drain_delay_ms % 1000 * 1000000};
    server_unready(e->server);
    core_driver_begin_stop(e->driver);
    while (nanosleep(&delay, &delay) && errno == EINTR)
        ;
}

void extender_stop(struct extender *e)
{
    if (e->server) {
        hand_over(e);
        if (!server_drain(e->server, e->drain_ms))
            log_warn("extender", "shutdown: requests are still in flight after "
                                 "--drain-timeout; closing their connections");
        if (!core_driver_stop(e->driver, RELEASE_MS))
            log_warn("extender",
                     "shutdown: the lease is not released; it expires by itself");
    }
    server_stop(e->server);
    delegated_auth_stop(e->auth);
    if (e->gpuapi)
        gpuapi_stop(e->gpuapi);
    certs_stop(e->certs);
    event_scan_stop(e->scan);
    event_recorder_stop(e->recorder);
    api_workers_stop(e->workers);
    /* No thread is left. */
    forward_free(e->forward);
    gang_minimum_free(e->gangs);
    certs_free(e->certs);
    event_scan_thread_free(e->scan);
    event_recorder_free(e->recorder);
    gpuapi_free(e->gpuapi);
    delegated_auth_free(e->auth);
    core_driver_free(e->driver);
    api_workers_free(e->workers);
    counters_free(e->counters);
    kube_client_free(e->client);
    free(e);
}
