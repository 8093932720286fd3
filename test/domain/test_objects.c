/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/objects.h"

#include "base/file.h"

static struct arena arena;

TEST(a_node_is_read)
{
    struct node n = object_node(
        &arena,
        quoted(&arena, "{'metadata':{'name':'n1','labels':{'gpushare/mode':'card'}},"
                       "'status':{'capacity':{'" KEY_GPU_MEM "':'16k','" KEY_GPU_COUNT
                       "':8,'cpu':'1'},'allocatable':{'" KEY_GPU_MEM "':'15k'}}}"));
    ck_assert_span_eq(n.meta.name, "n1");
    ck_assert_int_eq(n.mode, NODE_CARDS);
    ck_assert_int_eq(n.capacity.mem, 16000);
    ck_assert_int_eq(n.capacity.cards, 8);
    ck_assert_int_eq(n.allocatable.mem, 15000);
    ck_assert_int_eq(n.allocatable.cards, -1);
    n = object_node(&arena, quoted(&arena, "{'metadata':{'name':'n'}}"));
    ck_assert_int_eq(n.mode, NODE_ANY);
    ck_assert_int_eq(n.capacity.mem, -1);
    n = object_node(&arena, quoted(&arena, "{'metadata':{'name':'n','labels':{"
                                           "'gpushare/mode':'x'}}}"));
    ck_assert_int_eq(n.mode, NODE_MODE_WRONG);
    struct err err = {0};
    object_fault(node, node_read, &arena,
                 quoted(&arena,
                        "{'metadata':{'name':'n'},'status':{'capacity':{'" KEY_GPU_MEM
                        "':'1.5'}}}"),
                 &err);
    ck_assert_contains(err.msg, "status.capacity: a quantity is not a whole");
    object_fault(node, node_read, &arena,
                 quoted(&arena,
                        "{'metadata':{'name':'n'},'status':{'capacity':{'" KEY_GPU_MEM
                        "':'3E'}}}"),
                 &err);
    ck_assert_contains(err.msg, "exceeds the capacity of any node");
}

TEST(what_a_node_offers_to_pods_is_read)
{
    struct node n = object_node(
        &arena, quoted(&arena, "{'metadata':{'name':'n'},'status':{'capacity':{"
                               "'cpu':'9','memory':'9Gi','pods':'9'},'allocatable':{"
                               "'cpu':'7910m','memory':'65331300Ki','pods':'110'}}}"));
    ck_assert_int_eq(n.room.cpu_milli, 7910);
    ck_assert_int_eq(n.room.memory, INT64_C(65331300) << 10);
    ck_assert_int_eq(n.room.pods, 110);
    n = object_node(&arena,
                    quoted(&arena, "{'metadata':{'name':'n'},'status':{'allocatable':{"
                                   "'cpu':96,'memory':'99E','pods':'-1'}}}"));
    ck_assert_int_eq(n.room.cpu_milli, 96000);
    ck_assert_int_eq(n.room.memory, RESOURCES_MAX);
    ck_assert_int_eq(n.room.pods, UINT32_MAX);
    n = object_node(&arena, quoted(&arena, "{'metadata':{'name':'n'}}"));
    ck_assert(resources_equal(&n.room, &(struct resources){0}));
}

TEST(a_node_that_is_cordoned)
{
    static const struct {
        const char *spec;
        bool cordoned;
    } cases[] = {
        {"", false},
        {",'spec':null", false},
        {",'spec':{'unschedulable':null}", false},
        {",'spec':{'podCIDR':'10.0.0.0/24','unschedulable':true}", true},
    };
    array_items(c, cases) {
        struct node n =
            object_node(&arena, quoted(&arena, "{'metadata':{'name':'n'}%s}", c->spec));
        ck_assert_msg(n.cordoned == c->cordoned, "%s", c->spec);
    }
    struct err err = {0};
    object_fault(node, node_read, &arena,
                 quoted(&arena, "{'metadata':{'name':'n'},'spec':{'unschedulable':1}}"),
                 &err);
    ck_assert_contains(err.msg, "spec.unschedulable");
}

TEST(missing_numbers_of_an_scv_are_zero_and_cards_are_sorted)
{
    struct scv s = object_scv(
        &arena,
        quoted(&arena, "{'metadata':{'name':'n'},'status':{'cardList':["
                       "{'id':3,'totalMemory':100,'usedMemory':40,'freeMemory':50},"
                       "{'id':0,'totalMemory':16276,'health':'Unhealthy'},"
                       "{'id':1},"
                       "{'id':4,'totalMemory':100,'health':'Healthy'},"
                       "{'id':5,'totalMemory':100,'freeMemory':70}]}}"));
    ck_assert_uint_eq(s.n_cards, 5);
    ck_assert_int_eq(s.cards[0].id, 0);
    ck_assert(!s.cards[0].healthy);
    ck_assert_int_eq(scv_card_used(&s.cards[0]), -1);
    ck_assert_int_eq(s.cards[1].id, 1);
    ck_assert(!s.cards[1].healthy);
    ck_assert_int_eq(s.cards[2].id, 3);
    ck_assert_int_eq(scv_card_used(&s.cards[2]), 40);
    ck_assert_int_eq(scv_card_used(&s.cards[3]), 100); /* an omitted zero */
    ck_assert_int_eq(scv_card_used(&s.cards[4]), 30);
    ck_assert(!s.has_update_time);
}

TEST(an_impossible_scv_is_rejected)
{
    static const char *const cards[] = {"{'id':0,'totalMemory':-1}",
                                        "{'id':-1}",
                                        "{'id':70000}",
                                        "{'id':1},{'id':1}",
                                        "{'id':0,'totalMemory':9223372036854775807}",
                                        "{'id':'0'}",
                                        "7",
                                        "{'id':0,'freeMemory':1.5}"};
    array_items(card, cards) {
        struct err err = {0};
        object_fault(
            scv, scv_read, &arena,
            quoted(&arena, "{'metadata':{'name':'n'},'status':{'cardList':[%s]}}", *card),
            &err);
        ck_assert_msg(span_starts(span_of(err.msg), SPAN("status.cardList")), "%s",
                      err.msg);
    }
    cleanup_buf struct buf many = {0};
    for (int i = 0; i <= SCV_MAX_CARDS; i++)
        buf_printf(&many, "%s{'id':%d}", i ? "," : "", i);
    struct err err = {0};
    object_fault(
        scv, scv_read, &arena,
        quoted(&arena, "{'metadata':{'name':'n'},'status':{'cardList':[%s]}}", many.p),
        &err);
}

/* The bytes of test/golden/scv/<name>, without the line end. */
static struct span golden(const char *name)
{
    cleanup_free char *path = xasprintf("test/golden/scv/%s", name);
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 65536, &text, &err), err);
    return arena_copy(&arena, span_trim(buf_span(&text)));
}

static void written_is(const struct scv *scv, struct span want)
{
    cleanup_buf struct buf b = {0};
    scv_write(&b, scv);
    ck_assert_msg(span_eq(buf_span(&b), want), "%s", b.p);
}

TEST(zeros_of_an_scv_are_left_out)
{
    struct scv_card card = {.id = 0, .total_mib = 5, .has_used = true, .used_mib = 5};
    struct scv s = {.cards = &card, .n_cards = 1};
    cleanup_buf struct buf b = {0};
    scv_write_status(&b, &s);
    ck_assert_str_eq(b.p, "{\"cardList\":[{\"id\":0,\"totalMemory\":5,\"usedMemory\":5}],"
                          "\"cardNumber\":1,\"totalMemorySum\":5}");
}

TEST(an_scv_survives_a_round_trip)
{
    static const char *const names[] = {"full.json", "seed.json", "empty.json"};
    array_indices(i, names) {
        struct span text = golden(names[i]);
        struct scv s = object_scv_all(&arena, text);
        if (i == 0)
            s.owner_uid = SPAN("u-1");
        written_is(&s, text);
    }
    struct scv s = object_scv_all(&arena, golden("full.json"));
    ck_assert_int_eq(s.update_interval_ms, 1000);
    ck_assert_span_eq(s.driver_version, "535.129.03");
    ck_assert_uint_eq(s.isolation,
                      SCV_ISOLATION_KNOWN | SCV_ISOLATION_LIBRARY | SCV_ISOLATION_MPS);
    ck_assert_uint_eq(s.n_held, 1);
    ck_assert_span_eq(s.held[0].uuids[1], "GPU-3");
    ck_assert_int_eq(s.held[0].units, 4);
    ck_assert_uint_eq(s.held[0].n_uses, 2);
    ck_assert_int_eq(s.held[0].uses[0].promised_mib, 4096);
    ck_assert_int_eq(s.held[0].uses[1].used_mib, -1);
    ck_assert_uint_eq(s.held[0].uses[1].enforced_by, SCV_ISOLATION_KNOWN);
    ck_assert_uint_eq(s.n_processes, 2);
    ck_assert(s.processes[0].unmapped && s.processes[0].pid == 812);
    ck_assert_span_eq(s.processes[0].name, "Xorg");
    ck_assert_span_eq(s.processes[1].pod, "q");
    ck_assert_int_eq(s.processes[1].sm_percent, -1);
    ck_assert(s.cards[0].has_temperature && !s.cards[1].has_temperature);
    s = object_scv(&arena, golden("full.json"));
    ck_assert(!s.cards[0].has_temperature);
    ck_assert_uint_eq(s.n_held, 0);
    ck_assert_uint_eq(s.n_assignments, 2);
    ck_assert_uint_eq(s.assignments[1].pod, scv_pod_hash(SPAN("default"), SPAN("p")));
    ck_assert_uint_eq(s.assignments[1].card, scv_hash(SPAN("GPU-3")));
    ck_assert(s.cards[0].use_complete && !s.cards[1].use_complete);
    /* What pods and processes use, of both lists. */
    ck_assert_uint_eq(s.n_uses, 4);
    ck_assert_int_eq(s.uses[0].user, SCV_USER_UID);
    ck_assert_uint_eq(s.uses[0].pod,
                      scv_hash(SPAN("1f4c6a1e-0000-4000-8000-00000000000a")));
    ck_assert_uint_eq(s.uses[0].card, scv_hash(SPAN("GPU-0")));
    ck_assert_int_eq(s.uses[0].used_mib, 4100);
    ck_assert_int_eq(s.uses[0].sm_percent, 7);
    ck_assert_uint_eq(s.uses[0].enforced_by,
                      SCV_ISOLATION_KNOWN | SCV_ISOLATION_DRIVER | SCV_ISOLATION_LIBRARY);
    ck_assert_int_eq(s.uses[1].used_mib, -1);
    ck_assert_int_eq(s.uses[1].user, SCV_USER_NAME);
    ck_assert_uint_eq(s.uses[1].pod, scv_pod_hash(SPAN("default"), SPAN("p")));
    ck_assert_int_eq(s.uses[2].user, SCV_USER_PROCESS);
    ck_assert_int_eq(s.uses[2].used_mib, 0);
    ck_assert_uint_eq(s.uses[3].pod,
                      scv_hash(SPAN("1f4c6a1e-0000-4000-8000-00000000000b")));
    ck_assert_int_eq(s.uses[3].used_mib, 64);
    ck_assert_uint_eq(s.uses[3].enforced_by, 0);
}

/* A wrong measurement must not take the cards of a node away. */
TEST(impossible_measurements_are_unknown)
{
    struct scv s = object_scv_all(
        &arena,
        quoted(&arena, "{'metadata':{'name':'n'},'status':{'podList':[{'name':'p',"
                       "'usage':[{'uuid':'GPU-0','usedMemory':-7,"
                       "'utilization':101,'promisedMemory':1099511627777}]}],"
                       "'processList':[{'pid':-1,'usedMemory':1099511627777}]}}"));
    ck_assert_int_eq(s.held[0].uses[0].used_mib, -1);
    ck_assert_int_eq(s.held[0].uses[0].sm_percent, -1);
    ck_assert_int_eq(s.held[0].uses[0].promised_mib, -1);
    ck_assert_int_eq(s.processes[0].pid, 0);
    ck_assert_int_eq(s.processes[0].used_mib, -1);
    cleanup_buf struct buf many = {0};
    for (int i = 0; i <= SCV_MAX_PROCESSES; i++)
        buf_adds(&many, i ? ",{'pid':7}" : "{'pid':7}");
    s = object_scv_all(
        &arena, quoted(&arena, "{'metadata':{'name':'n'},'status':{'processList':[%s]}}",
                       many.p));
    ck_assert_uint_eq(s.n_processes, SCV_MAX_PROCESSES);
}

TEST(the_extender_ignores_invalid_values_that_it_does_not_use)
{
    static const char *const wrong[] = {
        "'spec':{'updateInterval':-1}",
        "'status':{'driverVersion':5}",
        "'status':{'cardList':[{'utilization':101}]}",
        "'status':{'cardList':[{'temperature':-1001}]}",
    };
    array_items(c, wrong) {
        struct err err = {0};
        struct span text = quoted(&arena, "{'metadata':{'name':'n'},%s}", *c);
        object_fault(scv, scv_read_all, &arena, text, &err);
        ck_assert_msg(strchr(err.msg, '.') != NULL, "%s", err.msg);
        object_scv(&arena, text);
    }
}

TEST(the_extender_rejects_invalid_values_that_it_uses)
{
    static const char *const wrong[] = {
        "'podList':{}",
        "'podList':[{'units':-1}]",
        "'podList':[{'cards':[1]}]",
        "'cardList':[{'power':-1}]",
        "'cardList':[{'clock':1099511627777}]",
        "'cardList':[{'core':true}]",
        "'cardList':[{'bandwidth':'1'}]",
        "'dialect':['hami']",
        "'isolation':'driver'",
        "'isolation':{}",
        "'isolation':[1]",
        "'podList':[{'usage':[{'enforcedBy':'driver'}]}]",
    };
    array_items(c, wrong) {
        struct err err = {0};
        struct span text = quoted(&arena, "{'metadata':{'name':'n'},'status':{%s}}", *c);
        object_fault(scv, scv_read_all, &arena, text, &err);
        object_fault(scv, scv_read, &arena, text, &err);
        ck_assert_msg(span_starts(span_of(err.msg), SPAN("status.")), "%s", err.msg);
    }
    cleanup_buf struct buf many = {0};
    for (int i = 0; i <= SCV_MAX_CARDS; i++)
        buf_adds(&many, i ? ",'u'" : "'u'");
    struct err err = {0};
    object_fault(scv, scv_read_all, &arena,
                 quoted(&arena,
                        "{'metadata':{'name':'n'},'status':{'podList':[{'cards':[%s]}]}}",
                        many.p),
                 &err);
    ck_assert_contains(err.msg, "more than 64 cards");
    buf_clear(&many);
    for (int i = 0; i <= SCV_MAX_HELD; i++)
        buf_adds(&many, i ? ",{}" : "{}");
    object_fault(
        scv, scv_read_all, &arena,
        quoted(&arena, "{'metadata':{'name':'n'},'status':{'podList':[%s]}}", many.p),
        &err);
    ck_assert_contains(err.msg, "more than 8192 containers");
}

TEST(an_scv_lists_what_the_node_can_enforce)
{
    enum { KNOWN = SCV_ISOLATION_KNOWN, LIBRARY = SCV_ISOLATION_LIBRARY };
    static const struct {
        const char *json, *written;
        uint8_t bits;
    } cases[] = {
        {"{}", "{}", 0},
        {"{'isolation':null}", "{}", 0},
        {"{'isolation':[]}", "{'isolation':[]}", KNOWN},
        {"{'isolation':['library']}", "{'isolation':['library']}", KNOWN | LIBRARY},
        {"{'isolation':['mps','driver','mps']}", "{'isolation':['driver','mps']}",
         KNOWN | SCV_ISOLATION_DRIVER | SCV_ISOLATION_MPS},
        /* Words of a later version, and items without one. */
        {"{'isolation':['Driver','','drive','limit',null]}", "{'isolation':[]}", KNOWN},
        {"{'isolation':['\\u006cibrary']}", "{'isolation':['library']}", KNOWN | LIBRARY},
        {"{'isolation':['mps'],'isolation':['library']}", "{'isolation':['library']}",
         KNOWN | LIBRARY},
    };
    array_items(c, cases) {
        cleanup_buf struct buf b = {0};
        struct span text =
            quoted(&arena, "{'metadata':{'name':'n'},'status':%s}", c->json);
        struct scv s = object_scv(&arena, text);
        ck_assert_uint_eq(s.isolation, c->bits);
        s = object_scv_all(&arena, text);
        ck_assert_uint_eq(s.isolation, c->bits);
        scv_write_status(&b, &s);
        ck_assert_span_eq(quoted(&arena, "%s", c->written), b.p);
    }
    cleanup_buf struct buf many = {0};
    for (int i = 0; i < 100000; i++)
        buf_adds(&many, "'x',");
    struct scv s = object_scv(
        &arena,
        quoted(&arena, "{'metadata':{'name':'n'},'status':{'isolation':[%s'mps']}}",
               many.p));
    ck_assert_uint_eq(s.isolation, KNOWN | SCV_ISOLATION_MPS);
}

/* A word of a later version is kept: it says that nobody here knows what nvidia.com/gpu means there.
 */
TEST(an_scv_names_the_dialect_of_its_node)
{
    static const struct {
        const char *json, *written;
        enum scv_dialect dialect;
    } cases[] = {
        {"{}", "{}", SCV_DIALECT_NONE},
        {"{'dialect':null}", "{}", SCV_DIALECT_NONE},
        {"{'dialect':''}", "{}", SCV_DIALECT_NONE},
        {"{'dialect':'hami'}", "{'dialect':'hami'}", SCV_DIALECT_HAMI},
        {"{'dialect':'unserved'}", "{'dialect':'unserved'}", SCV_DIALECT_UNSERVED},
        {"{'dialect':'HAMi'}", "{'dialect':'HAMi'}", SCV_DIALECT_OTHER},
        {"{'dialect':'kai'}", "{'dialect':'kai'}", SCV_DIALECT_OTHER},
    };
    array_items(c, cases) {
        cleanup_buf struct buf b = {0};
        struct span text =
            quoted(&arena, "{'metadata':{'name':'n'},'status':%s}", c->json);
        struct scv s = object_scv(&arena, text);
        ck_assert_int_eq(scv_dialect_of(s.dialect), c->dialect);
        s = object_scv_all(&arena, text);
        scv_write_status(&b, &s);
        ck_assert_span_eq(quoted(&arena, "%s", c->written), b.p);
    }
}

TEST(bandwidth_of_a_link)
{
    static const int64_t cases[][3] = {{1, 1, 250}, {3, 16, 15760},   {6, 8, 60504},
                                       {0, 16, 0},  {7, 16, 0},       {-1, 16, 0},
                                       {3, -1, 0},  {3, INT64_MAX, 0}};
    array_indices(i, cases)
        ck_assert_int_eq(scv_bandwidth(cases[i][0], cases[i][1]), cases[i][2]);
}

TEST(a_lease_is_read_and_written)
{
    struct lease l = {.meta = {.ns = SPAN("kube-system"),
                               .name = SPAN("gpushare-extender"),
                               .version = SPAN("7")},
                      .holder = SPAN("host_1"),
                      .duration_s = 5,
                      .renew_time = SPAN("2026-11-21T09:00:00.000001Z"),
                      .acquire_time = SPAN("2026-11-21T08:00:00.000001Z"),
                      .transitions = 3};
    cleanup_buf struct buf b = {0};
    lease_write(&b, &l);
    struct lease back = object_lease(&arena, buf_span(&b));
    ck_assert(span_eq(back.meta.name, l.meta.name) && span_eq(back.meta.ns, l.meta.ns));
    ck_assert(span_eq(back.meta.version, l.meta.version));
    ck_assert(span_eq(back.holder, l.holder) && span_eq(back.renew_time, l.renew_time));
    ck_assert(span_eq(back.acquire_time, l.acquire_time));
    ck_assert_int_eq(back.duration_s, 5);
    ck_assert_int_eq(back.transitions, 3);
}

/* The Lease of another system has our names, but another owner. */
TEST(a_heartbeat_of_scv_agent_is_owned_by_its_node)
{
    static const struct {
        const char *owners, *holder;
        bool ours;
    } cases[] = {
        {"{'apiVersion':'v1','kind':'Node','name':'n1','uid':'u'}", "n1", true},
        {"{'kind':'GpuNode','name':'n1'},{'kind':'Node','name':'n1'}", "n1", true},
        {"{'apiVersion':'v1','kind':'Node','name':'n1','uid':'u'}", "n2", false},
        {"{'apiVersion':'v1','kind':'Node','name':'n2','uid':'u'}", "n1", false},
        {"{'apiVersion':'v1','kind':'GpuNode','name':'n1','uid':'u'}", "n1", false},
        {"", "n1", false},
        {"", "", false},
    };
    array_items(c, cases) {
        struct lease l =
            object_lease(&arena, quoted(&arena,
                                        "{'metadata':{'name':'n1','ownerReferences':[%s]"
                                        "},'spec':{'holderIdentity':'%s'}}",
                                        c->owners, c->holder));
        ck_assert_msg(lease_is_of_scv_agent(&l) == c->ours, "%s, %s", c->owners,
                      c->holder);
    }
    struct err err = {0};
    object_fault(lease, lease_read, &arena,
                 quoted(&arena, "{'metadata':{'name':'n1','ownerReferences':[7]}}"),
                 &err);
    ck_assert_contains(err.msg, "metadata.ownerReferences");
}

TEST(configmaps_make_cards_unavailable)
{
    struct unhealthy_cards u = object_unhealthy_cards(
        &arena, quoted(&arena, "{'metadata':{'name':'unhealthy-gpu-n1','namespace':"
                               "'kube-system'},'data':{'gpus':' 0, 2,,7 ','x':'y'}}"));
    ck_assert_span_eq(u.node, "n1");
    ck_assert_uint_eq(u.n, 3);
    ck_assert_int_eq(u.cards[1], 2);
    ck_assert(!u.damaged);
    u = object_unhealthy_cards(
        &arena, quoted(&arena, "{'metadata':{'name':'coredns'},'data':{'gpus':'x'}}"));
    ck_assert_uint_eq(u.node.n, 0);
    u = object_unhealthy_cards(
        &arena, quoted(&arena, "{'metadata':{'name':'unhealthy-gpu-n'},'data':{'gpus':"
                               "'0;1'}}"));
    ck_assert(u.damaged);
}

TEST(each_byte_of_a_name_is_checked)
{
    char name[32];
    ck_assert(!object_is_name((struct span){name, 0}));
    for (size_t n = 1; n < sizeof name; n++) {
        for (size_t at = 0; at < n; at++) {
            for (int c = 0; c < 256; c++) {
                memset(name, 'a', n);
                name[at] = (char)c;
                bool wrong = c <= ' ' || c == 0x7f || strchr("\"/\\", c);
                ck_assert_msg(object_is_name((struct span){name, n}) == !wrong,
                              "byte %d at %zu of %zu", c, at, n);
            }
        }
    }
    char *longest = xmalloc(254);
    memset(longest, 'a', 254);
    ck_assert(object_is_name((struct span){longest, 253}));
    ck_assert(!object_is_name((struct span){longest, 254}));
    free(longest);
}
