/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/podresources.h"

#include <stdatomic.h>
#include <time.h>

#include "agent/samples.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kube/podresources.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "node/allocation.h"
#include "wire/grpcd.h"

static char *dir, *path, *state;
static struct grpcd *kubelet;
static atomic_bool rate_limited;
static struct arena arena;

static void on_list(void *ctx, struct grpcd_call *call, struct span request)
{
    static const struct span cards[] = {SPAN("GPU-0"), SPAN("GPU-1")};
    static const struct span units[] = {SPAN("aaaaaaa-1"), SPAN("aaaaaaa-2"),
                                        SPAN("bbbbbbb-1")};
    /* One entry for each NUMA node. */
    static const struct podres_devices of_main[] = {
        {.resource = SPAN("nvidia.com/gpu"), .ids = cards, .n_ids = 1},
        {.resource = SPAN("nvidia.com/gpu"), .ids = cards + 1, .n_ids = 1}};
    static const struct podres_devices of_side[] = {
        {.resource = SPAN("aliyun.com/gpu-mem"), .ids = units, .n_ids = 3}};
    static const struct podres_container containers[] = {
        {.name = SPAN("main"), .devices = of_main, .n_devices = 2},
        {.name = SPAN("none")},
        {.name = SPAN("side"), .devices = of_side, .n_devices = 1}};
    static const struct podres_pod pods[] = {{.name = SPAN("p"),
                                              .ns = SPAN("ns"),
                                              .containers = containers,
                                              .n_containers = 3},
                                             {.name = SPAN("idle"), .ns = SPAN("ns")}};
    const struct podres_list list = {pods, 2};
    struct buf reply = {0};
    (void)ctx;
    (void)request;
    if (rate_limited) {
        grpcd_end(call, GRPC_RESOURCE_EXHAUSTED, "rejected by rate limit");
        return;
    }
    ck_assert_int_eq(podres_list_encode(&list, &reply, NULL), 0);
    grpcd_reply(call, &reply);
}

static const struct grpcd_method methods[] = {{.path = PODRES_LIST, .start = on_list},
                                              {0}};

static void start_kubelet(void)
{
    const struct grpcd_config config = {.path = path, .methods = methods};
    struct err err;
    kubelet = grpcd_start(&config, &err);
    ck_assert_msg(kubelet != NULL, "%s", err.msg);
}

static void begin(void)
{
    dir = temp_dir();
    path = temp_path(dir, "kubelet.sock");
    state = temp_path(dir, "device-plugin.json");
}

static void end(void)
{
    grpcd_free(kubelet);
    kubelet = NULL;
    arena_fini(&arena);
    temp_dir_remove(dir);
    free(dir);
    free(path);
    free(state);
}

START_TEST(each_resource_of_each_container_is_an_entry)
{
    cleanup_arena struct arena a = {0};
    struct podresources pods = {0};
    struct err err = {0};
    start_kubelet();
    ck_assert_done(podresources_list(path, &a, &pods, &err), err);
    ck_assert_uint_eq(pods.n, 3);
    ck_assert_span_eq(pods.entries[1].ns, "ns");
    ck_assert_span_eq(pods.entries[1].pod, "p");
    ck_assert_span_eq(pods.entries[1].container, "main");
    ck_assert_span_eq(pods.entries[1].resource, "nvidia.com/gpu");
    ck_assert_span_eq(pods.entries[1].ids[0], "GPU-1");
    ck_assert_span_eq(pods.entries[2].container, "side");
    ck_assert_uint_eq(pods.entries[2].n_ids, 3);
    ck_assert_span_eq(pods.entries[2].ids[2], "bbbbbbb-1");
    ck_assert_uint_eq(pods.n_listed, 3); /* also the one without devices */
    ck_assert_span_eq(pods.listed[1].ns, "ns");
    ck_assert_span_eq(pods.listed[1].pod, "p");
    ck_assert_span_eq(pods.listed[1].container, "none");
}
END_TEST

START_TEST(errors_are_returned)
{
    cleanup_arena struct arena a = {0};
    struct podresources pods = {0};
    struct err err = {0};
    ck_assert_int_eq(podresources_list(path, &a, &pods, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    start_kubelet();
    rate_limited = true;
    ck_assert_int_eq(podresources_list(path, &a, &pods, &err), -1);
    ck_assert_msg(strstr(err.msg, "rejected by rate limit"), "%s", err.msg);
}
END_TEST

static atomic_int good, bad, inits, unread;

static void count_poll(void *ctx, const struct podresources *pods, const struct err *err)
{
    (void)ctx;
    /* `good` is the last: a test that waits for it reads the others. */
    if (!err && pods->n_inits == 1 && pods->inits_known)
        inits++;
    if (!err && !pods->inits_known)
        unread++;
    if (err)
        bad++;
    else if (pods->n == 3)
        good++;
}

static void wait_for(atomic_int *counter)
{
    for (int i = 0; *counter == 0; i++) {
        ck_assert_int_lt(i, 60000);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static struct podresources_poller *start_poller(void)
{
    const struct podresources_poller_settings settings = {.socket = path,
                                                          .interval_ms = 20,
                                                          .plugin_state = state,
                                                          .node = SPAN("n1"),
                                                          .polled = count_poll};
    return podresources_poller_start(&settings);
}

START_TEST(polling_survives_a_kubelet_restart)
{
    struct podresources_poller *l = start_poller();
    wait_for(&bad);
    start_kubelet();
    wait_for(&good);
    grpcd_free(kubelet);
    kubelet = NULL;
    bad = 0;
    wait_for(&bad);
    start_kubelet();
    good = 0;
    wait_for(&good);
    podresources_poller_stop(l);
    podresources_poller_free(l);
}
END_TEST

START_TEST(the_state_of_the_device_plugin_comes_with_the_pods)
{
    start_kubelet();
    struct podresources_poller *l = start_poller();
    wait_for(&good); /* without the file */
    ck_assert_int_eq(inits, 0);
    ck_assert_int_eq(unread, 0);
    temp_write(dir, "device-plugin.json",
               "{\"version\":1,\"node\":\"n1\",\"grants\":[{\"uid\":\"u\","
               "\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"i\","
               "\"role\":\"init\",\"resource\":\"aliyun.com/gpu-mem\",\"time\":1,"
               "\"cards\":[{\"uuid\":\"GPU-0\",\"index\":0,\"units\":\"0-3\"}]}]}");
    wait_for(&inits);
    temp_write(dir, "device-plugin.json", "{");
    wait_for(&unread);
    podresources_poller_stop(l);
    podresources_poller_free(l);
}
END_TEST

/* -- sorted entries -- */

static void write_entries(const struct podresources *pods, struct buf *out)
{
    for (size_t i = 0; i < pods->n; i++) {
        const struct podresources_entry *e = &pods->entries[i];
        buf_printf(out, "%.*s/%.*s/%.*s %.*s", SPAN_ARG(e->ns), SPAN_ARG(e->pod),
                   SPAN_ARG(e->container), SPAN_ARG(e->resource));
        for (size_t k = 0; k < e->n_ids; k++)
            buf_printf(out, " %.*s", SPAN_ARG(e->ids[k]));
        buf_addc(out, '\n');
    }
}

static void kept_is(const struct podresources *from, const char *want)
{
    cleanup_buf struct buf got = {0};
    cleanup_arena struct arena a = {0};
    struct podresources kept;
    podresources_normalize(from, &a, &kept);
    buf_adds(&got, "");
    write_entries(&kept, &got);
    ck_assert_str_eq(got.p, want);
}

/* A kubelet has an entry for each id, of a container twice if it is near two NUMA nodes,
 * and what it has comes out of hash tables. */
START_TEST(equal_states_have_equal_entries)
{
    struct rng rng;
    struct podresources pods;
    rng_init(&rng, 5);
    read_entries("ns/p/c aliyun.com/gpu-mem aaaaaaa-1\n"
                 "ns/p/c aliyun.com/gpu-mem aaaaaaa-0\n"
                 "ns/p/c aliyun.com/gpu-count bbbbbbb\n"
                 "ns/p/d aliyun.com/gpu-mem aaaaaaa-2\n"
                 "ns/p/d example.com/fpga f0\n"
                 "ns/n/c nvidia.com/gpu GPU-1\n"
                 "ns/n/c nvidia.com/gpu GPU-1\n"
                 "ns/n/c nvidia.com/gpu GPU-0\n"
                 "a/z/c nvidia.com/mig-1g.5gb MIG-7\n", &arena, &pods);
    struct podresources_entry *e = (struct podresources_entry *)pods.entries;
    for (int round = 0; round < 50; round++) {
        for (size_t i = pods.n; i > 1; i--) {
            size_t k = rng_below(&rng, i);
            struct podresources_entry other = e[k];
            e[k] = e[i - 1];
            e[i - 1] = other;
        }
        kept_is(&pods, "a/z/c nvidia.com/mig-1g.5gb MIG-7\n"
                       "ns/n/c nvidia.com/gpu GPU-0 GPU-1\n"
                       "ns/p/c aliyun.com/gpu-count bbbbbbb\n"
                       "ns/p/c aliyun.com/gpu-mem aaaaaaa-0 aaaaaaa-1\n"
                       "ns/p/d aliyun.com/gpu-mem aaaaaaa-2\n");
    }
    kept_is(&(struct podresources){0}, "");
    read_entries("ns/p/c aliyun.com/gpu-mem\nns/p/c cpu 1\n", &arena, &pods);
    kept_is(&pods, "");
}
END_TEST

/* -- init containers -- */

static struct podresources devices;
static struct allocation_set set;

static void allocate(const char *uid, const char *container, enum container_role role,
                     const char *uuid, int units)
{
    struct allocation *al =
        allocation_new(span_of(uid), SPAN("ns"), SPAN("p"), span_of(container), role,
                       units ? IDS_MEM : IDS_COUNT);
    for (int i = 0; i < units; i++)
        allocation_add(al, span_of(uuid), 0, i);
    if (!units)
        allocation_add(al, span_of(uuid), 0, -1);
    allocation_set_put(&set, al);
}

static int read_file(struct err *err)
{
    return podresources_read_inits(state, SPAN("n1"), &arena, &devices, err);
}

START_TEST(init_containers_and_the_sidecars_beside_them)
{
    cleanup_buf struct buf text = {0};
    struct err err;
    allocate("u1", "late", CONTAINER_SIDECAR, "GPU-0", 1);
    allocate("u1", "i", CONTAINER_INIT, "GPU-0", 6);
    allocate("u1", "side", CONTAINER_SIDECAR, "GPU-0", 2);
    allocate("u1", "other-card", CONTAINER_SIDECAR, "GPU-1", 4);
    allocate("u1", "main", CONTAINER_APP, "GPU-0", 8);
    allocate("u2", "side", CONTAINER_SIDECAR, "GPU-0", 5);
    allocate("u2", "w", CONTAINER_INIT, "GPU-2", 0);
    allocation_set_write(&text, &set, SPAN("n1"));
    temp_write(dir, "device-plugin.json", text.p);
    ck_assert_msg(read_file(&err) == 0, "%s", err.msg);
    ck_assert(devices.inits_known);
    ck_assert_uint_eq(devices.n_inits, 2);
    const struct podresources_init *i = devices.inits;
    ck_assert_span_eq(i->pod_uid, "u1");
    ck_assert_span_eq(i->ns, "ns");
    ck_assert_span_eq(i->pod, "p");
    ck_assert_span_eq(i->container, "i");
    ck_assert_span_eq(i->uuid, "GPU-0");
    ck_assert(!i->whole);
    ck_assert_int_eq(i->units, 6);
    ck_assert_int_eq(i->beside, 3);
    ck_assert(i[1].whole);
    ck_assert_span_eq(i[1].uuid, "GPU-2");
    ck_assert_int_eq(i[1].beside, 0);
    allocation_set_fini(&set);
}
END_TEST

/* Without our device plugin there is no file. */
START_TEST(no_file_is_no_error)
{
    struct err err;
    ck_assert_int_eq(read_file(&err), 0);
    ck_assert(devices.inits_known);
    ck_assert_uint_eq(devices.n_inits, 0);
}
END_TEST

START_TEST(other_files_are_not_believed)
{
    static const char *const texts[] = {"", "{", "[]",
                                        "{\"version\":2,\"node\":\"n1\",\"grants\":[]}",
                                        "{\"version\":1,\"node\":\"n2\",\"grants\":[]}"};
    struct err err;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        devices = (struct podresources){0};
        temp_write(dir, "device-plugin.json", texts[i]);
        ck_assert_int_eq(read_file(&err), -1);
        ck_assert(!devices.inits_known && !devices.n_inits);
    }
    temp_remove(dir, "device-plugin.json");
    temp_mkdir(dir, "device-plugin.json");
    ck_assert_int_eq(read_file(&err), -1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {each_resource_of_each_container_is_an_entry,
                                  errors_are_returned, polling_survives_a_kubelet_restart,
                                  the_state_of_the_device_plugin_comes_with_the_pods,
                                  equal_states_have_equal_entries,
                                  init_containers_and_the_sidecars_beside_them,
                                  no_file_is_no_error, other_files_are_not_believed};
    const struct unit_fixtures around = {.begin = begin, .end = end};
    return unit_run_with("podresources", tests, ARRAY_LEN(tests), 60, &around);
}
