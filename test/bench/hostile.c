/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "bench/attackers.h"
#include "bench/bench.h"

/*
 * make bench-hostile: one honest kube-scheduler calls filter, a kubelet probes, and the
 * leader renews its Lease, first alone and then while hostile clients do their worst. Fails
 * if a call of the honest clients fails, a probe takes longer than a second, the Lease is
 * not renewed in time, the memory limit is exceeded, or descriptors stay open afterwards.
 */

enum {
    FILTER_PAUSE_MS = 20,
    PROBE_PAUSE_MS = 250,
    PROBE_LIMIT_MS = 1000,
    LEASE_LIMIT_MS = 5000, /* leaseDurationSeconds of the extender's Lease */
    SETTLE_MS = 30000,     /* for the last hostile connections to close */
    CALL_LIMIT_MS = 30000,
};

struct config {
    int64_t quiet_ms, siege_ms, nodes, clients, pause_ms, slower, mib;
    char *build, *only;
    bool tls, apart;
};

/* -- the honest clients, a thread each -- */

struct latencies {
    struct series ms;
    size_t failed;
};

struct siege {
    const struct config *config;
    struct testbed testbed;
    unsigned observe_port;
    struct bench_child attackers;
    char *cert, *key; /* files of kube-scheduler's client certificate, or NULL */
    char *filter;     /* body */
    atomic_bool end;
    atomic_int phase; /* 0: quiet, 1: siege, 2: afterwards, which is not reported */
    struct latencies filters[3], probes[3];
    int64_t lease_gap_ms[3]; /* longest time between two renewals of the Lease */
    struct vitals peak[3], start, after;
};

static size_t discard(char *p, size_t size, size_t n, void *ctx)
{
    (void)p;
    (void)ctx;
    return size * n;
}

/* Segments as on a network of 1500-byte packets. With those of the loopback interface, of
 * 64 KiB, a request that is larger than the window can wait for TCP's persist timer. */
static int on_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    const int mss = 1448;
    (void)ctx, (void)purpose;
    setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss);
    return CURL_SOCKOPT_OK;
}

static CURL *client(const struct siege *s, unsigned port, const char *path)
{
    cleanup_free char *url =
        xasprintf("%s://127.0.0.1:%u%s", s->config->tls ? "https" : "http", port, path);
    CURL *curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, on_socket);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    return curl;
}

static void call(CURL *curl, struct latencies *l)
{
    double seconds = 0;
    long status = 0;
    bool ok = curl_easy_perform(curl) == CURLE_OK;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_TOTAL_TIME, &seconds);
    if (!ok || status != 200) {
        if (l->failed++ < 5)
            fprintf(stderr, "bench: status %ld after %.0f ms\n", status, seconds * 1e3);
    }
    series_note(&l->ms, seconds * 1e3);
}

/* kube-scheduler: one connection that stays open. */
static void *call_filter(void *arg)
{
    struct siege *s = arg;
    CURL *curl = client(s, s->testbed.extender.port, "/filter");
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, s->filter);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)CALL_LIMIT_MS);
    if (s->cert) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, s->cert);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, s->key);
    }
    while (!atomic_load(&s->end)) {
        call(curl, &s->filters[atomic_load(&s->phase)]);
        clock_sleep_ms(FILTER_PAUSE_MS);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return NULL;
}

/* A kubelet: a new connection for each probe. */
static void *probe(void *arg)
{
    struct siege *s = arg;
    CURL *probes[] = {client(s, s->testbed.extender.port, "/readyz"),
                      client(s, s->observe_port, "/healthz")};
    for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
        curl_easy_setopt(probes[i], CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(probes[i], CURLOPT_FORBID_REUSE, 1L);
        curl_easy_setopt(probes[i], CURLOPT_TIMEOUT_MS, (long)PROBE_LIMIT_MS);
    }
    while (!atomic_load(&s->end)) {
        for (size_t i = 0; i < ARRAY_LEN(probes); i++)
            call(probes[i], &s->probes[atomic_load(&s->phase)]);
        clock_sleep_ms(PROBE_PAUSE_MS);
    }
    for (size_t i = 0; i < ARRAY_LEN(probes); i++)
        curl_easy_cleanup(probes[i]);
    return NULL;
}

/* The time between two changes of the Lease, and the process. */
static void *watch_process(void *arg)
{
    struct siege *s = arg;
    cleanup_free char *last = xstrdup("");
    int64_t renewed_ms = clock_mono_ms();
    while (!atomic_load(&s->end)) {
        json_t *lease = NULL;
        int phase = atomic_load(&s->phase);
        ask("GET", s->testbed.sim.port,
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
            "gpushare-extender",
            NULL, &lease);
        const char *renew = json_string_value(
            json_object_get(json_object_get(lease, "spec"), "renewTime"));
        int64_t now = clock_mono_ms();
        if (now - renewed_ms > s->lease_gap_ms[phase])
            s->lease_gap_ms[phase] = now - renewed_ms;
        if (renew && strcmp(renew, last) != 0) {
            free(last);
            last = xstrdup(renew);
            renewed_ms = now;
        }
        json_decref(lease);
        struct vitals both[] = {s->peak[phase], vitals_now(&s->testbed.extender)};
        s->peak[phase] = vitals_peak(both, 2);
        clock_sleep_ms(50);
    }
    return NULL;
}

/* -- set-up -- */

static void decode_to(const struct siege *s, json_t *data, const char *name,
                      const char *file)
{
    cleanup_free char *path = testbed_path(&s->testbed, file);
    cleanup_free char *command = xasprintf("umask 077; base64 -d >%s 2>/dev/null", path);
    const char *text = json_string_value(json_object_get(data, name));
    FILE *f = text ? popen(command, "w") : NULL;
    if (f) {
        fputs(text, f);
        pclose(f);
    }
}

/* kube-scheduler's certificate, from the Secret that the extender made. */
static void take_certificate(struct siege *s)
{
    json_t *secret = NULL;
    for (int i = 0; i < 600 && !secret; i++) {
        ask("GET", s->testbed.sim.port,
            "/api/v1/namespaces/kube-system/secrets/gpushare-scheduler-tls", NULL,
            &secret);
        clock_sleep_ms(secret ? 0 : 100);
    }
    if (!secret) {
        bench_die("the extender makes no client certificate");
    }
    json_t *data = json_object_get(secret, "data");
    decode_to(s, data, "tls.crt", "client.crt");
    decode_to(s, data, "tls.key", "client.key");
    s->cert = testbed_path(&s->testbed, "client.crt");
    s->key = testbed_path(&s->testbed, "client.key");
    json_decref(secret);
}

/* Hostile clients are other machines: they take no processor from the extender. */
static void part_processors(cpu_set_t *hostile)
{
    cpu_set_t all, ours;
    CPU_ZERO(&ours);
    sched_getaffinity(0, sizeof all, &all);
    int left = CPU_COUNT(&all) - CPU_COUNT(&all) / 2;
    if (CPU_COUNT(&all) < 2)
        return;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, left-- > 0 ? &ours : hostile);
    sched_setaffinity(0, sizeof ours, &ours); /* also for the programs that it starts */
}

static void set_up(struct siege *s)
{
    cleanup_free char *what =
        xasprintf("nodes=%lld,cards=8,mib=16384", (long long)s->config->nodes);
    testbed_start(&s->testbed, s->config->build, what, true);
    testbed_extender(&s->testbed, (const char *const[]){
                                      "--log-level", "error",
                                      s->config->tls ? "--insecure=off" : NULL, NULL});
    s->observe_port = server_observe_port(&s->testbed.extender);
    if (s->config->tls)
        take_certificate(s);
    s->filter = bodies_filter((size_t)s->config->nodes);
    CURL *ready = client(s, s->testbed.extender.port, "/readyz");
    long status = 0;
    for (int i = 0; i < 600 && status != 200; i++) {
        curl_easy_perform(ready);
        curl_easy_getinfo(ready, CURLINFO_RESPONSE_CODE, &status);
        clock_sleep_ms(status == 200 ? 0 : 100);
    }
    curl_easy_cleanup(ready);
    if (status != 200) {
        bench_die("the extender does not become ready");
    }
}

/* -- the phases -- */

/* Waits until the descriptors of hostile connections are closed. */
static struct vitals settled(const struct siege *s)
{
    struct vitals v = vitals_now(&s->testbed.extender);
    for (int64_t end = clock_mono_ms() + SETTLE_MS;
         clock_mono_ms() < end && v.fds > s->start.fds;) {
        clock_sleep_ms(100);
        v = vitals_now(&s->testbed.extender);
    }
    return v;
}

static void run_phases(struct siege *s)
{
    pthread_t threads[3];
    struct hostile_config hostile = {.main_port = s->testbed.extender.port,
                                     .observe_port = s->observe_port,
                                     .tls = s->config->tls,
                                     .clients = (size_t)s->config->clients,
                                     .names = (size_t)s->config->nodes,
                                     .pause_ms = s->config->pause_ms,
                                     .only = s->config->only};
    s->start = vitals_now(&s->testbed.extender);
    pthread_create(&threads[0], NULL, call_filter, s);
    pthread_create(&threads[1], NULL, probe, s);
    pthread_create(&threads[2], NULL, watch_process, s);
    clock_sleep_ms(s->config->quiet_ms);
    s->start.fds = vitals_now(&s->testbed.extender).fds; /* with the honest connection */
    atomic_store(&s->phase, 1);
    if (!attackers_start(&s->attackers, &hostile)) {
        bench_die("--only: no such kind \"%s\"", s->config->only);
    }
    clock_sleep_ms(s->config->siege_ms);
    atomic_store(&s->phase, 2);
    attackers_stop(&s->attackers);
    s->after = settled(s);
    atomic_store(&s->end, true);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
}

static bool verdict(const char *what, bool ok)
{
    printf("  %-8s %s\n", ok ? "ok" : "MISSED", what);
    return ok;
}

static bool report(struct siege *s)
{
    bool ok = true;
    double p99[2], worst[2];
    static const char *const names[] = {"quiet", "siege"};
    printf("%-8s %8s %10s %10s %8s %10s %8s %8s %8s %10s\n", "phase", "filters", "p50 ms",
           "p99 ms", "failed", "probe max", "failed", "MiB", "fds", "lease gap");
    for (int i = 0; i < 2; i++) {
        p99[i] = series_quantile(&s->filters[i].ms, 0.99);
        worst[i] = series_quantile(&s->probes[i].ms, 1);
        printf("%-8s %8zu %10.2f %10.2f %8zu %10.1f %8zu %8.0f %8u %10lld\n", names[i],
               s->filters[i].ms.n, series_quantile(&s->filters[i].ms, 0.5), p99[i],
               s->filters[i].failed, worst[i], s->probes[i].failed, s->peak[i].mib,
               s->peak[i].fds, (long long)s->lease_gap_ms[i]);
    }
    printf("afterwards: %u descriptors (%u before), %.0f MiB\n", s->after.fds,
           s->start.fds, s->after.mib);
    ok &= verdict("every filter call of kube-scheduler succeeds",
                  s->filters[1].ms.n && !s->filters[0].failed && !s->filters[1].failed);
    ok &= verdict("p99 of filter within --slower times the quiet phase",
                  p99[1] <= p99[0] * (double)s->config->slower);
    ok &=
        verdict("every probe is answered within a second",
                s->probes[1].ms.n && !s->probes[1].failed && worst[1] <= PROBE_LIMIT_MS);
    ok &= verdict("the Lease is renewed in time", s->lease_gap_ms[1] < LEASE_LIMIT_MS);
    ok &=
        verdict("resident memory within --mib", s->peak[1].mib <= (double)s->config->mib);
    ok &= verdict("all descriptors are back", s->after.fds <= s->start.fds);
    return ok;
}

static int run(void *config)
{
    static struct siege s;
    cpu_set_t hostile;
    CPU_ZERO(&hostile);
    /* GnuTLS and libcurl write to connections that the server closed. */
    signal(SIGPIPE, SIG_IGN);
    s.config = config;
    if (s.config->apart)
        part_processors(&hostile);
    attackers_fork(&s.attackers, &hostile);
    set_up(&s);
    run_phases(&s);
    bool ok = report(&s);
    testbed_stop(&s.testbed);
    free(s.filter);
    free(s.cert);
    free(s.key);
    return ok ? 0 : 1;
}

static const struct opt options[] = {
    BENCH_OPT("quiet", "TIME", DURATION, "10s", 1000, 600 * 1000, quiet_ms,
              "Duration of the phase without hostile clients."),
    BENCH_OPT("time", "TIME", DURATION, "60s", 1000, 3600 * 1000, siege_ms,
              "Duration of the phase with hostile clients."),
    BENCH_OPT("nodes", "N", INT, "5000", 1, 20000, nodes,
              "Nodes of the cluster, with 8 cards each."),
    BENCH_OPT("clients", "N", INT, "1000", 1, 4000, clients,
              "Hostile clients, spread evenly over all kinds."),
    BENCH_OPT("pause", "TIME", DURATION, "100ms", 0, 60 * 1000, pause_ms,
              "Pause of a hostile client between two connections."),
    BENCH_OPT("only", "KIND", STRING, NULL, 0, 0, only,
              "Runs hostile clients of this kind only; default: all kinds."),
    BENCH_OPT("slower", "N", INT, "5", 1, 1000, slower,
              "Allowed ratio of the p99 of filter to that of the quiet phase."),
    BENCH_OPT("mib", "MIB", INT, "256", 1, 1 << 20, mib,
              "Allowed resident memory of the extender, in MiB."),
    BENCH_OPT(
        "tls", NULL, BOOL, "on", 0, 0, tls,
        "Serve HTTPS with client certificates; off: plain HTTP without credentials."),
    BENCH_OPT(
        "apart", NULL, BOOL, "on", 0, 0, apart,
        "Run the hostile clients on half of the processors, all else on the others; "
        "off: mixed."),
    BENCH_BUILD,
    {0},
};
const struct bench_command bench_hostile = {
    "hostile", "serve kube-scheduler while hostile clients do their worst", options,
    sizeof(struct config), run};
