/* SPDX-License-Identifier: Apache-2.0 */
#include "integration/suite.h"
#include "placement/links_fixture.h"

/*
 * Cards that are connected: filter, prioritize and bind of pods of four cards on the machines
 * v100 (of which cards 1 and 2 are taken), a40 (bridges between pairs), and plain, of which
 * nothing is known.
 */

static void add_node(const char *name, const struct machine *m)
{
    sim_add_node(&sim, name, (int)m->n, 16);
    json_t *scv =
        peer_get(&sim.api, lib_fmt("/apis/core.run-linux.com/v1/scvs/%s", name));
    const char *p = m->rows;
    json_t *card;
    lib_each(card, lib_at(scv, "status.cardList")) {
        const char *from = p;
        for (unsigned word = 0; word < m->n; word++)
            p += strcspn(p, " ") + 1;
        json_object_set_new(card, "links", json_stringn(from, (size_t)(p - from) - 1));
    }
    sim_load(&sim, "%s", lib_text(scv, ""));
}

static void set_up(const char *topology)
{
    add_node("v100", &machines[0]);
    add_node("a40", &machines[3]);
    sim_add_node(&sim, "plain", 8, 16);
    for (int i = 1; i < 3; i++)
        sim_add_bound_pod(
            &sim, lib_fmt("old%d", i), 16, "v100",
            lib_fmt("{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\",\"ALIYUN_COM_GPU_MEM_"
                    "POD\":\"16\",\"ALIYUN_COM_GPU_MEM_DEV\":\"16\"}",
                    i));
    suite_extender(ARGV("--filter-answer=all", topology));
}

/* A pending pod of so many cards, with these further annotations; its JSON, kept. */
static const char *add_pod(const char *name, int cards, const char *more)
{
    cleanup_buf struct buf pod = {0};
    lib_pod(&pod, name, 16 * cards, NULL,
            lib_fmt("{\"aliyun.com/gpu-count\":\"%d\"%s}", cards, more));
    sim_load(&sim, "%s", pod.p);
    return lib_fmt("%s", pod.p);
}

static json_t *ask(const char *verb, const char *pod)
{
    return peer_post(
        &extender.verbs, lib_fmt("/gpushare-scheduler/%s", verb),
        lib_fmt("{\"Pod\":%s,\"NodeNames\":[\"a40\",\"plain\",\"v100\"]}", pod));
}

/* Binds the pod to v100, and expects these cards. */
static void expect_cards(const char *name, const char *indexes)
{
    struct buf why = {0};
    ck_assert_msg(extender_bind(&extender, name, "v100", &why), "%s", why.p);
    ck_assert_str_eq(
        lib_annotation(
            peer_get(&sim.api, lib_fmt("/api/v1/namespaces/default/pods/%s", name)),
            "ALIYUN_COM_GPU_MEM_IDX"),
        indexes);
    buf_fini(&why);
}

TEST(four_cards_are_connected)
{
    set_up("--topology=prefer");
    const char *pod = add_pod("p", 4, "");
    ck_assert_uint_eq(lib_size(ask("filter", pod), "NodeNames"), 3);
    const json_t *scores = ask("prioritize", pod);
    ck_assert_int_eq(lib_int(scores, "2.Score"), 10);
    ck_assert_int_gt(lib_int(scores, "0.Score"), lib_int(scores, "1.Score"));
    ck_assert_int_gt(10, lib_int(scores, "0.Score"));
    expect_cards("p", "4,5,6,7");
    oracle_agrees(&sim.api, &extender);
}

TEST(min_link_rejects_the_other_nodes)
{
    set_up("--topology=off"); /* a condition holds anyway */
    const json_t *reply = ask("filter", add_pod("p", 4, ",\"gpushare/min-link\":\"NV\""));
    ck_assert_str_eq(lib_text(reply, "NodeNames"), "[\"v100\"]");
    ck_assert_at(reply, "FailedAndUnresolvableNodes.a40",
                 "needs 16384 MiB on each of 4 cards, each two connected by NV or "
                 "better; no 4 such cards of the node are so connected");
    ck_assert_at(reply, "FailedNodes.plain",
                 "needs 16384 MiB on each of 4 cards, each two connected by NV or "
                 "better; what connects the node's cards is unknown");
    expect_cards("p", "4,5,6,7");
    reply = ask("filter", add_pod("q", 3, ",\"gpushare/min-link\":\"NV\""));
    ck_assert_contains(lib_str(reply, "FailedNodes.v100"), "on each of 3 cards");
    add_pod("r", 2, ",\"gpushare/min-link\":\"NV\"");
    expect_cards("r", "0,3");
    reply = ask("filter", add_pod("s", 2, ",\"gpushare/min-link\":\"NVLink\""));
    ck_assert_contains(lib_str(reply, "FailedAndUnresolvableNodes.v100"),
                       "annotation gpushare/min-link: \"NVLink\" is not NV, PIX, "
                       "PXB, PHB or NODE");
    oracle_agrees(&sim.api, &extender);
}

TEST(links_can_be_ignored)
{
    set_up("--topology=prefer");
    add_pod("p", 4, ",\"gpushare/topology\":\"none\"");
    expect_cards("p", "0,3,4,5");
    sim_delete_pod(&sim, "p");
    suite_restart(ARGV("--filter-answer=all", "--topology=off"));
    add_pod("q", 4, "");
    expect_cards("q", "0,3,4,5");
}

SUITE_MAIN(60, NULL)
