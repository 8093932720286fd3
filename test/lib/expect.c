/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/expect.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

enum { MIB = 1024, CARDS_MAX = 16, NODES_MAX = 64 };

struct card {
    long mib, promised;
    const char *uuid;
    bool out, whole; /* unhealthy; promised as a whole card */
};

struct node {
    const char *name, *mode;
    struct card cards[CARDS_MAX];
    int n;
};

struct world {
    json_t *nodes, *scvs, *pods; /* own the strings */
    struct node node[NODES_MAX];
    size_t n;
};

/* -- the pod's request -- */

struct ask {
    long units; /* sum over the cards */
    int cards;
    bool whole, spread;
};

static long limit(const json_t *container, const char *resource)
{
    return atol(lib_in(container, "resources.limits", resource));
}

static bool is_sidecar(const json_t *container)
{
    return strcmp(lib_str(container, "restartPolicy"), "Always") == 0;
}

/* The requests of containers that run at the same time add up; an init container runs
 * together with the sidecars before it. */
static long sum(const json_t *pod, const char *resource)
{
    long sidecars = 0, most = 0, apps = 0;
    size_t i;
    json_t *c;
    json_array_foreach(lib_at(pod, "spec.initContainers"), i, c)
    {
        long n = limit(c, resource);
        if (is_sidecar(c))
            sidecars += n;
        if (sidecars + (is_sidecar(c) ? 0 : n) > most)
            most = sidecars + (is_sidecar(c) ? 0 : n);
    }
    json_array_foreach(lib_at(pod, "spec.containers"), i, c) apps += limit(c, resource);
    return apps + sidecars > most ? apps + sidecars : most;
}

static struct ask ask_of(const json_t *pod)
{
    const char *count = lib_in(pod, "metadata.labels", "aliyun.com/gpu-count");
    if (!*count)
        count = lib_annotation(pod, "aliyun.com/gpu-count");
    struct ask a = {.units = sum(pod, "aliyun.com/gpu-mem"),
                    .cards = *count ? atoi(count) : 1};
    long whole = sum(pod, "aliyun.com/gpu-count");
    if (whole)
        a = (struct ask){.cards = (int)whole, .whole = true};
    a.spread = strcmp(lib_annotation(pod, "gpushare/placement"), "spread") == 0;
    return a;
}

/* -- the cluster -- */

static struct node *find(struct world *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->node[i].name, name) == 0)
            return &w->node[i];
    ck_abort_msg("there is no node %s", name);
    return NULL;
}

static void add_node(struct world *w, const json_t *scv)
{
    struct node *n = &w->node[w->n++];
    size_t i;
    json_t *c;
    ck_assert_uint_le(w->n, NODES_MAX);
    *n = (struct node){.name = lib_str(scv, "metadata.name"), .mode = ""};
    json_array_foreach(lib_at(scv, "status.cardList"), i, c)
    {
        ck_assert_int_lt(n->n, CARDS_MAX);
        ck_assert_int_eq(json_integer_value(lib_at(c, "id")), n->n);
        n->cards[n->n++] = (struct card){
            .mib = (long)json_integer_value(lib_at(c, "totalMemory")),
            .uuid = lib_str(c, "uuid"),
            .out = strcmp(lib_str(c, "health"), "Healthy") != 0,
        };
    }
    json_array_foreach(w->nodes, i,
                       c) if (strcmp(lib_str(c, "metadata.name"), n->name) == 0) n->mode =
        lib_in(c, "metadata.labels", "gpushare/mode");
}

static void add_pod(struct world *w, const json_t *pod)
{
    struct node *n = find(w, lib_str(pod, "spec.nodeName"));
    struct ask a = ask_of(pod);
    cleanup_free char *cards = xstrdup(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"));
    for (char *rest = cards, *card; (card = strsep(&rest, ",")) && *card;) {
        struct card *c = &n->cards[atoi(card)];
        ck_assert_int_lt(atoi(card), n->n);
        c->whole |= a.whole;
        c->promised += a.whole ? c->mib : a.units * MIB / a.cards;
    }
}

/* The state of the cluster without one pod. */
static void world_read(struct world *w, const char *but)
{
    size_t i;
    json_t *j;
    *w = (struct world){.nodes = cluster_items("/api/v1/nodes"),
                        .scvs = cluster_items("/apis/core.run-linux.com/v1/scvs"),
                        .pods = cluster_items("/api/v1/pods")};
    json_array_foreach(w->scvs, i, j) add_node(w, j);
    json_array_foreach(w->pods, i, j)
    {
        const char *phase = lib_str(j, "status.phase");
        if (*lib_str(j, "spec.nodeName") && strcmp(phase, "Succeeded") != 0 &&
            strcmp(phase, "Failed") != 0 && strcmp(lib_str(j, "metadata.name"), but) != 0)
            add_pod(w, j);
    }
}

static void world_fini(struct world *w)
{
    json_decref(w->nodes);
    json_decref(w->scvs);
    json_decref(w->pods);
}

/* -- the expected placement -- */

static bool suits(const struct card *c, const struct ask *a)
{
    if (c->out || c->whole)
        return false;
    return a->whole ? c->promised == 0
                    : c->mib - c->promised >= a->units * MIB / a->cards;
}

/* Marks the cards that the pod must get. False: the node does not fit. */
static bool choose(const struct node *n, const struct ask *a, bool *taken)
{
    const char *mode = a->whole ? "card" : "memory";
    if (*n->mode && strcmp(n->mode, mode) != 0)
        return false;
    for (int k = 0; k < a->cards; k++) {
        int best = -1;
        for (int i = 0; i < n->n; i++) {
            if (taken[i] || !suits(&n->cards[i], a))
                continue;
            long lead = best < 0 ? 0
                                 : (n->cards[best].mib - n->cards[best].promised) -
                                       (n->cards[i].mib - n->cards[i].promised);
            if (best < 0 || (a->spread ? lead < 0 : lead > 0))
                best = i;
        }
        if (best < 0)
            return false;
        taken[best] = true;
    }
    return true;
}

/* Checks the allocation annotation: the amounts of each container on each card. The sum of a
 * container is its request; the sum of a card is the pod's promise on it. */
static void check_allocation(const json_t *pod, const struct node *n, const struct ask *a,
                             const bool *taken)
{
    const char *text = lib_annotation(pod, "scheduler.framework.gpushare.allocation");
    cleanup_json json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const char *resource = a->whole ? "aliyun.com/gpu-count" : "aliyun.com/gpu-mem";
    json_t *lists[] = {lib_at(pod, "spec.containers"),
                       lib_at(pod, "spec.initContainers")};
    long on_card[CARDS_MAX] = {0}, side_by_side = 0;
    size_t i, index = 0, asking = 0;
    json_t *c, *units;
    const char *card;
    ck_assert_msg(json_is_object(all), "no allocation: %s", text);
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        json_array_foreach(lists[k], i, c)
        {
            if (k == 1 && !is_sidecar(c))
                continue;
            cleanup_free char *key = xasprintf("%zu", index++);
            json_t *share = json_object_get(all, key);
            long got = 0;
            asking += limit(c, resource) > 0;
            side_by_side += limit(c, resource);
            json_object_foreach(share, card, units)
            {
                long here = (long)json_integer_value(units);
                ck_assert_msg(taken[atoi(card)], "card %s in %s", card, text);
                on_card[atoi(card)] += here;
                got += a->whole ? 1 : here;
            }
            ck_assert_msg(got == limit(c, resource), "container %s in %s", key, text);
        }
    }
    ck_assert_uint_eq(json_object_size(all), asking);
    for (int k = 0; k < n->n; k++) {
        long want = a->whole ? n->cards[k].mib / MIB : side_by_side / a->cards;
        ck_assert_msg(on_card[k] == (taken[k] ? want : 0), "card %d in %s", k, text);
    }
}

static void add_item(struct buf *list, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void add_item(struct buf *list, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_adds(list, list->n ? "," : "");
    buf_vprintf(list, fmt, ap);
    va_end(ap);
}

static void check_annotations(const json_t *pod, const struct node *n,
                              const struct ask *a, const bool *taken, int64_t begun_ns)
{
    cleanup_buf struct buf idx = {0}, dev = {0}, uuid = {0};
    long whole = 0;
    for (int i = 0; i < n->n; i++) {
        if (!taken[i])
            continue;
        add_item(&idx, "%d", i);
        add_item(&dev, "%ld", n->cards[i].mib / MIB);
        add_item(&uuid, "%s", n->cards[i].uuid);
        whole += n->cards[i].mib / MIB;
    }
    int64_t bound_ns =
        strtoll(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_ASSUME_TIME"), NULL, 10);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"), idx.p);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_DEV"), dev.p);
    ck_assert_str_eq(lib_annotation(pod, "gpushare/card-uuid"), uuid.p);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_ASSIGNED"), "false");
    ck_assert_int_eq(atol(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_POD")),
                     a->whole ? whole : a->units);
    ck_assert_msg(bound_ns >= begun_ns && bound_ns <= expect_now_ns(),
                  "bound at %lld, created at %lld", (long long)bound_ns,
                  (long long)begun_ns);
}

void expect_placed(const char *name, int64_t begun_ns)
{
    struct world w;
    cluster_wait_running(name);
    cleanup_json json_t *pod = cluster_pod(name);
    bool taken[CARDS_MAX] = {false};
    world_read(&w, name);
    const struct node *n = find(&w, lib_str(pod, "spec.nodeName"));
    const struct ask a = ask_of(pod);
    ck_assert_msg(choose(n, &a, taken), "%s cannot be on %s", name, n->name);
    check_annotations(pod, n, &a, taken, begun_ns);
    check_allocation(pod, n, &a, taken);
    world_fini(&w);
}

int64_t expect_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void expect_on(const char *name, const char *node, const char *cards)
{
    cleanup_json json_t *pod = cluster_pod(name);
    ck_assert_str_eq(lib_str(pod, "spec.nodeName"), node);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"), cards);
}
