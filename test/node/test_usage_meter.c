/* SPDX-License-Identifier: Apache-2.0 */
#include "node/usage_meter.h"

#include "domain/objects.h"
#include "lib/temp.h"
#include "limit/state.h"
#include "node/limit_slots.h"
#include "node/samples.h"

/* The promises of the kubelet's devices, and the whole path from a made-up root of a host
 * to the use of a container. */

#define UID    "5d0c1f6e-8a2b-4c3d-9e4f-0123456789ab"
#define ID     "4f797c539e6c745de61a93ca3ff892358ecbcaccd8414d5db545c38428142970"
#define IN_POD "0::/kubepods/burstable/pod" UID "/" ID "\n"
#define CARDS                                                                            \
    "{'uuid':'GPU-0','memoryTotal':17179869184,'processes':["                            \
    "{'pid':10,'bytes':5368709120,'sm':30},{'pid':11,'bytes':1048576,'sm':0}]},"         \
    "{'uuid':'GPU-1','memoryTotal':17179869184,'processes':[]}"

static char *root;
static struct usage_meter *meter;
static struct arena arena;
static struct usage u;
static struct podresources d; /* the meter holds a reference until `end` */
static struct err err;

static void process(int pid, const char *comm, const char *cgroup)
{
    cleanup_free char *folder = xasprintf("proc/%d", pid);
    cleanup_free char *stat = xasprintf("proc/%d/stat", pid);
    cleanup_free char *group = xasprintf("proc/%d/cgroup", pid);
    cleanup_free char *text = xasprintf(
        "%d (%s) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 8\n", pid, comm, pid * 10);
    temp_mkdir(root, folder);
    temp_write(root, stat, text);
    temp_write(root, group, cgroup);
}

static void begin(void)
{
    static const char *const folders[] = {"proc", "var", "var/log", "var/log/containers"};
    root = temp_dir();
    array_items(folder, folders)
        temp_mkdir(root, *folder);
    process(2, "kthreadd", "0::/\n");
    process(10, "python", IN_POD);
    process(11, "Xorg", "0::/user.slice/session-2.scope\n");
    temp_write(root, "var/log/containers/serve_team_main-" ID ".log", "");
    meter =
        usage_meter_new(&(struct usage_meter_settings){root, NULL, 1024, 60000, NULL});
}

static void end(void)
{
    usage_meter_free(meter);
    usage_fini(&u);
    arena_fini(&arena);
    temp_dir_remove(root);
    free(root);
}

static struct podresources_entry devices(const char *container, const char *resource,
                                         const struct span *ids, size_t n)
{
    return (struct podresources_entry){
        SPAN("team"), SPAN("serve"), span_of(container), span_of(resource), ids, n, 0,
        NULL};
}

/* Of GPU-1. */
static struct span slot_id(enum ids_resource r, int64_t slot)
{
    cleanup_buf struct buf id = {0};
    ids_write(&id, r, &(struct ids_id){ids_tag_of(SPAN("GPU-1")), slot});
    return arena_copy(&arena, buf_span(&id));
}

/* "container uuid MiB" of every promise. */
static void promises_are(const char *want)
{
    cleanup_buf struct buf got = {0};
    const struct usage_promise *p;
    size_t n = usage_meter_promises(meter, &d, sample_of(CARDS), &arena, &p);
    buf_adds(&got, "");
    for (size_t i = 0; i < n; i++)
        buf_printf(&got, "%.*s %.*s %lld\n", SPAN_ARG(p[i].container),
                   SPAN_ARG(p[i].uuid), (long long)p[i].mib);
    ck_assert_str_eq(got.p, want);
}

/* A unit of GPU-0, and all forms of ids of a card. */
static void promised_on(const char *uuid, const char *want)
{
    cleanup_free char *part = xasprintf("%s::2", uuid),
                      *old = xasprintf("MIG-%s/1/0", uuid);
    const struct span whole = span_of(uuid), replica = span_of(part),
                      old_mig = span_of(old), mig = SPAN("MIG-4b0f1c9a"),
                      go = SPAN("GPU-0-_-3"),
                      hami = SPAN("GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-7");
    struct ids_tag tag = ids_tag_of(whole);
    const struct span count = span_of(tag.text);
    const struct span both[] = {*ids_of(&arena, "GPU-0", 0, 1),
                                *ids_of(&arena, uuid, 3, 4)};
    const struct podresources_entry entries[] = {
        devices("mem", "aliyun.com/gpu-mem", both, 2),
        devices("card", "aliyun.com/gpu-count", &count, 1),
        devices("nvidia", "nvidia.com/gpu", &whole, 1),
        devices("replica", "nvidia.com/gpu", &replica, 1),
        devices("old-mig", "nvidia.com/gpu", &old_mig, 1),
        devices("mig", "nvidia.com/gpu", &mig, 1),
        devices("go", "aliyun.com/gpu-mem", &go, 1),
        devices("hami", "nvidia.com/gpu", &hami, 1),
    };
    d = (struct podresources){.refs = 1, .entries = entries, .n = ARRAY_LEN(entries)};
    promises_are(want);
}

TEST(what_the_kubelet_promised)
{
    promised_on("GPU-1",
                "mem GPU-0 1024\ngo GPU-0 -1\nhami GPU-0 -1\n"
                "mem GPU-1 1024\ncard GPU-1 16384\nnvidia GPU-1 16384\nreplica GPU-1 -1\n"
                "old-mig GPU-1 -1\ngo GPU-1 -1\nhami GPU-1 -1\n");
    /* It is on no card of the sample. */
    promised_on("GPU-9", "mem GPU-0 1024\ngo GPU-0 -1\nhami GPU-0 -1\n"
                         "go GPU-1 -1\nhami GPU-1 -1\n");
    static const enum ids_resource slots[] = {IDS_SHARE, IDS_DIALECT};
    array_items(r, slots) {
        const struct span id = slot_id(*r, 7);
        struct podresources_entry slot = devices("slot", ids_resource_name(*r), &id, 1);
        d.entries = &slot;
        d.n = 1;
        promises_are("slot GPU-1 -1\n"); /* no allocation of it is known */
        slot.slot_mib = 5000;
        promises_are("slot GPU-1 5000\n");
    }
    const struct podresources_entry entry =
        devices("mem", "aliyun.com/gpu-mem", ids_of(&arena, "GPU-0", 3, 8), 5);
    d.entries = &entry;
    d.n = 1;
    promises_are("mem GPU-0 5120\n");
    const struct podresources_entry many =
        devices("mem", "aliyun.com/gpu-mem", ids_of(&arena, "GPU-0", 0, 17), 17);
    d.entries = &many; /* the device plugin has another --memory-unit */
    promises_are("mem GPU-0 -1\n");
}

/* It was allocated by the plugin that served the resource before. */
TEST(what_another_plugin_allocated)
{
    static const struct {
        const char *id, *promises;
    } cases[] = {
        {"GPU-1", "main GPU-1 16384\n"},
        {"GPU-1::2", "main GPU-1 -1\n"},
        {"GPU-1f0c9a7e-53d1-6d55-8e9e-0d7a2b6f3c11-7", "main GPU-0 -1\nmain GPU-1 -1\n"}};
    array_items(c, cases) {
        struct podresources pods = {0};
        struct allocation *al = allocation_new(SPAN(UID), SPAN("team"), SPAN("serve"),
                                               SPAN("main"), CONTAINER_APP, IDS_DIALECT);
        allocation_add_other(al, span_of(c->id));
        allocation_set_put(&pods.allocations, al);
        podresources_sort(&pods);
        d = (struct podresources){.refs = 1, .entries = pods.entries, .n = pods.n};
        promises_are(c->promises);
        allocation_set_fini(&pods.allocations);
        arena_fini(&pods.arena);
    }
}

/* Measures, and compares all of it: "namespace/pod/name USED of PROMISED" of each container
 * of the pod UID, processes outside, and the init containers that were allocated. */
static void measure(int64_t now_ms, const char *want)
{
    cleanup_buf struct buf got = {0};
    err = (struct err){0};
    usage_meter_measure(meter, now_ms, sample_of(CARDS), 0, &u, &err);
    bool complete = u.n_cards > 0;
    for (size_t i = 0; i < u.n_cards; i++)
        complete &= u.cards[i].complete;
    buf_adds(&got, complete ? "" : "incomplete\n");
    for (size_t i = 0; i < u.n_containers; i++) {
        const struct usage_container *c = &u.containers[i];
        ck_assert_span_eq(c->pod_uid, UID);
        ck_assert_uint_eq(c->pids[0].started, 100);
        buf_printf(&got, "%.*s/%.*s/%.*s %lld of %lld%s%s\n", SPAN_ARG(c->ns),
                   SPAN_ARG(c->pod), SPAN_ARG(c->name), (long long)c->used_mib,
                   (long long)c->promised_mib, c->promise_unclear ? " or more" : "",
                   c->init ? ", init" : "");
    }
    for (size_t i = 0; i < u.n_outside; i++)
        buf_printf(&got, "%s %s\n", u.outside[i].unmapped ? "unmapped" : "outside",
                   u.outside[i].name);
    for (size_t i = 0; i < u.n_inits * u.n_cards; i++) { /* by card */
        const struct usage_init_promise *n = &u.inits[i % u.n_inits];
        if (n->card == i / u.n_inits)
            buf_printf(&got, "card %zu: %.*s %.*s %lld beside %lld\n", n->card,
                       SPAN_ARG(n->pod_uid), SPAN_ARG(n->container), (long long)n->mib,
                       (long long)n->beside_mib);
    }
    ck_assert_str_eq(got.p, want);
}

static const struct usage_listed listed = {SPAN("team"), SPAN("serve"), SPAN("main")};

TEST(from_the_process_to_the_promise)
{
    const struct podresources_entry entry =
        devices("main", "aliyun.com/gpu-mem", ids_of(&arena, "GPU-0", 0, 4), 4);
    d = (struct podresources){.refs = 1,
                              .entries = &entry,
                              .n = 1,
                              .listed = &listed,
                              .n_listed = 1,
                              .asked_ms = 2000};
    usage_meter_pods(meter, &d);
    measure(62000, "team/serve/main 5120 of 4096\noutside Xorg\n");
    ck_assert_msg(err.code == ERR_NONE, "%s", err.msg);
    /* The kubelet has not answered for too long. */
    measure(62001, "team/serve/main 5120 of -1 or more\noutside Xorg\n");
}

TEST(a_container_that_the_kubelet_does_not_list)
{
    d = (struct podresources){.refs = 1, .asked_ms = 1000};
    usage_meter_pods(meter, &d);
    measure(2000, "team/serve/main 5120 of -1 or more\noutside Xorg\n");
    d.listed = &listed;
    d.n_listed = 1;
    usage_meter_pods(meter, &d);
    measure(2000, "team/serve/main 5120 of -1\noutside Xorg\n");
}

/* Units of a card, or all of it, that the device plugin allocated to a container. */
static void allocate(const char *uid, const char *container, enum container_role role,
                     const char *uuid, int units)
{
    struct allocation *al =
        allocation_new(span_of(uid), SPAN("team"), SPAN("serve"), span_of(container),
                       role, units ? IDS_MEM : IDS_COUNT);
    for (int i = 0; i < units; i++)
        allocation_add(al, span_of(uuid), 0, i);
    if (!units)
        allocation_add(al, span_of(uuid), 0, -1);
    allocation_set_put(&d.allocations, al);
}

TEST(the_promise_of_an_init_container)
{
    d = (struct podresources){.refs = 1, .asked_ms = 1000, .allocates = true};
    allocate(UID, "late", CONTAINER_SIDECAR, "GPU-0", 1);
    allocate(UID, "main", CONTAINER_INIT, "GPU-0", 6);
    allocate(UID, "side", CONTAINER_SIDECAR, "GPU-0", 2);
    allocate(UID, "other-card", CONTAINER_SIDECAR, "GPU-1", 4);
    allocate(UID, "app", CONTAINER_APP, "GPU-0", 8);
    allocate("u2", "side", CONTAINER_SIDECAR, "GPU-0", 5);
    allocate("u2", "card", CONTAINER_INIT, "GPU-1", 0);
    allocate("u3", "lost", CONTAINER_INIT, "GPU-9", 6);
    usage_meter_pods(meter, &d);
    measure(2000, "team/serve/main 5120 of 6144, init\noutside Xorg\n"
                  "card 0: " UID " main 6144 beside 3072\n"
                  "card 1: u2 card 16384 beside 0\n");
    allocation_set_fini(&d.allocations);
    measure(2000, "team/serve/main 5120 of -1 or more\noutside Xorg\n");
}

/* Passes the pod team/serve, with these init containers and one app container, as the watch of the
 * node's pods does. */
static void pod_is(const char *uid, const char *annotations, const char *inits)
{
    cleanup_arena struct arena a = {0};
    const struct pod pod = object_pod(
        &a,
        quoted(
            &a,
            "{'metadata':{'namespace':'team','name':'serve','uid':'%s','annotations':{%s}"
            "},"
            "'spec':{'nodeName':'n1','initContainers':[%s],'containers':[{'name':'app',"
            "'resources':{'limits':{'aliyun.com/gpu-mem':'2'}}}]}}",
            uid, annotations, inits));
    usage_meter_pod(meter,
                    &(struct alloc_input){.type = ALLOC_IN_POD,
                                          .uid = span_of(uid),
                                          .pod = pod_allocation_new(&pod, 1024, NULL)});
}

/* Another process allocates: the annotations say how much memory its slots are. */
TEST(slots_of_another_process)
{
    const struct span ids[] = {slot_id(IDS_SHARE, 7), slot_id(IDS_SHARE, 8)};
    const struct podresources_entry slots[] = {
        devices("app", "aliyun.com/gpu-share", &ids[0], 1),
        devices("other", "aliyun.com/gpu-share", &ids[1], 1)};
    const struct pod pod = object_pod(
        &arena,
        quoted(&arena, "{'metadata':{'namespace':'team','name':'serve','uid':'" UID
                       "','annotations':{'gpushare/memory':'1Gi','gpushare/card-memory':"
                       "'5000 " UID "','ALIYUN_COM_GPU_MEM_IDX':'1'}},'spec':{'nodeName':"
                       "'n1','containers':[{'name':'app','resources':{'limits':{"
                       "'aliyun.com/gpu-share':'1'}}}]}}"));
    d = (struct podresources){.refs = 1, .entries = slots, .n = 2};
    promises_are("app GPU-1 -1\nother GPU-1 -1\n");
    usage_meter_pod(meter,
                    &(struct alloc_input){.type = ALLOC_IN_POD,
                                          .uid = SPAN(UID),
                                          .pod = pod_allocation_new(&pod, 1024, NULL)});
    promises_are("app GPU-1 5000\nother GPU-1 -1\n");
}

static void pods_list(bool ends)
{
    usage_meter_pod(meter, &(struct alloc_input){.type = ends ? ALLOC_IN_LIST_ENDED
                                                              : ALLOC_IN_LIST_STARTED});
}

#define LIMIT(n) "'resources':{'limits':{'aliyun.com/gpu-mem':'" #n "'}}"
#define INIT     "{'name':'main'," LIMIT(6) "}"
#define SIDECAR  "{'name':'side','restartPolicy':'Always'," LIMIT(3) "}"
#define IN_CARD  "'ALIYUN_COM_GPU_MEM_IDX':'0'"

/* As that of an allocation: the promise of the pod, where another process allocates. */
TEST(the_promise_of_an_init_container_of_a_pod)
{
    static const char promised[] = "team/serve/main 5120 of 6144, init\noutside Xorg\n"
                                   "card 0: " UID " main 6144 beside 3072\n",
                      unknown[] = "team/serve/main 5120 of -1 or more\noutside Xorg\n";
    d = (struct podresources){.refs = 1, .asked_ms = 1000};
    usage_meter_pods(meter, &d);
    pods_list(false);
    pod_is(UID, IN_CARD, SIDECAR "," INIT ",{'name':'cpu'}");
    measure(2000, promised);
    pods_list(true);
    measure(2000, promised);
    pod_is("u2", IN_CARD, "{'name':'main'}"); /* another pod of this name */
    measure(2000, promised);
    /* No annotation names its card, and then another one does. */
    pod_is(UID, "", INIT);
    measure(2000, unknown);
    pod_is(UID, "'ALIYUN_COM_GPU_MEM_IDX':'1'", INIT);
    measure(2000, "team/serve/main 5120 of 0, init\noutside Xorg\n"
                  "card 1: " UID " main 6144 beside 0\n");
    pod_is(UID, IN_CARD,
           "{'name':'main','resources':{'limits':{'aliyun.com/gpu-count':'1'}}}");
    measure(2000, unknown); /* both resources: invalid */
    pod_is(UID, IN_CARD, SIDECAR "," INIT);
    measure(2000, promised);
    /* A list that fails, and one that lacks the pod. */
    pods_list(false);
    pods_list(false);
    measure(2000, promised);
    pods_list(true);
    measure(2000, unknown);
    pod_is(UID, IN_CARD, SIDECAR "," INIT);
    measure(2000, promised);
    usage_meter_pod(
        meter, &(struct alloc_input){.type = ALLOC_IN_POD_DELETED, .uid = SPAN(UID)});
    measure(2000, unknown);
}

/* The file says what the slot of the process lacks, from the process to the limit. */
TEST(a_limit_is_corrected)
{
    struct limit_file file = {
        .magic = LIMIT_FILE_MAGIC, .version = LIMIT_VERSION, .uuid = "GPU-0"};
    struct limit_state state = {.magic = LIMIT_STATE_MAGIC, .version = LIMIT_VERSION};
    static const char *const folders[] = {"pods", "pods/" UID, "pods/" UID "/limit",
                                          "pods/" UID "/state"};
    const char *name = "pods/" UID "/limit/0";
    cleanup_free char *path = temp_path(root, name);
    state.slots[1] = (struct limit_slot){
        .pid = 10, .start_time = 100, .version = 1, .used = INT64_C(5) << 30};
    state.slots[1].used -= 400 << 20;
    array_items(folder, folders)
        temp_mkdir(root, *folder);
    temp_write(root, "proc/10/status", "NSpid:\t10\n");
    temp_write_bytes(root, name, (struct span){(const char *)&file, sizeof file});
    temp_write_bytes(root, "pods/" UID "/state/0",
                     (struct span){(const char *)&state, sizeof state});
    usage_meter_free(meter);
    meter =
        usage_meter_new(&(struct usage_meter_settings){root, root, 1024, 60000, NULL});
    for (int i = 0; i < LIMIT_SLOTS_RISE; i++)
        usage_meter_measure(meter, i, sample_of(CARDS), 0, &u, &err);
    ck_assert_int_eq(u.containers[0].n_slots, 1);
    ck_assert_int_eq(u.containers[0].context_mib, 400);
    FILE *f = fopen(path, "r");
    ck_assert_uint_eq(fread(&file, 1, sizeof file, f), sizeof file);
    fclose(f);
    ck_assert_uint_eq(file.extra, 400 << 20);
}

/* Without a process of theirs only the allocations know their pods. */
TEST(idle_containers_of_pods_with_and_without_the_library)
{
    static const char *const folders[] = {"pods", "pods/" UID, "pods/" UID "/limit"};
    static const char *const uids[] = {UID, "11111111-1111-1111-1111-111111111111"};
    static const char *const pods[] = {"library", "plain"};
    uint8_t want[] = {SCV_ISOLATION_KNOWN | SCV_ISOLATION_LIBRARY, SCV_ISOLATION_KNOWN};
    array_items(folder, folders)
        temp_mkdir(root, *folder);
    usage_meter_free(meter);
    meter =
        usage_meter_new(&(struct usage_meter_settings){root, root, 1024, 60000, NULL});
    d = (struct podresources){.refs = 1, .asked_ms = 1, .allocates = true};
    array_indices(i, pods) {
        struct allocation *al =
            allocation_new(span_of(uids[i]), SPAN("team"), span_of(pods[i]), SPAN("c"),
                           CONTAINER_APP, IDS_MEM);
        ck_assert(allocation_add(al, SPAN("GPU-1"), 1, (int64_t)i));
        allocation_set_put(&d.allocations, al);
    }
    podresources_sort(&d);
    usage_meter_pods(meter, &d);
    usage_meter_measure(meter, 1, sample_of(CARDS), SCV_ISOLATION_KNOWN, &u, &err);
    int found = 0;
    for (size_t i = 0; i < u.n_containers; i++)
        array_indices(k, pods)
            if (span_eq(u.containers[i].pod, span_of(pods[k]))) {
                ck_assert_uint_eq(u.containers[i].enforced_by, want[k]);
                found++;
            }
    ck_assert_int_eq(found, 2);
    allocation_set_fini(&d.allocations);
    arena_fini(&d.arena);
}

TEST(what_is_missing_is_said)
{
    usage_meter_measure(meter, 1, NULL, 0, &u, &err);
    ck_assert(!u.n_cards && err.code == ERR_NONE);
    temp_remove(root, "var/log/containers/serve_team_main-" ID ".log");
    cleanup_free char *folder = temp_path(root, "var/log/containers");
    ck_assert_int_eq(remove(folder), 0);
    measure(1, "// 5120 of -1 or more\noutside Xorg\n"); /* the pod UID is known */
    ck_assert_contains(err.msg, "var/log/containers");
    temp_write(root, "proc/2/stat",
               "2 (sh) S 1 1 1 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 7 9 8");
    measure(2, "incomplete\nunmapped \nunmapped \n");
    ck_assert_contains(err.msg, "hostPID");
}

UNIT_MAIN_AROUND(begin, end)
