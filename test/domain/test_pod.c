/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/pod.h"

#include "domain/objects.h"

static struct arena arena;

TEST(a_pod_is_read_with_its_promise)
{
    struct pod pod = object_pod(
        &arena,
        quoted(&arena,
               "{'kind':'Pod','metadata':{'name':'p1','namespace':'default','uid':'u1',"
               "'resourceVersion':'42','labels':{'" KEY_GPU_COUNT "':'2','x':'y'},"
               "'annotations':{'" KEY_MEM_IDX "':'1','" KEY_MEM_ASSIGNED "':'false',"
               "'" KEY_ALLOCATION "':'{\\'0\\':{\\'1\\':4}}','" KEY_PLACEMENT
               "':'spread'},"
               "'deletionTimestamp':'2026-11-21T09:00:00Z','managedFields':[{'a':[1]}]},"
               "'spec':{'nodeName':'n1','priority':100,'containers':[{'name':'c'}]},"
               "'status':{'phase':'Running','nominatedNodeName':'n2'}}"));
    ck_assert_span_eq(pod.meta.name, "p1");
    ck_assert_span_eq(pod.meta.ns, "default");
    ck_assert_span_eq(pod.meta.uid, "u1");
    ck_assert_span_eq(pod.meta.version, "42");
    ck_assert(pod.meta.deleting);
    ck_assert_span_eq(pod.node, "n1");
    ck_assert_span_eq(pod.nominated_node, "n2");
    ck_assert_int_eq(pod.priority, 100);
    ck_assert_int_eq(pod.phase, POD_RUNNING);
    ck_assert(!pod_is_terminal(&pod));
    ck_assert_span_eq(pod.count_label, "2");
    ck_assert(!pod.count_annotation.p);
    ck_assert_span_eq(pod.idx, "1");
    ck_assert_span_eq(pod.allocation, "{\"0\":{\"1\":4}}");
    ck_assert_span_eq(pod.placement, "spread");
    ck_assert_uint_eq(pod.n_containers, 0);
}

TEST(the_condition_says_when_it_was_bound)
{
#define SCHEDULED(status, time)                                                          \
    "{'type':'PodScheduled','status':'" status "','lastTransitionTime':" time "}"
    static const struct {
        const char *conditions;
        int64_t bound_s;
    } cases[] = {{"", 0},
                 {SCHEDULED("True", "'1970-01-01T00:01:40Z'"), 100},
                 {SCHEDULED("False", "'1970-01-01T00:01:40Z'"), 0},
                 {SCHEDULED("True", "'later'"), 0},
                 {SCHEDULED("True", "null"), 0},
                 {"{'type':'Ready','status':'True','lastTransitionTime':"
                  "'1970-01-01T00:01:41Z'}," SCHEDULED("True", "'1970-01-01T00:01:40Z'"),
                  100}};
    array_items(c, cases) {
        struct pod pod = object_pod(
            &arena,
            quoted(&arena, "{'metadata':{'name':'p'},'status':{'conditions':[%s]}}",
                   c->conditions));
        ck_assert_int_eq(pod.bound_s, c->bound_s);
    }
}

TEST(containers_with_limits_keep_their_index)
{
    struct pod pod = object_pod(
        &arena,
        quoted(&arena,
               "{'metadata':{'name':'p'},'spec':{"
               "'initContainers':[{'resources':{'limits':{'" KEY_GPU_MEM "':'1'}}},"
               "{'restartPolicy':'Always','resources':{'limits':{'" KEY_GPU_MEM "':2}}},"
               "{'restartPolicy':'Always'},"
               "{'restartPolicy':'Always','resources':{'limits':{'" KEY_GPU_MEM
               "':'3'}}}],"
               "'containers':[{'name':'plain'},"
               "{'resources':{'requests':{'" KEY_GPU_MEM "':'9'},"
               "'limits':{'cpu':'1','" KEY_GPU_MEM "':'4'}}},"
               "{'resources':{'limits':{'" KEY_GPU_COUNT "':'5'}}}]}}"));
    static const struct {
        enum container_role role;
        uint32_t index;
        const char *mem, *cards;
    } want[] = {
        {CONTAINER_INIT, 0, "1", NULL},    {CONTAINER_SIDECAR, 3, "2", NULL},
        {CONTAINER_SIDECAR, 5, "3", NULL}, {CONTAINER_APP, 1, "4", NULL},
        {CONTAINER_APP, 2, NULL, "5"},
    };
    ck_assert_uint_eq(pod.n_containers, ARRAY_LEN(want));
    array_indices(i, want) {
        ck_assert_int_eq(pod.containers[i].role, want[i].role);
        if (want[i].role != CONTAINER_INIT)
            ck_assert_uint_eq(pod.containers[i].index, want[i].index);
        ck_assert_span_eq(pod.containers[i].mem, want[i].mem);
        ck_assert_span_eq(pod.containers[i].cards, want[i].cards);
    }
}

TEST(fields_for_the_device_plugin_are_read)
{
    struct pod pod = object_pod(
        &arena,
        quoted(&arena, "{'metadata':{'name':'p','annotations':{'" KEY_MIRROR
                       "':'7f','" KEY_MEM_ASSIGNED "':'false'}},'spec':{'containers':["
                       "{'name':'own','env':[{'name':'A','value':'" KEY_VISIBLE_DEVICES
                       "'},{'name':'" KEY_VISIBLE_DEVICES "','value':'all'},"
                       "{'name':'LD_PRELOAD','value':'x'}],"
                       "'resources':{'limits':{'" KEY_GPU_MEM "':'1'}}},"
                       "{'name':'ours','securityContext':{'privileged':true},'env':[{'"
                       "name':'A','value':'" KEY_VISIBLE_DEVICES
                       "'}],'resources':{'limits':{'" KEY_GPU_MEM "':'1'}}}]},"
                       "'status':{'containerStatuses':["
                       "{'name':'own','state':{'waiting':{},'running':null},"
                       "'lastState':{'running':{}}},"
                       "{'name':'ours','state':{'running':{"
                       "'startedAt':'2026-11-28T00:00:07Z'}}}]}}"));
    ck_assert_uint_eq(pod.n_containers, 2);
    ck_assert(!pod.containers[0].privileged && !pod.containers[0].started_s);
    ck_assert(pod.containers[1].privileged);
    ck_assert_int_eq(pod.containers[1].started_s, 1795824007);
    ck_assert_span_eq(pod.containers[0].name, "own");
    ck_assert(pod.containers[0].own_devices && pod.containers[0].own_preload);
    ck_assert_span_eq(pod.containers[1].name, "ours");
    ck_assert(!pod.containers[1].own_devices && !pod.containers[1].own_preload);
    ck_assert(pod.mirror);
    ck_assert_span_eq(pod.assigned, "false");

    pod = object_pod(&arena, quoted(&arena, "{'metadata':{'name':'p'}}"));
    ck_assert(!pod.mirror);
    ck_assert_ptr_null(pod.assigned.p);
}

TEST(a_container_that_does_not_say_since_when_it_runs_is_not_known_to_run)
{
    static const char *const cases[] = {
        "{}", "{'startedAt':null}", "{'startedAt':''}", "{'startedAt':'x'}", "null",
    };
    array_items(running, cases) {
        struct pod pod = object_pod(
            &arena, quoted(&arena,
                           "{'metadata':{'name':'p'},'spec':{'containers':[{'name':'c',"
                           "'resources':{'limits':{'" KEY_GPU_MEM "':'1'}}}]},"
                           "'status':{'containerStatuses':[{'name':'c',"
                           "'state':{'running':%s}}]}}",
                           *running));
        ck_assert_uint_eq(pod.n_containers, 1);
        ck_assert_int_eq(pod.containers[0].started_s, 0);
    }
}

static bool prefers(const char *spec)
{
    cleanup_free char *text =
        xasprintf("{'metadata':{'name':'p'},'spec':{%s,'priority':7}}", spec);
    struct pod pod = object_pod(&arena, quoted(&arena, "%s", text));
    ck_assert_int_eq(pod.priority, 7); /* the rest of the spec is read */
    return pod.prefers;
}

#define PREFERRED "'preferredDuringSchedulingIgnoredDuringExecution'"

TEST(soft_preferences_are_recognized)
{
    ck_assert(prefers("'affinity':{'nodeAffinity':{" PREFERRED ":[{'weight':1}]}}"));
    ck_assert(prefers("'affinity':{'podAffinity':{" PREFERRED ":[{'weight':1}]}}"));
    ck_assert(prefers("'affinity':{'nodeAffinity':{},'podAntiAffinity':{" PREFERRED
                      ":[{'weight':1},{'weight':2}]}}"));
    ck_assert(prefers("'topologySpreadConstraints':[{'whenUnsatisfiable':"
                      "'DoNotSchedule'},{'whenUnsatisfiable':'ScheduleAnyway'}]"));
    ck_assert(!prefers("'affinity':{'nodeAffinity':{" PREFERRED ":[],"
                       "'requiredDuringSchedulingIgnoredDuringExecution':[1]}}"));
    ck_assert(!prefers("'topologySpreadConstraints':[{'whenUnsatisfiable':"
                       "'DoNotSchedule'}]"));
    ck_assert(!prefers("'affinity':null,'topologySpreadConstraints':null"));
}

TEST(terminal_phases_are_recognized)
{
    static const struct {
        const char *phase;
        bool over;
    } cases[] = {{"Pending", false}, {"Running", false}, {"Succeeded", true},
                 {"Failed", true},   {"Unknown", false}, {"Strange", false}};
    array_items(c, cases) {
        struct pod pod = object_pod(
            &arena, quoted(&arena, "{'metadata':{'name':'p'},'status':{'phase':'%s'}}",
                           c->phase));
        ck_assert_msg(pod_is_terminal(&pod) == c->over, "%s", c->phase);
    }
}

TEST(an_invalid_pod_is_rejected_with_the_field)
{
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{'metadata':{'name':7}}", "metadata.name: expected a string"},
        {"{'metadata':{}}", "metadata.name: is missing or cannot be a name"},
        {"{'metadata':{'name':'a b'}}", "metadata.name: is missing or cannot be a name"},
        {"{'metadata':{'name':'p','labels':{'" KEY_GPU_COUNT "':2}}}",
         "metadata.labels: expected a string"},
        {"{'metadata':{'name':'p'},'spec':{'containers':{}}}",
         "spec.containers: expected an array"},
        {"{'metadata':{'name':'p'},'spec':{'nodeName':['x']}}",
         "spec.nodeName: expected a string"},
        {"[]", "pod: expected an object"},
    };
    array_items(c, cases) {
        struct err err = {0};
        object_fault(pod, pod_read, &arena, quoted(&arena, "%s", c->json), &err);
        ck_assert_msg(span_starts(span_of(err.msg), span_of(c->message)), "%s: %s",
                      c->json, err.msg);
    }
}
