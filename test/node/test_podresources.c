/* SPDX-License-Identifier: Apache-2.0 */
#include "node/podresources.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/rng.h"
#include "kube/podresources.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "node/samples.h"
#include "wire/grpcd.h"

static char *dir, *path;
static struct grpcd *kubelet;
static atomic_bool rate_limited;
static void (*_Atomic on_asked)(void);
static struct arena arena;

static void on_list(void *ctx, struct grpcd_call *call, struct span request)
{
    cleanup_arena struct arena a = {0};
    const struct podres_list list =
        list_of("ns/p/main nvidia.com/gpu GPU-0 GPU-1\n"
                "ns/p/none\n"
                "ns/p/side aliyun.com/gpu-mem aaaaaaa-1 aaaaaaa-2 bbbbbbb-1\n",
                &a);
    struct buf reply = {0};
    (void)ctx;
    (void)request;
    if (on_asked)
        on_asked();
    if (rate_limited) {
        grpcd_end(call, GRPC_RESOURCE_EXHAUSTED, "rejected by rate limit");
        return;
    }
    ck_assert_int_eq(
        proto_encode(&podres_list_type, &list, PODRES_MESSAGE_MAX, &reply, NULL), 0);
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
}

static void end(void)
{
    grpcd_free(kubelet);
    kubelet = NULL;
    arena_fini(&arena);
    temp_dir_remove(dir);
    free(dir);
    free(path);
}

static void entries_are(const struct podresources *pods, const char *want)
{
    cleanup_buf struct buf got = {0};
    buf_adds(&got, "");
    for (size_t i = 0; i < pods->n; i++) {
        const struct podresources_entry *e = &pods->entries[i];
        buf_printf(&got, "%.*s/%.*s/%.*s %.*s", SPAN_ARG(e->ns), SPAN_ARG(e->pod),
                   SPAN_ARG(e->container), SPAN_ARG(e->resource));
        for (size_t k = 0; k < e->n_ids; k++)
            buf_printf(&got, " %.*s", SPAN_ARG(e->ids[k]));
        if (e->al)
            buf_printf(&got, " allocated %lld", (long long)allocation_amount(e->al));
        buf_addc(&got, '\n');
    }
    ck_assert_str_eq(got.p, want);
}

static void sorted_is(const struct podres_list *from, const char *want)
{
    struct podresources pods = {.list = *from};
    podresources_sort(&pods);
    entries_are(&pods, want);
    arena_fini(&pods.arena);
}

TEST(each_resource_of_each_container_is_an_entry)
{
    struct podresources pods = {0};
    struct err err = {0};
    start_kubelet();
    ck_assert_done(podresources_list(path, &pods, &err), err);
    podresources_sort(&pods);
    entries_are(&pods, "ns/p/main nvidia.com/gpu GPU-0 GPU-1\n"
                       "ns/p/side aliyun.com/gpu-mem aaaaaaa-1 aaaaaaa-2 bbbbbbb-1\n");
    ck_assert_uint_eq(pods.n_listed, 3); /* also the one without devices */
    ck_assert_span_eq(pods.listed[1].ns, "ns");
    ck_assert_span_eq(pods.listed[1].pod, "p");
    ck_assert_span_eq(pods.listed[1].container, "none");
    arena_fini(&pods.arena);
}

TEST(errors_are_returned)
{
    struct podresources pods = {0};
    struct err err = {0};
    ck_assert_int_eq(podresources_list(path, &pods, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    start_kubelet();
    rate_limited = true;
    ck_assert_int_eq(podresources_list(path, &pods, &err), -1);
    ck_assert_contains(err.msg, "rejected by rate limit");
    arena_fini(&pods.arena);
}

static atomic_int good, bad, allocated;
static atomic_bool admitting;
static _Atomic int64_t asked_ms;

static void count_poll(void *ctx, struct podresources *pods, const struct err *err)
{
    (void)ctx;
    /* `good` is the last: a test that waits for it reads the others. */
    if (!err) {
        allocated = pods->allocates ? (int)pods->allocations.n : -1;
        asked_ms = pods->asked_ms;
    }
    if (err)
        bad++;
    else if (pods->n >= 2)
        good++;
}

static bool admits(void *ctx)
{
    (void)ctx;
    return admitting;
}

static struct podresources_poller *start_poller(int64_t interval_ms)
{
    const struct podresources_poller_settings settings = {.socket = path,
                                                          .interval_ms = interval_ms,
                                                          .node = SPAN("n1"),
                                                          .polled = count_poll,
                                                          .admits = admits};
    return podresources_poller_start(&settings);
}

TEST(polling_survives_a_kubelet_restart)
{
    struct podresources_poller *l = start_poller(20);
    lib_wait(bad > 0);
    start_kubelet();
    lib_wait(good > 0);
    grpcd_free(kubelet);
    kubelet = NULL;
    bad = 0;
    lib_wait(bad > 0);
    start_kubelet();
    good = 0;
    lib_wait(good > 0);
    podresources_poller_free(l);
}

#define STATE_OF(list, role, container, resource, others, cards)                         \
    "{\"version\":1,\"node\":\"n1\",\"" list                                             \
    "\":[{\"uid\":\"u\",\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"" container   \
    "\",\"role\":\"" role "\",\"resource\":\"" resource "\",\"time\":1," others          \
    "\"cards\":[" cards "]}]}"
#define UNITS "{\"uuid\":\"GPU-0\",\"index\":0,\"units\":\"0-3\"}"
#define STATE(role, container)                                                           \
    STATE_OF("grants", role, container, "aliyun.com/gpu-mem", "", UNITS)

/* At once, and without a call to the kubelet. */
TEST(allocations_come_with_the_pods)
{
    start_kubelet();
    struct podresources_poller *l = start_poller(3600 * 1000);
    lib_wait(good > 0);
    const int64_t asked = asked_ms;
    ck_assert_int_eq(allocated, -1);
    podresources_poller_allocations(l, SPAN(STATE("init", "i")));
    lib_wait(allocated == 1);
    podresources_poller_allocations(
        l, SPAN("{\"version\":1,\"node\":\"n1\",\"grants\":[]}"));
    lib_wait(allocated == 0);
    ck_assert_int_eq(asked_ms, asked);
    podresources_poller_free(l);
}

static struct podresources_poller *_Atomic asking;
static atomic_bool allocates;
static atomic_int outdated;

static void allocate(void)
{
    if (asking && !allocates)
        podresources_poller_allocations(asking, SPAN(STATE("init", "i")));
    allocates = asking != NULL;
}

static void count_outdated(void *ctx, struct podresources *pods, const struct err *err)
{
    outdated += allocates && !err && !pods->allocates;
    count_poll(ctx, pods, err);
}

/* Also those that came while the kubelet was asked. */
TEST(a_list_comes_with_the_last_allocations)
{
    start_kubelet();
    on_asked = allocate;
    asking = podresources_poller_start(&(struct podresources_poller_settings){
        .socket = path, .interval_ms = 20, .node = SPAN("n1"), .polled = count_outdated});
    lib_wait(allocated == 1);
    ck_assert_int_eq(outdated, 0);
    podresources_poller_free(asking);
}

TEST(the_kubelet_is_not_asked_during_an_admission)
{
    enum { INTERVAL_MS = 1000 };
    start_kubelet();
    admitting = true;
    int64_t before = clock_mono_ms();
    struct podresources_poller *l = start_poller(INTERVAL_MS);
    lib_wait(good > 0); /* one that does not end delays it by one interval */
    ck_assert_int_ge(asked_ms, before + INTERVAL_MS);
    int64_t last = asked_ms;
    lib_wait(asked_ms > last);
    ck_assert_int_ge(asked_ms, last + 2 * INTERVAL_MS);
    podresources_poller_free(l);
}

/* What the kubelet does not list yet; plain init containers are in no podList. A container of the
 * plugin that served the resource before has that plugin's ids. */
TEST(an_allocation_is_an_entry_before_the_kubelet_lists_it)
{
    const struct podres_list list = list_of("ns/p/c aliyun.com/gpu-mem aaaaaaa-1\n"
                                            "ns/z/c nvidia.com/gpu GPU-1\n",
                                            &arena);
    static const struct {
        const char *state, *entry;
    } states[] = {
        {STATE("app", "d"), "ns/p/d aliyun.com/gpu-mem allocated 4\n"},
        {STATE("app", "c"), ""},
        {STATE("init", "i"), ""},
        {STATE_OF("slots", "app", "d", "nvidia.com/gpu", "\"others\":\"GPU-0\",", ""),
         "ns/p/d nvidia.com/gpu GPU-0 allocated 1\n"},
        {STATE_OF("slots", "app", "d", "nvidia.com/gpu", "\"others\":\"GPU-0,GPU-1\",",
                  UNITS),
         "ns/p/d nvidia.com/gpu GPU-0 GPU-1 allocated 6\n"},
    };
    array_items(state, states) {
        struct podresources pods = {.list = list};
        cleanup_free char *want = xasprintf("ns/p/c aliyun.com/gpu-mem aaaaaaa-1\n%s"
                                            "ns/z/c nvidia.com/gpu GPU-1\n",
                                            state->entry);
        ck_assert_int_eq(allocation_set_read(&pods.allocations, span_of(state->state),
                                             SPAN("n1"), NULL),
                         0);
        podresources_sort(&pods);
        entries_are(&pods, want);
        allocation_set_fini(&pods.allocations);
        arena_fini(&pods.arena);
    }
}

/* Only the allocation has the MiB of a slot, also of one that the kubelet lists. */
TEST(slots_have_the_memory_of_their_allocation)
{
    struct podresources pods = {.list =
                                    list_of("ns/p/c aliyun.com/gpu-share aaaaaaa-s1\n"
                                            "ns/z/c aliyun.com/gpu-share aaaaaaa-s2\n",
                                            &arena)};
    struct allocation *al = allocation_new(SPAN("u"), SPAN("ns"), SPAN("p"), SPAN("c"),
                                           CONTAINER_APP, IDS_SHARE);
    al->slot_mib = 5000;
    allocation_add(al, SPAN("GPU-0"), 0, 1);
    allocation_set_put(&pods.allocations, al);
    podresources_sort(&pods);
    ck_assert_uint_eq(pods.n, 2);
    ck_assert_int_eq(pods.entries[0].slot_mib, 5000);
    ck_assert_int_eq(pods.entries[1].slot_mib, 0);
    allocation_set_fini(&pods.allocations);
    arena_fini(&pods.arena);
}

/* A kubelet has an entry for each id, of a container twice if it is near two NUMA nodes,
 * and what it has comes out of hash tables. */
TEST(equal_states_have_equal_entries)
{
    struct rng rng;
    rng_init(&rng, 5);
    struct podres_list list = list_of("ns/p/c aliyun.com/gpu-mem aaaaaaa-1\n"
                                      "ns/p/c aliyun.com/gpu-mem aaaaaaa-0\n"
                                      "ns/p/c aliyun.com/gpu-count bbbbbbb\n"
                                      "ns/p/d aliyun.com/gpu-mem aaaaaaa-2\n"
                                      "ns/p/d example.com/fpga f0\n"
                                      "ns/n/c nvidia.com/gpu GPU-1\n"
                                      "ns/n/c nvidia.com/gpu GPU-1\n"
                                      "ns/n/c nvidia.com/gpu GPU-0\n"
                                      "a/z/c nvidia.com/mig-1g.5gb MIG-7\n",
                                      &arena);
    struct podres_pod *e = (struct podres_pod *)list.pods;
    for (int round = 0; round < 50; round++) {
        for (size_t i = list.n; i > 1; i--) {
            size_t k = rng_below(&rng, i);
            struct podres_pod other = e[k];
            e[k] = e[i - 1];
            e[i - 1] = other;
        }
        sorted_is(&list, "a/z/c nvidia.com/mig-1g.5gb MIG-7\n"
                         "ns/n/c nvidia.com/gpu GPU-0 GPU-1\n"
                         "ns/p/c aliyun.com/gpu-count bbbbbbb\n"
                         "ns/p/c aliyun.com/gpu-mem aaaaaaa-0 aaaaaaa-1\n"
                         "ns/p/d aliyun.com/gpu-mem aaaaaaa-2\n");
    }
    sorted_is(&(struct podres_list){0}, "");
    list = list_of("ns/p/c aliyun.com/gpu-mem\nns/p/c cpu 1\n", &arena);
    sorted_is(&list, "");
}

UNIT_MAIN_AROUND(begin, end)
