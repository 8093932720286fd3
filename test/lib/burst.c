/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/burst.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

enum { CREATORS = 8, WAIT_MS = 300 * 1000, LOOK_MS = 50 };

#define PODS  CLUSTER_PODS
#define NODES "/api/v1/nodes"
#define SCVS  "/apis/core.run-linux.com/v1/scvs"

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

static void look_again(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
}

/* -- nodes -- */

static void add_or_await(bool add)
{
    for (size_t k = 0; k < ARRAY_LEN(classes); k++) {
        for (int i = 0; i < classes[k].nodes; i++) {
            cleanup_free char *name = xasprintf("%s%02d", classes[k].name, i);
            if (add)
                cluster_create_node(name, "class", classes[k].name, classes[k].mib);
            else
                cluster_await_node(name);
        }
    }
}

void burst_add_nodes(void)
{
    add_or_await(true);
    add_or_await(false);
}

static const struct class *class_of(const char *node)
{
    for (size_t k = 0; k < ARRAY_LEN(classes); k++)
        if (node[0] == classes[k].name[0])
            return &classes[k];
    ck_abort_msg("node %s has no class", node);
    return NULL;
}

static void delete_one(const char *collection, const char *name)
{
    cleanup_free char *path = xasprintf("%s/%s", collection, name);
    cluster_delete(path);
}

/* The items that match the selector. New. */
static json_t *pods_where(const char *field_selector)
{
    cleanup_free char *path = xasprintf(PODS "?fieldSelector=%s", field_selector);
    return cluster_items(path);
}

size_t burst_remove_node(const char *name, bool with_scv)
{
    cleanup_free char *here = xasprintf("spec.nodeName%%3D%s", name);
    size_t i;
    json_t *pod;
    delete_one(NODES, name);
    if (with_scv)
        delete_one(SCVS, name);
    cleanup_json json_t *pods = pods_where(here);
    json_array_foreach(pods, i, pod) delete_one(PODS, lib_str(pod, "metadata.name"));
    return json_array_size(pods);
}

void burst_return_node(const char *name, bool with_scv)
{
    const struct class *class = class_of(name);
    if (with_scv)
        cluster_create_scv(name, class->mib);
    cluster_create_bare_node(name, "class", class->name, class->mib);
}

/* -- pods -- */

struct wish {
    const struct kind *kind;
    int units;
    char name[32];
};

struct creation {
    struct wish wishes[BURST_PODS];
    size_t n;
    atomic_size_t next;
};

/* Retries while the API server is down. */
static void create_pod(const struct wish *w)
{
    const struct kind *k = w->kind;
    char amount[16], count[64] = "";
    snprintf(amount, sizeof amount, "%d", k->whole ? k->cards : w->units);
    if (!k->whole && k->cards > 1)
        snprintf(count, sizeof count, ",\"aliyun.com/gpu-count\":\"%d\"", k->cards);
    cleanup_free char *body = xasprintf(
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"labels\":{\"kind\":\"%s\",\"units\":\"%d\"%s}},\"spec\":{"
        "\"nodeSelector\":{\"class\":\"%s\"},\"containers\":[{\"name\":\"c\",\"image\":"
        "\"i\",\"resources\":{\"limits\":{\"%s\":\"%s\"}}}]}}",
        w->name, k->name, w->units, count, k->class,
        k->whole ? "aliyun.com/gpu-count" : "aliyun.com/gpu-mem", amount);
    cleanup_buf struct buf reply = {0};
    unsigned status;
    int64_t end = lib_now_ms() + WAIT_MS;
    while (status = peer_call(&cluster.api, "POST", PODS, body, &reply),
           status != 201 && status != 409) {
        ck_assert_msg(lib_now_ms() < end, "%s: %u %s", w->name, status, reply.p);
        look_again();
    }
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
    size_t i, n = 0;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        n += strcmp(label(pod, "kind"), k->name) == 0 &&
             (units < 0 || atoi(label(pod, "units")) == units) &&
             (!bound || *lib_str(pod, "spec.nodeName"));
    }
    return n;
}

static void wish(struct creation *c, const struct kind *k, int units, size_t n)
{
    static unsigned names; /* of this test */
    for (; n; n--) {
        struct wish *w = &c->wishes[c->n++];
        ck_assert_uint_le(c->n, BURST_PODS);
        *w = (struct wish){.kind = k, .units = units};
        snprintf(w->name, sizeof w->name, "%s-%u", k->name, names++);
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
    cleanup_free struct creation *c = xcalloc(1, sizeof *c);
    cleanup_json json_t *pods = cluster_items(PODS);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        bool in_turn = !k->units && !k->whole;
        for (int units = in_turn ? 1 : k->units; units <= (in_turn ? 5 : k->units);
             units++)
            wish(c, k, units, k->pods / (in_turn ? 5 : 1) - count(pods, k, units, false));
    }
    shuffle(c);
    lib_threads(CREATORS, create_some, c);
}

size_t burst_bound(void)
{
    cleanup_buf struct buf reply = {0};
    int64_t end = lib_now_ms() + WAIT_MS;
    while (peer_call(&cluster.api, "GET", PODS "?fieldSelector=spec.nodeName%21%3D", NULL,
                     &reply) != 200) {
        ck_assert_msg(lib_now_ms() < end, "the API server: %s", reply.p);
        look_again();
    }
    cleanup_json json_t *pods = json_loadb(reply.p, reply.n, 0, NULL);
    return json_array_size(lib_at(pods, "items"));
}

int64_t burst_wait_bound(size_t n)
{
    int64_t begun = lib_now_ms();
    for (size_t bound; (bound = burst_bound()) != n; look_again())
        ck_assert_msg(bound < n && lib_now_ms() < begun + WAIT_MS,
                      "%zu pods are bound after %lld ms, and %zu fit", bound,
                      (long long)(lib_now_ms() - begun), n);
    return lib_now_ms() - begun;
}

/* -- results -- */

/* The pod has as many cards, and as much memory, as it requested. */
static void check_bound(const json_t *pod, const struct kind *k)
{
    const char *name = lib_str(pod, "metadata.name");
    const char *cards = lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX");
    int n = 1;
    for (const char *p = cards; *p; p++)
        n += *p == ',';
    ck_assert_msg(*cards && n == k->cards, "%s has card %s", name, cards);
    ck_assert_msg(strncmp(lib_str(pod, "spec.nodeName"), k->class, 1) == 0, "%s is on %s",
                  name, lib_str(pod, "spec.nodeName"));
    int got = atoi(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD"));
    int want = k->whole ? k->cards * (class_of(k->class)->mib[0] / 1024)
                        : atoi(label(pod, "units"));
    ck_assert_msg(got == want, "%s has %d units", name, got);
}

static const struct kind *kind_of(const json_t *pod)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(label(pod, "kind"), kinds[i].name) == 0)
            return &kinds[i];
    ck_abort_msg("pod %s has no kind", lib_str(pod, "metadata.name"));
    return NULL;
}

static bool all_say_why(const json_t **other)
{
    cleanup_json json_t *pods = pods_where("spec.nodeName%3D");
    size_t i;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        if (!strstr(cluster_condition(pod), kind_of(pod)->why)) {
            json_decref((json_t *)*other);
            *other = json_incref(pod);
            return false;
        }
    }
    return true;
}

void burst_check(void)
{
    cleanup_json json_t *pods = cluster_items(PODS);
    const json_t *other = NULL;
    size_t i;
    json_t *pod;
    for (i = 0; i < ARRAY_LEN(kinds); i++)
        ck_assert_msg(count(pods, &kinds[i], -1, true) == kinds[i].fit,
                      "of %s %zu are bound, and %zu fit", kinds[i].name,
                      count(pods, &kinds[i], -1, true), kinds[i].fit);
    json_array_foreach(pods, i, pod)
    {
        if (*lib_str(pod, "spec.nodeName"))
            check_bound(pod, kind_of(pod));
    }
    cluster_agrees();
    for (int64_t end = lib_now_ms() + LIB_WAIT_MS; !all_say_why(&other); look_again())
        ck_assert_msg(lib_now_ms() < end, "%s is pending: %s",
                      lib_str(other, "metadata.name"), cluster_condition(other));
    json_decref((json_t *)other);
}
