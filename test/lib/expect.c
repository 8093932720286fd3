/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/expect.h"

#include "base/clock.h"

enum { MIB = 1024, CARDS_MAX = 16 };

/* -- the pod's request, in containers alone, with placement by packing -- */

struct ask {
    const char *resource;
    long units; /* sum over the cards */
    int cards;
    bool whole;
};

static long limit(const json_t *container, const char *resource)
{
    return atol(lib_in(container, "resources.limits", resource));
}

static long sum(const json_t *pod, const char *resource)
{
    long sum = 0;
    json_t *c;
    lib_each(c, lib_at(pod, "spec.containers"))
        sum += limit(c, resource);
    return sum;
}

static struct ask ask_of(const json_t *pod)
{
    static const char count[] = "aliyun.com/gpu-count", memory[] = "aliyun.com/gpu-mem";
    const char *cards = lib_in(pod, "metadata.labels", count);
    if (!*cards)
        cards = lib_annotation(pod, count);
    long whole = sum(pod, count);
    ck_assert_ptr_null(lib_at(pod, "spec.initContainers"));
    ck_assert_str_eq(lib_annotation(pod, "gpushare/placement"), "");
    if (whole)
        return (struct ask){.resource = count, .cards = (int)whole, .whole = true};
    return (struct ask){
        .resource = memory, .units = sum(pod, memory), .cards = *cards ? atoi(cards) : 1};
}

/* -- the expected placement -- */

struct card {
    long mib, free; /* free: without the pod */
    const char *uuid;
    bool healthy, taken;
};

/* Reads the cards of the pod's node; returns how many. */
static int read_cards(const json_t *pod, struct card *cards)
{
    const char *node = lib_str(pod, "spec.nodeName");
    const json_t *scv = peer_get(&cluster.api,
                                 lib_fmt("/apis/core.run-linux.com/v1/scvs/%s", node)),
                 *promised = oracle_promised(&cluster.api, lib_str(pod, "metadata.name"));
    size_t i;
    json_t *c;
    json_array_foreach(lib_at(scv, "status.cardList"), i, c)
    {
        ck_assert_uint_lt(i, CARDS_MAX);
        ck_assert_int_eq(lib_int(c, "id"), (json_int_t)i);
        long mib = (long)lib_int(c, "totalMemory");
        long units = (long)json_integer_value(
            json_object_get(promised, lib_fmt("%s/%zu", node, i)));
        cards[i] = (struct card){mib, mib - units * MIB, lib_str(c, "uuid"),
                                 strcmp(lib_str(c, "health"), "Healthy") == 0, false};
    }
    return (int)i;
}

static bool suits(const struct card *c, const struct ask *a)
{
    return c->healthy && !c->taken &&
           (a->whole ? c->free == c->mib : c->free >= a->units * MIB / a->cards);
}

/* Marks the cards that the pod must get. False: the node does not fit. */
static bool choose(struct card *cards, int n, const struct ask *a)
{
    for (int k = 0; k < a->cards; k++) {
        struct card *best = NULL;
        for (struct card *c = cards; c < cards + n; c++)
            if (suits(c, a) && (!best || c->free < best->free))
                best = c;
        if (!best)
            return false;
        best->taken = true;
    }
    return true;
}

/* Checks the allocation annotation: the amounts of each container on each card. The sum of a
 * container is its request; the sum of a card is the pod's promise on it. */
static void check_allocation(const json_t *pod, const struct card *cards, int n,
                             const struct ask *a)
{
    const char *text = lib_annotation(pod, "scheduler.framework.gpushare.allocation"),
               *card;
    const json_t *all = lib_parse(text, strlen(text));
    long on_card[CARDS_MAX] = {0};
    size_t i, asking = 0;
    json_t *c, *units;
    json_array_foreach(lib_at(pod, "spec.containers"), i, c)
    {
        long got = 0, want = limit(c, a->resource);
        json_t *of_it = lib_at(all, lib_fmt("%zu", i));
        asking += want > 0;
        json_object_foreach(of_it, card, units)
        {
            long here = (long)json_integer_value(units);
            ck_assert_msg(cards[atoi(card)].taken, "card %s in %s", card, text);
            on_card[atoi(card)] += here;
            got += a->whole ? 1 : here;
        }
        ck_assert_msg(got == want, "container %zu in %s", i, text);
    }
    ck_assert_uint_eq(json_object_size(all), asking);
    for (int k = 0; k < n; k++) {
        long want = a->whole ? cards[k].mib / MIB : a->units / a->cards;
        ck_assert_msg(on_card[k] == (cards[k].taken ? want : 0), "card %d in %s", k,
                      text);
    }
}

static void check_annotations(const json_t *pod, const struct card *cards, int n,
                              const struct ask *a, int64_t begun_ns)
{
    const char *idx = "", *dev = "", *uuid = "", *comma = "";
    long whole = 0;
    for (int i = 0; i < n; i++) {
        if (!cards[i].taken)
            continue;
        idx = lib_fmt("%s%s%d", idx, comma, i);
        dev = lib_fmt("%s%s%ld", dev, comma, cards[i].mib / MIB);
        uuid = lib_fmt("%s%s%s", uuid, comma, cards[i].uuid);
        whole += cards[i].mib / MIB;
        comma = ",";
    }
    const char *const want[][2] = {
        {"ALIYUN_COM_GPU_MEM_IDX", idx},
        {"ALIYUN_COM_GPU_MEM_DEV", dev},
        {"gpushare/card-uuid", uuid},
        {"ALIYUN_COM_GPU_MEM_ASSIGNED", "false"},
        {"ALIYUN_COM_GPU_MEM_POD", lib_fmt("%ld", a->whole ? whole : a->units)}};
    array_indices(i, want)
        ck_assert_str_eq(lib_annotation(pod, want[i][0]), want[i][1]);
    int64_t bound_ns =
        strtoll(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_ASSUME_TIME"), NULL, 10);
    ck_assert_msg(bound_ns >= begun_ns && bound_ns <= clock_wall_ns(),
                  "bound at %lld, created at %lld", (long long)bound_ns,
                  (long long)begun_ns);
}

void expect_placed(const char *name, int64_t begun_ns)
{
    struct card cards[CARDS_MAX];
    cluster_wait_running(name);
    const json_t *pod = cluster_pod(name);
    const struct ask a = ask_of(pod);
    int n = read_cards(pod, cards);
    ck_assert_msg(choose(cards, n, &a), "%s cannot be on %s", name,
                  lib_str(pod, "spec.nodeName"));
    check_annotations(pod, cards, n, &a, begun_ns);
    check_allocation(pod, cards, n, &a);
}

void expect_on(const char *name, const char *node, const char *cards)
{
    const json_t *pod = cluster_pod(name);
    ck_assert_at(pod, "spec.nodeName", node);
    ck_assert_str_eq(lib_annotation(pod, "ALIYUN_COM_GPU_MEM_IDX"), cards);
}
