/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Yards: small worlds of equal nodes and of gangs whose members have required terms, under
 * kube-scheduler's queue (queue.c). Each of the first seeds is a directed scenario; the others
 * are random, first with failures, then a time without any.
 *
 * Kubelets run bound pods. When so many members of a gang are bound as must start, it runs for a
 * while, ends and makes room. So every gang that can start must have started in the end, in
 * turn, beside gangs that never can.
 */

enum {
    BOOT_MS = 8000,
    KUBELET_MS = 200,
    PART_MS = 12000, /* Bindings of one step arrive within that time, or are refused */
    MEMBER_GIB = 10, /* one member per card */
};

#define PODS "/api/v1/namespaces/default/pods"

struct yard_gang *yard_gang(const struct world *w, const char *name)
{
    long n = w->yard && *name == 'g' ? strtol(name + 1, NULL, 10) : 0;
    return n > 0 && n <= YARD_GANGS && w->yard->gangs[n].size ? &w->yard->gangs[n] : NULL;
}

/* -- nodes -- */

static void put_node(struct world *w, int node)
{
    const struct yard_node *n = &w->yard->nodes[node];
    cleanup_free char *body = xasprintf(
        "{\"metadata\":{\"name\":\"n%d\",\"labels\":{\"gpushare\":\"true\",\"pool\":"
        "\"%c\"}}}",
        node, 'a' + n->pool);
    cleanup_free char *status =
        xasprintf("{\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"%d\","
                  "\"aliyun.com/gpu-count\":\"%d\",\"rdma/hca\":\"1\"},"
                  "\"allocatable\":{\"aliyun.com/gpu-mem\":\"%d\","
                  "\"aliyun.com/gpu-count\":\"%d\",\"rdma/hca\":\"1\"}}}",
                  15 * n->cards, n->cards, 15 * n->cards, n->cards);
    if (api_call(w, "POST", body, "/api/v1/nodes") != 201 ||
        api_call(w, "PATCH", status, "/api/v1/nodes/n%d/status", node) != 200)
        violated(w, "cannot create node n%d", node);
    w->yard->nodes[node].gone = false;
    queue_freed(w);
}

static void add_nodes(struct world *w, int n, int cards)
{
    w->first_node = NODES;
    w->end_node = NODES + n;
    EACH_NODE(w, node)
    {
        w->yard->nodes[node].cards = cards;
        for (int card = 0; card < CARDS; card++)
            w->unhealthy[node][card] = card >= cards;
        put_scv(w, node, true);
        put_node(w, node);
    }
}

static void set_pool(struct world *w, int node, char pool)
{
    w->yard->nodes[node].pool = pool - 'a';
    cleanup_free char *body =
        xasprintf("{\"metadata\":{\"labels\":{\"pool\":\"%c\"}}}", pool);
    api_call(w, "PATCH", body, "/api/v1/nodes/n%d", node);
    queue_freed(w);
}

static void cordon(struct world *w, int node, bool on)
{
    w->yard->nodes[node].cordoned = on;
    cleanup_free char *body =
        xasprintf("{\"spec\":{\"unschedulable\":%s}}", on ? "true" : "null");
    api_call(w, "PATCH", body, "/api/v1/nodes/n%d", node);
    queue_freed(w);
}

/* -- pods -- */

struct terms {
    int once;
    char pool;             /* 0: any */
    const char *scheduler; /* NULL: the default */
    bool gated;
    int64_t priority;
};

static void add_pod(struct world *w, const char *name, struct terms t, int minimum)
{
    cleanup_buf struct buf body = {0};
    int n = (int)strcspn(name, ".");
    buf_printf(&body, "{\"metadata\":{\"name\":\"%s\",\"labels\":{\"a\":\"b\"", name);
    if (minimum)
        buf_printf(&body, ",\"scheduling.x-k8s.io/pod-group\":\"%.*s\"", n, name);
    buf_adds(&body, "},\"annotations\":{\"a\":\"b\"");
    if (minimum)
        buf_printf(&body, ",\"gpushare/gang-minimum\":\"%d\"", minimum);
    buf_printf(&body,
               "}},\"spec\":{\"priority\":%lld,\"containers\":[{\"name\":\"c\",\"image\":"
               "\"i\"",
               (long long)t.priority);
    if (t.once & (ONCE_PORT | ONCE_PORT_2))
        buf_printf(&body, ",\"ports\":[{\"containerPort\":22,\"hostPort\":%d}]",
                   t.once & ONCE_PORT ? 2222 : 3333);
    buf_printf(&body, ",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"%s}}}]",
               MEMBER_GIB, t.once & ONCE_HCA ? ",\"rdma/hca\":\"1\"" : "");
    if (t.once & ONCE_ANTI)
        buf_adds(&body, ",\"affinity\":{\"podAntiAffinity\":{"
                        "\"requiredDuringSchedulingIgnoredDuringExecution\":[{"
                        "\"topologyKey\":\"kubernetes.io/hostname\",\"labelSelector\":{"
                        "\"matchLabels\":{\"a\":\"b\"}}}]}}");
    if (t.pool)
        buf_printf(&body, ",\"nodeSelector\":{\"pool\":\"%c\"}", t.pool);
    if (t.scheduler)
        buf_printf(&body, ",\"schedulerName\":\"%s\"", t.scheduler);
    if (t.gated)
        buf_adds(&body, ",\"schedulingGates\":[{\"name\":\"example.com/data\"}]");
    buf_adds(&body, "}}");
    unsigned status = api_call(w, "POST", body.p, PODS);
    if (status != 201)
        violated(w, "cannot create pod %s: %u", name, status);
}

static void add_member(struct world *w, int gang, int member, struct terms t)
{
    char name[32];
    snprintf(name, sizeof name, "g%d.m%d", gang, member);
    add_pod(w, name, t, w->yard->gangs[gang].minimum);
}

/* A gang of `size` members without its pods. */
static struct yard_gang *add_gang(struct world *w, int gang, int size, int minimum)
{
    struct yard_gang *g = &w->yard->gangs[gang];
    *g = (struct yard_gang){.size = size, .minimum = minimum, .run_ms = 3000};
    w->stats.gangs++;
    return g;
}

static void ungate(struct world *w, const char *name)
{
    trace(w, "users: remove the gate of %s", name);
    if (api_call(w, "PATCH", "{\"spec\":{\"schedulingGates\":[]}}", POD_PATH "%s",
                 name) != 200)
        violated(w, "cannot remove the gate of %s", name);
}

static void remove_pod(struct world *w, const char *name, bool at_once)
{
    trace(w, "users: delete %s%s", name, at_once ? " at once" : "");
    api_call(w, "DELETE",
             at_once ? "{\"gracePeriodSeconds\":0}" : "{\"gracePeriodSeconds\":5}",
             POD_PATH "%s", name);
}

static struct oracle_pod *pod_named(const struct world *w, const char *name)
{
    EACH_POD(w, p)
    if (!strcmp(p->name, name))
        return p;
    return NULL;
}

static bool is_bound(const struct world *w, const char *name)
{
    const struct oracle_pod *p = pod_named(w, name);
    return p && p->node;
}

static int count_bound(const struct world *w, int gang)
{
    int n = 0;
    EACH_POD(w, p)
    n += yard_gang(w, p->name) == &w->yard->gangs[gang] && p->node;
    return n;
}

/* -- kubelets -- */

static void watch_gang(struct world *w, int gang)
{
    struct yard_gang *g = &w->yard->gangs[gang];
    int bound = count_bound(w, gang);
    if (bound >= g->minimum && !g->started_ms) {
        trace(w, "gang g%d runs: %d members are bound", gang, bound);
        g->started_ms = w->now_ms;
        w->stats.yards++;
        if (g->hopeless)
            violated(w, "gang g%d runs and cannot have places", gang);
    }
    if (g->started_ms || !bound)
        g->part_ms = 0;
    else if (!g->part_ms)
        g->part_ms = w->now_ms;
    else if (!g->excused && w->now_ms - g->part_ms >= PART_MS)
        violated(w, "gang g%d has started in part: %d of %d members are bound", gang,
                 bound, g->minimum);
}

/* So many members were bound when others had ended: their controller gives up. */
static bool is_rest(const struct world *w, const struct yard_gang *g)
{
    return g->excused && g->part_ms && w->now_ms - g->part_ms >= PART_MS;
}

static void run_pods(struct world *w, void *arg)
{
    (void)arg;
    for (int gang = 1; gang <= YARD_GANGS; gang++)
        if (w->yard->gangs[gang].size)
            watch_gang(w, gang);
    for (struct oracle_pod *p = w->pods, *next; p && !w->failed; p = next) {
        const struct yard_gang *g = yard_gang(w, p->name);
        next = p->next;
        if (p->node && !p->over && !p->deleting && !p->started && kubelet_starts(w, p))
            api_call(w, "PATCH", "{\"status\":{\"phase\":\"Running\"}}",
                     POD_PATH "%s/status", p->name);
        else if (g && ((g->started_ms && w->now_ms - g->started_ms >= g->run_ms) ||
                       (p->node && is_rest(w, g))))
            remove_pod(w, p->name, true); /* its Job has ended */
    }
    at(w, w->now_ms + KUBELET_MS, run_pods, NULL, NULL);
}

/* -- what a scenario expects -- */

static void run_for(struct world *w, int64_t ms)
{
    world_run(w, w->now_ms + ms);
}

/* The gangs start within that time, in any order. */
static void expect_started(struct world *w, int n, const int *gangs, int64_t within_ms)
{
    int64_t from_ms = w->now_ms;
    int i = 0;
    while (i < n && !w->failed && w->now_ms < from_ms + within_ms) {
        run_for(w, KUBELET_MS);
        while (i < n && w->yard->gangs[gangs[i]].started_ms)
            i++;
    }
    if (i < n)
        violated(w, "gang g%d has not started in %lld s", gangs[i],
                 (long long)within_ms / 1000);
    for (i = 0; i < n; i++)
        trace(w, "gang g%d started after %lld ms", gangs[i],
              (long long)(w->yard->gangs[gangs[i]].started_ms - from_ms));
}
#define EXPECT_STARTED(w, within_ms, ...)                                                \
    expect_started((w), (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)),               \
                   (const int[]){__VA_ARGS__}, (within_ms))

static void expect_none_bound(struct world *w, int gang, int64_t ms)
{
    run_for(w, ms);
    if (count_bound(w, gang))
        violated(w, "%d members of gang g%d are bound, which cannot start",
                 count_bound(w, gang), gang);
}

/* -- directed scenarios -- */

/* Members with gates do not count, and other pods get the cards; the gates go one after the
 * other. */
static void gates(struct world *w)
{
    add_nodes(w, 2, 2);
    add_gang(w, 1, 4, 4);
    for (int i = 0; i < 4; i++)
        add_member(w, 1, i, (struct terms){.gated = i > 1});
    expect_none_bound(w, 1, 30000);
    add_pod(w, "x.1", (struct terms){0}, 0);
    add_pod(w, "x.2", (struct terms){0}, 0);
    run_for(w, 20000);
    if (!is_bound(w, "x.1") || !is_bound(w, "x.2"))
        violated(w, "cards are kept for members with gates");
    ungate(w, "g1.m2");
    expect_none_bound(w, 1, 20000);
    ungate(w, "g1.m3");
    expect_none_bound(w, 1, 20000); /* two cards are left */
    remove_pod(w, "x.1", true);
    remove_pod(w, "x.2", true);
    EXPECT_STARTED(w, 60000, 1);
}

/* Two gangs of three on three nodes, one host port. */
static void two_gangs_one_port(struct world *w)
{
    add_nodes(w, 3, 8);
    add_gang(w, 1, 3, 3);
    add_gang(w, 2, 3, 3);
    for (int i = 0; i < 6; i++)
        add_member(w, 1 + i % 2, i / 2, (struct terms){.once = ONCE_PORT});
    EXPECT_STARTED(w, 120000, 1, 2);
}

/* Three members that exclude each other on two nodes; a third node comes. */
static void anti_affinity(struct world *w)
{
    add_nodes(w, 3, 8);
    cordon(w, NODES + 2, true);
    add_gang(w, 1, 3, 3);
    for (int i = 0; i < 3; i++)
        add_member(w, 1, i, (struct terms){.once = ONCE_ANTI});
    expect_none_bound(w, 1, 90000);
    add_gang(w, 2, 4, 4);
    for (int i = 0; i < 4; i++)
        add_member(w, 2, i, (struct terms){0});
    EXPECT_STARTED(w, 60000, 2);
    cordon(w, NODES + 2, false);
    EXPECT_STARTED(w, 120000, 1);
}

/* The node of one member is full. */
static void selector(struct world *w)
{
    add_nodes(w, 2, 2);
    set_pool(w, NODES + 1, 'b');
    add_pod(w, "x.1", (struct terms){.pool = 'b'}, 0);
    add_pod(w, "x.2", (struct terms){.pool = 'b'}, 0);
    run_for(w, 5000);
    add_gang(w, 1, 2, 2);
    add_member(w, 1, 0, (struct terms){.pool = 'a'});
    add_member(w, 1, 1, (struct terms){.pool = 'b'});
    expect_none_bound(w, 1, 60000);
    remove_pod(w, "x.1", true);
    EXPECT_STARTED(w, 90000, 1);
}

/* A gang over two pools, neither of which has room for all. */
static void two_pools(struct world *w)
{
    add_nodes(w, 3, 1);
    set_pool(w, NODES + 1, 'b');
    set_pool(w, NODES + 2, 'b');
    add_gang(w, 1, 3, 3);
    for (int i = 0; i < 3; i++)
        add_member(w, 1, i, (struct terms){.pool = i ? 'b' : 'a'});
    EXPECT_STARTED(w, 60000, 1);
}

/* Another resource, one per node: three members, two nodes. */
static void adapter(struct world *w)
{
    add_nodes(w, 2, 8);
    add_gang(w, 1, 3, 3);
    for (int i = 0; i < 3; i++)
        add_member(w, 1, i, (struct terms){.once = ONCE_HCA});
    expect_none_bound(w, 1, 90000);
    add_gang(w, 2, 2, 2);
    for (int i = 0; i < 2; i++)
        add_member(w, 2, i, (struct terms){.once = ONCE_HCA});
    EXPECT_STARTED(w, 60000, 2);
}

/* A member that nobody schedules, then one that a second kube-scheduler does. */
static void other_scheduler(struct world *w)
{
    add_nodes(w, 2, 4);
    add_gang(w, 1, 3, 3);
    for (int i = 0; i < 3; i++)
        add_member(w, 1, i,
                   (struct terms){.scheduler = i == 2 ? "second-scheduler" : NULL});
    expect_none_bound(w, 1, 60000);
    w->yard->second = true;
    EXPECT_STARTED(w, 120000, 1);
}

/* How the place of the second member goes. */
enum way {
    WAY_NODE,
    WAY_CORDON,
    WAY_HEALTH,
    WAY_LISTED,
    WAY_MODE,
    WAY_SCV,
    WAY_SIZE,
    WAY_USE
};

static void patch_scv(struct world *w, int node, int total, int used)
{
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"status\":{\"updateTime\":\"");
    clock_format_s(&body, wall_ms(w) / 1000);
    buf_printf(&body,
               "\",\"cardList\":[{\"id\":0,\"health\":\"Healthy\",\"model\":\"Tesla T4\","
               "\"clock\":5001,\"uuid\":\"GPU-%d-0\",\"totalMemory\":%d,"
               "\"freeMemory\":%d,\"usedMemory\":%d}],\"cardNumber\":1}}",
               node, total, total - used, used);
    api_call(w, "PATCH", body.p, "/apis/core.run-linux.com/v1/scvs/n%d", node);
}

static void lose_place(struct world *w, int node, enum way way)
{
    switch (way) {
    case WAY_NODE:
        api_call(w, "DELETE", "", "/api/v1/nodes/n%d", node);
        w->yard->nodes[node].gone = true;
        break;
    case WAY_CORDON:
        cordon(w, node, true);
        break;
    case WAY_HEALTH:
        w->unhealthy[node][0] = true;
        put_scv(w, node, false);
        break;
    case WAY_LISTED: {
        cleanup_free char *body = xasprintf(
            "{\"metadata\":{\"name\":\"unhealthy-gpu-n%d\"},\"data\":{\"gpus\":\"0\"}}",
            node);
        api_call(w, "POST", body, "/api/v1/namespaces/kube-system/configmaps");
        break;
    }
    case WAY_MODE:
        api_call(w, "PATCH", "{\"metadata\":{\"labels\":{\"gpushare/mode\":\"card\"}}}",
                 "/api/v1/nodes/n%d", node);
        break;
    case WAY_SCV:
        api_call(w, "DELETE", "", "/apis/core.run-linux.com/v1/scvs/n%d", node);
        api_call(w, "PATCH",
                 "{\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"0\"},"
                 "\"allocatable\":{\"aliyun.com/gpu-mem\":\"0\"}}}",
                 "/api/v1/nodes/n%d/status", node);
        break;
    case WAY_SIZE:
        patch_scv(w, node, 8192, 0);
        break;
    case WAY_USE:
        patch_scv(w, node, 16276, 14000);
    }
}

/* Filter of the pod on all nodes that pass kube-scheduler's own filters. */
static int ask_filter(struct world *w, const char *name)
{
    const struct oracle_pod *p = pod_named(w, name);
    cleanup_free char *uid = xstrdup(p->uid);
    cleanup_free char *path = xasprintf(POD_PATH "%s", name);
    struct api_request req = {
        .method = "GET", .path = path, .query = "", .body = {"", 0}};
    struct api_reply reply = {0};
    int nodes[ALL_NODES];
    size_t n = 0;
    EACH_NODE(w, node)
    if (!w->yard->nodes[node].gone && !w->yard->nodes[node].cordoned)
        nodes[n++] = node;
    api_handle(w->api, wall_ms(w), &req, &reply);
    int node = filter_call_on(w, w->replicas, uid, buf_span(&reply.body), true, nodes, n);
    api_reply_fini(&reply);
    trace(w, "filter of %s: %s", name, node < 0 ? w->refusal : node_names[node]);
    return node;
}

static void lost_place(struct world *w, enum way way)
{
    add_nodes(w, 2, 1);
    w->yard->stopped = true;
    add_gang(w, 1, 2, 2);
    add_member(w, 1, 0, (struct terms){0});
    add_member(w, 1, 1, (struct terms){0});
    run_for(w, 1000);
    int first = ask_filter(w, "g1.m0");
    if (first < 0)
        violated(w, "a gang of two finds no place on two nodes: %s", w->refusal);
    if (w->failed)
        return;
    int other = first == NODES ? NODES + 1 : NODES;
    lose_place(w, other, way);
    run_for(w, 1000);
    if (ask_filter(w, "g1.m0") >= 0)
        violated(w, "a member gets a node although the place of the other one is gone");
    w->yard->stopped = false;
    expect_none_bound(w, 1, 30000);
}

/* Six gangs of three, one host port, six nodes; their members come interleaved. */
static void six_gangs(struct world *w)
{
    add_nodes(w, 6, 8);
    for (int gang = 1; gang <= 6; gang++)
        add_gang(w, gang, 3, 3);
    for (int i = 0; i < 18; i++)
        add_member(w, 1 + i % 6, i / 6, (struct terms){.once = ONCE_PORT});
    EXPECT_STARTED(w, 240000, 1, 2, 3, 4, 5, 6);
}

/* Two gangs beside an older one that can never complete: its last member needs a pool without
 * nodes. */
static void beside_hopeless(struct world *w)
{
    add_nodes(w, 3, 8);
    for (int gang = 1; gang <= 3; gang++)
        add_gang(w, gang, 3, 3)->hopeless = gang == 1;
    for (int i = 0; i < 9; i++)
        add_member(w, 1 + i % 3, i / 3,
                   (struct terms){.once = ONCE_PORT, .pool = i == 6 ? 'z' : 0});
    EXPECT_STARTED(w, 120000, 2, 3);
}

/* Binds are held for a member that is then deleted, or terminates: the others get their answer at once,
 * and its successor starts with them. */
static void member_goes(struct world *w, bool at_once)
{
    add_nodes(w, 3, 1);
    set_pool(w, NODES + 2, 'b');
    add_pod(w, "x.1", (struct terms){.pool = 'b'}, 0);
    run_for(w, 5000);
    add_gang(w, 1, 3, 3);
    for (int i = 0; i < 3; i++)
        add_member(w, 1, i, (struct terms){.pool = i == 2 ? 'b' : 0});
    run_for(w, 2000);
    remove_pod(w, "g1.m0", at_once);
    run_for(w, 8000);
    add_member(w, 1, 3, (struct terms){0});
    remove_pod(w, "x.1", true);
    EXPECT_STARTED(w, 120000, 1);
}

static void member_deleted(struct world *w)
{
    member_goes(w, true);
}

static void member_terminates(struct world *w)
{
    member_goes(w, false);
}

/* A node whose Bindings the API server refuses. The pod's second node takes it. */
static void refused_binding(struct world *w)
{
    add_nodes(w, 3, 1);
    w->yard->nodes[NODES].refuses = true;
    add_pod(w, "x.1", (struct terms){0}, 0);
    run_for(w, 60000);
    if (!is_bound(w, "x.1"))
        violated(w, "a pod is sent again and again to the node that cannot take it");
}

/* A pod that is never bound: each call of filter names another node that fits. */
static void repeated_filter(struct world *w)
{
    unsigned seen = 0;
    add_nodes(w, 3, 1);
    w->yard->stopped = true;
    add_pod(w, "x.1", (struct terms){0}, 0);
    run_for(w, 1000);
    for (int i = 0; i < 3; i++) {
        int node = ask_filter(w, "x.1");
        seen |= node < 0 ? 0 : 1u << node;
        run_for(w, i == 1 ? 40000 : 3000); /* also after its reservation has ended */
    }
    if (__builtin_popcount(seen) != 3)
        violated(w, "filter names the same node again: %x", seen);
}

/* -- random yards -- */

/* The terms of a random gang, and whether it can start on empty nodes. */
struct recipe {
    struct terms terms;
    char last_pool; /* of the last member; 0: as the others */
    bool last_gated;
    const char *last_scheduler;
};

static struct terms terms_of(const struct recipe *k, int member, int size)
{
    struct terms t = k->terms;
    if (member == size - 1) {
        t.pool = k->last_pool ? k->last_pool : t.pool;
        t.gated = k->last_gated;
        t.scheduler = k->last_scheduler;
    }
    return t;
}

/* Places for so many members beside nothing else. */
static int places(const struct world *w, const struct recipe *k, char pool)
{
    int n = 0;
    EACH_NODE(w, node)
    if (!pool || w->yard->nodes[node].pool == pool - 'a')
        n += k->terms.once ? 1 : w->yard->nodes[node].cards;
    return n;
}

static void add_random_gang(struct world *w, int gang, struct recipe *k)
{
    static const int once[] = {0, ONCE_PORT, ONCE_PORT, ONCE_PORT_2, ONCE_ANTI, ONCE_HCA};
    bool hopeless = any(w, 4) == 0;
    *k = (struct recipe){.terms.once = ONE_OF(w, once),
                         .terms.pool = any(w, 3) ? '\0' : (char)('a' + any(w, 2))};
    int most = places(w, k, k->terms.pool), size = (int)between(w, 2, 4);
    if (hopeless && any(w, 3) == 0)
        k->last_pool = 'z';
    else if (hopeless && any(w, 2))
        k->last_scheduler = "nobody";
    else if (hopeless)
        k->last_gated = true;
    else if (size > most)
        size = most;
    if (size < 2)
        *k = (struct recipe){.terms.once = 0};
    size = size < 2 ? 2 : size;
    struct yard_gang *g = add_gang(w, gang, size, size);
    g->hopeless = hopeless;
    g->run_ms = between(w, 1000, 5000);
}

static void add_random_members(struct world *w, int gangs, const struct recipe *recipes)
{
    for (int member = 0; member < 4; member++)
        for (int gang = 1; gang <= gangs; gang++)
            if (member < w->yard->gangs[gang].size) {
                add_member(w, gang, member,
                           terms_of(&recipes[gang], member, w->yard->gangs[gang].size));
                run_for(w, any(w, 3) ? 0 : between(w, 0, 500));
            }
}

/* A member of a gang that has not started, deleted and created again by its controller. */
static void replace_member(struct world *w, int gangs, const struct recipe *recipes)
{
    char name[32];
    int gang = 1 + any(w, (uint64_t)gangs);
    struct yard_gang *g = &w->yard->gangs[gang];
    int member = any(w, (uint64_t)g->size);
    snprintf(name, sizeof name, "g%d.m%d", gang, member);
    if (g->started_ms || !pod_named(w, name))
        return;
    g->excused = true;
    bool at_once = any(w, 2);
    remove_pod(w, name, at_once);
    run_for(w, at_once ? between(w, 0, 2000) : 6000);
    if (!g->started_ms && !pod_named(w, name))
        add_member(w, gang, member, terms_of(&recipes[gang], member, g->size));
}

/* Kubelets end what terminates, and controllers create what a gang that has not started lacks. */
static void restore_members(struct world *w, int gangs, const struct recipe *recipes)
{
    char name[32];
    for (int gang = 1; gang <= gangs; gang++) {
        const struct yard_gang *g = &w->yard->gangs[gang];
        for (int member = 0; member < g->size && !g->started_ms; member++) {
            snprintf(name, sizeof name, "g%d.m%d", gang, member);
            const struct oracle_pod *p = pod_named(w, name);
            if (p && (p->deleting || p->over))
                remove_pod(w, name, true);
            else if (!p)
                add_member(w, gang, member, terms_of(&recipes[gang], member, g->size));
        }
    }
}

/* Another replica leads then, if there is one. */
static void break_process(struct world *w)
{
    struct replica *r = &w->replicas[any(w, (uint64_t)w->n_replicas)];
    int how = any(w, 3);
    if (!replica_up(w, r) || r->stopping)
        return;
    for (int gang = 1; gang <= YARD_GANGS; gang++) /* its Bindings may be lost */
        w->yard->gangs[gang].excused = true;
    if (how == 0) {
        replica_crash(w, r);
        replica_boot(w, r);
    } else if (how == 1) {
        replica_restart(w, r);
    } else {
        replica_pause(w, r, between(w, 1000, 12000));
    }
}

/* Each gang can start when the others have ended, and pods without a gang have. */
static void random_yard(struct world *w)
{
    struct recipe recipes[YARD_GANGS + 1];
    int nodes = (int)between(w, 2, YARD_NODES), gangs = (int)between(w, 1, 5);
    int plain = 0, wanted[YARD_GANGS], n = 0;
    w->yard->samples = nodes > 3 && any(w, 2);
    w->yard->pops = any(w, 4) > 0;
    add_nodes(w, nodes, (int)between(w, 1, 3));
    set_pool(w, NODES + 1, 'b');
    if (nodes > 3)
        set_pool(w, NODES + 3, 'b');
    for (int gang = 1; gang <= gangs; gang++)
        add_random_gang(w, gang, &recipes[gang]);
    add_random_members(w, gangs, recipes);
    for (int i = any(w, 30); i > 0 && !w->failed; i--) {
        int node = NODES + any(w, (uint64_t)nodes), what = any(w, 10);
        char name[32];
        snprintf(name, sizeof name, "x.%d", ++plain);
        if (what < 3) {
            add_pod(w, name, (struct terms){.priority = any(w, 3) - 1}, 0);
        } else if (what < 5) {
            snprintf(name, sizeof name, "x.%d", 1 + any(w, (uint64_t)plain));
            if (pod_named(w, name))
                remove_pod(w, name, any(w, 2));
        } else if (what < 7) {
            replace_member(w, gangs, recipes);
        } else if (what == 7) {
            cordon(w, node, !w->yard->nodes[node].cordoned);
        } else if (what == 8) {
            w->unhealthy[node][0] = !w->unhealthy[node][0];
            put_scv(w, node, false);
        } else if (any(w, 2)) {
            queue_restart(w);
        } else {
            break_process(w);
        }
        run_for(w, between(w, 0, 4000));
    }
    for (int i = 1; i <= plain; i++) {
        char name[32];
        snprintf(name, sizeof name, "x.%d", i);
        if (pod_named(w, name))
            remove_pod(w, name, true);
    }
    EACH_NODE(w, node)
    {
        w->unhealthy[node][0] = false;
        put_scv(w, node, false);
        cordon(w, node, false);
    }
    trace(w, "failures end");
    for (int gang = 1; gang <= gangs; gang++)
        if (!w->yard->gangs[gang].hopeless)
            wanted[n++] = gang;
    for (int i = 0; i < 600 && n && !w->failed; i++) {
        restore_members(w, gangs, recipes);
        run_for(w, 1000);
        while (n && w->yard->gangs[wanted[n - 1]].started_ms)
            n--;
    }
    if (n)
        violated(w, "gang g%d has not started in 10 minutes", wanted[n - 1]);
}

/* -- the table -- */

static const struct {
    const char *name;
    void (*run)(struct world *w); /* NULL: lost_place, this way */
    enum way way;
} scenarios[] = {
    {"gates", gates, 0},
    {"two-gangs-one-port", two_gangs_one_port, 0},
    {"anti-affinity", anti_affinity, 0},
    {"selector", selector, 0},
    {"two-pools", two_pools, 0},
    {"adapter", adapter, 0},
    {"other-scheduler", other_scheduler, 0},
    {"lost-node", NULL, WAY_NODE},
    {"lost-cordoned", NULL, WAY_CORDON},
    {"lost-card", NULL, WAY_HEALTH},
    {"lost-listed", NULL, WAY_LISTED},
    {"lost-mode", NULL, WAY_MODE},
    {"lost-scv", NULL, WAY_SCV},
    {"lost-size", NULL, WAY_SIZE},
    {"lost-use", NULL, WAY_USE},
    {"six-gangs", six_gangs, 0},
    {"beside-hopeless", beside_hopeless, 0},
    {"member-deleted", member_deleted, 0},
    {"member-terminates", member_terminates, 0},
    {"refused-binding", refused_binding, 0},
    {"repeated-filter", repeated_filter, 0},
};

const char *yard_name(uint64_t seed)
{
    return seed && seed <= ARRAY_LEN(scenarios) ? scenarios[seed - 1].name : NULL;
}

uint64_t yard_seed(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(scenarios); i++)
        if (!strcmp(scenarios[i].name, name))
            return i + 1;
    return 0;
}

/* -- the program's part -- */

void yard_run(struct world *w)
{
    api_call(w, "POST",
             "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\","
             "\"metadata\":{\"name\":\"gpushare-extender\"},\"spec\":{}}",
             "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases");
    w->yard->pops = true;
    w->end_node = w->first_node = NODES;
    queue_start(w);
    run_pods(w, NULL);
    run_for(w, BOOT_MS);
    if (!yard_name(w->seed))
        random_yard(w);
    else if (scenarios[w->seed - 1].run)
        scenarios[w->seed - 1].run(w);
    else
        lost_place(w, scenarios[w->seed - 1].way);
}
