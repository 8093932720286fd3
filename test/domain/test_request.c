/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/request.h"

#include "domain/objects.h"

static struct arena arena;

/* A pod made of parts: "a4" an app container of 4 units, "s" a sidecar, "i" an init
 * container; upper case letters ask for whole cards. meta: more members of metadata. */
static struct pod make(const char *parts, const char *meta)
{
    cleanup_buf struct buf apps = {0}, inits = {0};
    struct span rest = span_of(parts);
    while (rest.n) {
        struct span part = span_cut(&rest, ' ');
        char role = part.p[0];
        bool cards = role >= 'A' && role <= 'Z';
        bool app = role == 'a' || role == 'A';
        struct buf *list = app ? &apps : &inits;
        buf_printf(list, "%s{%s'resources':{'limits':{'%s':'%.*s'}}}", list->n ? "," : "",
                   role == 's' || role == 'S' ? "'restartPolicy':'Always'," : "",
                   cards ? KEY_GPU_COUNT : KEY_GPU_MEM, (int)part.n - 1, part.p + 1);
    }
    return object_pod(&arena,
                      quoted(&arena,
                             "{'metadata':{'name':'p'%s},'spec':{'containers':[%s],"
                             "'initContainers':[%s]}}",
                             meta, apps.n ? apps.p : "", inits.n ? inits.p : ""));
}

START_TEST(containers_add_up_as_kubernetes_adds_them)
{
    static const struct {
        const char *parts;
        int64_t units;
    } cases[] = {
        {"a8", 8},          {"a2 a4", 6},
        {"a2 i8", 8},       /* the init container alone is larger */
        {"a5 a5 i8", 10},   /* the app containers together are larger */
        {"a4 s2", 6},       /* a sidecar stays */
        {"a1 s2 i8", 10},   /* the init container runs beside the earlier sidecar */
        {"a1 i8 s2", 8},    /* ... not beside a later one */
        {"a3 i2 i7 i4", 7}, /* init containers run one after the other */
        {"s3 s4", 7},       {"a0 i0", 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pod pod = make(cases[i].parts, "");
        struct request r = object_request(&arena, &pod, 1024);
        ck_assert_msg(r.units == cases[i].units, "%s: %lld", cases[i].parts,
                      (long long)r.units);
        ck_assert_int_eq(r.kind, cases[i].units ? REQUEST_MEMORY : REQUEST_NONE);
        ck_assert_int_eq(r.mib_per_card, cases[i].units * 1024);
    }
}
END_TEST

START_TEST(the_parts_are_those_that_run_side_by_side)
{
    struct pod pod = make("a2 i8 s3 a4", "");
    struct request r = object_request(&arena, &pod, 1);
    ck_assert_uint_eq(r.n_parts, 3);
    int64_t by_index[3] = {0};
    for (size_t i = 0; i < r.n_parts; i++)
        by_index[r.parts[i].index] = r.parts[i].amount;
    ck_assert_int_eq(by_index[0], 2);
    ck_assert_int_eq(by_index[1], 4);
    ck_assert_int_eq(by_index[2], 3); /* the sidecar follows the app containers */
}
END_TEST

START_TEST(memory_is_split_over_cards_by_label_or_annotation)
{
    struct pod pod = make("a4 a8", ",'labels':{'" KEY_GPU_COUNT "':'2'}");
    struct request r = object_request(&arena, &pod, 1024);
    ck_assert_int_eq(r.kind, REQUEST_MEMORY);
    ck_assert_uint_eq(r.cards, 2);
    ck_assert_int_eq(r.units, 12);
    ck_assert_int_eq(r.mib_per_card, 6 * 1024);
    pod = make("a9", ",'annotations':{'" KEY_GPU_COUNT "':' 3 '}");
    r = object_request(&arena, &pod, 1);
    ck_assert_uint_eq(r.cards, 3);
    ck_assert_int_eq(r.mib_per_card, 3);
}
END_TEST

START_TEST(whole_cards_are_counted)
{
    struct pod pod = make("A2 A1 I4", "");
    struct request r = object_request(&arena, &pod, 1024);
    ck_assert_int_eq(r.kind, REQUEST_CARDS);
    ck_assert_uint_eq(r.cards, 4);
    ck_assert_uint_eq(r.n_parts, 2);
}
END_TEST

START_TEST(the_placement_policy_is_read)
{
    struct pod pod = make("a1", ",'annotations':{'" KEY_PLACEMENT "':'spread'}");
    ck_assert_int_eq(object_request(&arena, &pod, 1).placement, PLACE_SPREAD);
    pod = make("a1", ",'annotations':{'" KEY_PLACEMENT "':'binpack'}");
    ck_assert_int_eq(object_request(&arena, &pod, 1).placement, PLACE_BINPACK);
    pod = make("a1", "");
    ck_assert_int_eq(object_request(&arena, &pod, 1).placement, PLACE_BINPACK);
}
END_TEST

START_TEST(what_cannot_be_meant_is_refused_with_the_reason)
{
    static const struct {
        const char *parts, *meta, *message;
    } cases[] = {
        {"a1 A1", "",
         "limits of both aliyun.com/gpu-mem and aliyun.com/gpu-count in one pod"},
        {"a5", ",'labels':{'" KEY_GPU_COUNT "':'2'}",
         "container 0: 5 units of aliyun.com/gpu-mem cannot be split evenly over 2 "
         "cards"},
        {"a3 a3", ",'labels':{'" KEY_GPU_COUNT "':'2'}",
         "container 0: 3 units of aliyun.com/gpu-mem cannot be split evenly over 2 "
         "cards"},
        {"a4 i4", ",'labels':{'" KEY_GPU_COUNT "':'2'}",
         "an init container asks for aliyun.com/gpu-mem, which cannot be split over 2 "
         "cards"},
        {"a4", ",'labels':{'" KEY_GPU_COUNT "':'two'}",
         "label aliyun.com/gpu-count: \"two\" is not a number of cards (1..64)"},
        {"a4", ",'annotations':{'" KEY_GPU_COUNT "':'0'}",
         "annotation aliyun.com/gpu-count: \"0\" is not a number of cards (1..64)"},
        {"a4",
         ",'labels':{'" KEY_GPU_COUNT "':'2'},'annotations':{'" KEY_GPU_COUNT "':'4'}",
         "label aliyun.com/gpu-count says \"2\" and the annotation says \"4\""},
        {"a1.5", "",
         "container 0: limit aliyun.com/gpu-mem: \"1.5\" is not a whole number"},
        {"s-1", "",
         "init container 0: limit aliyun.com/gpu-mem: \"-1\" is not a whole number"},
        {"a4", ",'annotations':{'" KEY_PLACEMENT "':'tight'}",
         "annotation gpushare/placement: \"tight\" is neither binpack nor spread"},
        {"A65", "", "65 whole cards are more than the 64 a pod can ask for"},
        {"a1E", "",
         "container 0: limit aliyun.com/gpu-mem: 1000000000000000000 is more than any "
         "node "
         "has"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pod pod = make(cases[i].parts, cases[i].meta);
        struct request r;
        struct err err = {0};
        ck_assert_msg(request_of(&pod, 1024, &arena, &r, &err) == -1, "%s",
                      cases[i].parts);
        ck_assert_str_eq(err.msg, cases[i].message);
        ck_assert_int_eq(r.kind, REQUEST_NONE);
    }
}
END_TEST

START_TEST(a_request_has_a_short_form)
{
    static const struct {
        const char *parts, *meta;
        int64_t unit;
        const char *text;
    } cases[] = {
        {"a8", "", 1024, "8 GiB"},
        {"a8138", "", 1, "8138 MiB"},
        {"a8", ",'labels':{'" KEY_GPU_COUNT "':'2'}", 256, "2048 MiB on 2 cards"},
        {"A1", "", 1024, "1 whole card"},
        {"A3", "", 1024, "3 whole cards"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pod pod = make(cases[i].parts, cases[i].meta);
        struct request r = object_request(&arena, &pod, cases[i].unit);
        cleanup_buf struct buf b = {0};
        request_write(&b, &r, cases[i].unit);
        ck_assert_str_eq(b.p, cases[i].text);
    }
}
END_TEST

UNIT_MAIN("request", containers_add_up_as_kubernetes_adds_them,
          the_parts_are_those_that_run_side_by_side,
          memory_is_split_over_cards_by_label_or_annotation, whole_cards_are_counted,
          the_placement_policy_is_read, what_cannot_be_meant_is_refused_with_the_reason,
          a_request_has_a_short_form)
