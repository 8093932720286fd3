/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/rng.h"
#include "lib/raw.h"

/*
 * make soak: runs the extender under churn and faults with constant filter calls. Memory,
 * descriptors and threads must not grow: their values at the end are compared with the
 * maximum of the first half. Filter must stay about as fast as in the quiet phase at the
 * start, and at the end the ledger must match the objects.
 *
 * The churn: pods are created, bound and deleted; cards become unhealthy, shrink and recover;
 * Nodes and Scvs are deleted and created again; clients of the extender send partial or
 * invalid requests, or disconnect. In rotation: watches are cut, kube-sim is killed and
 * restarted, the history is compacted, the API server refuses all requests for seconds.
 */

enum {
    NODES = 500,
    CARD_MIB = 81920,
    QUIET_MS = 10000,
    TROUBLE_MS = 4000,
    SAMPLE_MS = 5000,
    FILTERS = 400, /* calls per round */
    SLOWER = 10,   /* allowed slowdown relative to the quiet phase */
    ALIVE = 300,   /* maximum pods at a time */
    CLIENTS = 8,   /* maximum connections of misbehaving clients */
    GONE = 20,     /* maximum missing Nodes and Scvs */
};
#define PODS "/api/v1/namespaces/default/pods/"

struct config {
    int64_t ms;
};

/* What happened; each must. */
enum {
    BOUND,
    NOT_BOUND,
    UNHEALTHY,
    SHRUNK,
    RECOVERED,
    NODES_GONE,
    SCVS_GONE,
    BACK,
    CUTS,
    RESTARTS,
    OUTAGES,
    COUNTS
};
static const char *const count_names[COUNTS] = {
    "pods bound",  "not bound",       "cards unhealthy", "shrunk",
    "recovered",   "Nodes gone",      "Scvs gone",       "back",
    "watches cut", "kube-sim killed", "outages"};

static struct soak {
    struct sim sim;
    struct extender extender;
    char *generate;
    struct rng rng;
    size_t counts[COUNTS];
    size_t created, deleted, troubles;
    json_t *gone[GONE];
    struct raw clients[CLIENTS];
    atomic_bool quiet, end;
    struct vitals peak[2]; /* of the halves */
    /* Used by the filter thread until it has ended. */
    struct load load;
    struct series p99[2]; /* of rounds of filter calls, ms; [1]: in the quiet phase */
} s;

static int any(int n)
{
    return (int)rng_below(&s.rng, (uint64_t)n);
}

static unsigned to_sim(const char *method, const char *path, const char *body)
{
    cleanup_buf struct buf reply = {0};
    return peer_call(&s.sim.api, method, path, body, &reply);
}

/* -- pods -- */

static void pod_comes(void)
{
    cleanup_free char *name = xasprintf("s%zu", s.created++);
    cleanup_free char *node = xasprintf("node-%05d", any(NODES));
    sim_add_pod(&s.sim, name, any(30) + 1);
    s.counts[extender_bind(&s.extender, name, node, NULL) ? BOUND : NOT_BOUND]++;
}

static void pods_go(void)
{
    for (; s.created - s.deleted > ALIVE; s.deleted++) {
        cleanup_free char *path = xasprintf(PODS "s%zu", s.deleted);
        to_sim("DELETE", path, "{\"gracePeriodSeconds\":0}");
    }
}

/* -- cards -- */

static char *scv_path(int node)
{
    return xasprintf("/apis/core.run-linux.com/v1/scvs/node-%05d", node);
}

/* Updates an Scv like an agent: all cards are well, or one changes. */
static void cards_change(int node, bool one)
{
    static const struct {
        const char *health;
        int mib;
    } states[] = {
        {"Unhealthy", CARD_MIB}, {"Healthy", CARD_MIB / 4}, {"Healthy", CARD_MIB}};
    cleanup_free char *path = scv_path(node);
    cleanup_buf struct buf reply = {0};
    peer_call(&s.sim.api, "GET", path, NULL, &reply);
    cleanup_json json_t *scv = json_loads(reply.p, 0, NULL);
    json_t *cards = lib_at(scv, "status.cardList"), *card;
    size_t i, state = one ? (size_t)any(3) : 2;
    size_t which = one ? (size_t)any((int)json_array_size(cards) + 1) : 0;
    if (!cards)
        return; /* the Scv is missing now */
    json_array_foreach(cards, i, card) if (!one || i == which) json_object_update_new(
        card, json_pack("{s:s,s:i,s:i}", "health", states[state].health, "totalMemory",
                        states[state].mib, "freeMemory", states[state].mib));
    cleanup_json json_t *patch = json_pack("{s:{s:O}}", "status", "cardList", cards);
    cleanup_free char *text = json_dumps(patch, JSON_COMPACT);
    to_sim("PATCH", path, text);
    s.counts[UNHEALTHY + state] += one;
}

/* -- Nodes and Scvs -- */

static void goes_or_comes(json_t **place)
{
    int node = any(NODES);
    bool scv = any(2);
    cleanup_buf struct buf reply = {0};
    cleanup_free char *path =
        scv ? scv_path(node) : xasprintf("/api/v1/nodes/node-%05d", node);
    if (*place) {
        cleanup_json json_t *object = steal(place);
        json_t *meta = lib_at(object, "metadata");
        json_object_del(meta, "uid"); /* a new object of that name */
        json_object_del(meta, "creationTimestamp");
        json_object_del(meta, "resourceVersion");
        cleanup_free char *text = json_dumps(object, JSON_COMPACT);
        sim_load(&s.sim, "%s", text);
        s.counts[BACK]++;
    } else if (peer_call(&s.sim.api, "GET", path, NULL, &reply) == 200 &&
               to_sim("DELETE", path, "{}") == 200) {
        *place = json_loads(reply.p, 0, NULL);
        s.counts[scv ? SCVS_GONE : NODES_GONE]++;
    }
}

/* -- misbehaving clients -- */

/* Replaces one misbehaving client. */
static void misbehave(void)
{
    static const char *const words[] = {
        "POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: 100000\r\n\r\n{\"Pod\":",
        "GET /inspect HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\x01\x01\x01\x01\xfc\x03\x03",
        "POST /bind HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n",
        "",
    };
    struct raw *client = &s.clients[any(CLIENTS)];
    raw_close(client);
    raw_open(client, s.extender.verbs.port);
    raw_sendf(client, "%s", words[any(ARRAY_LEN(words))]); /* it may refuse them */
}

/* -- troubles -- */

static void start_sim(unsigned port, const char *version)
{
    cleanup_free char *number = xasprintf("%u", port);
    sim_start(&s.sim, ARGV("--port", number, "--resource-version", version, "--generate",
                           s.generate, "--history", "20000", "--run-pods"));
}

/* Filter calls continue meanwhile. */
static void trouble(void)
{
    switch (s.troubles++ % 4) {
    case 0: {
        cleanup_json json_t *state =
            peer_json(&s.sim.api, "GET", "/kube-sim/state", NULL);
        unsigned port = s.sim.api.port;
        peer_fini(&s.sim.api);
        program_kill(&s.sim.program);
        start_sim(port, lib_str(state, "resourceVersion"));
        s.counts[RESTARTS]++;
        break;
    }
    case 1: { /* the extender must list the kinds again */
        to_sim("POST", "/kube-sim/compact", "{}");
        sim_watches(&s.sim, "cut", NULL);
        s.counts[CUTS]++;
        break;
    }
    case 2: {
        int64_t end = lib_now_ms() + 1000 + any(2000);
        sim_fault(&s.sim, "{\"action\":\"answer\",\"status\":503}");
        sim_watches(&s.sim, "cut", NULL);
        while (lib_now_ms() < end) {
            pod_comes();
            clock_sleep_ms(20);
        }
        sim_no_faults(&s.sim);
        s.counts[OUTAGES]++;
        break;
    }
    default:
        sim_watches(&s.sim, "cut", NULL);
        s.counts[CUTS]++;
    }
}

/* -- the run -- */

static void *ask_filter(void *arg)
{
    (void)arg;
    while (!atomic_load(&s.end)) {
        bool quiet = atomic_load(&s.quiet);
        load_run(&s.load, 4, FILTERS);
        series_note(&s.p99[quiet], series_quantile(&s.load.ms, 0.99));
        clock_sleep_ms(50);
    }
    return NULL;
}

static void churn_all(int64_t ms)
{
    int64_t start = lib_now_ms(), now, sampled = start, troubled = start;
    while ((now = lib_now_ms()) - start < ms) {
        pod_comes();
        pods_go();
        if (any(4) == 0)
            cards_change(any(NODES), true);
        if (any(20) == 0)
            goes_or_comes(&s.gone[any(GONE)]);
        if (any(4) == 0)
            misbehave();
        if (now - troubled > TROUBLE_MS) {
            trouble();
            troubled = lib_now_ms();
        }
        if (now - sampled > SAMPLE_MS) {
            struct vitals *peak = &s.peak[now - start > ms / 2];
            *peak = vitals_peak(*peak, vitals_now(&s.extender.program));
            sampled = now;
        }
    }
    for (int i = 0; i < GONE; i++)
        if (s.gone[i])
            goes_or_comes(&s.gone[i]);
    for (int node = 0; node < NODES; node++)
        cards_change(node, false);
    for (int i = 0; i < CLIENTS; i++)
        raw_close(&s.clients[i]);
}

static void judge(void)
{
    struct vitals a = s.peak[0], b = s.peak[1];
    double quiet = series_quantile(&s.p99[1], 0.5),
           quiet_high = series_quantile(&s.p99[1], 0.99);
    double busy = series_quantile(&s.p99[0], 0.5),
           busy_high = series_quantile(&s.p99[0], 0.99);
    bool all = s.counts[BACK] == s.counts[NODES_GONE] + s.counts[SCVS_GONE];
    for (int i = 0; i < COUNTS; i++) {
        printf("%s %zu, ", count_names[i], s.counts[i]);
        all = all && s.counts[i];
    }
    printf("filter calls %zu, %zu of them refused\n", s.load.next, s.load.failed);
    printf("                 first half  second half\n"
           "  resident MiB   %10.1f  %11.1f\n  descriptors    %10u  %11u\n"
           "  threads        %10u  %11u\n",
           a.mib, b.mib, a.fds, b.fds, a.threads, b.threads);
    printf("  filter of %d names, p99 of %d calls: quiet %.2f ms (1 in 100 above %.2f), "
           "then %.2f ms (1 in 100 above %.2f)\n",
           NODES, FILTERS, quiet, quiet_high, busy, busy_high);
    bench_aim("memory is flat", b.mib <= a.mib * 1.05 + 2);
    bench_aim("descriptors are flat", b.fds <= a.fds + 4);
    bench_aim("threads are flat", b.threads <= a.threads + 4);
    bench_aim("all that can happen did", all);
    bench_aim("pods were bound", s.counts[BOUND] > s.counts[NOT_BOUND]);
    bench_aim("filter was answered", s.load.next > s.load.failed * 10);
    bench_aim("filter is as fast as in the quiet", busy <= SLOWER * quiet + 1);
    bench_aim("one round in a hundred, too", busy_high <= SLOWER * (quiet_high + 10));
}

/* Ledger, annotations, Scvs and the extender's view agree. */
static void check_ledger(const char *kubeconfig)
{
    cleanup_free char *inspect = program_path("kubectl-inspect-gpushare");
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u", s.extender.verbs.port);
    oracle_agrees(&s.sim.api, &s.extender);
    free(lib_output(
        0, ARGV(inspect, "--check", "--kubeconfig", kubeconfig, "--extender", url)));
}

static void run(void *config)
{
    cleanup_arena struct arena arena = {0};
    cleanup_buf struct buf filter = {0};
    pthread_t asker;
    s.generate =
        xasprintf("nodes=%d,cards=8,pods=4,full=10,uuid=1,mib=%d", NODES, CARD_MIB);
    rng_init(&s.rng, 1);
    for (int i = 0; i < CLIENTS; i++)
        s.clients[i].fd = -1;
    start_sim(0, "0");
    cleanup_free char *to = lib_kubeconfig("config", "http", s.sim.api.port, "", "");
    extender_start_at(&s.extender, to, ARGV("--log-level", "error"));
    extender_wait_ready(&s.extender);
    bodies_filter(&filter, "{}", NODES, 0);
    struct span request = load_request(&arena, "POST", "/filter", buf_span(&filter));
    s.load = (struct load){
        .port = s.extender.verbs.port, .requests = &request, .n_requests = 1};
    atomic_store(&s.quiet, true);
    ck_assert_int_eq(pthread_create(&asker, NULL, ask_filter, NULL), 0);
    clock_sleep_ms(QUIET_MS);
    atomic_store(&s.quiet, false);
    churn_all(((const struct config *)config)->ms);
    atomic_store(&s.end, true);
    pthread_join(asker, NULL);
    judge();
    check_ledger(to);
    extender_stop(&s.extender);
    sim_stop(&s.sim);
}

static const struct opt options[] = {
    /* at least long enough for each fault */
    BENCH_OPT("time", "TIME", DURATION, "10m", 40000, 24 * 3600 * 1000, ms,
              "Duration of the run."),
    {0},
};
const struct bench_command bench_soak = {"soak",
                                         "run the extender under churn and faults",
                                         false,
                                         options,
                                         sizeof(struct config),
                                         run};
