/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/podresources_poller.h"

#include <stdatomic.h>
#include <time.h>

#include "base/mem.h"
#include "kube/podresources.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "wire/grpcd.h"

static char *dir, *path, *state;
static struct grpcd *kubelet;
static atomic_bool rate_limited;

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
    temp_dir_remove(dir);
    free(dir);
    free(path);
    free(state);
}

START_TEST(each_resource_of_each_container_is_an_entry)
{
    cleanup_arena struct arena a = {0};
    struct container_devices pods = {0};
    struct err err = {0};
    start_kubelet();
    ck_assert_done(podresources_poller_list(path, &a, &pods, &err), err);
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
    struct container_devices pods = {0};
    struct err err = {0};
    ck_assert_int_eq(podresources_poller_list(path, &a, &pods, &err), -1);
    ck_assert_int_eq(err.code, ERR_UNAVAILABLE);
    start_kubelet();
    rate_limited = true;
    ck_assert_int_eq(podresources_poller_list(path, &a, &pods, &err), -1);
    ck_assert_msg(strstr(err.msg, "rejected by rate limit"), "%s", err.msg);
}
END_TEST

static atomic_int good, bad, inits, unread;

static void take(void *ctx, const struct publisher_input *in)
{
    (void)ctx;
    ck_assert_int_eq(in->type, PUBLISHER_PODS);
    /* `good` is the last: a test that waits for it reads the others. */
    if (!in->err && in->pods->n_inits == 1 && in->pods->inits_known)
        inits++;
    if (!in->err && !in->pods->inits_known)
        unread++;
    if (in->err)
        bad++;
    else if (in->pods->n == 3)
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
                                                          .input = take};
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

int main(void)
{
    const TTest *const tests[] = {each_resource_of_each_container_is_an_entry,
                                  errors_are_returned, polling_survives_a_kubelet_restart,
                                  the_state_of_the_device_plugin_comes_with_the_pods};
    const struct unit_fixtures around = {.begin = begin, .end = end};
    return unit_run_with("podresources_poller", tests, sizeof tests / sizeof *tests, 60,
                         &around);
}
