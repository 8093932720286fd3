/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/burst.h"

#include <stdatomic.h>
#include <time.h>

enum { CREATORS = 8, WAIT_MS = 300 * 1000, LOOK_NS = 50 * 1000000 };

#define PODS CLUSTER_PODS

/*
 * Classes a, b, c: the pods of a class are identical, and a node fits a fixed number of
 * them in any order: two of 3 GiB on a card of 8 GiB; on four cards of 16 GiB four pods
 * with 6 GiB on each of two cards (the fullest cards that fit are chosen, so cards 0 and 1
 * fill up together, then 2 and 3); two pods with two cards on four cards.
 *
 * Class d: a pod of n GiB fits nowhere only if every card has less than n GiB free, so if
 * the others hold at least 480 - 30 (n - 1) of the 480 GiB of 30 cards. For n = 5 that is
 * 360 GiB, the sum of all requests. kube-scheduler's count per node rejects no pod before.
 *
 * Class e: 40 pods, 40 cards. Each of the 39 other pods blocks at most one card.
 */
static const struct class
{
    const char *name;
    int nodes;
    const int *mib;
} classes[] = {
    {"a", 15, CARDS(8192, 8192)},
    {"b", 10, CARDS(16384, 16384, 16384, 16384)},
    {"c", 10, CARDS(22919, 22919, 22919, 22919)},
    {"d", 10, CARDS(16276, 11441, 22919)},
    {"e", 5, CARDS(16384, 16384, 16384, 16384, 16384, 16384, 16384, 16384)},
};

static const struct kind {
    const char *name, *class;
    size_t pods, fit;
    int units; /* of memory; 0: 1, 2, ... 5 in rotation */
    int cards;
    bool whole;
    const char *why; /* reason of the pods that do not fit */
} kinds[] = {
    {"a-small", "a", 68, 60, 3, 1, false,
     "needs 3072 MiB on one card; most free: 2048 of 8192 MiB"},
    {"b-two", "b", 44, 40, 12, 2, false, "needs 6144 MiB on each of 2 cards"},
    /* kube-scheduler counts this resource itself */
    {"c-whole", "c", 24, 20, 0, 2, true, "Insufficient aliyun.com/gpu-count"},
    {"d-mixed", "d", 120, 120, 0, 1, false, ""},
    {"e-small", "e", 24, 24, 2, 1, false, ""},
    {"e-whole", "e", 16, 16, 0, 1, true, ""},
    {"e-large", "e", 4, 0, 17, 1, false, "the largest card has 16384 MiB"},
};

static const char *label(const json_t *pod, const char *key)
{
    return lib_in(pod, "metadata.labels", key);
}

/* -- nodes -- */

static const struct class *class_of(const char *node)
{
    array_items(class, classes)
        if (node[0] == class->name[0])
            return class;
    ck_abort_msg("node %s has no class", node);
    return NULL;
}

void burst_return_node(const char *name, bool with_scv)
{
    const struct class *class = class_of(name);
    if (with_scv)
        cluster_create_scv(name, class->mib);
    cluster_create_node(name, lib_fmt(",\"class\":\"%s\"", class->name), class->mib);
}

static void each_node(void (*fn)(const char *name))
{
    array_items(class, classes)
        for (int i = 0; i < class->nodes; i++)
            fn(lib_fmt("%s%02d", class->name, i));
}

static void add_node(const char *name)
{
    burst_return_node(name, true);
}

void burst_add_nodes(void)
{
    each_node(add_node);
    each_node(cluster_await_node);
}

/* -- pods -- */

struct wish {
    const struct kind *kind;
    int units;
    const char *name;
};

struct creation {
    struct wish wishes[BURST_PODS];
    size_t n;
    atomic_size_t next;
};

static bool is_created(const char *body)
{
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&cluster.api, "POST", PODS, body, &reply);
    return status == 201 || status == 409;
}

/* Retries while the API server is down. */
static void create_pod(const struct wish *w)
{
    const struct kind *k = w->kind;
    const char *body = lib_fmt(
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"labels\":{\"kind\":\"%s\",\"units\":\"%d\"%s}},\"spec\":{"
        "\"nodeSelector\":{\"class\":\"%s\"},\"containers\":[{\"name\":\"c\",\"image\":"
        "\"i\",\"resources\":{\"limits\":{\"aliyun.com/gpu-%s\":\"%d\"}}}]}}",
        w->name, k->name, w->units,
        k->whole || k->cards == 1 ? ""
                                  : lib_fmt(",\"aliyun.com/gpu-count\":\"%d\"", k->cards),
        k->class, k->whole ? "count" : "mem", k->whole ? k->cards : w->units);
    lib_wait_within(WAIT_MS, is_created(body), "%s is not created", w->name);
}

static void create_some(void *ctx, size_t thread)
{
    struct creation *c = ctx;
    size_t i;
    (void)thread;
    while ((i = atomic_fetch_add(&c->next, 1)) < c->n)
        create_pod(&c->wishes[i]);
}

/* Number of pods of a kind with these units; `bound`: of the bound ones only. */
static size_t count(const json_t *pods, const struct kind *k, int units, bool bound)
{
    size_t n = 0;
    json_t *pod;
    lib_each(pod, pods)
        n += strcmp(label(pod, "kind"), k->name) == 0 &&
             (units < 0 || atoi(label(pod, "units")) == units) &&
             (!bound || *lib_str(pod, "spec.nodeName"));
    return n;
}

static void wish(struct creation *c, const struct kind *k, int units, size_t n)
{
    static unsigned names; /* of this test */
    for (; n; n--) {
        ck_assert_uint_lt(c->n, BURST_PODS);
        c->wishes[c->n++] = (struct wish){k, units, lib_fmt("%s-%u", k->name, names++)};
    }
}

/* The kinds alternate, so that they are scheduled together. */
static void shuffle(struct creation *c)
{
    for (size_t i = c->n; i > 1; i--) {
        size_t k = (i * 2654435761U) % i;
        struct wish swap = c->wishes[i - 1];
        c->wishes[i - 1] = c->wishes[k];
        c->wishes[k] = swap;
    }
}

void burst_add_pods(void)
{
    struct creation c = {.n = 0};
    const json_t *pods = cluster_list(PODS);
    for (const struct kind *k = kinds; k < kinds + ARRAY_LEN(kinds); k++) {
        bool in_turn = !k->units && !k->whole;
        int first = in_turn ? 1 : k->units, last = in_turn ? 5 : k->units;
        for (int units = first; units <= last; units++)
            wish(&c, k, units,
                 k->pods / (in_turn ? 5 : 1) - count(pods, k, units, false));
    }
    shuffle(&c);
    lib_threads(CREATORS, create_some, &c);
}

/* SIZE_MAX: the API server is down. The pause leaves it time for other work. */
static size_t try_bound(void)
{
    cleanup_buf struct buf reply = {0};
    nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    if (peer_call(&cluster.api, "GET", PODS "?fieldSelector=spec.nodeName%21%3D", NULL,
                  &reply) != 200)
        return SIZE_MAX;
    return lib_size(lib_parse(reply.p, reply.n), "items");
}

size_t burst_bound(void)
{
    size_t n;
    lib_wait_within(WAIT_MS, (n = try_bound()) != SIZE_MAX, "no list of pods");
    return n;
}

int64_t burst_wait_bound(size_t n)
{
    int64_t begun = lib_now_ms();
    size_t bound;
    lib_wait_within(WAIT_MS, (bound = burst_bound()) >= n,
                    "%zu pods are bound, and %zu fit", bound, n);
    ck_assert_uint_eq(bound, n);
    return lib_now_ms() - begun;
}

static void add_pods_or_trouble(void *ctx, size_t i)
{
    if (i == 0)
        burst_add_pods();
    else
        (*(void (**)(void))ctx)();
}

void burst_meanwhile(void (*trouble)(void), const char *what)
{
    int64_t begun = lib_now_ms();
    lib_threads(2, add_pods_or_trouble, &trouble);
    burst_wait_bound(BURST_FIT);
    cluster_report(what, lib_now_ms() - begun);
}

/* -- results -- */

static const struct kind *kind_of(const json_t *pod)
{
    array_items(c, kinds)
        if (strcmp(label(pod, "kind"), c->name) == 0)
            return c;
    ck_abort_msg("pod %s has no kind", lib_str(pod, "metadata.name"));
    return NULL;
}

/* A bound pod has as many cards, and as much memory, as it requested. */
static void check_pod(const json_t *pod)
{
    const struct kind *k = kind_of(pod);
    const char *name = lib_str(pod, "metadata.name"),
               *node = lib_str(pod, "spec.nodeName"),
               *cards = lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX");
    if (!*node)
        return;
    int n = 1, got = atoi(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD")),
        want = k->whole ? k->cards * (class_of(k->class)->mib[0] / 1024)
                        : atoi(label(pod, "units"));
    for (const char *p = cards; *p; p++)
        n += *p == ',';
    ck_assert_msg(*cards && n == k->cards && got == want &&
                      strncmp(node, k->class, 1) == 0,
                  "%s is on %s with card %s and %d units", name, node, cards, got);
}

/* A pending pod that does not say why; NULL: there is none. */
static const json_t *silent(void)
{
    json_t *pod;
    lib_each(pod, cluster_list(PODS "?fieldSelector=spec.nodeName%3D"))
        if (!strstr(cluster_condition(pod), kind_of(pod)->why))
            return pod;
    return NULL;
}

void burst_check(void)
{
    const json_t *pods = cluster_list(PODS), *other;
    json_t *pod;
    array_items(kind, kinds)
        ck_assert_msg(count(pods, kind, -1, true) == kind->fit,
                      "of %s %zu are bound, and %zu fit", kind->name,
                      count(pods, kind, -1, true), kind->fit);
    lib_each(pod, pods)
        check_pod(pod);
    cluster_agrees();
    lib_wait_saying(!(other = silent()), "%s is pending: %s",
                    lib_str(other, "metadata.name"), cluster_condition(other));
}
