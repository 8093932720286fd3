/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/dialect.h"

#include "domain/links.h"
#include "domain/objects.h"
#include "domain/promise.h"
#include "domain/requests.h"

/*
 * HAMi's limits and annotations as a request. What they mean is tested in test_dialect; here it is in
 * struct request, beside what nvidia.com/gpu means on other nodes.
 */

static struct arena arena;
static const struct request_rules rules = {.unit_mib = 1024, .dialect = &dialect_hami};
static const struct request_rules without = {.unit_mib = 1024};

#define GPU       "'nvidia.com/gpu':"
#define MEM       "'nvidia.com/gpumem':"
#define PERCENT   "'nvidia.com/gpumem-percentage':"
#define CORES     "'nvidia.com/gpucores':"
#define C(limits) "{'name':'c','resources':{'limits':{" limits "}}}"
#define SIDECAR(limits)                                                                  \
    "{'name':'s','restartPolicy':'Always','resources':{'limits':{" limits "}}}"
#define APPS(list) "'containers':[" list "]"
#define INIT(list) ",'initContainers':[" list "]"

static struct pod pod_of(const char *notes, const char *spec)
{
    return object_pod(&arena,
                      quoted(&arena,
                             "{'metadata':{'name':'p','uid':'u','annotations':{%s}"
                             "},'spec':{%s}}",
                             notes, spec));
}

/* What the pod asks for on nodes of HAMi's dialect. */
static struct request asks(const char *notes, const char *spec)
{
    struct pod pod = pod_of(notes, spec);
    struct request r;
    struct err err = {0};
    ck_assert_done(request_of(&pod, &rules, &arena, &r, &err), err);
    return *request_on(&r, SCV_DIALECT_HAMI);
}

TEST(each_shape_has_its_amount_of_a_card)
{
    static const struct {
        const char *spec;
        enum request_kind kind;
        uint32_t cards, slots, core;
        int64_t mib; /* of a card of 16384 MiB, of which the driver keeps 384 */
    } cases[] = {
        {APPS(C(GPU "'1'")), REQUEST_CARDS, 1, 0, 0, 16000},
        {APPS(C(GPU "'2'")), REQUEST_CARDS, 2, 0, 0, 16000},
        {APPS(C(GPU "'1'," MEM "'3k'")), REQUEST_MEMORY, 1, 1, 0, 3000},
        {APPS(C(GPU "'2'," MEM "'3000'")), REQUEST_MEMORY, 2, 1, 0, 3000},
        {APPS(C(GPU "'1'," MEM "'3000'," PERCENT "'50'")), REQUEST_MEMORY, 1, 1, 0, 3000},
        {APPS(C(GPU "'1'," PERCENT "'50'")), REQUEST_MEMORY, 1, 1, 0, 8000},
        {APPS(C(GPU "'1'," PERCENT "'33'," CORES "'30'")), REQUEST_MEMORY, 1, 1, 30,
         5280},
        {APPS(C(GPU "'1'," CORES "'30'")), REQUEST_MEMORY, 1, 1, 30, 16000},
        {APPS(C(GPU "'1'," CORES "'0'")), REQUEST_MEMORY, 1, 1, 0, 16000},
        {APPS(C(GPU "'1'," PERCENT "'100'")), REQUEST_CARDS, 1, 0, 0, 16000},
        {APPS(C(GPU "'1'," MEM "'3000'," CORES "'100'")), REQUEST_CARDS, 1, 0, 0, 3000},
        /* The driver keeps the rest of a card. */
        {APPS(C(GPU "'1'," MEM "'16000'")), REQUEST_MEMORY, 1, 1, 0, 16000},
        {APPS(C(GPU "'1'," MEM "'16001'")), REQUEST_MEMORY, 1, 1, 0, 16000},
        {APPS(C(GPU "'1'," MEM "'16384'")), REQUEST_MEMORY, 1, 1, 0, 16000},
        {APPS(C(GPU "'1'," MEM "'16385'")), REQUEST_MEMORY, 1, 1, 0, 16385},
        /* Containers. */
        {APPS(C(GPU "'1'," MEM "'3000'") "," C(GPU "'1'," PERCENT "'25'")),
         REQUEST_MEMORY, 1, 2, 0, 7000},
        {APPS(C(GPU "'1'," PERCENT "'1'") "," C(GPU "'1'," PERCENT
                                                    "'1'") "," C("'cpu':1")),
         REQUEST_MEMORY, 1, 2, 0, 320},
        {APPS(C(GPU "'1'," MEM "'10'")) INIT(C(GPU "'1'," MEM "'70'")), REQUEST_MEMORY, 1,
         1, 0, 70},
        {APPS(C(GPU "'1'," MEM "'10'"))
             INIT(SIDECAR(GPU "'1'," MEM "'20'") "," C(GPU "'1'," MEM "'5'")),
         REQUEST_MEMORY, 1, 2, 0, 30},
    };
    static const struct card_kind kind = {.total_mib = 16000, .kept_mib = 384};
    array_indices(i, cases) {
        struct request r = asks("", cases[i].spec);
        ck_assert_msg(r.kind == cases[i].kind && r.cards == cases[i].cards &&
                          r.slots == cases[i].slots &&
                          r.compute_percent == cases[i].core &&
                          r.dialect == SCV_DIALECT_HAMI && !r.hami,
                      "case %zu: kind %d, %u cards, %u slots, %u %%", i, r.kind, r.cards,
                      r.slots, r.compute_percent);
        ck_assert_msg(request_mib(&r, kind.total_mib, kind.kept_mib) == cases[i].mib,
                      "case %zu: %lld", i,
                      (long long)request_mib(&r, kind.total_mib, kind.kept_mib));
        bool small = r.kind == REQUEST_CARDS && cases[i].mib > kind.total_mib;
        ck_assert_int_eq(request_amount(&r, &kind), small ? -1 : cases[i].mib);
    }
}

/* nvidia.com/gpu alone is also a device of NVIDIA's plugin; the others are HAMi's alone. */
TEST(a_pod_has_one_or_two_meanings)
{
    static const struct {
        const char *spec;
        enum request_kind plain, hami; /* NONE: the same as `plain` */
    } cases[] = {
        {APPS(C(GPU "'1'")), REQUEST_DEVICES, REQUEST_CARDS},
        {APPS(C(GPU "'1'") "," C(GPU "'0'")), REQUEST_DEVICES, REQUEST_CARDS},
        {APPS(C(GPU "'1'," MEM "'3000'")), REQUEST_MEMORY, REQUEST_NONE},
        {APPS(C(GPU "'1'," CORES "'100'")), REQUEST_CARDS, REQUEST_NONE},
        {APPS(C(GPU "'0'")), REQUEST_NONE, REQUEST_NONE},
        {APPS(C("'cpu':'1'")), REQUEST_NONE, REQUEST_NONE},
        {APPS(C("'aliyun.com/gpu-mem':'1'," GPU "'0'")), REQUEST_MEMORY, REQUEST_NONE},
    };
    array_indices(i, cases) {
        struct pod pod = pod_of("", cases[i].spec);
        struct request r, today;
        struct err err = {0};
        ck_assert_done(request_of(&pod, &rules, &arena, &r, &err), err);
        ck_assert_done(request_of(&pod, &without, &arena, &today, &err), err);
        const struct request *hami = request_on(&r, SCV_DIALECT_HAMI);
        ck_assert_msg(r.kind == cases[i].plain, "case %zu: %d", i, r.kind);
        ck_assert_msg((hami != &r) == (cases[i].hami != REQUEST_NONE), "case %zu", i);
        if (hami == &r)
            continue;
        ck_assert_int_eq(hami->kind, cases[i].hami);
        ck_assert_ptr_eq(request_on(&r, SCV_DIALECT_NONE), &r);
        ck_assert(!request_fits_anywhere(&r) && request_needs_nothing(&r));
        r.hami = NULL;
        ck_assert(request_equal(&r, &today)); /* elsewhere it is what it was */
    }
}

TEST(annotations_restrict_the_cards)
{
    struct request r = asks("'nvidia.com/use-gputype':'a100,H100',"
                            "'nvidia.com/nouse-gpuuuid':'GPU-1',"
                            "'nvidia.com/numa-bind':'true',"
                            "'hami.io/gpu-scheduler-policy':'binpack'",
                            APPS(C(GPU "'2'," MEM "'1000'")));
    struct card_kind kind = {.model = SPAN("NVIDIA A100-SXM4-40GB"), .total_mib = 40000};
    ck_assert(request_accepts_card(&r, &kind) && request_is_selective(&r));
    ck_assert(request_rules_accept(&r, NULL, &SPAN("GPU-0")));
    ck_assert(!request_rules_accept(&r, NULL, &SPAN("GPU-1")));
    kind.model = SPAN("Tesla T4");
    ck_assert(!request_accepts_card(&r, &kind));
    ck_assert_int_eq(request_amount(&r, &kind), -1);
    ck_assert_int_eq(r.min_link, LINK_NODE);
    ck_assert_int_eq(r.placement, PLACE_BINPACK);
    r = asks("'nvidia.com/use-gputype':' '", APPS(C(GPU "'1'," MEM "'1000'")));
    ck_assert(!request_is_selective(&r) && request_accepts_card(&r, &kind));
    ck_assert_int_eq(r.placement, PLACE_SPREAD); /* HAMi's default */
    r = asks("'" KEY_GPU_MODEL "':'H100'", APPS(C(GPU "'1'," MEM "'1000'")));
    ck_assert(!request_accepts_card(&r, &kind));
    struct pod pod = pod_of("", APPS(C(GPU "'1'," MEM "'1000'")));
    struct err err = {0};
    pod.scv_clock = SPAN("1500");
    ck_assert_done(request_of(&pod, &rules, &arena, &r, &err), err);
    kind.spec.clock_mhz = 1400;
    ck_assert(!request_accepts_card(request_on(&r, SCV_DIALECT_HAMI), &kind));
    kind.spec.clock_mhz = 1500;
    ck_assert(request_accepts_card(request_on(&r, SCV_DIALECT_HAMI), &kind));
}

/* nvidia.com/gpu alone can mean cards that the kubelet chooses; beside HAMi's other
 * limits it cannot. */
TEST(links_can_be_demanded_of_cards_in_its_words)
{
    static const char link[] = "'" KEY_MIN_LINK "':'NV'";
    struct request r = asks(link, APPS(C(GPU "'2'," MEM "'1000'")));
    struct err err = {0};
    ck_assert_int_eq(r.kind, REQUEST_MEMORY);
    ck_assert_int_eq(r.min_link, LINK_NV);
    struct pod pod = pod_of(link, APPS(C(GPU "'2'")));
    ck_assert_int_eq(request_of(&pod, &rules, &arena, &r, &err), -1);
    ck_assert_contains(err.msg, "the kubelet chooses the cards");
    ck_assert(r.kind == REQUEST_NONE && !r.hami);
    pod.node = SPAN("n"); /* it runs */
    ck_assert_done(request_of(&pod, &rules, &arena, &r, &err), err);
    ck_assert(r.kind == REQUEST_DEVICES && !r.min_link && r.hami->min_link);
}

TEST(the_request_is_written_in_both_languages)
{
    static const char *const cases[][2] = {
        {APPS(C(GPU "'1'," MEM "'3k'")), "nvidia.com/gpumem 3000 on 1 card = 3000 MiB"},
        {APPS(C(GPU "'2'," PERCENT "'50'," CORES "'10'")),
         "nvidia.com/gpumem-percentage 50 on 2 cards, 10 percent of nvidia.com/gpucores"},
    };
    array_items(c, cases) {
        cleanup_buf struct buf out = {0};
        struct request r = asks("", (*c)[0]);
        request_write(&out, &r, 1024);
        ck_assert_str_eq(out.p, (*c)[1]);
    }
}

TEST(what_cannot_be_is_refused_where_it_means_that)
{
    static const struct {
        const char *notes, *spec, *says;
        bool certain;
    } cases[] = {
        {"", APPS(C(GPU "'2'," MEM "'1'") "," C(GPU "'1'," MEM "'1'")),
         "containers with 2 and 1 cards of nvidia.com/gpu", true},
        {"", APPS(C(GPU "'1'") "," C(GPU "'1'")), "more memory or compute than one card",
         false},
        {"", APPS(C(GPU "'65'")), "65 exceeds 64", false},
        {"", APPS(C(GPU "'1'," PERCENT "'101'")), "101 exceeds 100", true},
        {"", APPS(C(GPU "'1'," MEM "'10Gi'")), "exceeds 2147483647", true},
        {"", APPS(C(MEM "'100'")), "no limit nvidia.com/gpu, which admission adds", true},
        {"'nvidia.com/vgpu-mode':'mig'", APPS(C(GPU "'1'," MEM "'1'")),
         "does not allow hami-core", true},
        {"", APPS(C(GPU "'1'," MEM "'1'") "," C("'aliyun.com/gpu-mem':'1'")),
         "limits of both", true},
    };
    array_indices(i, cases) {
        struct pod pod = pod_of(cases[i].notes, cases[i].spec);
        struct request r;
        struct err err = {0};
        bool bad = request_of(&pod, &rules, &arena, &r, &err);
        ck_assert_msg(bad == cases[i].certain, "case %zu: %s", i, err.msg);
        if (bad) {
            ck_assert_contains(err.msg, cases[i].says);
            continue;
        }
        ck_assert_int_eq(r.kind, REQUEST_DEVICES);
        ck_assert_int_eq(r.hami->kind, REQUEST_NONE);
        ck_assert_msg(memmem(r.hami->words.p, r.hami->words.n, cases[i].says,
                             strlen(cases[i].says)),
                      "case %zu: %.*s", i, SPAN_ARG(r.hami->words));
    }
}

TEST(names_and_defaults_are_those_of_its_chart)
{
    struct dialect d = dialect_hami;
    const struct request_rules own = {.unit_mib = 1024, .dialect = &d};
    struct err err = {0};
    struct request r;
    ck_assert_done(dialect_configure(&d, (struct span){0}, &err), err);
    ck_assert_done(dialect_configure(&d,
                                     SPAN("resourceName=a.io/g, resourceMem=a.io/m,"
                                          "defaultMemory=500,memoryFactor=10,"
                                          "defaultCores=7"),
                                     &err),
                   err);
    struct pod pod = pod_of("", APPS(C("'a.io/g':'1','a.io/m':'30'")));
    ck_assert_done(request_of(&pod, &own, &arena, &r, &err), err);
    ck_assert_int_eq(r.kind, REQUEST_MEMORY); /* nobody else has such a resource */
    ck_assert_int_eq(request_mib(&r, 16000, 0), 300);
    ck_assert_uint_eq(r.compute_percent, 7);
    pod = pod_of("", APPS(C("'a.io/g':'1'," CORES "'0'")));
    ck_assert_done(request_of(&pod, &own, &arena, &r, &err), err);
    ck_assert_int_eq(request_mib(&r, 16000, 0), 500);
    static const char *const wrong[][2] = {
        {"resourceNames=x", "\"resourceNames\" is not resourceName"},
        {"defaultMemory=-1", "defaultMemory: \"-1\""},
        {"memoryFactor=0", "memoryFactor: \"0\""},
        {"defaultCores=101", "up to 100"},
        {"resourceMem=", "resourceMem is empty"},
        {"=1", "\"\" is not"},
        {"", "\"\" is not"},
    };
    array_items(c, wrong) {
        ck_assert_int_eq(dialect_configure(&d, span_of((*c)[0]), &err), -1);
        ck_assert_contains(err.msg, (*c)[1]);
    }
}

/* -- promises -- */

/* Settles the request on a card of 16000 MiB, writes its Binding, and reads the bound pod. */
static struct request bound(const char *spec, const char *edits, struct promise *p,
                            struct buf *written)
{
    struct promise_share share = {.card = 3, .card_units = 16000, .uuid = SPAN("GPU-3")};
    const struct promise promise = {.shares = &share, .n = 1, .unit_mib = 1};
    struct request r = asks("", spec), again;
    struct err err = {0};
    request_settle(&r, request_mib(&r, 16000, 384), 16000);
    promise_write(written, &promise, &r, SPAN("u"), 7);
    struct pod pod = object_pod(
        &arena,
        arena_copy(&arena,
                   span_of(arena_printf(
                       &arena,
                       "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\","
                       "\"annotations\":{%.*s%s}},%.*s}",
                       (int)written->n - 2, written->p + 1, quoted(&arena, "%s", edits).p,
                       SPAN_ARG(quoted(&arena, "'spec':{'nodeName':'n',%s}", spec))))));
    promise_of(&pod, &arena, p);
    ck_assert_done(promise_of_bound(&pod, p, &rules, &arena, &again, &err), err);
    return again;
}

/* The Binding names the part of each container, and its record counts. */
TEST(a_bound_pod_has_the_promise_of_its_binding)
{
    struct promise p;
    cleanup_buf struct buf first = {0}, second = {0}, third = {0};
    struct request r =
        bound(APPS(C(GPU "'1'," MEM "'1000'") "," C(GPU "'1'," PERCENT "'50'")), "", &p,
              &first);
    ck_assert_contains(first.p,
                       "{\\\"0\\\":{\\\"3\\\":1000},\\\"1\\\":{\\\"3\\\":8000}}");
    ck_assert_contains(first.p, "\"9000 u\"");
    ck_assert_int_eq(r.kind, REQUEST_DEVICES); /* on a node without the dialect */
    ck_assert_int_eq(r.hami->kind, REQUEST_MEMORY);
    ck_assert_int_eq(request_mib(r.hami, 20000, 0), 9000); /* of any card */
    ck_assert(!r.hami->recorded);
    ck_assert_int_eq(promise_share_mib(&p, 0, r.hami, 1024), 9000);
    r = bound(APPS(C(GPU "'1'")), "", &p, &second);
    ck_assert_contains(second.p, "{\\\"0\\\":{\\\"3\\\":16000}}");
    ck_assert(p.whole && r.hami->kind == REQUEST_CARDS);
    /* An edited type or mode changes nothing. */
    r = bound(APPS(C(GPU "'1'," MEM "'16384'")),
              ",'nvidia.com/vgpu-mode':'mig','nvidia.com/use-gputype':'T4'", &p, &third);
    ck_assert_contains(third.p, "\"16000 u\"");
    ck_assert(r.hami->kind == REQUEST_MEMORY && !r.hami->recorded);
    ck_assert_int_eq(request_mib(r.hami, 16000, 384), 16000);
}

/* Without a record, the limits count: they cannot be edited. */
TEST(a_bound_pod_without_a_record_counts_for_its_limits)
{
    struct pod pod = pod_of("", "'nodeName':'n'," APPS(C(GPU "'1'," MEM "'3000'")));
    struct promise p;
    struct request r;
    struct err err = {0};
    promise_of(&pod, &arena, &p);
    ck_assert_done(promise_of_bound(&pod, &p, &rules, &arena, &r, &err), err);
    ck_assert_int_eq(r.kind, REQUEST_DEVICES);
    ck_assert_int_eq(request_mib(r.hami, 16000, 0), 3000);
}
