/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/keys.h"
#include "integration/suite.h"

/*
 * HAMi's requests, unchanged, on a node of HAMi's dialect (h) and on one of NVIDIA's device plugin (n):
 * filter, bind, and what is written. Cards have 16384 MiB, of which the driver keeps 384.
 */

#define GPU       "'nvidia.com/gpu':"
#define MEM       "'nvidia.com/gpumem':"
#define PERCENT   "'nvidia.com/gpumem-percentage':"
#define CORES     "'nvidia.com/gpucores':"
#define C(limits) "{'name':'c','image':'i','resources':{'limits':{" limits "}}}"

/* `status`: of the Scv, `notes`: annotations of the Node; slots of each card. */
static void add_node(const char *name, int slots, const char *status, const char *notes)
{
    sim_load_quoted(
        &sim,
        "{'apiVersion':'v1','kind':'Node','metadata':{'name':'%s','annotations':{%s}},"
        "'status':{'capacity':{'nvidia.com/gpu':'%d'},'allocatable':{'nvidia.com/gpu':"
        "'%d'}}}",
        name, notes, 2 * slots, 2 * slots);
    sim_load_quoted(
        &sim,
        "{'apiVersion':'core.run-linux.com/v1','kind':'Scv','metadata':{'name':'%s'},"
        "'spec':{'updateInterval':1000},'status':{%s'cardList':["
        "{'id':0,'health':'Healthy','model':'Tesla T4','uuid':'GPU-%s-0',"
        "'totalMemory':16384,'reservedMemory':384,'freeMemory':16384},"
        "{'id':1,'health':'Healthy','model':'NVIDIA A100','uuid':'GPU-%s-1',"
        "'totalMemory':16384,'reservedMemory':384,'freeMemory':16384}],"
        "'updateTime':'2026-11-21T09:00:00Z'}}",
        name, status, name, name);
}

static void set_up(int slots, const char *notes)
{
    add_node("h", slots, "'dialect':'hami',", notes);
    add_node("n", 1, "", "");
    suite_extender(ARGV("--requests-of", "hami", "--filter-answer", "all"));
    lib_wait(lib_size(extender_node(&extender, "h"), "devs") == 2 &&
             lib_size(extender_node(&extender, "n"), "devs") == 2);
}

static const char *pod_text(const char *name, const char *notes, const char *spec)
{
    return lib_fmt("{'apiVersion':'v1','kind':'Pod','metadata':{'name':'%s','namespace':"
                   "'default','uid':'uid-%s','annotations':{%s}},'spec':{%s},"
                   "'status':{'phase':'Pending'}}",
                   name, name, notes, spec);
}

static json_t *reply_for(const char *pod)
{
    char *body = (char *)lib_fmt("{'Pod':%s,'NodeNames':['h','n']}", pod);
    for (char *p = body; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    return lib_own(
        peer_json(&extender.verbs, "POST", "/gpushare-scheduler/filter", body));
}

static const char *why_not(const json_t *reply, const char *node)
{
    const char *later = lib_in(reply, "FailedNodes", node);
    return later && *later ? later : lib_in(reply, "FailedAndUnresolvableNodes", node);
}

static bool binds(const char *pod, const char *node, struct buf *why)
{
    bool bound = false;
    lib_wait((bound = extender_bind(&extender, pod, node, why)) ||
             !strstr(why->p, "requests no GPU memory"));
    return bound;
}

static json_t *stored(const char *pod)
{
    return peer_get(&sim.api, lib_fmt("/api/v1/namespaces/default/pods/%s", pod));
}

/* Each of them on the empty node, where it gets these parts; on which nodes it fits. */
TEST(every_shape_gets_its_part)
{
    static const struct {
        const char *notes, *spec, *nodes, *allocation, *record;
    } cases[] = {
        {"", "'containers':[" C(GPU "'1'") "]", "[\"h\",\"n\"]", "{\"0\":{\"0\":16000}}",
         "whole"},
        {"", "'containers':[" C(GPU "'1'," MEM "'3k'") "]", "[\"h\"]",
         "{\"0\":{\"0\":3000}}", "3000"},
        {"", "'containers':[" C(GPU "'2'," PERCENT "'50'") "]", "[\"h\"]",
         "{\"0\":{\"0\":8000,\"1\":8000}}", "8000"},
        {"", "'containers':[" C(GPU "'1'," MEM "'16384'") "]", "[\"h\"]",
         "{\"0\":{\"0\":16000}}", "16000"},
        {"", "'containers':[" C(GPU "'1'," CORES "'30'") "]", "[\"h\"]",
         "{\"0\":{\"0\":16000}}", "16000"},
        {"", "'containers':[" C(GPU "'1'," MEM "'1000'," CORES "'100'") "]", "[\"h\"]",
         "{\"0\":{\"0\":1000}}", "whole"},
        {"'nvidia.com/use-gputype':'a100'",
         "'containers':[" C(GPU "'1'," MEM "'1000'") "]", "[\"h\"]",
         "{\"0\":{\"1\":1000}}", "1000"},
        {"'nvidia.com/nouse-gpuuuid':'GPU-h-0'",
         "'containers':[" C(GPU "'1'," MEM "'1000'") "]", "[\"h\"]",
         "{\"0\":{\"1\":1000}}", "1000"},
        {"", "'containers':[" C(GPU "'1'," MEM "'1000'") "," C(GPU "'1'," MEM "'24'") "]",
         "[\"h\"]", "{\"0\":{\"0\":1000},\"1\":{\"0\":24}}", "1024"},
        {"",
         "'containers':[" C(GPU "'1'," MEM "'10'") "],'initContainers':[" C(
             GPU "'1'," MEM "'70'") "]",
         "[\"h\"]", "{\"0\":{\"0\":10}}", "70"},
    };
    cleanup_buf struct buf why = {0};
    set_up(10, "");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *name = lib_fmt("p%zu", i);
        const char *pod = pod_text(name, cases[i].notes, cases[i].spec);
        sim_load_quoted(&sim, "%s", pod);
        const json_t *reply = reply_for(pod);
        ck_assert_msg(!strcmp(lib_text(reply, "NodeNames"), cases[i].nodes),
                      "case %zu: %s", i, lib_text(reply, ""));
        ck_assert_msg(binds(name, "h", &why), "case %zu: %s", i, why.p);
        const json_t *bound = stored(name);
        ck_assert_msg(!strcmp(lib_annotation(bound, KEY_ALLOCATION), cases[i].allocation),
                      "case %zu: %s", i, lib_annotation(bound, KEY_ALLOCATION));
        ck_assert_str_eq(lib_annotation(bound, KEY_CARD_MEMORY),
                         lib_fmt("%s uid-%s", cases[i].record, name));
        ck_assert_str_eq(lib_annotation(bound, KEY_MEMORY_UNIT), "1");
        sim_delete_pod(&sim, name);
        lib_wait(extender_promised(&extender, "h") == 0);
    }
}

TEST(a_node_without_the_dialect_keeps_what_it_has)
{
    cleanup_buf struct buf why = {0};
    set_up(10, "");
    const char *plain = pod_text("g", "", "'containers':[" C(GPU "'1'") "]"),
               *ours = pod_text("m", "", "'containers':[" C(GPU "'1'," MEM "'3000'") "]");
    sim_load_quoted(&sim, "%s", plain);
    sim_load_quoted(&sim, "%s", ours);
    const json_t *reply = reply_for(ours);
    ck_assert_str_eq(
        why_not(reply, "n"),
        "needs nvidia.com/gpumem 3000 on 1 card = 3000 MiB; this node serves no "
        "requests of HAMi: its Scv has no dialect, which the CRD of 1.0 drops");
    ck_assert(!binds("m", "n", &why));
    ck_assert_contains(why.p, "serves no requests of HAMi");
    ck_assert(binds("g", "n", &why)); /* as a device of NVIDIA's plugin */
    ck_assert_str_eq(lib_annotation(stored("g"), KEY_ALLOCATION), "");
    lib_wait(lib_int(extender_node(&extender, "n"), "claimedCards") == 1);
    ck_assert(extender_promised(&extender, "n") == 0);
}

/* Whole cards, slots, cores and cordoned cards. */
TEST(the_cards_of_the_node_are_shared_as_hami_shares_them)
{
    static const char small[] =
        "'containers':[" C(GPU "'1'," MEM "'100'," CORES "'60'") "]",
                      tiny[] = "'containers':[" C(GPU "'1'," MEM "'1'") "]",
                      alone[] = "'containers':[" C(GPU "'1'") "]";
    cleanup_buf struct buf why = {0};
    set_up(2, "'hami.io/device-cordon':'GPU-x, GPU-h-1'");
    sim_load_quoted(&sim, "%s", pod_text("a", "", small));
    ck_assert_msg(binds("a", "h", &why), "%s", why.p);
    ck_assert_contains(why_not(reply_for(pod_text("b", "", small)), "h"),
                       "needs nvidia.com/gpumem 100 on 1 card = 100 MiB, 60 percent of "
                       "nvidia.com/gpucores");
    ck_assert_contains(why_not(reply_for(pod_text("b", "", alone)), "h"), "needs");
    sim_load_quoted(&sim, "%s", pod_text("t", "", tiny));
    ck_assert_msg(binds("t", "h", &why), "%s", why.p);
    const char *both = why_not(reply_for(pod_text("b", "", tiny)), "h");
    ck_assert_contains(both, "too few free slots of nvidia.com/gpu: GPU0");
    ck_assert_contains(both, "in the Node's annotation hami.io/device-cordon: GPU1");
    ck_assert(extender_promised(&extender, "h") == 0); /* less than a GiB */
    sim_delete_pod(&sim, "a");
    sim_delete_pod(&sim, "t");
    lib_wait(!*why_not(reply_for(pod_text("b", "", alone)), "h"));
}

/* What counts is the record of the Binding, also after a restart. */
TEST(an_edited_pod_keeps_its_promise)
{
    cleanup_buf struct buf why = {0};
    set_up(10, "");
    sim_load_quoted(&sim, "%s",
                    pod_text("a", "", "'containers':[" C(GPU "'2'," PERCENT "'75'") "]"));
    sim_load_quoted(&sim, "%s", pod_text("w", "", "'containers':[" C(GPU "'1'") "]"));
    ck_assert_msg(binds("a", "h", &why), "%s", why.p);
    ck_assert(!binds("w", "h", &why));
    for (int restarted = 0; restarted < 2; restarted++) {
        json_t *node = NULL;
        lib_wait((node = extender_node(&extender, "h")) &&
                 lib_int(node, "devs.0.promisedMiB") == 12000 &&
                 lib_int(node, "devs.1.promisedMiB") == 12000);
        ck_assert(*why_not(
            reply_for(pod_text("x", "", "'containers':[" C(GPU "'1'," MEM "'4001'") "]")),
            "h"));
        ck_assert(!*why_not(
            reply_for(pod_text("x", "", "'containers':[" C(GPU "'1'," MEM "'4000'") "]")),
            "h"));
        suite_restart(ARGV("--requests-of", "hami", "--filter-answer", "all"));
    }
}

static const char *explained(const char *pod)
{
    return lib_output_of(
        0, "kubectl-inspect-gpushare",
        ARGV("--kubeconfig", sim_kubeconfig(&sim), "explain", "pod", pod,
             lib_fmt("--extender=http://127.0.0.1:%u", extender.observers.port)));
}

/* In HAMi's words and in MiB, with what the node lacks, and how much less would fit. */
TEST(explain_speaks_both_languages)
{
    cleanup_buf struct buf why = {0};
    set_up(10, "");
    sim_load_quoted(&sim, "%s",
                    pod_text("a", "", "'containers':[" C(GPU "'2'," MEM "'13000'") "]"));
    sim_load_quoted(&sim, "%s",
                    pod_text("m", "", "'containers':[" C(GPU "'1'," MEM "'3200'") "]"));
    sim_load_quoted(&sim, "%s",
                    pod_text("t", "'nvidia.com/use-gputype':'H100'",
                             "'containers':[" C(GPU "'1'," MEM "'100'") "]"));
    sim_load_quoted(&sim, "%s",
                    pod_text("c",
                             "'nvidia.com/use-gputype':'H100'},'labels':{"
                             "'scv/clock':'9000'",
                             "'containers':[" C(GPU "'1'," MEM "'100'") "]"));
    sim_load_quoted(&sim, "%s", pod_text("g", "", "'containers':[" C(GPU "'1'") "]"));
    ck_assert_msg(binds("a", "h", &why), "%s", why.p);
    const char *said = explained("m");
    ck_assert_contains(said, "nvidia.com/gpumem 3200 on 1 card = 3200 MiB");
    ck_assert_contains(said, "this node serves no requests of HAMi");
    ck_assert_contains(said,
                       "request 3000 MiB instead of 3200 MiB: the pod fits on node h");
    said = explained("t");
    ck_assert_contains(
        said, "no node has cards that the annotations accept; models in the cluster");
    said = explained("c"); /* the clock need not be why */
    ck_assert_contains(
        said, "no node has cards that the annotations accept; models in the cluster");
    said = explained("g");
    ck_assert_contains(said,
                       "1 nvidia.com/gpu; on nodes of HAMi: nvidia.com/gpu 1 on 1 card");
    said = explained("a");
    ck_assert_contains(said, "nvidia.com/gpumem 13000 on 2 cards = 13000 MiB each");
}

/* The names that the extender was given. */
TEST(explain_knows_the_names_of_the_cluster)
{
    add_node("h", 10, "'dialect':'hami',", "");
    suite_extender(ARGV("--requests-of", "hami", "--hami-values",
                        "resourceMem=example.com/mem, memoryFactor=2"));
    sim_load_quoted(
        &sim, "%s",
        pod_text("m", "", "'containers':[" C(GPU "'1','example.com/mem':'100'") "]"));
    ck_assert_contains(explained("m"), "example.com/mem 100 on 1 card = 200 MiB");
}

/* Two containers of one card each: two devices of NVIDIA's plugin, and no request of HAMi. */
TEST(one_pod_can_be_invalid_on_one_node_alone)
{
    set_up(10, "");
    const json_t *reply =
        reply_for(pod_text("t", "", "'containers':[" C(GPU "'1'") "," C(GPU "'1'") "]"));
    ck_assert_str_eq(lib_text(reply, "NodeNames"), "[\"n\"]");
    ck_assert_contains(why_not(reply, "h"),
                       "the containers need more memory or compute than one card has");
    ck_assert_contains(why_not(reply, "h"), "is a request of HAMi on this node");
    reply = reply_for(pod_text(
        "t", "",
        "'containers':[" C(GPU "'1'," MEM "'1'") "," C(GPU "'2'," MEM "'1'") "]"));
    ck_assert_contains(why_not(reply, "n"), "all memory of a pod is on the same cards");
}

/* Without the option, nothing is HAMi's, and nvidia.com/gpu means nothing on its nodes. */
TEST(without_the_option_no_pod_comes_to_the_dialect)
{
    add_node("h", 10, "'dialect':'hami',", "");
    add_node("n", 1, "", "");
    suite_extender(ARGV("--filter-answer", "all"));
    lib_wait(lib_size(extender_node(&extender, "h"), "devs") == 2);
    const json_t *reply =
        reply_for(pod_text("t", "", "'containers':[" C(GPU "'1'," MEM "'1'") "]"));
    ck_assert_str_eq(lib_text(reply, "NodeNames"), "[\"n\"]");
    ck_assert_contains(why_not(reply, "h"), "dialect is unknown to the extender");
}

/* The best node, with its cards reserved, whichever meaning the pod has there. */
TEST(cards_are_reserved_on_the_node_that_has_them)
{
    cleanup_buf struct buf why = {0};
    add_node("h", 10, "'dialect':'hami',", "");
    add_node("n", 1, "", "");
    suite_extender(ARGV("--requests-of", "hami"));
    lib_wait(extender_leads(&extender) &&
             lib_size(extender_node(&extender, "h"), "devs") == 2);
    for (int i = 0; i < 3; i++) {
        const char *name = lib_fmt("w%d", i);
        const char *pod = pod_text(name, "", "'containers':[" C(GPU "'1'") "]");
        sim_load_quoted(&sim, "%s", pod);
        const json_t *reply = NULL;
        lib_wait((reply = reply_for(pod)) && lib_size(reply, "NodeNames") == 1);
        const char *node = lib_str(reply, "NodeNames.0");
        ck_assert_msg(binds(name, node, &why), "%s: %s", node, why.p);
    }
}

SUITE_MAIN(60, NULL)
