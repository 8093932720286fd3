/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/bench.h"

/*
 * make soak: runs the extender under churn and faults with constant filter calls. Memory,
 * descriptors and threads must not grow: their values at the end are compared with the
 * maximum of the first half. Filter must stay about as fast as in the quiet phase at the
 * start, and at the end the ledger must match the objects.
 */

enum {
    NODES = 500,
    CARD_MIB = 81920,
    QUIET_MS = 10000,
    TROUBLE_MS = 4000,
    SAMPLE_MS = 5000,
    AGREE_MS = 60000,
    SAMPLES_MAX = 20000,
    FILTERS = 400, /* calls per round */
    SLOWER = 10,   /* allowed slowdown relative to the quiet phase */
};

struct config {
    int64_t ms;
    char *build;
};

/* -- the churn --
 *
 * Pods are created, bound and deleted; cards become unhealthy, shrink and recover; Nodes and
 * Scvs are deleted and created again; clients of the extender send partial or invalid
 * requests, or disconnect. In rotation: watches are cut, kube-sim is killed and restarted,
 * the history is compacted, the API server refuses all requests for seconds.
 */

struct churn_counts {
    size_t created, bound, refused;      /* pods; refused: not bound */
    size_t unhealthy, shrunk, recovered; /* number of changes of cards */
    size_t nodes_gone, scvs_gone, back;
    size_t cuts, outages, restarts;
};

enum {
    ALIVE = 300, /* maximum pods at a time */
    CLIENTS = 8, /* maximum connections of misbehaving clients */
    GONE = 20,   /* maximum missing Nodes and Scvs */
};

struct churn {
    struct testbed *testbed;
    struct rng rng;
    struct churn_counts counts;
    json_t *gone[GONE];
    int clients[CLIENTS];
    size_t troubles, deleted;
};

static int any(struct churn *c, int n)
{
    return (int)rng_below(&c->rng, (uint64_t)n);
}

static long to_sim(struct churn *c, const char *method, const char *path,
                   const char *body)
{
    return ask(method, c->testbed->sim.port, path, body, NULL);
}

/* -- pods -- */

static void pod_comes(struct churn *c)
{
    size_t i = c->counts.created++;
    cleanup_free char *pod = xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"Pod\","
                                       "\"metadata\":{\"name\":\"s%zu\",\"namespace\":"
                                       "\"default\",\"uid\":\"00000000-0000-4000-8000-%"
                                       "012zx\"},\"spec\":{\"containers\":[{"
                                       "\"name\":\"c\",\"image\":\"i\",\"resources\":{"
                                       "\"limits\":{\"aliyun.com/gpu-mem\":"
                                       "\"%d\"}}}]}}",
                                       i, i, any(c, 30) + 1);
    cleanup_free char *bind = xasprintf("{\"PodName\":\"s%zu\",\"PodNamespace\":"
                                        "\"default\",\"PodUID\":\"00000000-0000-4000-"
                                        "8000-%012zx\",\"Node\":\"node-%05d\"}",
                                        i, i, any(c, NODES));
    /* Uses /kube-sim/load, which keeps the UID. */
    to_sim(c, "POST", "/kube-sim/load", pod);
    json_t *answer;
    ask("POST", c->testbed->extender.port, "/bind", bind, &answer);
    const char *error = json_string_value(json_object_get(answer, "Error"));
    bool good = error && !*error;
    json_decref(answer);
    *(good ? &c->counts.bound : &c->counts.refused) += 1;
}

static void pods_go(struct churn *c)
{
    for (; c->counts.created - c->deleted > ALIVE; c->deleted++) {
        cleanup_free char *path =
            xasprintf("/api/v1/namespaces/default/pods/s%zu", c->deleted);
        to_sim(c, "DELETE", path, "{\"gracePeriodSeconds\":0}");
    }
}

/* -- cards -- */

static char *scv_path(int node)
{
    return xasprintf("/apis/core.run-linux.com/v1/scvs/node-%05d", node);
}

static void card_is(json_t *card, const char *health, int mib)
{
    json_object_set_new(card, "health", json_string(health));
    json_object_set_new(card, "totalMemory", json_integer(mib));
    json_object_set_new(card, "freeMemory", json_integer(mib));
}

static void any_card_changes(struct churn *c, json_t *cards)
{
    json_t *card = json_array_get(cards, (size_t)any(c, (int)json_array_size(cards)));
    switch (any(c, 4)) {
    case 0:
        c->counts.unhealthy++;
        card_is(card, "Unhealthy", CARD_MIB);
        break;
    case 1:
        c->counts.shrunk++;
        card_is(card, "Healthy", CARD_MIB / 4);
        break;
    default:
        c->counts.recovered++;
        card_is(card, "Healthy", CARD_MIB);
    }
}

static void all_cards_are_well(struct churn *c, json_t *cards)
{
    size_t i;
    json_t *card;
    (void)c;
    json_array_foreach(cards, i, card) card_is(card, "Healthy", CARD_MIB);
}

/* Updates an Scv like an agent. */
static void cards_change(struct churn *c, int node,
                         void change(struct churn *c, json_t *cards))
{
    cleanup_free char *path = scv_path(node);
    json_t *scv;
    ask("GET", c->testbed->sim.port, path, NULL, &scv);
    json_t *cards = json_object_get(json_object_get(scv, "status"), "cardList");
    if (cards) {
        change(c, cards);
        ask_send("PATCH", c->testbed->sim.port, path,
                 json_pack("{s:{s:O}}", "status", "cardList", cards));
    }
    json_decref(scv); /* NULL: the Scv is missing now */
}

/* -- Nodes and Scvs -- */

static void goes(struct churn *c, json_t **place)
{
    int node = any(c, NODES);
    bool scv = any(c, 2);
    cleanup_free char *path =
        scv ? scv_path(node) : xasprintf("/api/v1/nodes/node-%05d", node);
    if (ask("GET", c->testbed->sim.port, path, NULL, place) != 200)
        return;
    if (to_sim(c, "DELETE", path, "{}") / 100 != 2) {
        json_decref(steal(place));
        return;
    }
    *(scv ? &c->counts.scvs_gone : &c->counts.nodes_gone) += 1;
}

static void comes_back(struct churn *c, json_t **place)
{
    json_t *object = steal(place), *meta = json_object_get(object, "metadata");
    json_object_del(meta, "uid"); /* a new object of that name */
    json_object_del(meta, "creationTimestamp");
    json_object_del(meta, "resourceVersion");
    c->counts.back +=
        ask_send("POST", c->testbed->sim.port, "/kube-sim/load", object) / 100 == 2;
}

static void goes_or_comes(struct churn *c)
{
    json_t **place = &c->gone[any(c, GONE)];
    if (*place)
        comes_back(c, place);
    else
        goes(c, place);
}

/* -- misbehaving clients -- */

/* Replaces one misbehaving client. */
static void misbehave(struct churn *c)
{
    static const char *const words[] = {
        "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: "
        "application/json\r\nContent-Length: 100000\r\n\r\n{\"Pod\":",
        "GET /inspect HTTP/1.1\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: "
        "application/json\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n",
        "",
    };
    int *fd = &c->clients[any(c, CLIENTS)];
    if (*fd > 0)
        close(*fd);
    *fd = load_connect(c->testbed->extender.port);
    const char *word = words[any(c, ARRAY_LEN(words))];
    if (send(*fd, word, strlen(word), MSG_NOSIGNAL) < 0)
        return; /* the extender has refused it */
}

/* -- churn -- */

static void churn_step(struct churn *c)
{
    pod_comes(c);
    pods_go(c);
    if (any(c, 4) == 0)
        cards_change(c, any(c, NODES), any_card_changes);
    if (any(c, 20) == 0)
        goes_or_comes(c);
    if (any(c, 4) == 0)
        misbehave(c);
}

static void watches_are_cut(struct churn *c, bool forget)
{
    c->counts.cuts++;
    if (forget) /* the extender must list the kinds again */
        to_sim(c, "POST", "/kube-sim/compact", "{}");
    to_sim(c, "POST", "/kube-sim/watches", "{\"action\":\"cut\"}");
}

/* Filter calls continue meanwhile. */
static void outage(struct churn *c)
{
    int64_t end = clock_mono_ms() + 1000 + any(c, 2000);
    c->counts.outages++;
    to_sim(c, "POST", "/kube-sim/faults", "{\"action\":\"answer\",\"status\":503}");
    to_sim(c, "POST", "/kube-sim/watches", "{\"action\":\"cut\"}");
    while (clock_mono_ms() < end) {
        pod_comes(c);
        clock_sleep_ms(20);
    }
    to_sim(c, "DELETE", "/kube-sim/faults", NULL);
}

static void churn_trouble(struct churn *c)
{
    switch (c->troubles++ % 4) {
    case 0:
        watches_are_cut(c, false);
        break;
    case 1:
        c->counts.restarts++;
        testbed_restart_sim(c->testbed);
        break;
    case 2:
        watches_are_cut(c, true);
        break;
    case 3:
        outage(c);
        break;
    }
}

static void churn_settle(struct churn *c)
{
    for (int i = 0; i < GONE; i++)
        if (c->gone[i])
            comes_back(c, &c->gone[i]);
    for (int node = 0; node < NODES; node++)
        cards_change(c, node, all_cards_are_well);
    for (int i = 0; i < CLIENTS; i++)
        if (c->clients[i] > 0)
            close(c->clients[i]);
}

/* -- the run -- */

struct soak {
    const struct config *config;
    struct testbed testbed;
    struct churn churn;
    atomic_bool quiet, end;
    struct vitals samples[SAMPLES_MAX];
    size_t n_samples;
    /* Used by the filter thread until it has ended. */
    struct series p99[2]; /* of rounds of filter calls, ms; [1]: in the quiet phase */
    size_t filters, filters_failed;
};

/* -- filter calls -- */

static void *ask_filter(void *arg)
{
    struct soak *s = arg;
    cleanup_free char *body = bodies_filter(NODES);
    struct span request = load_request("POST", "/filter", span_of(body));
    struct load load = {.port = s->testbed.extender.port,
                        .connections = 4,
                        .requests = &request,
                        .n_requests = 1,
                        .calls = FILTERS};
    while (!atomic_load(&s->end)) {
        struct load_result r;
        bool quiet = atomic_load(&s->quiet);
        load_run(&load, &r);
        series_note(&s->p99[quiet], series_quantile(&r.ms, 0.99));
        s->filters += FILTERS;
        s->filters_failed += r.failed;
        series_fini(&r.ms);
        clock_sleep_ms(50);
    }
    free((char *)request.p);
    return NULL;
}

/* -- the churn -- */

static void churn_all(struct soak *s)
{
    int64_t start = clock_mono_ms(), sampled = start, troubled = start;
    while (clock_mono_ms() - start < s->config->ms) {
        churn_step(&s->churn);
        if (clock_mono_ms() - troubled > TROUBLE_MS) {
            churn_trouble(&s->churn);
            troubled = clock_mono_ms();
        }
        if (clock_mono_ms() - sampled > SAMPLE_MS && s->n_samples < SAMPLES_MAX) {
            sampled = clock_mono_ms();
            s->samples[s->n_samples++] = vitals_now(&s->testbed.extender);
        }
    }
}

static void run_phases(struct soak *s)
{
    pthread_t asker;
    atomic_store(&s->quiet, true);
    if (pthread_create(&asker, NULL, ask_filter, s))
        abort();
    clock_sleep_ms(QUIET_MS);
    atomic_store(&s->quiet, false);
    churn_all(s);
    atomic_store(&s->end, true);
    pthread_join(asker, NULL);
    churn_settle(&s->churn);
}

/* -- the end -- */

static void show_counts(const struct soak *s)
{
    const struct churn_counts *n = &s->churn.counts;
    printf("pods %zu, bound %zu, not bound %zu; cards unhealthy %zu, shrunk %zu, "
           "recovered %zu; Nodes "
           "gone %zu, Scvs gone %zu, back %zu\nwatches cut %zu, kube-sim killed %zu, "
           "outages %zu; filter calls %zu, %zu of them refused\n",
           n->created, n->bound, n->refused, n->unhealthy, n->shrunk, n->recovered,
           n->nodes_gone, n->scvs_gone, n->back, n->cuts, n->restarts, n->outages,
           s->filters, s->filters_failed);
}

static bool all_came(const struct churn_counts *n)
{
    return n->unhealthy && n->shrunk && n->recovered && n->nodes_gone && n->scvs_gone &&
           n->back == n->nodes_gone + n->scvs_gone && n->cuts && n->restarts &&
           n->outages;
}

static int judge(struct soak *s)
{
    const struct churn_counts *n = &s->churn.counts;
    size_t half = s->n_samples / 2;
    struct vitals a = vitals_peak(s->samples, half);
    struct vitals b = vitals_peak(s->samples + half, s->n_samples - half);
    double quiet = series_quantile(&s->p99[1], 0.5),
           quiet_high = series_quantile(&s->p99[1], 0.99);
    double busy = series_quantile(&s->p99[0], 0.5),
           busy_high = series_quantile(&s->p99[0], 0.99);
    show_counts(s);
    printf("                 first half  second half\n"
           "  resident MiB   %10.1f  %11.1f\n  descriptors    %10u  %11u\n"
           "  threads        %10u  %11u\n",
           a.mib, b.mib, a.fds, b.fds, a.threads, b.threads);
    printf("  filter of %d names, p99 of %d calls: quiet %.2f ms (1 in 100 above %.2f), "
           "then %.2f ms (1 in 100 above %.2f)\n",
           NODES, FILTERS, quiet, quiet_high, busy, busy_high);
    struct {
        const char *what;
        bool ok;
    } checks[] = {
        {"memory is flat", b.mib <= a.mib * 1.05 + 2},
        {"descriptors are flat", b.fds <= a.fds + 4},
        {"threads are flat", b.threads <= a.threads + 4},
        {"all that can happen did", all_came(n)},
        {"pods were bound", n->bound > n->refused},
        {"filter was answered", s->filters > s->filters_failed * 10},
        {"filter is as fast as in the quiet", busy <= SLOWER * quiet + 1},
        {"one round in a hundred, too", busy_high <= SLOWER * (quiet_high + 10)},
        {"ledger and objects agree", testbed_agrees(&s->testbed, AGREE_MS)},
    };
    int failed = 0;
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        printf("  %-4s %s\n", checks[i].ok ? "ok" : "FAIL", checks[i].what);
        failed += !checks[i].ok;
    }
    printf("%d passed, %d failed\n", (int)ARRAY_LEN(checks) - failed, failed);
    return failed;
}

static int run(void *config)
{
    static struct soak s;
    cleanup_free char *what =
        xasprintf("nodes=%d,cards=8,pods=4,full=10,uuid=1,mib=%d", NODES, CARD_MIB);
    s.config = config;
    testbed_start(&s.testbed, s.config->build, what, true);
    testbed_extender(&s.testbed, (const char *const[]){"--log-level", "error", NULL});
    server_wait(&s.testbed.extender, "/readyz");
    s.churn.testbed = &s.testbed;
    rng_init(&s.churn.rng, 1);
    run_phases(&s);
    int failed = judge(&s);
    testbed_stop(&s.testbed);
    series_fini(&s.p99[0]);
    series_fini(&s.p99[1]);
    return failed != 0;
}

static const struct opt options[] = {
    /* at least long enough for each fault */
    BENCH_OPT("time", "TIME", DURATION, "10m", 40000, 24 * 3600 * 1000, ms,
              "Duration of the run."),
    BENCH_BUILD,
    {0},
};
const struct bench_command bench_soak = {"soak",
                                         "run the extender under churn and faults",
                                         options, sizeof(struct config), run};
