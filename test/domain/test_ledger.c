/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/diagnosis.h"
#include "domain/ledger.h"

#include "base/clock.h"
#include "base/rng.h"
#include "domain/dialect.h"
#include "domain/objects.h"

static struct arena arena;
static struct ledger *ledger;

static void begin(void)
{
    const struct ledger_settings s = {.unit_mib = 1, .external_tolerance_mib = 1024};
    ledger = ledger_new(&s, 1);
}

static void end(void)
{
    ledger_free(ledger);
    arena_fini(&arena);
}

/* A ledger with other settings, in place of the one of `begin`. */
static void start_with(struct ledger_settings s)
{
    ledger_free(ledger);
    ledger = ledger_new(&s, 1);
}

static void start_gib(void)
{
    start_with(
        (struct ledger_settings){.unit_mib = 1024, .external_tolerance_mib = 1024});
}

static const struct ledger_node *node(const char *name)
{
    return ledger_node_find(ledger, span_of(name));
}

/* The field of a card of n1 has that value. */
#define CARD_HAS(i, field, value) ck_assert_int_eq(node("n1")->cards[i].field, value)

static void see_even(const char *name, int cards, long mib)
{
    const struct scv scv = object_scv_even(&arena, name, cards, mib);
    ledger_scv_seen(ledger, &scv, 0);
}

static void see_scv(const char *json)
{
    struct scv scv = object_scv(&arena, quoted(&arena, "%s", json));
    ledger_scv_seen(ledger, &scv, 0);
}

/* An Scv of one card with this much used memory, measured at that second. */
static void see_sample(long total, long used, int64_t at)
{
    cleanup_buf struct buf time = {0};
    clock_format_s(&time, at);
    struct scv scv = object_scv(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':"
               "'Healthy','totalMemory':%ld,'freeMemory':%ld}],'updateTime':'%s'}}",
               total, total - used, time.p));
    ledger_scv_seen(ledger, &scv, 0);
}

static void see_capacity(const char *name, int mem, int cards, int allocatable_mem)
{
    struct node n = object_node(
        &arena, quoted(&arena,
                       "{'metadata':{'name':'%s'},'status':{'capacity':{'" KEY_GPU_MEM
                       "':'%d','" KEY_GPU_COUNT "':'%d'},'allocatable':{'" KEY_GPU_MEM
                       "':'%d','" KEY_GPU_COUNT "':'%d'}}}",
                       name, mem, cards, allocatable_mem, cards));
    ledger_node_seen(ledger, &n, 0);
}

static struct ledger_pod *add(const char *uid, int units)
{
    struct pod pod = object_pod_mem(&arena, uid, units);
    struct request r = object_request(&arena, &pod, ledger_settings(ledger)->unit_mib);
    return ledger_pod_add(ledger, &pod, &r, NULL);
}

static struct ledger_pod *place(const char *uid, int units, const char *on, int card,
                                const char *uuid)
{
    struct ledger_pod *pod = add(uid, units);
    struct ledger_share share = {
        .card = card,
        .mib = units * ledger_settings(ledger)->unit_mib,
        .uuid = span_of(uuid),
    };
    ledger_pod_place(ledger, pod, span_of(on), &share, 1);
    return pod;
}

/* Cards of 100 MiB with these UUIDs; "": none. */
static void see_uuids(const char *first, const char *second, const char *third)
{
    const char *uuids[] = {first, second, third};
    cleanup_buf struct buf list = {0};
    for (int i = 0; i < 3; i++)
        buf_printf(&list,
                   "%s{'id':%d,'health':'Healthy','totalMemory':100,'freeMemory':100,"
                   "'uuid':'%s'}",
                   i ? "," : "", i, uuids[i]);
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "{'metadata':{'name':'n1'},'status':{'cardList':[%s]}}", list.p);
    see_scv(text.p);
}

static int64_t drift(enum drift kind)
{
    int64_t counts[DRIFTS] = {0};
    diagnosis_count(ledger, node("n1"), counts);
    return counts[kind];
}

TEST(cards_with_one_uuid_get_no_pods_and_keep_their_promises)
{
    see_uuids("GPU-a", "GPU-b", "GPU-c");
    place("a", 60, "n1", 0, "GPU-a");
    place("b", 70, "n1", 1, "GPU-b");
    ck_assert_int_eq(drift(DRIFT_DUPLICATE_UUID), 0);
    see_uuids("GPU-a", "GPU-a", "GPU-c"); /* cards with promises */
    ck_assert_int_eq(drift(DRIFT_DUPLICATE_UUID), 2);
    for (int i = 0; i < 2; i++) {
        CARD_HAS(i, state, CARD_DUPLICATE);
        CARD_HAS(i, free_mib, 0);
    }
    CARD_HAS(2, free_mib, 100);
    CARD_HAS(0, promised_mib, 60);
    place("c", 30, "n1", 1, "GPU-a"); /* same UUID: the index decides */
    CARD_HAS(0, promised_mib, 60);
    CARD_HAS(1, promised_mib, 30);
    place("d", 5, "n1", 2, "GPU-a"); /* neither has the index */
    CARD_HAS(0, promised_mib, 65);
    see_uuids("GPU-a", "GPU-b", "GPU-c");
    CARD_HAS(0, promised_mib, 95);
    CARD_HAS(1, promised_mib, 70);
    CARD_HAS(0, state, CARD_AVAILABLE);
}

TEST(many_cards_without_a_uuid_are_no_duplicates)
{
    see_uuids("", "", "GPU-c");
    place("a", 60, "n1", 1, "");
    ck_assert_int_eq(drift(DRIFT_DUPLICATE_UUID), 0);
    CARD_HAS(0, free_mib, 100);
    CARD_HAS(1, free_mib, 40);
}

static void see_mig(const char *instance_health)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text,
               "{'metadata':{'name':'n1'},'status':{'cardList':["
               "{'id':0,'health':'Healthy','totalMemory':100,'uuid':'GPU-a'},"
               "{'id':1,'health':'Healthy','totalMemory':100,'uuid':'GPU-b'},"
               "{'id':72,'health':'%s','totalMemory':50,'uuid':'MIG-b','parentUUID':"
               "'GPU-b','migProfile':'1g.5gb'}]}}",
               instance_health);
    see_scv(text.p);
}

TEST(a_card_gets_no_pods_beside_its_instances)
{
    see_mig("Healthy");
    place("a", 60, "n1", 1, "GPU-b"); /* it keeps its promises */
    CARD_HAS(0, state, CARD_AVAILABLE);
    CARD_HAS(1, state, CARD_UNHEALTHY);
    CARD_HAS(1, free_mib, 0);
    CARD_HAS(1, promised_mib, 60);
    CARD_HAS(2, free_mib, 50);
    see_mig("Unhealthy"); /* it was destroyed */
    CARD_HAS(1, free_mib, 40);
    CARD_HAS(2, free_mib, 0);
}

/* Three cards; the podList has their holders. */
static void see_held(const char *held)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text,
               "{'metadata':{'name':'n1'},'status':{'cardList':["
               "{'id':0,'health':'Healthy','totalMemory':100,'uuid':'GPU-0','clock':877},"
               "{'id':1,'health':'Healthy','totalMemory':100,'uuid':'GPU-1'},"
               "{'id':4,'health':'Unhealthy','totalMemory':100,'uuid':'GPU-4'}],"
               "'podList':[%s]}}",
               held);
    see_scv(text.p);
}

TEST(cards_of_other_device_plugins_are_unavailable)
{
    see_held(
        "{'namespace':'d','name':'p','container':'c','resource':'nvidia.com/gpu',"
        "'units':2,'cards':['GPU-4','GPU-1','GPU-of-another-node']},"
        "{'namespace':'d','name':'q','container':'c','resource':'aliyun.com/gpu-mem',"
        "'units':50,'cards':['GPU-0']}");
    const struct ledger_node *n = node("n1");
    ck_assert_int_eq(n->cards[0].state, CARD_AVAILABLE);
    ck_assert_int_eq(n->cards[1].state, CARD_HELD);
    ck_assert_int_eq(n->cards[1].free_mib, 0);
    ck_assert_int_eq(n->cards[2].state, CARD_UNHEALTHY);
    ck_assert_uint_eq(n->free_cards, 1);
    ck_assert(!n->all_available);
    ck_assert_int_eq(n->cards[0].kind->spec.clock_mhz, 877);
    ck_assert_int_eq(n->cards[2].scv->id, 4);
    see_held("");
    CARD_HAS(1, state, CARD_AVAILABLE);
    CARD_HAS(1, free_mib, 100);
    see_capacity("n2", 30, 2, 30);
    ck_assert_ptr_null(node("n2")->cards[0].scv);
}

/* Of n1, whose Node offers one card and so many units. */
static int64_t wrong_capacity(int64_t units)
{
    const struct node_resources all = {units, 1, -1, -1, -1};
    const struct node object = {
        .meta.name = SPAN("n1"), .capacity = all, .allocatable = all};
    int64_t counts[DRIFTS] = {0};
    ledger_node_seen(ledger, &object, 1);
    diagnosis_count(ledger, node("n1"), counts);
    ledger_object_deleted(ledger, LEDGER_NODE, SPAN("n1"));
    return counts[DRIFT_CAPACITY];
}

TEST(what_the_driver_keeps_is_not_promised)
{
    static const struct {
        long reserved, total;
    } cases[] = {{0, 100}, {7, 93}, {100, 0}, {101, 0}};
    array_items(c, cases) {
        cleanup_buf struct buf text = {0};
        buf_printf(&text,
                   "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':"
                   "'Healthy','totalMemory':100,'freeMemory':100,'reservedMemory':%ld,"
                   "'uuid':'GPU-0'}]}}",
                   c->reserved);
        see_scv(text.p);
        CARD_HAS(0, total_mib, c->total);
        CARD_HAS(0, free_mib, c->total);
        /* The kubelet has ids for the whole size, or for what can be promised. */
        ck_assert_int_eq(wrong_capacity(100), 0);
        ck_assert_int_eq(wrong_capacity(c->total), 0);
        ck_assert_int_eq(wrong_capacity(101), 1);
    }
}

TEST(display_values_of_the_scv_are_kept)
{
    see_scv("{'metadata':{'name':'n1','creationTimestamp':'1970-01-01T00:01:40Z'},"
            "'status':{'updateTime':'1970-01-01T00:03:20Z','cardList':["
            "{'id':0,'health':'Healthy','totalMemory':9,'uuid':'GPU-0','busId':'0:3B'}],"
            "'podList':[{'namespace':'d','name':'p','container':'c','units':1,"
            "'resource':'nvidia.com/gpu','cards':['GPU-0','GPU-9']}]}}");
    struct ledger_node_info info = ledger_node_info(node("n1"));
    uint64_t generation = ledger_generation(ledger);
    ck_assert(info.has_scv && !info.has_lease && info.has_sample);
    ck_assert_int_eq(info.scv_created_s, 100);
    ck_assert_int_eq(info.sample_s, 200);
    ck_assert_uint_eq(info.n_held, 1);
    ck_assert_span_eq(info.held[0].container, "c");
    ck_assert_span_eq(info.held[0].resource, "nvidia.com/gpu");
    ck_assert_span_eq(info.held[0].uuids[1], "GPU-9");
    ck_assert_span_eq(node("n1")->cards[0].scv->bus_id, "0:3B");
    see_held("");
    ck_assert_uint_gt(ledger_generation(ledger), generation);
    info = ledger_node_info(node("n1"));
    ck_assert(!info.has_sample);
    ck_assert_uint_eq(info.n_held, 0);
    ck_assert_int_eq(info.scv_created_s, 0);
}

/* A list that is gone is unknown again, and so is that of an Scv that cannot be read. */
TEST(what_a_node_can_enforce_is_that_of_its_scv)
{
    enum { UNKNOWN = SCV_ISOLATION_LIBRARY | SCV_ISOLATION_MPS };
    static const struct {
        const char *list;
        uint8_t bits;
    } steps[] = {
        {"", UNKNOWN},
        {"'isolation':['driver'],", SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER},
        {"'isolation':[],", SCV_ISOLATION_KNOWN},
        {"'isolation':['mps'],", SCV_ISOLATION_KNOWN | SCV_ISOLATION_MPS},
        {"", UNKNOWN},
        {"'isolation':['driver'],", SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER},
    };
    struct node object =
        object_node(&arena, quoted(&arena, "{'metadata':{'name':'n1'}}"));
    ledger_node_seen(ledger, &object, 0);
    array_items(step, steps) {
        uint64_t generation = ledger_generation(ledger);
        see_scv(quoted(&arena,
                       "{'metadata':{'name':'n1'},'status':{%s'cardList':["
                       "{'id':0,'health':'Healthy','totalMemory':9}]}}",
                       step->list)
                    .p);
        ck_assert_uint_eq(node("n1")->isolation, step->bits);
        ck_assert_uint_gt(ledger_generation(ledger), generation);
    }
    struct scv damaged = {.meta.name = SPAN("n1"), .damaged = true, .isolation = 9};
    ledger_scv_seen(ledger, &damaged, 0);
    ck_assert_uint_eq(node("n1")->isolation, UNKNOWN);
    ledger_scv_seen(ledger, &(struct scv){.meta.name = SPAN("n1"), .isolation = 9}, 0);
    ck_assert_uint_eq(node("n1")->isolation, 9);
    ledger_object_deleted(ledger, LEDGER_SCV, SPAN("n1"));
    ck_assert_uint_eq(node("n1")->isolation, UNKNOWN);
}

/* Of an Scv that is missing or cannot be read, nobody knows it. */
TEST(the_dialect_of_a_node_is_that_of_its_scv)
{
    const struct ledger_settings settings = {.unit_mib = 1, .dialect = &dialect_hami};
    struct node object =
        object_node(&arena, quoted(&arena, "{'metadata':{'name':'n1'}}"));
    struct scv scv = {.meta.name = SPAN("n1"), .dialect = SPAN("hami")};
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_OTHER); /* not read here */
    ledger_free(ledger);
    ledger = ledger_new(&settings, 1);
    ledger_node_seen(ledger, &object, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_NONE);
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_HAMI);
    scv.dialect = SPAN("kai");
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_OTHER);
    scv.dialect = SPAN("");
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_NONE);
    scv = (struct scv){.meta.name = SPAN("n1"), .damaged = true};
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_OTHER);
    ledger_object_deleted(ledger, LEDGER_SCV, SPAN("n1"));
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_NONE);
    ledger_lease_seen(ledger, &(struct lease){.meta.name = SPAN("n1")}, 0);
    ck_assert_int_eq(node("n1")->dialect, SCV_DIALECT_OTHER);
}

TEST(cards_of_one_kind_share_it)
{
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':0,'health':'Healthy','totalMemory':9,'model':'A','clock':5},"
            "{'id':1,'health':'Healthy','totalMemory':9,'model':'B','clock':5},"
            "{'id':2,'health':'Healthy','totalMemory':9,'model':'A','clock':5},"
            "{'id':3,'health':'Healthy','totalMemory':9,'model':'A','clock':6}]}}");
    const struct card *cards = node("n1")->cards;
    const char *const models[] = {"A", "B", "A", "A"};
    array_indices(i, models) {
        ck_assert_span_eq(cards[i].kind->model, models[i]);
        ck_assert_int_eq(cards[i].kind->spec.clock_mhz, i == 3 ? 6 : 5);
    }
    ck_assert_ptr_eq(cards[0].kind, cards[2].kind);
    ck_assert_ptr_ne(cards[0].kind, cards[3].kind);
}

static void see_links(const char *of_0, const char *of_1, const char *more)
{
    see_scv(quoted(&arena,
                   "{'metadata':{'name':'n1'},'status':{'cardList':["
                   "{'id':0,'health':'Healthy','totalMemory':9,'links':'%s'%s},"
                   "{'id':1,'health':'Healthy','totalMemory':9,'links':'%s'}]}}",
                   of_0, more, of_1)
                .p);
}

/* Anything but one known word for each pair makes them all unknown. */
TEST(what_connects_cards_is_known_of_all_or_none)
{
    static const char *const wrong[][2] = {
        {"X NV2 NV2", "NV2 X"}, {"X NV2", "NV2 X "},  {"X NV2", "X NV2"},
        {"X", "NV2 X"},         {"X NV2", ""},        {"X  NV2", "NV2 X"},
        {"X NV9000", "NV2 X"},  {"X NV0", "NV0 X"},   {"X nv2", "NV2 X"},
        {"X PIX", "NVLINK X"},  {"X X", "X X"},       {" X NV2", "NV2 X"},
        {"X NV2", "NV2 NV2"},   {"X NV-1", "NV-1 X"}, {"X NV2\\n", "NV2 X"},
    };
    see_links("X NV2", "NV4 X", ",'numaNode':1");
    const struct links *links = node("n1")->links;
    ck_assert_ptr_nonnull(links);
    ck_assert_uint_eq(links_cards(links), 2);
    ck_assert_uint_eq(links_pair(links, 0, 1), LINK_NV + 2);
    ck_assert_uint_eq(links_pair(links, 1, 0), LINK_NV + 2);
    ck_assert_int_eq(links_numa(links, 0), 1);
    ck_assert_int_eq(links_numa(links, 1), -1);
    array_indices(i, wrong) {
        see_links("X PIX", "PIX X", "");
        ck_assert_ptr_nonnull(node("n1")->links);
        see_links(wrong[i][0], wrong[i][1], "");
        ck_assert_msg(!node("n1")->links, "%zu", i);
        ck_assert_int_eq(node("n1")->state, NODE_USABLE);
    }
    /* Rows are in the order of cardList, which ours has by id. */
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':1,'health':'Healthy','totalMemory':9,'links':'X PIX'},"
            "{'id':0,'health':'Healthy','totalMemory':9,'links':'PIX X'}]}}");
    ck_assert_ptr_null(node("n1")->links);
    start_with((struct ledger_settings){.unit_mib = 1, .require_scv = true});
    see_capacity("n1", 18, 2, 18);
    see_links("X PIX", "PIX X", "");
    ledger_object_deleted(ledger, LEDGER_SCV, SPAN("n1"));
    ck_assert_int_eq(node("n1")->state, NODE_SCV_MISSING);
    ck_assert_ptr_null(node("n1")->links);
}

TEST(links_that_keep_changing_are_unknown)
{
    enum { N = LINKS_SMALL + 1, CHANGES = 40 };
    for (int change = 0; change < CHANGES; change++) {
        cleanup_buf struct buf text = {0};
        buf_adds(&text, "{'metadata':{'name':'n1'},'status':{'cardList':[");
        for (int i = 0; i < N; i++) {
            buf_printf(&text, "%s{'id':%d,'health':'Healthy','totalMemory':9,'links':'",
                       i ? "," : "", i);
            for (int k = 0; k < N; k++)
                if (i == k)
                    buf_adds(&text, k ? " X" : "X");
                else
                    buf_printf(&text, "%sNV%d", k ? " " : "", change + 1);
            buf_adds(&text, "'}");
        }
        buf_adds(&text, "]}}");
        see_scv(text.p);
        see_scv(text.p); /* no change */
        ck_assert(!node("n1")->links == (change >= 32));
    }
}

TEST(a_cordoned_node_keeps_its_cards)
{
    see_even("n1", 1, 16);
    uint64_t before = ledger_generation(ledger);
    struct node object = {.meta.name = SPAN("n1"), .cordoned = true};
    ledger_node_seen(ledger, &object, 0);
    const struct ledger_node *n1 = node("n1");
    ck_assert(n1->cordoned && n1->state == NODE_USABLE && n1->best_free_mib == 16);
    ck_assert_uint_gt(ledger_generation(ledger), before);
    ledger_object_deleted(ledger, LEDGER_NODE, SPAN("n1")); /* the Scv still exists */
    ck_assert(!n1->cordoned);
}

TEST(the_holder_of_a_foreign_lease_is_known)
{
    see_even("n1", 1, 16);
    cleanup_free char *longer = xasprintf("%0300d", 7);
    const struct ledger_node *n1 = node("n1");
    struct lease theirs = {.meta.name = SPAN("n1"), .holder = span_of(longer)},
                 ours = theirs;
    ours.holder = ours.node = SPAN("n1");
    for (int i = 0; i < 2; i++) {
        ck_assert_ptr_null(ledger_node_info(n1).foreign);
        ledger_lease_seen(ledger, &theirs, 0);
        ck_assert_uint_eq(ledger_node_info(n1).foreign->holder.n, 64);
        ck_assert_uint_eq(ledger_node_info(n1).foreign->renewed.n, 0);
        if (i)
            ledger_object_deleted(ledger, LEDGER_LEASE, SPAN("n1"));
        else
            ledger_lease_seen(ledger, &ours, 0);
    }
    ck_assert_ptr_null(ledger_node_info(n1).foreign);
    theirs.holder = SPAN("n1");
    theirs.renew_time = SPAN("2026-11-20T09:00:00Z");
    ledger_lease_seen(ledger, &theirs, 0); /* freed with the ledger */
    ck_assert_span_eq(ledger_node_info(n1).foreign->renewed, "2026-11-20T09:00:00Z");
}

TEST(an_scv_without_a_node_gets_no_pods_with_require_node)
{
    start_with((struct ledger_settings){.unit_mib = 1, .require_node = true});
    see_even("n1", 1, 100);
    ck_assert_int_eq(node("n1")->state, NODE_MISSING);
    see_capacity("n1", 100, 1, 100);
    ck_assert_int_eq(node("n1")->state, NODE_USABLE);
    place("a", 60, "n1", 0, NULL);
    ledger_object_deleted(ledger, LEDGER_NODE, SPAN("n1"));
    ck_assert_int_eq(node("n1")->state, NODE_MISSING);
    CARD_HAS(0, promised_mib, 60);
}

TEST(a_node_without_scv_and_lease_has_its_capacity)
{
    start_gib();
    see_capacity("n1", 31, 2, 31);
    ck_assert_int_eq(node("n1")->state, NODE_USABLE);
    ck_assert_int_eq(node("n1")->source, SOURCE_CAPACITY);
    ck_assert_uint_eq(node("n1")->n_cards, 2);
    CARD_HAS(1, total_mib, 15 * 1024);
    ledger_lease_seen(ledger, &(struct lease){.meta.name = SPAN("n1")}, 0);
    ck_assert_int_eq(node("n1")->state, NODE_SCV_MISSING);
    ledger_object_deleted(ledger, LEDGER_LEASE, SPAN("n1"));
    ck_assert_int_eq(node("n1")->state, NODE_USABLE);

    start_with((struct ledger_settings){.unit_mib = 1024, .require_scv = true});
    see_capacity("n1", 31, 2, 31);
    ck_assert_int_eq(node("n1")->state, NODE_SCV_MISSING);
    struct pod pod = object_pod_mem(&arena, "p", 1); /* on a node that does not exist */
    struct request r = object_request(&arena, &pod, 1024);
    ledger_pod_place(ledger, ledger_pod_add(ledger, &pod, &r, NULL), SPAN("n2"), NULL, 0);
    ck_assert_int_eq(node("n2")->state, NODE_UNKNOWN);
}

TEST(unusable_capacity_has_a_reason)
{
    start_gib();
    see_capacity("none", 0, 0, 0);
    ck_assert_int_eq(node("none")->state, NODE_NO_GPU);
    see_capacity("count", 16, 0, 16);
    ck_assert_int_eq(node("count")->state, NODE_NO_COUNT);
    see_capacity("low", 32, 2, 16);
    ck_assert_int_eq(node("low")->state, NODE_ALLOCATABLE_LOW);
    int32_t one = 1;
    struct unhealthy_cards u = {.node = SPAN("low"), .cards = &one, .n = 1};
    ledger_unhealthy_seen(ledger, &u, 0);
    ck_assert_int_eq(node("low")->state, NODE_USABLE);
    ck_assert_int_eq(node("low")->cards[0].state, CARD_AVAILABLE);
    ck_assert_int_eq(node("low")->cards[1].state, CARD_EXCLUDED);
    ck_assert_int_eq(node("low")->cards[1].free_mib, 0);
    ck_assert_int_eq(node("low")->unknown_listed_card, -1);
    one = 2; /* no such card: the unhealthy one is still unknown */
    ledger_unhealthy_seen(ledger, &u, 0);
    ck_assert_int_eq(node("low")->state, NODE_ALLOCATABLE_LOW);
    ck_assert_int_eq(node("low")->unknown_listed_card, 2);
    u.damaged = true;
    ledger_unhealthy_seen(ledger, &u, 0);
    ck_assert_int_eq(node("low")->state, NODE_LIST_DAMAGED);
    ledger_object_deleted(ledger, LEDGER_UNHEALTHY, SPAN("low"));
    ck_assert_int_eq(node("low")->state, NODE_ALLOCATABLE_LOW);
}

TEST(a_node_object_that_cannot_be_decoded_is_not_missing)
{
    start_with((struct ledger_settings){.unit_mib = 1, .require_node = true});
    see_even("n1", 1, 100);
    struct node damaged = {.meta = {.name = SPAN("n1")}, .damaged = true};
    ledger_node_seen(ledger, &damaged, 1);
    size_t at = 0;
    ck_assert_ptr_null(ledger_unlisted(ledger, LEDGER_NODE, 1, &at));
    ck_assert_int_eq(node("n1")->state, NODE_DAMAGED);
    see_capacity("n1", 100, 1, 100);
    ck_assert_int_eq(node("n1")->state, NODE_USABLE);
    ledger_node_seen(ledger, &damaged, 2);
    ck_assert_int_eq(node("n1")->state, NODE_DAMAGED);
}

TEST(a_node_with_a_damaged_or_empty_scv_gets_no_pods)
{
    struct scv scv = object_scv_even(&arena, "n1", 1, 1000);
    struct ledger_pod *pod = place("a", 400, "n1", 0, "n1-u0");
    struct scv_assignment given = {scv_pod_hash(pod->ns, pod->name),
                                   scv_hash(SPAN("n1-u0"))};
    scv.assignments = &given;
    scv.n_assignments = 1;
    ledger_scv_seen(ledger, &scv, 0);
    scv.damaged = true;
    ledger_scv_seen(ledger, &scv, 0);
    ck_assert_uint_eq(pod->other_cards, 0);
    ck_assert_int_eq(node("n1")->state, NODE_SCV_DAMAGED);
    ck_assert_int_eq(node("n1")->best_free_mib, 0);
    see_scv("{'metadata':{'name':'n1'},'status':{}}");
    ck_assert_int_eq(node("n1")->state, NODE_SCV_EMPTY);
}

TEST(a_promise_follows_the_uuid_of_its_card)
{
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':0,'uuid':'A','health':'Healthy','totalMemory':1000},"
            "{'id':1,'uuid':'B','health':'Healthy','totalMemory':1000}]}}");
    struct ledger_pod *a = place("a", 400, "n1", 0, "A");
    place("old", 100, "n1", 0, NULL); /* by the Go extender: index only */
    CARD_HAS(0, promised_mib, 500);

    /* The indexes change: the promise follows its card. */
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':0,'uuid':'B','health':'Healthy','totalMemory':1000},"
            "{'id':1,'uuid':'A','health':'Healthy','totalMemory':1000}]}}");
    CARD_HAS(0, promised_mib, 100);
    CARD_HAS(1, promised_mib, 400);

    /* The card is replaced: the promise is on no card, but kept. */
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':0,'uuid':'C','health':'Healthy','totalMemory':1000}]}}");
    CARD_HAS(0, promised_mib, 100);
    ck_assert_int_eq(a->shares[0].on, -1);
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':5,'uuid':'A','health':'Healthy','totalMemory':1000}]}}");
    CARD_HAS(0, promised_mib, 500); /* "old": on any card */
    ck_assert_int_eq(a->shares[0].on, 0);

    /* An Scv without UUIDs: the index decides. */
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':["
            "{'id':0,'health':'Healthy','totalMemory':1000}]}}");
    CARD_HAS(0, promised_mib, 500);
}

TEST(memory_used_from_outside_is_withheld_above_the_tolerance)
{
    see_sample(16276, 1000, 100);
    CARD_HAS(0, free_mib, 16276); /* within the tolerance */
    see_sample(16276, 5024, 101);
    CARD_HAS(0, withheld_mib, 4000);
    CARD_HAS(0, free_mib, 12276);
    ck_assert_uint_eq(node("n1")->free_cards, 0);

    /* A new pod used nothing of what was measured. */
    struct ledger_pod *a = place("a", 8000, "n1", 0, NULL);
    CARD_HAS(0, free_mib, 4276);
    /* It runs: only later samples include it. */
    ledger_pod_running(ledger, a, false);
    CARD_HAS(0, free_mib, 4276);
    see_sample(16276, 13024, 111);
    CARD_HAS(0, free_mib, 4276);

    /* It leaves: the sample still includes its memory, which is not external use. */
    ledger_pod_remove(ledger, a);
    CARD_HAS(0, withheld_mib, 4000);
    CARD_HAS(0, free_mib, 12276);
    see_sample(16276, 13024, 111); /* the same sample, because another field changed */
    CARD_HAS(0, withheld_mib, 4000);
    see_sample(16276, 5024, 121);
    CARD_HAS(0, withheld_mib, 4000);
    /* The next sample: now the memory is external use. (The clock of the node was set back.) */
    see_sample(16276, 13024, 90);
    CARD_HAS(0, withheld_mib, 12000);
}

#define SAMPLED "'status':{'updateTime':'2026-11-21T09:00:00Z','cardList':["
#define ONE_OF_TWO                                                                       \
    "{'id':0,'health':'Healthy','totalMemory':15360,'freeMemory':15360,'uuid':'GPU-0'},"

TEST(memory_used_through_another_resource_is_no_drift)
{
    start_gib();
    see_scv("{'metadata':{'name':'n1'}," SAMPLED ONE_OF_TWO
            "{'id':1,'health':'Healthy','totalMemory':15360,'freeMemory':5360,'uuid':"
            "'GPU-1'}],'podList':[{'namespace':'d','name':'nv','container':'c',"
            "'resource':'nvidia.com/gpu','units':1,'cards':['GPU-1']}]}}");
    CARD_HAS(1, state, CARD_HELD);
    ck_assert_int_gt(node("n1")->cards[1].withheld_mib, 0);
    ck_assert_int_eq(drift(DRIFT_EXTERNAL_USE), 0);
    see_scv("{'metadata':{'name':'n1'}," SAMPLED ONE_OF_TWO
            "{'id':1,'health':'Healthy','totalMemory':15360,'freeMemory':5360,'uuid':"
            "'GPU-1'}]}}");
    ck_assert_int_eq(drift(DRIFT_EXTERNAL_USE), 1);
}

TEST(a_capacity_may_omit_unhealthy_cards)
{
    static const struct {
        const char *mem, *cards;
        int64_t drift;
    } cases[] = {{"30", "2", 0}, {"45", "3", 0}, {"45", "2", 0},
                 {"46", "3", 1}, {"29", "1", 2}, {"0", "0", 2}};
    start_gib();
    see_scv("{'metadata':{'name':'n1'}," SAMPLED ONE_OF_TWO
            "{'id':1,'health':'Healthy','totalMemory':15360,'uuid':'GPU-NEW'},"
            "{'id':2,'health':'Unhealthy','totalMemory':15360,'uuid':'GPU-OLD'}]}}");
    array_items(c, cases) {
        struct span text =
            quoted(&arena,
                   "{'metadata':{'name':'n1'},'status':{'capacity':{'" KEY_GPU_MEM
                   "':'%s','" KEY_GPU_COUNT "':'%s'}}}",
                   c->mem, c->cards);
        struct node n = object_node(&arena, text);
        ledger_node_seen(ledger, &n, 0);
        ck_assert_int_eq(drift(DRIFT_CAPACITY), c->drift);
    }
}

TEST(the_drivers_own_memory_is_not_used_from_outside)
{
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Healthy',"
            "'totalMemory':16276,'freeMemory':10000,'usedMemory':20}],"
            "'updateTime':'2026-11-21T09:00:00Z'}}");
    CARD_HAS(0, used_mib, 20);
    CARD_HAS(0, withheld_mib, 0);
}

TEST(a_lost_card_is_not_used_from_outside)
{
    see_scv(
        "{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Unhealthy',"
        "'totalMemory':16276}],'updateTime':'2026-11-21T09:00:00Z'}}");
    CARD_HAS(0, used_mib, -1);
    CARD_HAS(0, withheld_mib, 0);
    ck_assert_int_eq(drift(DRIFT_EXTERNAL_USE), 0);
}

/* Two cards, of which this much is used; the podList gives pod-p the second one. */
static void see_other_card(int first, int second, const char *time)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text,
               "{'metadata':{'name':'n1'},'status':{'updateTime':'%s','cardList':["
               "{'id':0,'health':'Healthy','totalMemory':16000,'freeMemory':%d,'uuid':"
               "'GPU-0'},{'id':1,'health':'Healthy','totalMemory':16000,'freeMemory':%d,"
               "'uuid':'GPU-1'}],'podList':[{'namespace':'default','name':'pod-p','"
               "container':'c',"
               "'units':8000,'resource':'aliyun.com/gpu-mem','cards':['GPU-1']}]}}",
               time, 16000 - first, 16000 - second);
    see_scv(text.p);
}

/* The annotations name a card that the pod did not use. */
TEST(a_departure_hides_only_the_card_of_the_pod_list)
{
    see_other_card(9024, 8000, "2026-11-21T09:00:00Z");
    struct ledger_pod *p = place("p", 8000, "n1", 0, "GPU-0");
    ledger_pod_running(ledger, p, true);
    CARD_HAS(0, withheld_mib, 8000);
    CARD_HAS(1, withheld_mib, 0);
    ledger_pod_remove(ledger, p);
    CARD_HAS(0, withheld_mib, 8000);
    CARD_HAS(1, withheld_mib, 0);
    see_other_card(9024, 8000, "2026-11-21T09:00:10Z");
    CARD_HAS(0, withheld_mib, 8000);
    CARD_HAS(1, withheld_mib, 6976);
}

/* Two containers of a pod on a card, one of which is measured in part and held by the driver
 * alone. */
TEST(what_a_pod_uses_of_a_card)
{
    struct ledger_use use;
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Healthy',"
            "'totalMemory':16000,'uuid':'GPU-0'},{'id':1,'health':'Healthy',"
            "'totalMemory':16000,'uuid':'GPU-1'}],'podList':["
            "{'namespace':'default','name':'pod-p','container':'a','usage':["
            "{'uuid':'GPU-0','usedMemory':100,'utilization':60,"
            "'enforcedBy':['library','driver']},"
            "{'uuid':'GPU-1','usedMemory':5,'enforcedBy':[]}]},"
            "{'namespace':'default','name':'pod-p','container':'b','usage':["
            "{'uuid':'GPU-0','usedMemory':30,'utilization':70,"
            "'enforcedBy':['driver']}]},"
            "{'namespace':'d','name':'other','container':'b','usage':["
            "{'uuid':'GPU-0','usedMemory':7,'utilization':1}]}]}}");
    struct ledger_pod *p = place("p", 8000, "n1", 0, "GPU-0");
    ck_assert(ledger_pod_use(node("n1"), p, &node("n1")->cards[0], &use));
    ck_assert_int_eq(use.used_mib, 130);
    ck_assert_int_eq(use.sm_percent, 100);
    ck_assert_uint_eq(use.enforced_by, SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER);
    ck_assert(ledger_pod_use(node("n1"), p, &node("n1")->cards[1], &use));
    ck_assert_int_eq(use.used_mib, 5);
    ck_assert_int_eq(use.sm_percent, -1);
    ck_assert_uint_eq(use.enforced_by, SCV_ISOLATION_KNOWN);
    see_scv("{'metadata':{'name':'n1'},'status':{'cardList':[{'id':0,'health':'Healthy',"
            "'totalMemory':16000,'uuid':'GPU-0'}]}}");
    ck_assert(!ledger_pod_use(node("n1"), p, &node("n1")->cards[0], &use));
}

TEST(many_departures_are_bounded)
{
    see_sample(16276, 1000, 1000);
    for (int i = 0; i < 300; i++) {
        char uid[16];
        snprintf(uid, sizeof uid, "p%d", i);
        struct ledger_pod *pod = place(uid, 10, "n1", 0, NULL);
        ledger_pod_running(ledger, pod, true);
        ledger_pod_remove(ledger, pod);
    }
    see_sample(16276, 5024, 3000);
    CARD_HAS(0, withheld_mib, 4000);
}

/* The longest name that fits into the node, and longer ones. */
TEST(a_reused_slot_is_clean_and_names_may_be_long)
{
    static const size_t lengths[] = {63, 64, 150};
    char name[160] = "";
    for (size_t i = 0; i < 3 * ARRAY_LEN(lengths); i++) {
        memset(name, 'a' + (int)i, lengths[i % 3]);
        name[lengths[i % 3]] = '\0';
        see_capacity(name, 16, 1, 16);
        const struct ledger_node *n = node(name);
        ck_assert_str_eq(n->name.p, name);
        ck_assert(n->n_cards == 1 && n->best_free_mib == 16 && !n->pods);
        ck_assert(!n->has_nominated && n->unknown_listed_card == -1);
        ledger_pod_remove(ledger, place("p", 4, name, 0, NULL));
        ledger_object_deleted(ledger, LEDGER_NODE, span_of(name));
        ck_assert_ptr_null(node(name));
    }
    ck_assert_uint_eq(ledger_node_slots(ledger), 1);
}

TEST(a_pending_pod_changes_and_a_bound_one_keeps_its_request)
{
    struct ledger_pod *a = add("a", 100);
    ck_assert_uint_eq(ledger_totals(ledger).pending, 1);
    ck_assert_int_eq(add("a", 200)->request->units, 200);
    struct request none = {0};
    struct pod pod = object_pod_mem(&arena, "a", 100);
    pod.nominated_node = SPAN("n9");
    ledger_pod_add(ledger, &pod, &none, "invalid");
    ck_assert_str_eq(a->invalid_reason, "invalid");
    ck_assert_ptr_eq(node("n9")->nominated->pod, a);
    add("a", 100);
    ck_assert_ptr_null(node("n9")); /* nothing refers to it */
    place("a", 100, "n1", 0, NULL);
    ck_assert_uint_eq(ledger_totals(ledger).pending, 0);
    ck_assert_int_eq(add("a", 300)->request->units, 100);
    ledger_pod_unplace(ledger, a);
    ck_assert_uint_eq(ledger_totals(ledger).pending, 1);
    ck_assert_ptr_null(node("n1"));
}

/* One label puts any number of pods into a gang, and they go in any order. */
TEST(many_members_leave_a_gang_at_once)
{
    enum { MEMBERS = 60000 };
    static struct ledger_pod *members[MEMBERS];
    const struct request r = {
        .kind = REQUEST_MEMORY, .cards = 1, .units = 1, .mib_per_card = 1};
    for (size_t i = 0; i < MEMBERS; i++) {
        char uid[32];
        snprintf(uid, sizeof uid, "m%zu", i);
        const struct pod pod = {
            .meta = {.uid = span_of(uid), .ns = SPAN("d"), .name = span_of(uid)},
            .gang = {.coscheduling = SPAN("g")}};
        members[i] = ledger_pod_add(ledger, &pod, &r, NULL);
    }
    const struct ledger_gang *gang = members[0]->member->gang;
    ck_assert_uint_eq(pending_members(ledger), MEMBERS);
    for (size_t i = 1; i < MEMBERS; i++)
        ledger_pod_remove(ledger, members[i]);
    ck_assert_uint_eq(pending_members(ledger), 1);
    ck_assert_ptr_eq(gang->members, members[0]->member);
    ck_assert_ptr_null(gang->members->next);
    ledger_pod_remove(ledger, members[0]);
    ck_assert_uint_eq(pending_members(ledger), 0);
}

UNIT_MAIN_AROUND(begin, end)
