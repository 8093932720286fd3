/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/churn.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"

enum {
    ALIVE = 300, /* maximum pods at a time */
    CLIENTS = 8, /* maximum connections of misbehaving clients */
    GONE = 20,   /* maximum missing Nodes and Scvs */
};

struct churn {
    struct testbed *testbed;
    struct ask *ask;
    struct rng rng;
    struct churn_counts counts;
    int nodes, mib;
    json_t *gone[GONE];
    int clients[CLIENTS];
    size_t troubles, deleted;
};

struct churn *churn_new(struct testbed *w, int nodes, int mib)
{
    struct churn *c = xcalloc(1, sizeof *c);
    c->testbed = w;
    c->ask = ask_new();
    c->nodes = nodes;
    c->mib = mib;
    rng_init(&c->rng, 1);
    return c;
}

void churn_free(struct churn *c)
{
    ask_free(c->ask);
    free(c);
}

const struct churn_counts *churn_counts(const struct churn *c)
{
    return &c->counts;
}

static int any(struct churn *c, int n)
{
    return (int)rng_below(&c->rng, (uint64_t)n);
}

static long to_sim(struct churn *c, const char *method, const char *path,
                   const char *body)
{
    return ask_call(c->ask, method, c->testbed->sim.port, path, body, NULL);
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
                                        i, i, any(c, c->nodes));
    /* Uses /kube-sim/load, which keeps the UID. */
    to_sim(c, "POST", "/kube-sim/load", pod);
    json_t *answer;
    ask_call(c->ask, "POST", c->testbed->extender.port, "/bind", bind, &answer);
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
        card_is(card, "Unhealthy", c->mib);
        break;
    case 1:
        c->counts.shrunk++;
        card_is(card, "Healthy", c->mib / 4);
        break;
    default:
        c->counts.recovered++;
        card_is(card, "Healthy", c->mib);
    }
}

static void all_cards_are_well(struct churn *c, json_t *cards)
{
    size_t i;
    json_t *card;
    json_array_foreach(cards, i, card) card_is(card, "Healthy", c->mib);
}

/* Updates an Scv like an agent. */
static void cards_change(struct churn *c, int node,
                         void change(struct churn *c, json_t *cards))
{
    cleanup_free char *path = scv_path(node);
    json_t *scv;
    ask_call(c->ask, "GET", c->testbed->sim.port, path, NULL, &scv);
    json_t *cards = json_object_get(json_object_get(scv, "status"), "cardList");
    if (cards) {
        change(c, cards);
        ask_send(c->ask, "PATCH", c->testbed->sim.port, path,
                 json_pack("{s:{s:O}}", "status", "cardList", cards));
    }
    json_decref(scv); /* NULL: the Scv is missing now */
}

/* -- Nodes and Scvs -- */

static void goes(struct churn *c, json_t **place)
{
    int node = any(c, c->nodes);
    bool scv = any(c, 2);
    cleanup_free char *path =
        scv ? scv_path(node) : xasprintf("/api/v1/nodes/node-%05d", node);
    if (ask_call(c->ask, "GET", c->testbed->sim.port, path, NULL, place) != 200)
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
        ask_send(c->ask, "POST", c->testbed->sim.port, "/kube-sim/load", object) / 100 ==
        2;
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
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)c->testbed->extender.port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (*fd > 0)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *word = words[any(c, ARRAY_LEN(words))];
    if (connect(*fd, (struct sockaddr *)&to, sizeof to) == 0 &&
        send(*fd, word, strlen(word), MSG_NOSIGNAL) < 0)
        return; /* the extender has refused it */
}

/* -- churn -- */

void churn_step(struct churn *c)
{
    pod_comes(c);
    pods_go(c);
    if (any(c, 4) == 0)
        cards_change(c, any(c, c->nodes), any_card_changes);
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

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Filter calls continue meanwhile. */
static void outage(struct churn *c)
{
    int64_t end = now_ms() + 1000 + any(c, 2000);
    c->counts.outages++;
    to_sim(c, "POST", "/kube-sim/faults", "{\"action\":\"answer\",\"status\":503}");
    to_sim(c, "POST", "/kube-sim/watches", "{\"action\":\"cut\"}");
    while (now_ms() < end) {
        pod_comes(c);
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000000}, NULL);
    }
    to_sim(c, "DELETE", "/kube-sim/faults", NULL);
}

void churn_trouble(struct churn *c)
{
    switch (c->troubles++ % 4) {
    case 0:
        watches_are_cut(c, false);
        break;
    case 1:
        c->counts.restarts++;
        testbed_restart_sim(c->testbed, c->ask);
        break;
    case 2:
        watches_are_cut(c, true);
        break;
    case 3:
        outage(c);
        break;
    }
}

void churn_settle(struct churn *c)
{
    for (int i = 0; i < GONE; i++)
        if (c->gone[i])
            comes_back(c, &c->gone[i]);
    for (int node = 0; node < c->nodes; node++)
        cards_change(c, node, all_cards_are_well);
    for (int i = 0; i < CLIENTS; i++)
        if (c->clients[i] > 0)
            close(c->clients[i]);
}
