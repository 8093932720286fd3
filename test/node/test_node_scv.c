/* SPDX-License-Identifier: Apache-2.0 */
#include "node/fixture.h"
#include "node/node_scv.h"

/* -- cards -- */

static void status_is(const struct gpu_sample *s, const char *want)
{
    cleanup_buf struct buf status = {0};
    struct scv scv = {0};
    struct card_inventory *inv = card_inventory_new(&(struct card_inventory_settings){0});
    card_inventory_sample(inv, 1, s);
    card_inventory_report(inv, &arena, &scv);
    scv_write_status(&status, &scv);
    card_inventory_free(inv);
    for (size_t i = 0; i < status.n; i++)
        if (status.p[i] == '"')
            status.p[i] = '\'';
    ck_assert_str_eq(status.p, want);
}

#define VERSIONS "'cudaVersion':'12.2','driverVersion':'535.129.03'"

TEST(all_known_values_are_published)
{
    /* A T4 of 15109.99 MiB: what is not a whole MiB is cut off. */
    status_is(
        sample_of("{'uuid':'GPU-0','model':'Tesla T4','busId':'00000000:3B:00.0',"
                  "'memoryTotal':15843721215,'memoryFree':15307898879,"
                  "'memoryUsed':3145727,'memoryReserved':500000000,'clockMemoryMax':5001,"
                  "'clockSmMax':1590,'clockGraphicsMax':1600,'pcieGenerationMax':3,"
                  "'pcieWidthMax':16,'powerLimit':70999,'utilization':7,"
                  "'temperature':31,'processes':[{'pid':1,'bytes':2}]},"
                  "{'index':5,'uuid':'GPU-5','model':'NVIDIA H200','memoryTotal':1048576,"
                  "'memoryFree':0,'memoryUsed':0,'pcieGenerationMax':5,"
                  "'pcieWidthMax':16,'utilization':0,'temperature':0}"),
        "{'cardList':[{'bandwidth':15760,'busId':'00000000:3B:00.0','clock':5001,"
        "'core':1590,'freeMemory':14598,'health':'Healthy','id':0,'model':'Tesla T4',"
        "'power':70,'reservedMemory':477,'temperature':31,'totalMemory':15109,'"
        "usedMemory':2,"
        "'utilization':7,'uuid':'GPU-0'},"
        "{'bandwidth':63008,'health':'Healthy','id':5,'model':'NVIDIA H200',"
        "'temperature':0,'totalMemory':1,'usedMemory':0,'utilization':0,"
        "'uuid':'GPU-5'}],'cardNumber':2," VERSIONS
        ",'freeMemorySum':14598,'totalMemorySum':15110}");
}

TEST(an_instance_names_its_card_and_profile)
{
    status_is(sample_of("{'uuid':'GPU-0','memoryTotal':9437184,'migMode':1},"
                        "{'index':64,'uuid':'MIG-1','parentUUID':'GPU-0',"
                        "'migProfile':'1g.5gb','memoryTotal':1048576,'memoryFree':0}"),
              "{'cardList':[{'health':'Healthy','id':64,'migProfile':'1g.5gb',"
              "'parentUUID':'GPU-0','totalMemory':1,'uuid':'MIG-1'}],"
              "'cardNumber':1," VERSIONS ",'totalMemorySum':1}");
}

TEST(unknown_values_are_left_out)
{
    status_is(sample_of("{'memoryTotal':9437184,'memoryFree':3145728}"),
              "{'cardList':[{'freeMemory':3,'health':'Healthy','id':0,"
              "'totalMemory':9}],'cardNumber':1," VERSIONS
              ",'freeMemorySum':3,'totalMemorySum':9}");
    status_is(sample_of(""), "{" VERSIONS "}");
    status_is(&(struct gpu_sample){0}, "{}");
    status_is(sample_of("{'memoryTotal':1048576,'utilization':101,'temperature':1001}"),
              "{'cardList':[{'freeMemory':1,'health':'Healthy','id':0,'totalMemory':1}],"
              "'cardNumber':1," VERSIONS ",'freeMemorySum':1,'totalMemorySum':1}");
}

TEST(failed_cards)
{
    status_is(sample_of("{'uuid':'GPU-0','migMode':1,'memoryTotal':9437184},"
                        "{'uuid':'GPU-1','state':'lost','memoryTotal':9437184,"
                        "'memoryFree':0},"
                        "{'uuid':'GPU-2','remapFailed':1,'memoryTotal':9437184},{}"),
              "{'cardList':["
              "{'health':'Unhealthy','id':1,'totalMemory':9,'uuid':'GPU-1'},"
              "{'freeMemory':9,'health':'Unhealthy','id':2,'totalMemory':9,"
              "'uuid':'GPU-2'},{'health':'Unhealthy','id':3}],'cardNumber':3," VERSIONS
              ",'freeMemorySum':9,'totalMemorySum':18}");
}

/* -- podList -- */

/* `allocations`: those that the kubelet does not list yet. It is emptied. */
static void held_with(const char *entries, struct allocation_set *allocations,
                      const char *want)
{
    cleanup_buf struct buf got = {0};
    struct scv_card cards[] = {{.uuid = SPAN("GPU-0")}, {0}, {.uuid = SPAN("GPU-1")}};
    struct scv scv = {.cards = cards, .n_cards = ARRAY_LEN(cards)};
    struct podresources pods = {.list = list_of(entries, &arena),
                                .allocations = *allocations};
    podresources_sort(&pods);
    node_scv_add_pods(&pods, &scv, &arena);
    for (size_t i = 0; i < scv.n_held; i++) {
        const struct scv_held *h = &scv.held[i];
        buf_printf(&got, "%.*s %.*s %lld:", SPAN_ARG(h->pod), SPAN_ARG(h->resource),
                   (long long)h->units);
        for (size_t k = 0; k < h->n_uuids; k++)
            buf_printf(&got, " %.*s", SPAN_ARG(h->uuids[k]));
        buf_addc(&got, '\n');
    }
    ck_assert_str_eq(got.p, want);
    arena_fini(&pods.arena);
    allocation_set_fini(&pods.allocations);
}

static void held_is(const char *entries, const char *want)
{
    held_with(entries, &(struct allocation_set){0}, want);
}

/* test_ids.c has all forms of ids. */
TEST(device_ids_name_the_cards)
{
    cleanup_free char *ours =
        xasprintf("ns/o/c aliyun.com/gpu-mem %s", ids_of(&arena, "GPU-1", 5, 6)->p);
    held_is(ours, "o aliyun.com/gpu-mem 1: GPU-1\n");
    held_is("ns/p/c nvidia.com/gpu GPU-1 GPU-0\n"
            "ns/q/c nvidia.com/gpu GPU-0::1 GPU-0::0\n"
            "ns/u/c nvidia.com/gpu GPU-11 GPU-\n",
            "p nvidia.com/gpu 2: GPU-0 GPU-1\n"
            "q nvidia.com/gpu 2: GPU-0\n"
            "u nvidia.com/gpu 2:\n");
}

/* The extender promises none of these cards to another pod. */
TEST(allocations_name_the_cards)
{
    struct allocation_set set = {0};
    static const struct {
        const char *container;
        enum ids_resource resource;
        int64_t unit;       /* of GPU-1; -2: it has none */
        const char *others; /* of the plugin that served the resource before */
    } allocations[] = {
        {"a", IDS_MEM, 3, NULL},
        {"b", IDS_COUNT, -1, NULL},
        {"c", IDS_DIALECT, -2, "GPU-0"},
        {"d", IDS_DIALECT, 7, "GPU-0"},
        {"e", IDS_DIALECT, -2, "GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-7"},
    };
    array_items(of, allocations) {
        struct allocation *al =
            allocation_new(SPAN("u"), SPAN("ns"), span_of(of->container),
                           span_of(of->container), CONTAINER_APP, of->resource);
        if (of->unit > -2)
            allocation_add(al, SPAN("GPU-1"), 1, of->unit);
        if (of->others)
            allocation_add_other(al, span_of(of->others));
        allocation_set_put(&set, al);
    }
    held_with("", &set,
              "a aliyun.com/gpu-mem 1: GPU-1\n"
              "b aliyun.com/gpu-count 1: GPU-1\n"
              "c nvidia.com/gpu 1: GPU-0\n"
              "d nvidia.com/gpu 2: GPU-0 GPU-1\n"
              "e nvidia.com/gpu 1:\n");
}

TEST(the_number_of_entries_is_limited)
{
    cleanup_arena struct arena a = {0};
    struct scv scv = {0};
    const struct span id = SPAN("GPU-0");
    struct podresources_entry *entries =
        arena_zalloc(&a, (SCV_MAX_HELD + 5) * sizeof *entries);
    for (size_t i = 0; i < SCV_MAX_HELD + 5; i++) {
        cleanup_free char *name = xasprintf("p%06zu", i);
        entries[i] =
            (struct podresources_entry){SPAN("ns"), arena_copy(&a, span_of(name)),
                                        SPAN("c"),  SPAN("nvidia.com/gpu"),
                                        &id,        1,
                                        0,          NULL};
    }
    node_scv_add_pods(&(struct podresources){.entries = entries, .n = SCV_MAX_HELD + 5},
                      &scv, &a);
    ck_assert_uint_eq(scv.n_held, SCV_MAX_HELD);
    ck_assert_span_eq(scv.held[SCV_MAX_HELD - 1].pod, "p008191");
}

/* -- what containers and processes use -- */

/* What containers use, in the Scv that the publisher writes. */

static int64_t promised = 1024;
static struct span pod_uid = SPAN("u1");
static int64_t unlimited;
static uint8_t enforced_by;

/* Pod ns/p with its container c on card GPU-0, and a process outside Kubernetes. The arrays
 * stay with the publisher. */
static void used(int64_t mib, int64_t percent, int64_t outside_mib)
{
    static const struct usage_card card = {.uuid = SPAN("GPU-0"), .complete = true};
    static const struct usage_pid pid = {7, 1};
    static struct usage_container c[3];
    static struct usage_process p;
    c[0] = (struct usage_container){.ns = SPAN("ns"),
                                    .pod = SPAN("p"),
                                    .name = SPAN("c"),
                                    .pod_uid = pod_uid,
                                    .used_mib = mib,
                                    .unlimited_mib = unlimited,
                                    .sm_percent = percent,
                                    .enforced_by = enforced_by,
                                    .promised_mib = promised,
                                    .pids = &pid,
                                    .n_pids = 1};
    c[1] = (struct usage_container){.pod_uid = SPAN("u2"),
                                    .used_mib = 9,
                                    .sm_percent = -1,
                                    .promised_mib = -1,
                                    .pids = &pid,
                                    .n_pids = 1};
    c[2] = (struct usage_container){
        .ns = SPAN("ns"), .pod = SPAN("not-started"), .name = SPAN("c")};
    p = (struct usage_process){
        .pid = pid, .name = "Xorg", .used_mib = outside_mib, .sm_percent = 0};
    struct usage usage = {.cards = &card,
                          .n_cards = 1,
                          .containers = c,
                          .n_containers = ARRAY_LEN(c),
                          .outside = &p,
                          .n_outside = outside_mib != 0};
    step((struct publisher_input){.type = PUBLISHER_USAGE, .usage = &usage});
    ck_assert_uint_eq(usage.n_cards, 0); /* taken */
}

static void has_pods(void)
{
    static const struct span id = SPAN("GPU-0");
    static const struct podresources_entry entries[] = {
        {SPAN("ns"), SPAN("p"), SPAN("c"), SPAN("nvidia.com/gpu"), &id, 1, 0, NULL},
        {SPAN("ns"), SPAN("p"), SPAN("d"), SPAN("nvidia.com/gpu"), &id, 1, 0, NULL}};
    static struct podresources pods = {.refs = 1, .entries = entries, .n = 2};
    pods.asked_ms = now_ms;
    step((struct publisher_input){.type = PUBLISHER_PODS, .pods = &pods});
}

/* Answers the calls of the last step; returns the number of writes of the Scv. */
static int answer_all(void)
{
    const struct publisher_output *lease = out(PUBLISHER_PATCH_LEASE);
    const struct publisher_output *scv = out(PUBLISHER_PATCH);
    uint64_t lease_call = lease ? lease->call : 0, scv_call = scv ? scv->call : 0;
    if (lease_call)
        answer(lease_call, NULL);
    if (scv_call)
        answer(scv_call, SCV("14", ",'status':{'a':4}"));
    return scv_call != 0;
}

TEST(a_write_has_the_use_of_containers_and_processes)
{
    set_up();
    unlimited = 7;
    enforced_by = SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER;
    used(1500, 40, 300);
    unlimited = enforced_by = 0;
    has_pods();
    called(PUBLISHER_PATCH);
    ck_assert_body("'podList':[{'cards':['GPU-0'],'container':'c','name':'p',"
                   "'namespace':'ns','resource':'nvidia.com/gpu','units':1,"
                   "'usage':[{'enforcedBy':['driver'],'promisedMemory':1024,'"
                   "unlimitedMemory':7,'usedMemory':1500,"
                   "'utilization':40,"
                   "'uuid':'GPU-0'}]},{'cards':['GPU-0'],'container':'d',");
    ck_assert_no_body("not-started");
    /* A container whose name is unknown, and the process. */
    ck_assert_body("'processList':[{'name':'u2','usedMemory':9,'uuid':'GPU-0'},"
                   "{'name':'Xorg','pid':7,'usedMemory':300,'utilization':0,"
                   "'uuid':'GPU-0'}]");
    answer(call_id, SCV("12", ",'status':{'a':2}"));
    /* Nothing uses the card any more: the list goes with the next write. */
    step((struct publisher_input){.type = PUBLISHER_USAGE, .usage = &(struct usage){0}});
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'processList':null");
    ck_assert_no_body("'usage'");
}

#define HOT(t, u)                                                                        \
    "{'uuid':'GPU-0','memoryTotal':2097152,'memoryFree':2097152,'temperature':" t        \
    ",'utilization':" u "}"

/* A second with the pods of the kubelet, this use and this card; returns the number of
 * writes of the Scv. */
static int second(int64_t mib, int64_t percent, int64_t outside_mib, const char *card)
{
    now_ms += 1000;
    has_pods();
    int writes = answer_all();
    used(mib, percent, outside_mib);
    writes += answer_all();
    sampled(card);
    return writes + answer_all();
}

/* The last state is written, and a minute passes. */
static void settle(int64_t mib)
{
    for (int i = 0; i < 130; i++)
        second(mib, 0, 0, CARD(0));
}

/* etcd is not written for noise, and at most once a minute for more than that. */
TEST(noise_is_not_written)
{
    set_up();
    sampled(HOT("72", "95"));
    used(1500, 40, 300);
    has_pods();
    answered(PUBLISHER_PATCH, SCV("12", ",'status':{'a':2}"));
    for (int i = 0; i < 600; i++)
        ck_assert_int_eq(second(i % 2 ? 1500 - 63 : 1500 + 63, i % 2 ? 36 : 44,
                                i % 3 ? 330 : 290,
                                i % 2 ? HOT("71", "97") : HOT("73", "93")),
                         0);
    used(1564, 40, 300);
    called(PUBLISHER_PATCH);
    ck_assert_body("'usedMemory':1564");
    ck_assert_body("'temperature':71"); /* goes along */
    answer(call_id, SCV("13", ",'status':{'a':3}"));
    int for_use = 0, for_heat = 0;
    for (int i = 0; i < 600; i++)
        for_use += second(i % 2 ? 100 : 9000, i % 2 ? 0 : 100, i % 2 ? 0 : 300, CARD(0));
    for (int i = 0; i < 600; i++)
        for_heat += second(100, 0, 0, i % 2 ? HOT("40", "0") : HOT("70", "99"));
    ck_assert(for_use >= 5 && for_use <= 10 && for_heat >= 5 && for_heat <= 10);
    settle(9000);
    enforced_by = SCV_ISOLATION_KNOWN;
    used(9000, 0, 0);
    called(PUBLISHER_PATCH);
    ck_assert_body("'enforcedBy':[]");
    answer_all();
    settle(9000);
    promised = 2048;
    used(9000, 0, 0);
    called(PUBLISHER_PATCH);
    ck_assert_body("'promisedMemory':2048");
}

/* Another pod has the name of the former one. */
TEST(a_pod_is_named_by_the_uid_that_the_api_shows)
{
    set_up();
    settle(5);
    pod_uid = SPAN("1f4c6a1e-0000-4000-8000-00000000000a");
    used(5, 0, 0);
    called(PUBLISHER_PATCH);
    ck_assert_body("'podUID':'1f4c6a1e-0000-4000-8000-00000000000a'");
    answer_all();
    settle(5);
    pod_uid = SPAN("0123456789abcdef0123456789abcdef"); /* static */
    used(5, 0, 0);
    called(PUBLISHER_PATCH);
    ck_assert_no_body("podUID");
}

/* One card with `n` processes outside Kubernetes, and what NVML reads of its memory. */
static void measured(bool complete, int64_t free_mib, size_t n)
{
    static struct usage_card card;
    static struct usage_process p[SCV_MAX_PROCESSES + 1];
    card = (struct usage_card){.uuid = SPAN("GPU-0"),
                               .total_mib = 2,
                               .free_mib = free_mib,
                               .complete = complete};
    for (size_t i = 0; i < n; i++)
        p[i] = (struct usage_process){.pid = {7 + (int64_t)i, 1}, .name = "Xorg"};
    struct usage usage = {
        .taken_ms = now_ms, .cards = &card, .n_cards = 1, .outside = p, .n_outside = n};
    step((struct publisher_input){.type = PUBLISHER_USAGE, .usage = &usage});
}

/* Writes the Scv with the card's memory used as in USED, and returns whether it is marked. */
static bool is_marked(bool complete, int64_t free_mib, size_t n)
{
    sampled(CARD(0));
    answer_all();
    measured(complete, free_mib, n);
    sampled(USED(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'freeMemory':1,");
    bool marked = strstr(call_body, "\"usageComplete\":true") != NULL;
    answer(call_id, SCV("14", ",'status':{'a':4}"));
    now_ms += 1000;
    return marked;
}

/* The ledger believes the use of a card that is marked. */
TEST(a_card_is_marked_if_every_process_was_measured_with_its_memory)
{
    set_up();
    ck_assert(is_marked(true, 1, 1));
    ck_assert(is_marked(true, 1, 0));
    ck_assert(!is_marked(false, 1, 1));
    ck_assert(!is_marked(true, 2, 1)); /* the memory of another sample */
    ck_assert(!is_marked(true, -1, 1));
    ck_assert(is_marked(true, 1, SCV_MAX_PROCESSES));
    ck_assert(!is_marked(true, 1, SCV_MAX_PROCESSES + 1)); /* the list is full */
}

/* 70 seconds after a write with a mark, in which nothing is written. */
static void quiet(void)
{
    set_up();
    ck_assert(is_marked(true, 1, 1));
    for (int i = 0; i < 70; i++) {
        measured(true, 1, 1);
        ck_assert_int_eq(answer_all(), 0);
        sampled(USED(0));
        ck_assert_int_eq(answer_all(), 0);
        now_ms += 1000;
    }
}

/* The use of a sample comes first: it is not written with the memory of the last sample. */
TEST(use_is_written_with_the_memory_of_its_sample)
{
    quiet();
    measured(true, 2, 1);
    ck_assert_int_eq(answer_all(), 0);
    sampled(CARD(0));
    called(PUBLISHER_PATCH);
    ck_assert_body("'freeMemory':2,");
    ck_assert_body("'usageComplete':true");
    answer_all();
    now_ms += 1000;
    measured(true, 2, 1);
    ck_assert_int_eq(answer_all(), 0);
    sampled(CARD(0));
    ck_assert_int_eq(answer_all(), 0);
}

/* A sample that fails has no memory of its own. */
TEST(use_is_written_with_a_sample_that_failed)
{
    quiet();
    measured(false, -1, 0);
    ck_assert_int_eq(answer_all(), 0);
    sample_failed("GPU is lost");
    called(PUBLISHER_PATCH);
    ck_assert_body("'processList':null");
    ck_assert_no_body("'usageComplete':true");
}

TEST(a_failure_is_logged_once)
{
    struct err err;
    set_up();
    err_set(&err, ERR_UNAVAILABLE, "/proc is not that of the host");
    for (int i = 0; i < 3; i++) {
        step((struct publisher_input){
            .type = PUBLISHER_USAGE, .usage = &(struct usage){0}, .err = &err});
        ck_assert(logged("/proc is not that of the host") == (i == 0));
    }
    used(1, 1, 1);
    ck_assert(logged("succeeded again"));
    used(1, 1, 1);
    ck_assert(!logged("succeeded again"));
}

TEST(a_hanging_driver_leaves_no_old_numbers)
{
    set_up();
    used(1500, 40, 300);
    ck_assert_uint_eq(publisher_usage(publisher)->n_containers, 3);
    now_ms += 31001 + 1000;
    tick(0);
    ck_assert_uint_eq(publisher_usage(publisher)->n_containers, 0);
    ck_assert(!publisher_usage(publisher)->n_cards);
}

TEST(a_patch_takes_away_what_is_no_more)
{
    static const char rest[] = "\"podList\":null,\"processList\":null}";
    cleanup_buf struct buf out = {0};
    struct scv_card card = {.total_mib = 4, .free_mib = 3, .model = SPAN("\"podList\":")};
    struct scv scv = {0};
    node_scv_status_patch(&out, &scv);
    ck_assert_str_eq(out.p,
                     "{\"cardList\":null,\"cardNumber\":null,\"cudaVersion\":null,"
                     "\"dialect\":null,\"driverVersion\":null,\"freeMemorySum\":null,"
                     "\"isolation\":null,"
                     "\"podList\":null,\"processList\":null,\"totalMemorySum\":null,"
                     "\"updateTime\":null}");
    scv = (struct scv){.cards = &card,
                       .n_cards = 1,
                       .driver_version = SPAN("d"),
                       .cuda_version = SPAN("c"),
                       .dialect = SPAN("hami"),
                       .isolation = SCV_ISOLATION_KNOWN,
                       .has_update_time = true};
    buf_clear(&out);
    node_scv_status_patch(&out, &scv);
    ck_assert_str_eq(out.p + out.n - strlen(rest), rest);
    ck_assert_ptr_eq(strstr(out.p, "null"), strstr(out.p, rest) + strlen("\"podList\":"));
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
