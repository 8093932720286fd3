/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/request.h"

#include "domain/links.h"
#include "domain/objects.h"

static struct arena arena;
static const struct request_rules gib = {.unit_mib = 1024};

#define LABELS(members) ",'labels':{" members "}"
#define NOTE(key, text) ",'annotations':{'" key "':'" text "'}"
#define MODEL(text)     ",'annotations':{'" KEY_GPU_MODEL "':'" text "'}"

/* A pod made of parts: "a4" an app container of 4 units, "s" a sidecar, "i" an init
 * container; upper case letters request whole cards, a leading star nvidia.com/gpu.
 * meta: additional members of metadata. */
static struct pod make(const char *parts, const char *meta)
{
    cleanup_buf struct buf apps = {0}, inits = {0};
    struct span rest = span_of(parts);
    while (rest.n) {
        struct span part = span_cut(&rest, ' ');
        bool devices = part.p[0] == '*';
        part.p += devices;
        part.n -= devices;
        char role = part.p[0];
        bool cards = role >= 'A' && role <= 'Z';
        bool app = role == 'a' || role == 'A';
        struct buf *list = app ? &apps : &inits;
        buf_printf(list, "%s{%s'resources':{'limits':{'%s':'%.*s'}}}", list->n ? "," : "",
                   role == 's' || role == 'S' ? "'restartPolicy':'Always'," : "",
                   devices ? KEY_NVIDIA_GPU
                   : cards ? KEY_GPU_COUNT
                           : KEY_GPU_MEM,
                   (int)part.n - 1, part.p + 1);
    }
    return object_pod(&arena,
                      quoted(&arena,
                             "{'metadata':{'name':'p'%s},'spec':{'containers':[%s],"
                             "'initContainers':[%s]}}",
                             meta, apps.n ? apps.p : "", inits.n ? inits.p : ""));
}

TEST(containers_add_up_as_in_kubernetes)
{
    static const struct {
        const char *parts;
        int64_t units;
    } cases[] = {
        {"a8", 8},          {"a2 a4", 6},
        {"a2 i8", 8},       /* the init container alone is larger */
        {"a5 a5 i8", 10},   /* the app containers together are larger */
        {"a4 s2", 6},       /* a sidecar keeps running */
        {"a1 s2 i8", 10},   /* the init container runs beside the earlier sidecar */
        {"a1 i8 s2", 8},    /* ... not beside a later one */
        {"a3 i2 i7 i4", 7}, /* init containers run one by one */
        {"s3 s4", 7},       {"a0 i0", 0},
        {"a8 *a0", 8}, /* so that a driver upgrade selects the pod: docs/gpu-operator.md */
    };
    array_items(c, cases) {
        struct pod pod = make(c->parts, "");
        struct request r = object_request(&arena, &pod, 1024);
        ck_assert_msg(r.units == c->units, "%s: %lld", c->parts, (long long)r.units);
        ck_assert_int_eq(r.kind, c->units ? REQUEST_MEMORY : REQUEST_NONE);
        ck_assert_int_eq(r.mib_per_card, c->units * 1024);
    }
}

TEST(the_parts_are_the_containers_that_run_concurrently)
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

#define COUNT(kind, n) ",'" kind "':{'" KEY_GPU_COUNT "':'" n "'}"

/* Of limits, of labels, and of both. */
TEST(requests_are_read)
{
    static const struct {
        const char *parts, *meta;
        enum request_kind kind;
        uint32_t cards;
        int64_t units, mib, clock;
        uint32_t n_parts;
    } cases[] = {
        {"a4 a8", COUNT("labels", "2"), REQUEST_MEMORY, 2, 12, 6144, 0, 2},
        {"a9", COUNT("annotations", " 3 "), REQUEST_MEMORY, 3, 9, 3072, 0, 1},
        {"A2 A1 I4", "", REQUEST_CARDS, 4, 0, 0, 0, 2},
        {"*a1 *a2 *i4", "", REQUEST_DEVICES, 4, 0, 0, 0, 0},
        /* time-slicing: a node can have so many */
        {"*a100", LABELS("'scv/memory':'16000'"), REQUEST_DEVICES, 100, 0, 16000, 0, 0},
        {"*a1073741824 *a1073741824 *a1073741824 *a1073741824", "", REQUEST_DEVICES,
         1073741824, 0, 0, 0, 0},
        {"*a0", MODEL("A"), REQUEST_NONE, 0, 0, 0, 0, 0},
        {"", LABELS("'scv/memory':'8000'"), REQUEST_MEMORY, 1, 8, 8000, 0, 1},
        {"", LABELS("'scv/memory':'8193','scv/number':'2'"), REQUEST_MEMORY, 2, 18, 8193,
         0, 1},
        {"", LABELS("'scv/number':'2'"), REQUEST_CARDS, 2, 0, 0, 0, 1},
        {"", LABELS("'scv/clock':'5001'"), REQUEST_CARDS, 1, 0, 0, 5001, 1},
        {"", LABELS("'scv/priority':'7'"), REQUEST_NONE, 0, 0, 0, 0, 0},
        {"a8", LABELS("'scv/number':'1','scv/memory':'8000'"), REQUEST_MEMORY, 1, 8, 8192,
         0, 1},
        {"A2", LABELS("'scv/number':'2','scv/memory':'16000'"), REQUEST_CARDS, 2, 0,
         16000, 0, 1},
    };
    array_items(c, cases) {
        struct pod pod = make(c->parts, c->meta);
        struct request r = object_request(&arena, &pod, 1024);
        ck_assert_int_eq(r.kind, c->kind);
        ck_assert_uint_eq(r.cards, c->cards);
        ck_assert_int_eq(r.units, c->units);
        ck_assert_int_eq(r.mib_per_card, c->mib);
        ck_assert_int_eq(r.clock_mhz, c->clock);
        ck_assert_uint_eq(r.n_parts, c->n_parts);
        ck_assert_int_eq(r.by_label, !c->parts[0] && r.kind != REQUEST_NONE);
        ck_assert_int_eq(request_fits_anywhere(&r),
                         r.kind == REQUEST_NONE ||
                             (r.kind == REQUEST_DEVICES && !r.mib_per_card));
    }
    struct pod pod = make("", LABELS("'scv/number':'2'"));
    const struct request_rules share = {.unit_mib = 1024, .number_shares = true};
    struct request r;
    ck_assert_int_eq(request_of(&pod, &share, &arena, &r, NULL), 0);
    ck_assert(r.kind == REQUEST_MEMORY && r.mib_per_card == 0);
    pod = make("*a1", MODEL("A"));
    r = object_request(&arena, &pod, 1024);
    ck_assert(!request_fits_anywhere(&r));
}

TEST(compute_is_a_share_of_the_cards_of_the_memory)
{
    static const struct {
        const char *meta, *containers, *says; /* says: the error; NULL: `core` */
        int core;
    } cases[] = {
        {"", "{'resources':{'limits':{'M':'4','C':'30'}}}", NULL, 30},
        {"", "{'resources':{'limits':{'M':'4'}}}", NULL, 0},
        {"",
         "{'resources':{'limits':{'M':'4','C':'30'}}},{'resources':{'limits':{'M':'2',"
         "'C':'20'}}}",
         NULL, 50},
        {"2", "{'resources':{'limits':{'M':'4','C':'150'}}}", NULL, 75},
        {"", "{'resources':{'limits':{'M':'4','C':'101'}}}",
         "limit " KEY_GPU_CORE ": 101 percent exceed the compute of 1 card", 0},
        {"2", "{'resources':{'limits':{'M':'4','C':'202'}}}",
         "limit " KEY_GPU_CORE ": 202 percent exceed the compute of 2 cards", 0},
        {"2", "{'resources':{'limits':{'M':'4','C':'15'}}}",
         "container 0: 15 percent of compute cannot be split evenly over 2 cards", 0},
        {"", "{'resources':{'limits':{'M':'4'}}},{'resources':{'limits':{'C':'5'}}}",
         "container 1: limit " KEY_GPU_CORE " without limit " KEY_GPU_MEM, 0},
        {"", "{'resources':{'limits':{'C':'5'}}}",
         "limit of " KEY_GPU_CORE " without limit of " KEY_GPU_MEM " in the pod", 0},
        {"", "{'resources':{'limits':{'M':'4','C':'-5'}}}",
         "container 0: limit " KEY_GPU_CORE, 0},
        {"", "{'resources':{'limits':{'M':'4','C':'99999999999999999999'}}}",
         "container 0: limit " KEY_GPU_CORE, 0},
    };
    array_indices(i, cases) {
        cleanup_buf struct buf list = {0};
        for (const char *at = cases[i].containers; *at; at++) {
            bool key = (at[0] == 'M' || at[0] == 'C') && at[1] == '\'';
            buf_adds(&list, key ? (*at == 'M' ? KEY_GPU_MEM : KEY_GPU_CORE) : "");
            if (!key)
                buf_addc(&list, *at);
        }
        cleanup_buf struct buf meta = {0};
        if (cases[i].meta[0])
            buf_printf(&meta, ",'labels':{'" KEY_GPU_COUNT "':'%s'}", cases[i].meta);
        struct pod pod = object_pod(
            &arena,
            quoted(&arena, "{'metadata':{'name':'p'%s},'spec':{'containers':[%s]}}",
                   meta.n ? meta.p : "", list.p));
        struct request r;
        struct err err = {0};
        int rc = request_of(&pod, &gib, &arena, &r, &err);
        if (cases[i].says) {
            ck_assert_msg(rc && strstr(err.msg, cases[i].says) == err.msg,
                          "case %zu: \"%s\"", i, err.msg);
            continue;
        }
        ck_assert_msg(rc == 0, "case %zu: %s", i, err.msg);
        ck_assert_msg(r.compute_percent == cases[i].core, "case %zu: %u", i,
                      r.compute_percent);
    }
}

/* In `containers` S is gpu-share, M gpu-mem, C compute, N a count; `notes` are annotations. */
static struct pod slots_pod(const char *notes, const char *containers)
{
    static const struct {
        const char *letter, *key;
    } keys[] = {{"S'", KEY_GPU_SHARE "'"},
                {"M'", KEY_GPU_MEM "'"},
                {"C'", KEY_GPU_CORE "'"},
                {"N'", KEY_GPU_COUNT "'"},
                {"G'", KEY_NVIDIA_GPU "'"}};
    cleanup_buf struct buf b = {0};
    for (const char *at = containers; *at;) {
        size_t k = 0;
        while (k < ARRAY_LEN(keys) && strncmp(at, keys[k].letter, 2) != 0)
            k++;
        if (k < ARRAY_LEN(keys))
            buf_adds(&b, keys[k].key);
        else
            buf_addc(&b, *at);
        at += k < ARRAY_LEN(keys) ? 2 : 1;
    }
    return object_pod(
        &arena, quoted(&arena, "{'metadata':{'name':'p','annotations':{%s}},'spec':{%s}}",
                       notes, b.p));
}

#define MEMORY(text)  "'" KEY_MEMORY "':'" text "'"
#define HAS(limits)   "{'resources':{'limits':{" limits "}}}"
#define SIDECAR_OF(n) "{'restartPolicy':'Always','resources':{'limits':{'S':'" n "'}}}"
#define APPS(list)    "'containers':[" list "]"
#define ONE_SLOT      APPS(HAS("'S':'1'"))
#define BEFORE(list)  ",'initContainers':[" list "]"

TEST(slots_have_memory_in_mib_or_percent)
{
    static const struct {
        const char *notes, *containers;
        uint32_t cards, slots, percent, core;
        int64_t mib, part; /* of each container, on all cards */
    } cases[] = {
        {MEMORY("6Gi"), ONE_SLOT, 1, 1, 0, 0, 6144, 6144},
        {MEMORY(" 6144Mi "), ONE_SLOT, 1, 1, 0, 0, 6144, 6144},
        {MEMORY("1.5Gi"), ONE_SLOT, 1, 1, 0, 0, 1536, 1536},
        {MEMORY("1048576"), ONE_SLOT, 1, 1, 0, 0, 1, 1},
        {MEMORY("6Gi"), APPS(HAS("'S':'3'")), 3, 1, 0, 0, 6144, 3 * 6144},
        {MEMORY("6Gi"), APPS(HAS("'S':'2'")) ",'x':0", 2, 1, 0, 0, 6144, 2 * 6144},
        {MEMORY("50%"), ONE_SLOT, 1, 1, 50, 0, 0, 0},
        {MEMORY("1%"), APPS(HAS("'S':'2'")), 2, 1, 1, 0, 0, 0},
        {MEMORY("100%"), ONE_SLOT, 1, 1, 100, 0, 0, 0},
        /* All containers of the pod share it. What is over is no container's. */
        {MEMORY("100Mi"), APPS(HAS("'S':'2'") "," HAS("'S':'2'") "," HAS("'S':'2'")), 2,
         3, 0, 0, 100, 66},
        {MEMORY("8Gi"), ONE_SLOT BEFORE(HAS("'S':'1'")), 1, 1, 0, 0, 8192, 8192},
        {MEMORY("8Gi"), ONE_SLOT BEFORE(SIDECAR_OF("1") "," HAS("'S':'1'")), 1, 2, 0, 0,
         8192, 4096},
        {MEMORY("8Gi"), APPS(HAS("'S':'2','C':'60'")), 2, 1, 0, 30, 8192, 2 * 8192},
        {MEMORY("8Gi") ",'" KEY_GPU_COUNT "':'2'", APPS(HAS("'S':'2'")), 2, 1, 0, 0, 8192,
         2 * 8192},
    };
    array_indices(i, cases) {
        struct pod pod = slots_pod(cases[i].notes, cases[i].containers);
        struct request r = object_request(&arena, &pod, 1024);
        ck_assert_int_eq(r.kind, REQUEST_MEMORY);
        ck_assert_msg(
            r.cards == cases[i].cards && r.slots == cases[i].slots &&
                r.percent == cases[i].percent && r.compute_percent == cases[i].core,
            "case %zu: %u %u %u %u", i, r.cards, r.slots, r.percent, r.compute_percent);
        ck_assert_msg(r.mib_per_card == cases[i].mib, "case %zu", i);
        ck_assert_int_eq(r.units, r.mib_per_card * r.cards);
        ck_assert_uint_ge(r.n_parts, 1);
        for (size_t k = 0; k < r.n_parts; k++)
            ck_assert_msg(r.parts[k].amount == cases[i].part, "case %zu: %lld", i,
                          (long long)r.parts[k].amount);
    }
    struct pod pod = slots_pod(MEMORY("30%"), APPS(HAS("'S':'2'") "," HAS("'S':'2'")));
    struct request r = object_request(&arena, &pod, 1024);
    ck_assert_int_eq(request_mib(&r, 1001, 0), 300);
    ck_assert_int_eq(request_amount(&r, &(struct card_kind){.total_mib = 1001}), 300);
    ck_assert_int_eq(request_amount(&r, &card_kind_unknown), -1);
    ck_assert_int_eq(request_amount(&r, &(struct card_kind){.total_mib = 5}), -1);
    request_settle(&r, 301, 0);
    ck_assert(r.units == 602 && r.percent == 0 && r.parts[1].amount == 300);
}

TEST(invalid_slots_are_refused)
{
#define NO_MEMORY " is not memory in whole MiB, such as 6Gi or 6144Mi, and no percentage"
    static const struct {
        const char *notes, *containers, *says;
    } cases[] = {
        {"", ONE_SLOT, "limit " KEY_GPU_SHARE " without annotation " KEY_MEMORY},
        {MEMORY(""), ONE_SLOT, "annotation " KEY_MEMORY ": \"\"" NO_MEMORY},
        {MEMORY("0"), ONE_SLOT, "annotation " KEY_MEMORY ": \"0\"" NO_MEMORY},
        {MEMORY("0%"), ONE_SLOT, "annotation " KEY_MEMORY ": \"0%\"" NO_MEMORY},
        {MEMORY("101%"), ONE_SLOT, "annotation " KEY_MEMORY ": \"101%\"" NO_MEMORY},
        {MEMORY("-1%"), ONE_SLOT, "annotation " KEY_MEMORY ": \"-1%\"" NO_MEMORY},
        {MEMORY("1.5%"), ONE_SLOT, "annotation " KEY_MEMORY ": \"1.5%\"" NO_MEMORY},
        {MEMORY("%"), ONE_SLOT, "annotation " KEY_MEMORY ": \"%\"" NO_MEMORY},
        {MEMORY("-6Gi"), ONE_SLOT, "annotation " KEY_MEMORY ": \"-6Gi\"" NO_MEMORY},
        {MEMORY("6"), ONE_SLOT, "annotation " KEY_MEMORY ": \"6\"" NO_MEMORY},
        {MEMORY("6G"), ONE_SLOT, "annotation " KEY_MEMORY ": \"6G\"" NO_MEMORY},
        {MEMORY("6GiB"), ONE_SLOT, "annotation " KEY_MEMORY ": \"6GiB\"" NO_MEMORY},
        {MEMORY("6 Gi"), ONE_SLOT, "annotation " KEY_MEMORY ": \"6 Gi\"" NO_MEMORY},
        {MEMORY("7Ei"), ONE_SLOT, "annotation " KEY_MEMORY ": \"7Ei\"" NO_MEMORY},
        {MEMORY("99Ei"), ONE_SLOT, "annotation " KEY_MEMORY ": \"99Ei\"" NO_MEMORY},
        {MEMORY("6Gi"), APPS(HAS("'x':'1'")),
         "annotation " KEY_MEMORY " without limit " KEY_GPU_SHARE},
        {MEMORY("6Gi"), APPS(HAS("'M':'1'")),
         "annotation " KEY_MEMORY " without limit " KEY_GPU_SHARE},
        {MEMORY("6Gi"), APPS(HAS("'S':'0'")),
         "annotation " KEY_MEMORY " without limit " KEY_GPU_SHARE},
        {MEMORY("6Gi"), APPS(HAS("'S':'1','M':'1'")),
         "limits of both " KEY_GPU_MEM " and " KEY_GPU_SHARE " in one pod"},
        {MEMORY("6Gi"), APPS(HAS("'S':'1'") "," HAS("'N':'1'")),
         "limits of both " KEY_GPU_COUNT " and " KEY_GPU_SHARE " in one pod"},
        {MEMORY("6Gi"), APPS(HAS("'S':'1','G':'1'")),
         "limits of both " KEY_NVIDIA_GPU " and " KEY_GPU_SHARE " in one pod"},
        {MEMORY("6Gi"), APPS(HAS("'S':'1'") "," HAS("'S':'2'")),
         "container 1: limit " KEY_GPU_SHARE
         ": 2 cards, and another container has 1: all memory of a pod is on the same"},
        {MEMORY("6Gi"), ONE_SLOT BEFORE(HAS("'S':'2'")),
         "init container 0: limit " KEY_GPU_SHARE ": 2 cards, and another container"},
        {MEMORY("6Gi"), APPS(HAS("'S':'65'")),
         "limit " KEY_GPU_SHARE ": 65 cards exceed the limit of 64 per pod"},
        {MEMORY("6Gi"), APPS(HAS("'S':'-1'")), "container 0: limit " KEY_GPU_SHARE},
        {MEMORY("1Mi"), APPS(HAS("'S':'1'") "," HAS("'S':'1'")),
         "annotation " KEY_MEMORY ": 1 MiB for 2 containers"},
        {MEMORY("6Gi"), APPS(HAS("'S':'1'") "," HAS("'C':'5'")),
         "container 1: limit " KEY_GPU_CORE " without limit " KEY_GPU_SHARE},
        {MEMORY("6Gi") ",'" KEY_GPU_COUNT "':'2'", ONE_SLOT,
         KEY_GPU_COUNT " is 2, but limit " KEY_GPU_SHARE " is 1"},
    };
    array_indices(i, cases) {
        struct pod pod = slots_pod(cases[i].notes, cases[i].containers);
        struct request r;
        struct err err = {0};
        ck_assert_msg(request_of(&pod, &gib, &arena, &r, &err) == -1, "case %zu", i);
        ck_assert_msg(strstr(err.msg, cases[i].says) == err.msg, "case %zu: \"%s\"", i,
                      err.msg);
        ck_assert_int_eq(r.kind, REQUEST_NONE);
    }
    struct pod pod = make("", LABELS("'" KEY_SCV_MEMORY "':'5'"));
    struct pod slots = slots_pod(MEMORY("6Gi"), ONE_SLOT);
    struct err err = {0};
    struct request r;
    slots.scv_memory = pod.scv_memory;
    ck_assert_int_eq(request_of(&slots, &gib, &arena, &r, &err), -1);
    ck_assert_str_eq(err.msg, "label " KEY_SCV_MEMORY " beside limit " KEY_GPU_SHARE);
}

TEST(the_placement_policy_is_read)
{
    struct pod pod = make("a1", ",'annotations':{'" KEY_PLACEMENT "':'spread'}");
    ck_assert_int_eq(object_request(&arena, &pod, 1).placement, PLACE_SPREAD);
    pod = make("a1", ",'annotations':{'" KEY_PLACEMENT "':'binpack'}");
    ck_assert_int_eq(object_request(&arena, &pod, 1).placement, PLACE_BINPACK);
    pod = make("a1", "");
    ck_assert_int_eq(object_request(&arena, &pod, 1).placement, PLACE_BINPACK);
}

#define LINKS(least) ",'annotations':{'" KEY_MIN_LINK "':'" least "'}"

TEST(connections_are_demanded_preferred_or_ignored)
{
    static const struct {
        const char *parts, *meta;
        bool off, ignores;
        uint8_t least;
    } cases[] = {
        {"A4", "", false, false, 0},
        {"A4", "", true, true, 0},
        {"A4", ",'annotations':{'" KEY_TOPOLOGY "':' none '}", false, true, 0},
        {"A4", LINKS("NV"), false, false, LINK_NV},
        {"A4", LINKS(" NODE "), true, false, LINK_NODE},
        {"A4", ",'annotations':{'" KEY_TOPOLOGY "':'none','" KEY_MIN_LINK "':'PIX'}",
         false, false, LINK_PIX},
        {"A1", LINKS("PHB"), false, false, 0}, /* no pairs */
        {"*a1", LINKS("PXB"), false, false, 0},
    };
    array_items(c, cases) {
        const struct request_rules rules = {.unit_mib = 1, .ignore_links = c->off};
        struct pod pod = make(c->parts, c->meta);
        struct request r;
        struct err err = {0};
        ck_assert_msg(!request_of(&pod, &rules, &arena, &r, &err), "%s", err.msg);
        ck_assert_uint_eq(r.ignores_links, c->ignores);
        ck_assert_uint_eq(r.min_link, c->least);
    }
}

#define ISOLATION(text)                                                                  \
    "annotation gpushare/isolation: \"" text                                             \
    "\" is not driver, limit, limit-env, limit-file, mps or none"

TEST(isolation_is_what_the_node_needs)
{
    enum { DRIVER = SCV_ISOLATION_DRIVER, LIBRARY = SCV_ISOLATION_LIBRARY };
    static const struct {
        const char *parts, *meta;
        uint8_t needs;
        const char *text;
    } cases[] = {
        {"a4", "", 0, "4 GiB"},
        {"a4", NOTE(KEY_ISOLATION, "none"), 0, "4 GiB"},
        {"a4", NOTE(KEY_ISOLATION, "driver"), DRIVER, "4 GiB, memory isolated by driver"},
        {"a4", NOTE(KEY_ISOLATION, "limit"), DRIVER | LIBRARY,
         "4 GiB, memory isolated by driver or library"},
        {"a4", NOTE(KEY_ISOLATION, "limit-env"), LIBRARY,
         "4 GiB, memory isolated by library"},
        {"a4", NOTE(KEY_ISOLATION, "limit-file"), LIBRARY,
         "4 GiB, memory isolated by library"},
        {"a4", NOTE(KEY_ISOLATION, "mps"), SCV_ISOLATION_MPS,
         "4 GiB, memory isolated by mps"},
        /* Nobody else is on a whole card. */
        {"A1", NOTE(KEY_ISOLATION, "driver"), 0, "1 whole card"},
        {"A1", NOTE(KEY_ISOLATION, "mps"), 0, "1 whole card"},
        {"*a1", NOTE(KEY_ISOLATION, "driver"), 0, "1 nvidia.com/gpu"},
        {"", NOTE(KEY_ISOLATION, "driver"), 0, "nothing"},
    };
    array_items(c, cases)
        for (int bound = 0; bound < 2; bound++) {
            struct pod pod = make(c->parts, c->meta);
            cleanup_buf struct buf text = {0};
            pod.node = bound ? SPAN("n1") : (struct span){0};
            struct request r = object_request(&arena, &pod, 1024);
            ck_assert_uint_eq(r.isolation, c->needs);
            request_write(&text, &r, 1024);
            ck_assert_str_eq(text.p, c->text);
        }
}

TEST(invalid_requests_are_rejected_with_the_reason)
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
         "an init container requests aliyun.com/gpu-mem, which cannot be split over 2 "
         "cards"},
        {"a4", ",'labels':{'" KEY_GPU_COUNT "':'two'}",
         "label aliyun.com/gpu-count: \"two\" is not a number of cards (1..64)"},
        {"a4", ",'annotations':{'" KEY_GPU_COUNT "':'0'}",
         "annotation aliyun.com/gpu-count: \"0\" is not a number of cards (1..64)"},
        {"a4",
         ",'labels':{'" KEY_GPU_COUNT "':'2'},'annotations':{'" KEY_GPU_COUNT "':'4'}",
         "label aliyun.com/gpu-count is \"2\", but the annotation is \"4\""},
        {"a1.5", "",
         "container 0: limit aliyun.com/gpu-mem: \"1.5\" is not a whole number"},
        {"s-1", "",
         "init container 0: limit aliyun.com/gpu-mem: \"-1\" is not a whole number"},
        {"a4", ",'annotations':{'" KEY_PLACEMENT "':'tight'}",
         "annotation gpushare/placement: \"tight\" is neither binpack nor spread"},
        {"A4", LINKS("SYS"),
         "annotation gpushare/min-link: \"SYS\" is not NV, PIX, PXB, PHB or NODE"},
        {"A1", LINKS("NV2"),
         "annotation gpushare/min-link: \"NV2\" is not NV, PIX, PXB, PHB or NODE"},
        {"A4", LINKS(""),
         "annotation gpushare/min-link: \"\" is not NV, PIX, PXB, PHB or NODE"},
        {"*a2", LINKS("NV"),
         "annotation gpushare/min-link: the kubelet chooses the cards of nvidia.com/gpu"},
        {"A4", ",'annotations':{'" KEY_TOPOLOGY "':'all'}",
         "annotation gpushare/topology: \"all\" is not none or gang"},
        {"A4", NOTE(KEY_TOPOLOGY, "gang"),
         "annotation gpushare/topology: \"gang\", but the pod names no gang"},
        {"*a1", NOTE(KEY_GANG_MINIMUM, "four"),
         "annotation gpushare/gang-minimum: \"four\" is not a number of members "
         "(1..2147483647)"},
        {"",
         LABELS("'scv/number':'1'") ",'annotations':{'" KEY_VOLCANO_GROUP "':'My Job'}",
         "annotation scheduling.volcano.sh/group-name: \"My Job\" cannot be a name"},
        {"a4", NOTE(KEY_ISOLATION, "limits"), ISOLATION("limits")},
        {"a4", NOTE(KEY_ISOLATION, ""), ISOLATION("")},
        {"A1", NOTE(KEY_ISOLATION, "None"), ISOLATION("None")},
        {"*a1", NOTE(KEY_ISOLATION, "true"), ISOLATION("true")},
        {"a4", NOTE(KEY_ISOLATION, "limit "), ISOLATION("limit ")},
        {"A65", "", "65 whole cards exceed the limit of 64 per pod"},
        {"A1 *a1", "",
         "limits of both aliyun.com/gpu-count and nvidia.com/gpu in one pod"},
        {"*a1 a1", "", "limits of both aliyun.com/gpu-mem and nvidia.com/gpu in one pod"},
        {"a4", MODEL(" , "),
         "annotation nvidia-gpu-scheduler/gpu.model: \",\" names no "
         "model"},
        {"A1", MODEL(""),
         "annotation nvidia-gpu-scheduler/gpu.model: \"\" names no model"},
        {"", LABELS("'scv/memory':'8Gi'"),
         "label scv/memory: \"8Gi\" is not a number of MiB (1..1099511627776)"},
        {"", LABELS("'scv/number':'0'"),
         "label scv/number: \"0\" is not a number of cards (1..64)"},
        {"", LABELS("'scv/number':'65'"),
         "label scv/number: \"65\" is not a number of cards (1..64)"},
        {"", LABELS("'scv/number':'-1'"),
         "label scv/number: \"-1\" is not a number of cards (1..64)"},
        {"a4", LABELS("'scv/clock':'fast'"),
         "label scv/clock: \"fast\" is not a number of MHz (1..1099511627776)"},
        {"a4", LABELS("'scv/number':'2'"),
         "label scv/number is 2, but the limits request 1 card"},
        {"A2", LABELS("'scv/number':'1'"),
         "label scv/number is 1, but the limits request 2 cards"},
        {"a4", LABELS("'scv/memory':'4097'"),
         "label scv/memory is 4097, but the limits request 4096 MiB per card"},
        {"a1E", "",
         "container 0: limit aliyun.com/gpu-mem: 1000000000000000000 exceeds the "
         "capacity of any node"},
        {"a4Gi", "",
         "container 0: limit aliyun.com/gpu-mem: 4294967296 exceeds the capacity of any "
         "node; write units, without Gi or Mi"},
    };
    array_items(c, cases) {
        struct pod pod = make(c->parts, c->meta);
        struct request r;
        struct err err = {0};
        ck_assert_msg(request_of(&pod, &gib, &arena, &r, &err) == -1, "%s", c->parts);
        ck_assert_str_eq(err.msg, c->message);
        ck_assert_int_eq(r.kind, REQUEST_NONE);
    }
}

/* What is read before the bind alone changes nothing of a pod that runs. */
TEST(a_bound_pod_is_not_invalid_by_its_gang_or_isolation)
{
    static const char *const notes[] = {
        NOTE(KEY_ISOLATION, "limits"),
        NOTE(KEY_GANG_MINIMUM, "four"),
        NOTE(KEY_TOPOLOGY, "gang"),
        NOTE(KEY_VOLCANO_GROUP, "My Job"),
    };
    array_items(note, notes) {
        struct pod pod = make("a4", *note);
        struct request r;
        struct err err = {0};
        ck_assert_int_eq(request_of(&pod, &gib, &arena, &r, NULL), -1);
        pod.node = SPAN("n1");
        ck_assert_msg(!request_of(&pod, &gib, &arena, &r, &err), "%s", err.msg);
        ck_assert_int_eq(r.units, 4);
    }
}

/* Nor one that requests nothing of ours: other schedulers have rules of their own. */
TEST(a_pod_without_gpus_is_not_invalid_by_its_gang_or_isolation)
{
    struct pod pod = make("", NOTE(KEY_VOLCANO_GROUP, "My Job"));
    struct request r;
    struct err err = {0};
    ck_assert_msg(!request_of(&pod, &gib, &arena, &r, &err), "%s", err.msg);
}

static bool accepts(const struct request *r, const char *model, const char *profile,
                    int64_t clock_mhz)
{
    return request_accepts_card(r, &(struct card_kind){.model = span_of(model),
                                                       .profile = span_of(profile),
                                                       .spec.clock_mhz = clock_mhz});
}

TEST(models_and_clocks_select_cards)
{
    static const struct {
        const char *meta, *model;
        int64_t clock;
        bool suits;
    } cases[] = {
        {"", "", 0, true},
        {MODEL(" tesla t4 "), "Tesla T4", 0, true},
        {MODEL("Tesla T4"), "Tesla T40", 0, false},
        {MODEL("Tesla T4"), "", 0, false},
        {MODEL("Tesla P4, Tesla T4,"), " TESLA T4", 0, true},
        {MODEL(",Tesla P4"), "Tesla T4", 0, false},
        {LABELS("'scv/clock':'5001'"), "", 5001, true},
        {LABELS("'scv/clock':'5001'"), "", 5000, false},
        {LABELS("'scv/clock':'5001'"), "", 6000, true},
        {LABELS("'scv/clock':'5001'") MODEL("A"), "A", 5001, true},
        {LABELS("'scv/clock':'5001'") MODEL("A"), "A", 5000, false},
        {LABELS("'scv/clock':'5001'") MODEL("A"), "B", 5001, false},
    };
    static const char *const parts[] = {"a4", "A1", "*a2"};
    array_indices(i, cases)
        array_items(part, parts) {
            struct pod pod = make(*part, cases[i].meta);
            struct request r = object_request(&arena, &pod, 1024);
            ck_assert_int_eq(request_is_selective(&r), i > 0);
            const struct request any = request_of_any_card(&r);
            ck_assert(!request_is_selective(&any));
            ck_assert_msg(accepts(&r, cases[i].model, "", cases[i].clock) ==
                              cases[i].suits,
                          "case %zu", i);
        }
    const struct request_rules exact = {.unit_mib = 1, .clock_exact = true};
    struct pod pod = make("a1", LABELS("'scv/clock':'5001'"));
    struct request r;
    ck_assert_int_eq(request_of(&pod, &exact, &arena, &r, NULL), 0);
    ck_assert(accepts(&r, "", "", 5001));
    ck_assert(!accepts(&r, "", "", 5002));
    ck_assert(!accepts(&r, "", "", 5000));
}

TEST(instances_are_taken_by_name)
{
    static const struct {
        struct request r;
        bool suits;
    } cases[] = {
        {{.kind = REQUEST_MEMORY, .cards = 1}, true},
        {{.kind = REQUEST_MEMORY, .cards = 2}, false},
        {{.kind = REQUEST_CARDS, .cards = 1}, false},
        {{.kind = REQUEST_DEVICES, .cards = 1}, false},
        {{.kind = REQUEST_CARDS, .cards = 1, .models = SPAN("1G.10gb ")}, true},
        {{.kind = REQUEST_CARDS, .cards = 2, .models = SPAN("1g.10gb")}, true},
        {{.kind = REQUEST_CARDS, .cards = 2, .models = SPAN("A100 MIG 1g.10gb")}, true},
        {{.kind = REQUEST_CARDS, .cards = 1, .models = SPAN("T4,1g.10gb")}, true},
        {{.kind = REQUEST_CARDS, .cards = 2, .models = SPAN("T4,1g.10gb")}, false},
        {{.kind = REQUEST_MEMORY, .cards = 2, .models = SPAN("2g.20gb,1g.10gb")}, false},
        {{.kind = REQUEST_MEMORY, .cards = 2, .models = SPAN("1g.10gb")}, true},
        {{.kind = REQUEST_MEMORY, .cards = 1, .models = SPAN("A100")}, false},
        {{.kind = REQUEST_CARDS, .cards = 1, .models = SPAN("2g.20gb")}, false},
        {{.kind = REQUEST_DEVICES, .cards = 1, .models = SPAN("1g.10gb")}, true},
        {{.kind = REQUEST_MEMORY, .cards = 1, .clock_mhz = 2}, false},
    };
    array_indices(i, cases)
        ck_assert_msg(accepts(&cases[i].r, "A100 MIG 1g.10gb", "1g.10gb", 1) ==
                          cases[i].suits,
                      "case %zu", i);
    /* A profile names no full card. */
    ck_assert(!accepts(&cases[5].r, "A100", "", 1));
}

TEST(different_requests_are_not_equal)
{
    static const struct {
        const char *parts, *meta;
    } different[] = {
        {"a8", ""},
        {"a9", ""},
        {"A8", ""},
        {"*a8", ""},
        {"a8", MODEL("A")},
        {"a8", MODEL("B")},
        {"a8", LABELS("'scv/clock':'1'")},
        {"A8", LABELS("'scv/memory':'1'")},
        {"a8", LABELS("'" KEY_GPU_COUNT "':'2'")},
        {"", LABELS("'scv/memory':'8191'")},
        {"a8", ",'annotations':{'" KEY_PLACEMENT "':'spread'}"},
        {"a8", ",'annotations':{'" KEY_TOPOLOGY "':'none'}"},
        {"A8", LINKS("NV")},
        {"A8", LINKS("PIX")},
        {"a8", NOTE(KEY_ISOLATION, "driver")},
        {"a8", NOTE(KEY_ISOLATION, "limit")},
        {"a8", NOTE(KEY_ISOLATION, "mps")},
    };
    array_indices(i, different)
        array_indices(k, different) {
            struct pod a = make(different[i].parts, different[i].meta);
            struct pod b = make(different[k].parts, different[k].meta);
            struct request x = object_request(&arena, &a, 1024);
            struct request y = object_request(&arena, &b, 1024);
            ck_assert_int_eq(request_equal(&x, &y), i == k);
        }
}

TEST(a_request_has_a_short_form)
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
        {"A3", LINKS("NV"), 1024, "3 whole cards, each two connected by NV or better"},
        {"*a2", MODEL("Tesla T4"), 1024, "2 nvidia.com/gpu, model Tesla T4"},
        {"a8", LABELS("'scv/clock':'5001'"), 1024,
         "8 GiB, memory clock at least 5001 MHz"},
        {"A1", LABELS("'scv/memory':'16000'"), 1024,
         "1 whole card of at least 16000 MiB"},
        {"", LABELS("'scv/memory':'8000','scv/number':'2'"), 1024,
         "16000 MiB on 2 cards"},
    };
    array_items(c, cases) {
        struct pod pod = make(c->parts, c->meta);
        struct request r = object_request(&arena, &pod, c->unit);
        cleanup_buf struct buf b = {0};
        request_write(&b, &r, c->unit);
        ck_assert_str_eq(b.p, c->text);
    }
}
