/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/podresources.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>

#include "agent/samples.h"
#include "base/file.h"
#include "base/rng.h"
#include "kube/podresources.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "wire/grpcd.h"

static char *dir, *path, *state;
static struct grpcd *kubelet;
static atomic_bool rate_limited;
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
        buf_addc(&got, '\n');
    }
    ck_assert_str_eq(got.p, want);
}

static void sorted_is(const struct podres_list *from, const char *want)
{
    struct podresources pods = {0};
    podresources_sort(from, &pods);
    entries_are(&pods, want);
    arena_fini(&pods.arena);
}

TEST(each_resource_of_each_container_is_an_entry)
{
    struct podresources pods = {0};
    struct err err = {0};
    start_kubelet();
    ck_assert_done(podresources_list(path, &pods, &err), err);
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

static atomic_int good, bad, inits;

static void count_poll(void *ctx, struct podresources *pods, const struct err *err)
{
    (void)ctx;
    /* `good` is the last: a test that waits for it reads the others. */
    if (!err)
        inits = (int)pods->plugin.n;
    if (err)
        bad++;
    else if (pods->n == 2)
        good++;
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

TEST(polling_survives_a_kubelet_restart)
{
    struct podresources_poller *l = start_poller();
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
    podresources_poller_stop(l);
    podresources_poller_free(l);
}

TEST(the_state_of_the_device_plugin_comes_with_the_pods)
{
    start_kubelet();
    struct podresources_poller *l = start_poller();
    lib_wait(good > 0); /* without the file */
    ck_assert_int_eq(inits, 0);
    temp_write(dir, "device-plugin.json",
               "{\"version\":1,\"node\":\"n1\",\"grants\":[{\"uid\":\"u\","
               "\"namespace\":\"ns\",\"pod\":\"p\",\"container\":\"i\","
               "\"role\":\"init\",\"resource\":\"aliyun.com/gpu-mem\",\"time\":1,"
               "\"cards\":[{\"uuid\":\"GPU-0\",\"index\":0,\"units\":\"0-3\"}]}]}");
    lib_wait(inits > 0);
    /* One that cannot be read leaves them as they were; without a file there are none. */
    temp_write(dir, "device-plugin.json", "{");
    for (int i = 0; i < 3; i++) {
        good = 0;
        lib_wait(good > 0);
        ck_assert_int_eq(inits, 1);
    }
    temp_remove(dir, "device-plugin.json");
    while (inits)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    podresources_poller_stop(l);
    podresources_poller_free(l);
}

/* This kubelet has no GetAllocatableResources. */
TEST(unknown_units_are_logged_once)
{
    static const char line[] = "cannot read the number of units of the cards";
    cleanup_buf struct buf said = {0};
    cleanup_free char *log = temp_path(dir, "log");
    int standard_error = dup(STDERR_FILENO), fd = open(log, O_CREAT | O_WRONLY, 0600);
    ck_assert_int_eq(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    start_kubelet();
    struct podresources_poller *l = start_poller();
    for (int i = 0; i < 3; i++) {
        good = 0;
        lib_wait(good > 0);
    }
    podresources_poller_stop(l);
    podresources_poller_free(l);
    dup2(standard_error, STDERR_FILENO);
    close(standard_error);
    close(fd);
    ck_assert_int_eq(file_read(log, 1 << 16, &said, NULL), 0);
    const char *first = strstr(said.p, line);
    ck_assert_msg(first && !strstr(first + 1, line), "%s", said.p);
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

/* -- units -- */

/* So many units on a card are what the kubelet can allocate. */
static void allocatable(struct podresources_units *units, const char *uuid, size_t n)
{
    const struct ids_tag tag = ids_tag_of(span_of(uuid));
    const struct span *ids = ids_of(&arena, uuid, 0, (int64_t)n);
    const struct podres_devices all[] = {{SPAN("aliyun.com/gpu-mem"), ids, n},
                                         {SPAN("aliyun.com/gpu-count"), ids, n}};
    podresources_count_units(&(struct podres_allocatable){all, ARRAY_LEN(all)}, units);
    ck_assert_int_eq(podresources_units_of(units, &tag), (int64_t)n);
}

/* The kubelet lists no units of a card that is not healthy. A node whose cards change
 * often keeps those of so many. */
TEST(units_of_former_cards_are_kept_and_bounded)
{
    struct podresources_units units = {0};
    const struct ids_tag first = ids_tag_of(SPAN("GPU-0"));
    allocatable(&units, "GPU-0", 16);
    allocatable(&units, "GPU-1", 8);
    ck_assert_int_eq(podresources_units_of(&units, &first), 16);
    for (int i = 0; i < 2 * GPU_MAX_CARDS; i++) {
        cleanup_free char *uuid = xasprintf("GPU-new-%d", i);
        allocatable(&units, uuid, 1);
    }
    ck_assert_uint_eq(units.n, GPU_MAX_CARDS);
    ck_assert_int_eq(podresources_units_of(&units, &first), 0);
}

UNIT_MAIN_AROUND(begin, end)
