/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/promise.h"

#include "domain/dialect.h"
#include "domain/objects.h"

static struct arena arena;

static struct pod annotated(const char *annotations)
{
    return object_pod(&arena, quoted(&arena,
                                     "{'metadata':{'name':'p','annotations':{%s}},"
                                     "'spec':{'nodeName':'n1','containers':[{'resources':"
                                     "{'limits':{'" KEY_GPU_MEM "':'6'}}}]}}",
                                     annotations));
}

/* The promise as "card:mib[@uuid] ...". */
static const char *read_back(const char *annotations)
{
    struct pod pod = annotated(annotations);
    struct request request = object_request(&arena, &pod, 1024);
    struct promise p;
    cleanup_buf struct buf b = {0};
    buf_adds(&b, "");
    if (promise_of(&pod, &arena, &p)) {
        for (size_t i = 0; i < p.n; i++) {
            buf_printf(&b, "%s%d:%lld", i ? " " : "", p.shares[i].card,
                       (long long)promise_share_mib(&p, i, &request, 1024));
            if (p.shares[i].uuid.n)
                buf_printf(&b, "@%.*s", SPAN_ARG(p.shares[i].uuid));
        }
    }
    return arena_copy(&arena, buf_span(&b)).p;
}

TEST(promises_of_the_go_extender_are_read)
{
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'1','" KEY_MEM_DEV
                               "':'15','" KEY_MEM_POD "':'6','" KEY_MEM_ASSIGNED
                               "':'true','" KEY_MEM_ASSUME_TIME
                               "':'1637000000000000000'"),
                     "1:6144");
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'-1'"), "");
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'x'"), "");
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':''"), "");
    ck_assert_str_eq(read_back(""), "");
}

TEST(the_allocation_has_the_units_of_each_card)
{
    ck_assert_str_eq(read_back("'" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':2,\\'3\\':4}}'"),
                     "1:2048 3:4096");
    ck_assert_str_eq(
        read_back("'" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':2},\\'1\\':{\\'1\\':4}}'"),
        "1:6144");
}

TEST(a_promise_below_the_request_counts_as_the_request)
{
    ck_assert_str_eq(read_back("'" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':1}}'"), "1:6144");
    ck_assert_str_eq(
        read_back("'" KEY_MEM_IDX "':'0,1','" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':1}}'"),
        "1:6144 0:6144"); /* either card may have all of it */
}

TEST(with_a_damaged_allocation_the_index_counts)
{
    static const char *const damaged[] = {"{",
                                          "[]",
                                          "{\\'0\\':5}",
                                          "{\\'0\\':{\\'x\\':1}}",
                                          "{\\'0\\':{\\'1\\':-1}}",
                                          "{\\'0\\':{\\'1\\':\\'2\\'}}",
                                          "{\\'0\\':{\\'70000\\':1}}",
                                          "{} {}"};
    array_items(d, damaged) {
        char text[256];
        snprintf(text, sizeof text, "'" KEY_MEM_IDX "':'2','" KEY_ALLOCATION "':'%s'",
                 *d);
        ck_assert_str_eq(read_back(text), "2:6144");
    }
}

TEST(with_too_many_allocated_cards_the_index_counts)
{
    cleanup_buf struct buf text = {0};
    buf_adds(&text, "'" KEY_MEM_IDX "':'2','" KEY_ALLOCATION "':'{\\'0\\':{");
    for (int i = 0; i <= REQUEST_MAX_CARDS; i++)
        buf_printf(&text, "%s\\'%d\\':1", i ? "," : "", i);
    buf_adds(&text, "}}'");
    ck_assert_str_eq(read_back(text.p), "2:6144");
}

TEST(where_index_and_allocation_differ_both_count)
{
    ck_assert_str_eq(
        read_back("'" KEY_MEM_IDX "':'0','" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':6}}'"),
        "1:6144 0:6144"); /* device plugins use the index */
}

TEST(uuids_are_in_the_order_of_the_index)
{
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'3,1','" KEY_CARD_UUID
                               "':'GPU-c, GPU-a','" KEY_ALLOCATION
                               "':'{\\'0\\':{\\'1\\':3,\\'3\\':3}}'"),
                     "1:3072@GPU-a 3:3072@GPU-c");
}

TEST(each_container_has_its_part)
{
    struct pod pod = annotated("'" KEY_MEM_IDX "':'3,1','" KEY_CARD_UUID
                               "':'GPU-c,GPU-a','" KEY_ALLOCATION
                               "':'{\\'0\\':{\\'1\\':2},\\'2\\':{\\'3\\':4}}'");
    struct promise p;
    ck_assert(promise_of_container(&pod, 2, &arena, &p));
    ck_assert_uint_eq(p.n, 1);
    ck_assert_int_eq(p.shares[0].card, 3);
    ck_assert_int_eq(p.shares[0].units, 4);
    ck_assert_span_eq(p.shares[0].uuid, "GPU-c");
    ck_assert(promise_of_container(&pod, 0, &arena, &p));
    ck_assert_int_eq(p.shares[0].card, 1);
    ck_assert(!promise_of_container(&pod, 1, &arena, &p));
    pod = annotated("'" KEY_MEM_IDX "':'3'");
    ck_assert(!promise_of_container(&pod, 0, &arena, &p));
}

static const char *written(const struct request *r, const struct promise_share *shares,
                           size_t n)
{
    struct promise p = {
        .shares = (struct promise_share *)shares, .n = n, .unit_mib = 1024};
    cleanup_buf struct buf b = {0};
    promise_write(&b, &p, r, SPAN("u"), 1700000000123456789);
    return arena_copy(&arena, buf_span(&b)).p;
}

TEST(a_shared_promise_is_written_in_the_documented_format)
{
    struct request_part parts[] = {{.index = 0, .amount = 2}, {.index = 2, .amount = 4}};
    struct request r = {
        .kind = REQUEST_MEMORY, .cards = 1, .units = 8, .parts = parts, .n_parts = 2};
    struct promise_share share = {
        .card = 1, .units = 8, .card_units = 15, .uuid = SPAN("GPU-1")};
    ck_assert_str_eq(
        written(&r, &share, 1),
        "{\"ALIYUN_COM_GPU_MEM_IDX\":\"1\",\"ALIYUN_COM_GPU_MEM_DEV\":\"15\","
        "\"ALIYUN_COM_GPU_MEM_POD\":\"8\","
        "\"gpushare/memory-unit\":\"1024\","
        "\"ALIYUN_COM_GPU_MEM_ASSIGNED\":\"false\","
        "\"ALIYUN_COM_GPU_MEM_ASSUME_TIME\":\"1700000000123456789\","
        "\"scheduler.framework.gpushare.allocation\":"
        "\"{\\\"0\\\":{\\\"1\\\":2},\\\"2\\\":{\\\"1\\\":4}}\","
        "\"gpushare/card-memory\":\"\",\"gpushare/card-uuid\":\"GPU-1\"}");
}

TEST(the_record_of_a_request_by_labels_names_its_pod)
{
    struct promise_share share = {.card = 1, .units = 5, .card_units = 15, .uuid = {0}};
    struct request r = {.kind = REQUEST_MEMORY,
                        .cards = 1,
                        .units = 5,
                        .mib_per_card = 5033,
                        .by_label = true};
    ck_assert_contains(written(&r, &share, 1), "\"gpushare/card-memory\":\"5033 u\"");
    r = (struct request){.kind = REQUEST_CARDS, .cards = 1, .by_label = true};
    ck_assert_contains(written(&r, &share, 1), "\"gpushare/card-memory\":\"whole u\"");
}

TEST(whole_cards_go_to_the_containers_in_order)
{
    struct request_part parts[] = {{.index = 0, .amount = 1}, {.index = 1, .amount = 2}};
    struct request r = {.kind = REQUEST_CARDS, .cards = 3, .parts = parts, .n_parts = 2};
    struct promise_share shares[] = {
        {.card = 0, .units = 15, .card_units = 15, .uuid = {0}},
        {.card = 2, .units = 15, .card_units = 15, .uuid = {0}},
        {.card = 3, .units = 22, .card_units = 22, .uuid = {0}}};
    const char *text = written(&r, shares, 3);
    ck_assert_contains(text, "MEM_POD\":\"52\"");
    ck_assert_contains(
        text, "{\\\"0\\\":{\\\"0\\\":15},\\\"1\\\":{\\\"2\\\":15,\\\"3\\\":22}}");
    ck_assert_contains(text, ",\"gpushare/card-uuid\":\"\"}");
}

TEST(a_promise_survives_a_round_trip)
{
    struct request_part parts[] = {{.index = 0, .amount = 2}, {.index = 1, .amount = 4}};
    struct request r = {.kind = REQUEST_MEMORY,
                        .cards = 2,
                        .units = 6,
                        .mib_per_card = 3072,
                        .parts = parts,
                        .n_parts = 2};
    struct promise_share shares[] = {
        {.card = 1, .units = 3, .card_units = 15, .uuid = SPAN("GPU-b")},
        {.card = 4, .units = 3, .card_units = 15, .uuid = SPAN("GPU-e")}};
    const char *text = written(&r, shares, 2);
    struct span json =
        quoted(&arena,
               "{'metadata':{'name':'p','annotations':%s},'spec':{"
               "'containers':[{'resources':{'limits':{'" KEY_GPU_MEM
               "':'2'}}},{'resources':{'limits':{'" KEY_GPU_MEM "':'4'}}}]}}",
               text);
    struct pod pod = object_pod(&arena, json);
    struct promise p;
    ck_assert(promise_of(&pod, &arena, &p));
    ck_assert_uint_eq(p.n, 2);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(p.shares[i].card, shares[i].card);
        ck_assert_int_eq(promise_share_mib(&p, i, &r, 1024), 3072);
        ck_assert(span_eq(p.shares[i].uuid, shares[i].uuid));
    }
}

/* The user copied the manifest of one of our pods. */
TEST(a_uuid_beside_a_promise_of_the_go_extender_was_copied)
{
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'1','" KEY_CARD_UUID "':'GPU-c'"),
                     "1:6144");
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'0','" KEY_CARD_UUID
                               "':'GPU-c','" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':6}}'"),
                     "1:6144 0:6144"); /* with the allocation both cards count */
    struct pod pod = annotated("'" KEY_MEM_IDX "':'0','" KEY_CARD_UUID
                               "':'GPU-c','" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':6}}'");
    struct promise p;
    ck_assert(promise_of_container(&pod, 0, &arena, &p));
    ck_assert_uint_eq(p.shares[0].uuid.n, 0);
}

TEST(unknown_uuids_are_written_as_empty)
{
    struct request_part part = {.index = 0, .amount = 6};
    struct request r = {
        .kind = REQUEST_MEMORY, .cards = 2, .units = 6, .parts = &part, .n_parts = 1};
    struct promise_share shares[] = {
        {.card = 0, .units = 3, .card_units = 15, .uuid = {0}},
        {.card = 3, .units = 3, .card_units = 22, .uuid = SPAN("GPU-d")}};
    ck_assert_contains(written(&r, shares, 2), ",\"gpushare/card-uuid\":\",GPU-d\"}");
    shares[1].uuid = (struct span){0};
    ck_assert_contains(written(&r, shares, 2), ",\"gpushare/card-uuid\":\"\"}");
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'0,3','" KEY_CARD_UUID
                               "':',GPU-d','" KEY_ALLOCATION
                               "':'{\\'0\\':{\\'0\\':3,\\'3\\':3}}'"),
                     "0:3072 3:3072@GPU-d");
    ck_assert_str_eq(read_back("'" KEY_MEM_IDX "':'0,3','" KEY_CARD_UUID
                               "':'','" KEY_ALLOCATION
                               "':'{\\'0\\':{\\'0\\':3,\\'3\\':3}}'"),
                     "0:3072 3:3072");
}

/* -- taken over from HAMi -- */

/* The promise that HAMi's annotations are, as "uuid MiB percent core ..., slots"; "": none of HAMi's. */
static const char *taken_over(bool counts, const char *metadata, const char *spec)
{
    struct pod pod = object_pod(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'p','annotations':{%s}},'spec':{'nodeName':'n1',%s}}",
               metadata, spec));
    struct promise p;
    struct err err = {0};
    int bad;
    cleanup_buf struct buf b = {0};
    if (!promise_of_hami(&pod, &dialect_hami, counts, &arena, &p, &bad, &err))
        return "";
    if (bad)
        return arena_copy(&arena, span_of(err.msg)).p;
    for (size_t i = 0; i < p.n; i++) {
        ck_assert_int_eq(p.shares[i].card, -1);
        buf_printf(&b, "%.*s %lld %u %u, ", SPAN_ARG(p.shares[i].uuid),
                   (long long)p.shares[i].mib, p.shares[i].percent,
                   p.shares[i].compute_percent);
    }
    buf_printf(&b, "%u", p.slots);
    return arena_copy(&arena, buf_span(&b)).p;
}

#define HAMI(text)      "'hami.io/vgpu-node':'n1','hami.io/vgpu-devices-allocated':'" text "'"
#define CONTAINER(list) "{'name':'c','resources':{'limits':{" list "}}}"
#define MIB(n)          "'nvidia.com/gpu':'1','nvidia.com/gpumem':'" n "'"

TEST(a_pod_of_hami_is_known_by_its_limits_and_annotations)
{
    static const char one[] = "'containers':[" CONTAINER(MIB("6000")) "]";
    static const char bare[] = "'containers':[" CONTAINER("'nvidia.com/gpu':'1'") "]";
    static const char both[] =
        "'containers':[" CONTAINER(MIB("6000") ",'aliyun.com/gpu-share':'1'") "]";
    static const char text[] = HAMI("a,NVIDIA,6000,0:;");
    ck_assert_str_eq(taken_over(true, text, one), "a 6000 0 0, 1");
    ck_assert_str_eq(taken_over(true, text, bare), "a 6000 100 100, 1");
    ck_assert_str_eq(taken_over(true, text, "'containers':[" CONTAINER("'cpu':'1'") "]"),
                     "");
    /* Ours counts alone. */
    ck_assert_str_eq(
        taken_over(true, HAMI("a,NVIDIA,6000,0:;") ",'" KEY_MEM_IDX "':'0'", one), "");
    ck_assert_str_eq(
        taken_over(true, HAMI("a,NVIDIA,6000,0:;") ",'" KEY_ALLOCATION "':''", one), "");
    ck_assert_str_eq(taken_over(true, text, both), "");
    /* No card is known: of HAMi only where a limit says so. */
    ck_assert_str_eq(taken_over(false, text, one), "0");
    ck_assert_str_eq(taken_over(false, text, bare), "");
    ck_assert_str_eq(taken_over(true, "'hami.io/vgpu-node':'n1'", one), "0");
    ck_assert_str_eq(
        taken_over(true, "'hami.io/vgpu-devices-allocated':'a,NVIDIA,1,0:;'", bare), "");
    ck_assert_contains(taken_over(true, HAMI("a"), one), "is not of this node");
    ck_assert_contains(taken_over(true, text, "'containers':[" CONTAINER(MIB("1.5")) "]"),
                       "nvidia.com/gpumem");
}

TEST(containers_of_a_pod_of_hami_add_up_on_each_card)
{
    static const char two[] = "'containers':[" CONTAINER(MIB("4000")) "," CONTAINER(
        "'nvidia.com/gpu':'2','nvidia.com/gpumem-percentage':'60','nvidia.com/"
        "gpucores':'70'") "]";
    ck_assert_str_eq(
        taken_over(true, HAMI("a,NVIDIA,4000,0:;a,NVIDIA,9000,70:b,NVIDIA,9000,70:;"),
                   two),
        "a 13000 60 70, b 9000 60 70, 2");
    static const char three[] = "'containers':[" CONTAINER(
        "'nvidia.com/gpu':'1','nvidia.com/"
        "gpumem-percentage':'60'") "," CONTAINER("'nvidia.com/gpu':'1','nvidia.com/"
                                                 "gpumem-percentage':'60'") "]";
    ck_assert_str_eq(
        taken_over(true, HAMI("a,NVIDIA,9000,60:;a,NVIDIA,9000,60:;"), three),
        "a 18000 100 100, 2");
}
