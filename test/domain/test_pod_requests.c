/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/pod.h"

#include "domain/objects.h"

/*
 * The expected values were compared with PodRequests of k8s.io/component-helpers v0.37.2,
 * with the options of kube-scheduler 1.37.
 */

#define R(cpu, memory) "'resources':{'requests':{'cpu':'" cpu "','memory':'" memory "'}}"
/* A status: allocated, then what the container has. */
#define S(name, cpu, memory, cpu2, memory2)                                              \
    "{'name':'" name "','allocatedResources':{'cpu':'" cpu "','memory':'" memory         \
    "'},'resources':{'requests':{'cpu':'" cpu2 "','memory':'" memory2 "'}}}"
#define C(name, cpu, memory) "{'name':'" name "'," R(cpu, memory) "}"
#define SIDECAR(name, cpu, memory)                                                       \
    "{'name':'" name "','restartPolicy':'Always'," R(cpu, memory) "}"
#define INFEASIBLE                                                                       \
    "'conditions':[{'type':'Ready'},{'type':'PodResizePending','reason':'Infeasible'}]"
#define DEFERRED "'conditions':[{'type':'PodResizePending','reason':'Deferred'}]"

static struct arena arena;

static struct resources of(const char *spec, const char *status)
{
    struct span json =
        quoted(&arena, "{'metadata':{'name':'p','uid':'u'},'spec':{%s},'status':{%s}}",
               spec, status);
    struct resources r = object_pod(&arena, json).requests;
    /* The parts may come in any order. */
    json = quoted(&arena, "{'status':{%s},'spec':{%s},'metadata':{'name':'p'}}", status,
                  spec);
    struct resources turned = object_pod(&arena, json).requests;
    ck_assert_msg(resources_equal(&r, &turned), "%s %s", spec, status);
    return r;
}

static const struct {
    const char *spec, *status;
    int64_t cpu_milli, memory;
} cases[] = {
    {"", "", 0, 0},
    {"'containers':[{'name':'a'}]", "", 0, 0},
    {"'containers':[" C("a", "250m", "1Gi") "," C("b", "1", "512Mi") "]", "", 1250,
     1610612736},
    {"'containers':[{'resources':{'requests':{'cpu':2,'memory':1024}}}]", "", 2000, 1024},
    {"'containers':[{'resources':{'limits':{'cpu':'2'}}}]", "", 0, 0},
    /* Fractions of a byte add up before they are rounded. */
    {"'containers':[" C("a", "1", "500m") "," C("b", "1", "500m") "]", "", 2000, 1},
    {"'containers':[" C("a", "1", "100m") "]", "", 1000, 1},
    /* init containers */
    {"'containers':[" C("a", "1", "10") "],'initContainers':[" C("i", "2", "3") "," C(
         "j", "1", "20") "]",
     "", 2000, 20},
    {"'initContainers':[" SIDECAR("s", "500m", "5") "," C("i", "2", "3") "," SIDECAR(
         "t", "1", "1") "],'containers':[" C("a", "1", "10") "]",
     "", 2500, 16},
    {"'initContainers':[" C("i", "2", "3") "," SIDECAR(
         "s", "500m", "5") "],"
                           "'containers':[" C("a", "1", "10") "]",
     "", 2000, 15},
    {"'overhead':{'cpu':'100m','memory':'7'},'containers':[" C("a", "1", "10") "]", "",
     1100, 17},
    /* requests of the pod as a whole */
    {"'resources':{'requests':{'cpu':'4'}},'containers':[" C("a", "1", "10") "]", "",
     4000, 10},
    {"'resources':{'requests':{'cpu':'4','memory':'3'},'limits':{'cpu':'9'}},"
     "'overhead':{'cpu':'1'},'containers':[" C("a", "6", "10") "]",
     "", 5000, 3},
    {"'resources':{'limits':{'cpu':'9'}},'containers':[" C("a", "6", "10") "]", "", 6000,
     10},
    {"'resources':{'requests':{'hugepages-2Mi':'9'}},'containers':[" C("a", "6",
                                                                       "10") "]",
     "'resources':{'requests':{'cpu':'8'}}", 8000, 10},
    {"'resources':{'requests':{'cpu':'4'}},'containers':[" C("a", "1", "10") "]",
     "'resources':{'requests':{'cpu':'3'}},'allocatedResources':{'cpu':'5',"
     "'memory':'12'}",
     5000, 12},
    {"'resources':{'requests':{'cpu':'4'}},'containers':[" C("a", "1", "10") "]",
     "'resources':{'requests':{'cpu':'3'}}," INFEASIBLE, 3000, 0},
    {"'resources':{'requests':{'cpu':'4'}},'containers':[" C("a", "1", "10") "]",
     INFEASIBLE, 4000, 0},
    /* a resize in place */
    {"'containers':[" C("a", "2", "10") "]",
     "'containerStatuses':[" S("a", "1", "20", "3", "15") "]", 3000, 20},
    {"'containers':[" C("a", "2", "10") "]",
     "'containerStatuses':[" S("a", "1", "20", "1", "15") "]," DEFERRED, 2000, 20},
    {"'containers':[" C("a", "2", "10") "]",
     "'containerStatuses':[" S("a", "1", "5", "1", "5") "]," INFEASIBLE, 1000, 5},
    {"'containers':[" C("a", "2", "10") "]", "'containerStatuses':[{'name':'a'}]", 2000,
     10},
    {"'containers':[" C("a", "2", "10") "]",
     "'containerStatuses':[{'name':'a','resources':{}}]", 2000, 10},
    {"'containers':[" C("a", "2", "10") "]",
     "'containerStatuses':[{'name':'a','allocatedResources':{}}]," INFEASIBLE, 0, 0},
    {"'containers':[" C("a", "2", "10") "]",
     "'containerStatuses':[" S("other", "9", "90", "9", "90") "]", 2000, 10},
    {"'containers':[{'name':'a'}]",
     "'containerStatuses':[" S("a", "1", "5", "2", "4") "]", 2000, 5},
    /* opposite directions: the largest sum, not the sum of the largest */
    {"'containers':[" C("a", "1", "1") "," C("b", "2", "1") "]",
     "'containerStatuses':[" S("a", "2", "1", "2", "1") "," S("b", "1", "1", "1",
                                                              "1") "]",
     3000, 2},
    {"'initContainers':[" SIDECAR("s", "1", "1") "," C(
         "i", "1", "1") "],'containers':[" C("a", "1", "1") "]",
     "'initContainerStatuses':[" S("s", "4", "1", "3", "1") "," S("i", "9", "9", "9",
                                                                  "9") "]",
     13000, 10},
};

TEST(requests_add_up_as_in_kube_scheduler)
{
    array_items(c, cases) {
        struct resources r = of(c->spec, c->status);
        ck_assert_msg(r.cpu_milli == c->cpu_milli && r.memory == c->memory,
                      "%s %s: %lld, %lld", c->spec, c->status, (long long)r.cpu_milli,
                      (long long)r.memory);
        ck_assert_int_eq(r.pods, 1);
    }
}

TEST(no_amount_overflows_a_sum)
{
    static const char *const amounts[] = {"9223372036854775807", "8E", "-1", "x", "100P"};
    array_items(amount, amounts) {
        struct span one = quoted(&arena,
                                 "{'name':'c','resources':{'requests':{'cpu':'%s',"
                                 "'memory':'%s'}}}",
                                 *amount, *amount);
        struct span spec = quoted(&arena,
                                  "'containers':[%s,%s,%s],'overhead':{'cpu':'%s',"
                                  "'memory':'%s'}",
                                  one.p, one.p, one.p, *amount, *amount);
        struct resources r = of(spec.p, "");
        ck_assert_int_eq(r.cpu_milli, RESOURCES_MAX);
        ck_assert_int_eq(r.memory, RESOURCES_MAX);
    }
}

/* A pod of so many containers costs no more memory than its bytes are worth; the spec of
 * all of them counts. */
TEST(the_spec_of_thousands_of_containers_counts)
{
    cleanup_buf struct buf spec = {0}, status = {0};
    cleanup_arena struct arena own = {0};
    buf_adds(&spec, "\"containers\":[");
    buf_adds(&status, "\"containerStatuses\":[");
    for (int i = 0; i < 20000; i++) {
        buf_printf(&spec, "%s{\"name\":\"%d\",\"resources\":{\"requests\":{\"cpu\":1}}}",
                   i ? "," : "", i);
        buf_printf(&status,
                   "%s{\"name\":\"%d\",\"resources\":{\"requests\":{\"cpu\":2}}}",
                   i ? "," : "", i);
    }
    cleanup_buf struct buf json = {0};
    buf_printf(&json, "{\"metadata\":{\"name\":\"p\"},\"spec\":{%s]},\"status\":{%s]}}",
               spec.p, status.p);
    struct pod pod = object_pod(&own, buf_span(&json));
    ck_assert_int_eq(pod.requests.cpu_milli, 20000 * 1000);
    ck_assert_uint_lt(arena_bytes(&own), 64 << 10);
}
