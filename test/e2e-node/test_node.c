/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "e2e-node/look.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

/*
 * The whole way of a pod to its card: kube-scheduler, the extender, the kubelet, the
 * device plugin, the container.
 */

/* True if the Scv shows what the pod's container holds, in one entry and of this card
 * alone. */
static bool is_published(const char *pod, int units, const char *card)
{
    cleanup_json json_t *scv =
        peer_json(&cluster.api, "GET", "/apis/core.run-linux.com/v1/scvs/" NODE, NULL);
    size_t i, entries = 0;
    json_t *held;
    bool right = false;
    json_array_foreach(lib_at(scv, "status.podList"), i, held)
    {
        const json_t *cards = lib_at(held, "cards");
        const char *uuid = json_string_value(json_array_get(cards, 0));
        if (strcmp(lib_str(held, "name"), pod) != 0)
            continue;
        entries++;
        right = json_integer_value(lib_at(held, "units")) == units &&
                json_array_size(cards) == 1 && uuid && strcmp(uuid, card) == 0;
    }
    return right && entries == 1;
}

START_TEST(a_container_sees_the_card_of_the_ledger)
{
    if (!node_up())
        return;
    int64_t begun = lib_now_ms();
    node_create("one", "one-p");
    cluster_wait_running("one-p");
    cluster_report("a pod is created and runs", lib_now_ms() - begun);
    ck_assert_uint_eq(look_check(), 1);
    cleanup_json json_t *pod = cluster_pod("one-p"), *n = NULL;
    cleanup_free char *log = real_log("one-p", lib_str(pod, "metadata.uid"), "c");
    cleanup_free char *card = look_variable(log, "NVIDIA_VISIBLE_DEVICES");
    ck_assert_str_eq(card, node_cards[0].uuid); /* binpack takes the smallest */
    n = extender_inspect(&cluster.extender, NODE);
    const json_t *dev = json_array_get(lib_at(n, "devs"), 0);
    ck_assert_str_eq(lib_str(dev, "uuid"), card);
    ck_assert_str_eq(lib_str(json_array_get(lib_at(dev, "pods"), 0), "name"), "one-p");
    lib_wait(is_published("one-p", 4, card));
    look_finish();
}
END_TEST

/* -- pods that come and go -- */

struct wave {
    const char *const *kinds; /* of pod i, or all of one */
    size_t n_kinds;
    int round;
};

static void create_one(void *ctx, size_t i)
{
    const struct wave *w = ctx;
    const char *kind = w->kinds[i % w->n_kinds];
    cleanup_free char *name = xasprintf("%s-%d-%zu", kind, w->round, i);
    node_create(kind, name);
}

/* One that was refused, once more. */
static void create_again(const char *name)
{
    cleanup_free char *kind = xmemdup0(name, strcspn(name, "-"));
    cleanup_free char *other = xasprintf("%sx", name);
    node_create(kind, other);
}

/* All run, and all is as it has to be; the kubelet may have refused some once. */
static void settle(size_t containers)
{
    size_t n;
    do
        n = look_check();
    while (look_refusals(create_again));
    ck_assert_uint_eq(n, containers);
}

/* Do pods of this kind fit wherever there is enough memory? */
static bool fits_anywhere(const char *name)
{
    return strncmp(name, "whole", 5) != 0 && strncmp(name, "split", 5) != 0;
}

/* Deletes every second pod of those that fit anywhere, and creates one of the same kind
 * for each, at once. */
static void replace_half(int round)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    const char *kinds[64], *names[64];
    cleanup_buf struct buf texts = {0};
    size_t i, n = 0;
    json_t *pod;
    buf_reserve(&texts, 4096);
    json_array_foreach(pods, i, pod)
    {
        const char *name = lib_str(pod, "metadata.name");
        if ((i + (size_t)round) % 2 || !fits_anywhere(name))
            continue;
        ck_assert_uint_lt(n, ARRAY_LEN(names));
        names[n] = name;
        kinds[n++] = texts.p + texts.n;
        buf_add(&texts, name, strcspn(name, "-"));
        buf_addc(&texts, '\0');
        ck_assert_uint_lt(texts.n, 4096);
        cleanup_free char *path = xasprintf(CLUSTER_PODS "/%s", name);
        json_decref(peer_json(&cluster.api, "DELETE", path, NULL));
    }
    struct wave wave = {kinds, n, round};
    lib_threads(n, create_one, &wave);
    for (i = 0; i < n; i++)
        lib_wait(cluster_is_gone(names[i]));
}

static void run_rounds(const char *what, struct wave *first, size_t pods,
                       size_t containers, int rounds)
{
    look_watch();
    for (int round = 0; round < rounds; round++) {
        int64_t begun = lib_now_ms();
        if (round == 0)
            lib_threads(pods, create_one, first);
        else
            replace_half(round);
        settle(containers);
        cleanup_free char *done =
            xasprintf("%s: %s", what,
                      round ? "half of them deleted, and as many created and run"
                            : "created and run");
        cluster_report(done, lib_now_ms() - begun);
    }
    look_watch_end();
}

START_TEST(equal_pods_come_and_go)
{
    struct wave all = {ARGV("equal"), 1, 0};
    if (!node_up())
        return;
    run_rounds("40 equal pods", &all, 40, 40, 4);
    look_finish();
}
END_TEST

START_TEST(pods_of_every_form_come_and_go)
{
    static const char *const kinds[] = {"one", "two", "init", "one",  "two", "side",
                                        "two", "one", "two",  "init", "one", "side"};
    struct wave several = {ARGV("split"), 1, 0};
    struct wave all = {kinds, ARRAY_LEN(kinds), 0};
    if (!node_up())
        return;
    node_create("whole", "whole-0-0"); /* while a card is free */
    lib_wait(cluster_bound("whole-0-0"));
    lib_threads(2, create_one, &several); /* while two are not full */
    settle(3);
    run_rounds("15 pods of every form", &all, ARRAY_LEN(kinds), 3 + 4 + 8 + 4 + 4, 4);
    look_finish();
}
END_TEST

/* -- programs that are killed -- */

enum { WEB = 24, PAIRS = 4, WEB_UNITS = 2, PAIR_UNITS = 2 + 4 };

static void create_controllers(void)
{
    node_create_many("Deployment", "web", "equal", WEB);
    node_create_many("ReplicaSet", "pair", "two", PAIRS);
}

/* A third of the pods that run. */
static void delete_some(int turn)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        cleanup_free char *path =
            xasprintf(CLUSTER_PODS "/%s", lib_str(pod, "metadata.name"));
        cleanup_buf struct buf reply = {0};
        if (strcmp(lib_str(pod, "status.phase"), "Failed") != 0 &&
            ((int)i + turn) % 3 == 0)
            peer_call(&cluster.api, "DELETE", path, NULL, &reply);
    }
}

/* Some have begun to come: the kubelet is at it. */
static bool some_come(void)
{
    cleanup_json json_t *pods = cluster_items(
        CLUSTER_PODS "?fieldSelector=status.phase%3DPending,spec.nodeName%3D" NODE);
    return json_array_size(pods) > 0;
}

static void await_some(void)
{
    int64_t end = lib_now_ms() + 2000; /* quick ones may have arrived by then */
    while (!some_come() && lib_now_ms() < end)
        lib_pause();
}

START_TEST(killed_programs_recover)
{
    static const char *const victims[] = {
        "gpushare-device-plugin", "kubelet", "gpushare-extender", "scv-agent", "kubelet",
        "gpushare-device-plugin"};
    if (!node_up())
        return;
    create_controllers();
    look_watch();
    for (size_t i = 0; i < ARRAY_LEN(victims); i++) {
        int64_t begun = lib_now_ms();
        if (i)
            delete_some((int)i);
        await_some();
        node_kill(victims[i]);
        node_wait_well();
        node_wait_running(WEB + PAIRS);
        ck_assert_uint_eq(look_check(), WEB + PAIRS * 2);
        cleanup_free char *done =
            xasprintf("%s killed among %s; all as before (%zu refused)", victims[i],
                      i ? "10 pods that come" : "28 pods that come", look_refusals(NULL));
        cluster_report(done, lib_now_ms() - begun);
    }
    look_watch_end();
    cleanup_json json_t *n = extender_inspect(&cluster.extender, NODE);
    ck_assert_int_eq(json_integer_value(lib_at(n, "usedGPU")),
                     WEB * WEB_UNITS + PAIRS * PAIR_UNITS);
    look_finish();
}
END_TEST

NODE_MAIN("node", a_container_sees_the_card_of_the_ledger, equal_pods_come_and_go,
          pods_of_every_form_come_and_go, killed_programs_recover)
