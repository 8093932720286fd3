/* SPDX-License-Identifier: Apache-2.0 */
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
    const json_t *scv = peer_get(&cluster.api, "/apis/core.run-linux.com/v1/scvs/" NODE);
    size_t entries = 0, right = 0;
    json_t *held;
    lib_each(held, lib_at(scv, "status.podList")) {
        if (strcmp(lib_str(held, "name"), pod) != 0)
            continue;
        entries++;
        right += lib_int(held, "units") == units && lib_size(held, "cards") == 1 &&
                 strcmp(lib_str(held, "cards.0"), card) == 0;
    }
    return right == 1 && entries == 1;
}

TEST(a_container_sees_the_card_of_the_ledger)
{
    if (!node_up())
        return;
    int64_t begun = lib_now_ms();
    node_create("one", "one-p");
    cluster_wait_running("one-p");
    cluster_report("a pod is created and runs", lib_now_ms() - begun);
    ck_assert_uint_eq(look_check(), 1);
    const char *card = look_variable(
        real_log("one-p", lib_str(cluster_pod("one-p"), "metadata.uid"), "c"),
        "NVIDIA_VISIBLE_DEVICES");
    ck_assert_str_eq(card, node_cards[0].uuid); /* binpack takes the smallest */
    const json_t *dev = lib_at(extender_node(&cluster.extender, NODE), "devs.0");
    ck_assert_at(dev, "uuid", card);
    ck_assert_at(dev, "pods.0.name", "one-p");
    lib_wait(is_published("one-p", 4, card));
    look_finish();
}

/* NVLinks connect the cards as 0, 1, 3, 2. */
TEST(four_cards_are_named_in_the_order_of_their_ring)
{
    if (!node_up())
        return;
    node_create("quad", "quad-p");
    cluster_wait_running("quad-p");
    ck_assert_uint_eq(look_check(), 1);
    const char *log =
        real_log("quad-p", lib_str(cluster_pod("quad-p"), "metadata.uid"), "c");
    ck_assert_str_eq(look_variable(log, "NVIDIA_VISIBLE_DEVICES"),
                     lib_fmt("%s,%s,%s,%s", node_cards[0].uuid, node_cards[1].uuid,
                             node_cards[3].uuid, node_cards[2].uuid));
    ck_assert_str_eq(look_variable(log, "ALIYUN_COM_GPU_MEM_DEV"), "8,16,16,56");
    ck_assert_str_eq(look_variable(log, "GPUSHARE_NUMA_NODE"), "");
    look_finish();
}

/* -- slots -- */

static void create_slots(const char *name, const char *cards, const char *memory)
{
    const char *text = node_pod("none", name);
    json_t *pod = lib_parse(text, strlen(text));
    json_object_set_new(lib_at(pod, "metadata"), "annotations",
                        json_pack("{s:s}", "gpushare/memory", memory));
    json_object_set_new(lib_at(pod, "spec.containers.0.resources.limits"),
                        "aliyun.com/gpu-share", json_string(cards));
    peer_do(&cluster.api, "POST", CLUSTER_PODS, lib_text(pod, ""));
}

static void check_slots(const char *name, const char *promised)
{
    ck_assert_str_eq(
        lib_annotation(cluster_pod(name), "scheduler.framework.gpushare.allocation"),
        promised);
}

/* With two slots on each card. */
TEST(slots_have_their_memory_and_are_free_after_their_pods)
{
    static const char *const halves = "{\"0\":{\"1\":8192,\"2\":8192}}",
                             *const restarted[] = {"", "kubelet",
                                                   "gpushare-device-plugin"};
    if (!node_up_with(ARGV("--slots", "2")))
        return;
    create_slots("slot-p", "1", "6144Mi");
    cluster_wait_running("slot-p");
    node_create("equal", "equal-p"); /* fills the card */
    create_slots("half-p", "2", "50%");
    create_slots("other-p", "2", "50%");
    array_items(program, restarted) {
        if (**program)
            node_kill(*program);
        node_wait_well();
        node_wait_running(4);
        ck_assert_uint_eq(look_check(), 4);
        check_slots("slot-p", "{\"0\":{\"0\":6144}}");
        check_slots("equal-p", "{\"0\":{\"0\":2}}");
        check_slots("half-p", halves);
        check_slots("other-p", halves);
    }
    create_slots("next-p", "2", "50%");
    cluster_wait_refused("next-p",
                         "too few free slots of aliyun.com/gpu-share: GPU1,GPU2");
    cluster_delete(CLUSTER_PODS "/half-p");
    cluster_wait_running("next-p");
    ck_assert_uint_eq(look_check(), 4);
    check_slots("next-p", halves);
    look_finish();
}

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
    node_create(kind, lib_fmt("%s-%d-%zu", kind, w->round, i));
}

/* One that was refused, once more. */
static void create_again(const char *name)
{
    node_create(lib_fmt("%.*s", (int)strcspn(name, "-"), name), lib_fmt("%sx", name));
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
    json_t *pods = cluster_list(CLUSTER_PODS);
    const char *kinds[64], *names[64];
    size_t i, n = 0;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        const char *name = lib_str(pod, "metadata.name");
        if ((i + (size_t)round) % 2 || !fits_anywhere(name))
            continue;
        ck_assert_uint_lt(n, ARRAY_LEN(names));
        names[n] = name;
        kinds[n++] = lib_fmt("%.*s", (int)strcspn(name, "-"), name);
        peer_do(&cluster.api, "DELETE", lib_fmt(CLUSTER_PODS "/%s", name), NULL);
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
        cluster_report(lib_fmt("%s: %s", what,
                               round ? "half of them deleted, and as many created and run"
                                     : "created and run"),
                       lib_now_ms() - begun);
    }
    look_watch_end();
}

TEST(equal_pods_come_and_go)
{
    struct wave all = {ARGV("equal"), 1, 0};
    if (!node_up())
        return;
    run_rounds("40 equal pods", &all, 40, 40, 4);
    look_finish();
}

TEST(pods_of_every_form_come_and_go)
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

/* -- programs that are killed -- */

enum { WEB = 24, PAIRS = 4, WEB_UNITS = 2, PAIR_UNITS = 2 + 4 };

/* A third of the pods that run. */
static void delete_some(int turn)
{
    json_t *pods = cluster_list(CLUSTER_PODS);
    size_t i;
    json_t *pod;
    json_array_foreach(pods, i, pod)
    {
        cleanup_buf struct buf reply = {0};
        if (strcmp(lib_str(pod, "status.phase"), "Failed") != 0 &&
            ((int)i + turn) % 3 == 0)
            peer_call(&cluster.api, "DELETE",
                      lib_fmt(CLUSTER_PODS "/%s", lib_str(pod, "metadata.name")), NULL,
                      &reply);
    }
}

/* Some have begun to come: the kubelet is at it. */
static bool some_come(void)
{
    return json_array_size(cluster_list(CLUSTER_PODS
                                        "?fieldSelector=status.phase%3DPending,"
                                        "spec.nodeName%3D" NODE)) > 0;
}

static void await_some(void)
{
    int64_t end = lib_now_ms() + 2000; /* quick ones may have arrived by then */
    while (!some_come() && lib_now_ms() < end)
        lib_pause();
}

TEST(killed_programs_recover)
{
    static const char *const victims[] = {
        "gpushare-device-plugin", "kubelet", "gpushare-extender", "scv-agent", "kubelet",
        "gpushare-device-plugin"};
    if (!node_up())
        return;
    node_create_many("web", "equal", WEB);
    node_create_many("pair", "two", PAIRS);
    look_watch();
    array_indices(i, victims) {
        int64_t begun = lib_now_ms();
        if (i)
            delete_some((int)i);
        await_some();
        node_kill(victims[i]);
        node_wait_well();
        node_wait_running(WEB + PAIRS);
        ck_assert_uint_eq(look_check(), WEB + PAIRS * 2);
        cluster_report(lib_fmt("%s killed among %s; all as before (%zu refused)",
                               victims[i], i ? "10 pods that come" : "28 pods that come",
                               look_refusals(NULL)),
                       lib_now_ms() - begun);
    }
    look_watch_end();
    ck_assert_int_eq(lib_int(extender_node(&cluster.extender, NODE), "usedGPU"),
                     WEB * WEB_UNITS + PAIRS * PAIR_UNITS);
    look_finish();
}

NODE_MAIN
