/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/rig.h"

#include "kube/deviceplugin.h"
#include "node/allocation.h"
#include "plugin/endpoint.h"

/* How many ids of aliyun.com/gpu-core.percentage ListAndWatch sends. */

static struct rig rig;

static void sample(const char *const *uuids)
{
    struct card_seen seen[CARDS_MAX] = {0};
    size_t n = 0;
    for (; uuids[n]; n++) {
        snprintf(seen[n].uuid, sizeof seen[n].uuid, "%s", uuids[n]);
        seen[n].index = (int32_t)n;
        seen[n].mib = 8 * 1024;
    }
    RIG_STEP(&rig, .type = ALLOC_IN_CARDS, .seen = seen, .n = n);
}
#define SAMPLE(...) sample((const char *const[]){__VA_ARGS__, NULL})

/* All of them are healthy. */
static size_t listed(void)
{
    cleanup_buf struct buf out = {0};
    struct arena a = {0};
    struct dp_devices list;
    struct err err;
    ck_assert_int_eq(endpoint_list(&alloc_state(rig.a)->cards, IDS_CORE, &out, &err), 0);
    ck_assert_int_eq(dp_devices_decode(buf_span(&out), &a, &list, &err), 0);
    for (size_t i = 0; i < list.n; i++)
        ck_assert(list.items[i].is_healthy);
    size_t n = list.n;
    arena_fini(&a);
    return n;
}

static void start(void)
{
    struct alloc_settings s = rig_settings();
    rig_start(&rig, &s, (const int64_t[]){8, 8, 0});
    ck_assert_uint_eq(listed(), 200);
}

/* A pod with three units of card GPU-1, which runs. */
static void run_pod(const char *name, int first)
{
    cleanup_free char *ids = xasprintf("GPU-1/%d-%d", first, first + 2);
    rig_api(&rig, name, "Pending", ON("1", "GPU-1"), "", MEM("a", 3));
    struct rig_pod *p = rig_kubelet(&rig, name, RIG_NAMES("a"));
    rig_prefer(&rig, 3, ids);
    ck_assert_str_eq(rig_allocate(&rig, ids), "allocated");
    for (int i = first; i < first + 3; i++) {
        cleanup_free char *unit = xasprintf("GPU-1/%d", i);
        rig_add_id(&rig, &p->containers[0], IDS_MEM, rig_id(&rig, unit));
    }
}

START_TEST(a_replaced_card_is_counted_once)
{
    start();
    SAMPLE("GPU-0");
    ck_assert_uint_eq(listed(), 200); /* an id of a container must stay */
    SAMPLE("GPU-0", "GPU-9");
    ck_assert_uint_eq(listed(), 200);
    SAMPLE("GPU-0", "GPU-9", "GPU-8");
    ck_assert_uint_eq(listed(), 300);
    rig_stop(&rig);
}
END_TEST

/* Its compute is not that of the new card: kube-scheduler subtracts what the pod requests. */
START_TEST(a_lost_card_counts_as_long_as_a_pod_has_it)
{
    start();
    run_pod("p", 0);
    SAMPLE("GPU-0", "GPU-9");
    ck_assert_uint_eq(listed(), 300);
    rig_api_gone(&rig, "p");
    rig_kubelet_gone(&rig, "p");
    SAMPLE("GPU-0", "GPU-9");
    ck_assert_uint_eq(listed(), 300); /* ids are never withdrawn */
    rig_stop(&rig);
}
END_TEST

/* The next process knows the allocations of the state file. */
static void restart(void)
{
    cleanup_buf struct buf state = {0};
    struct allocation_set set = {0};
    struct alloc_settings s = rig_settings();
    struct err err = {0};
    allocation_set_write(&state, &alloc_state(rig.a)->allocations, SPAN("n1"));
    ck_assert_done(allocation_set_read(&set, buf_span(&state), SPAN("n1"), &err), err);
    alloc_free(rig.a);
    rig.a = alloc_new(&s);
    RIG_STEP(&rig, .type = ALLOC_IN_RESTORE, .set = &set);
}

/* A pod on the new card keeps its ids, which the kubelet compares when it restarts. */
START_TEST(a_restart_counts_a_card_that_was_lost_before)
{
    start();
    run_pod("p", 0);
    run_pod("q", 3);
    SAMPLE("GPU-0", "GPU-9");
    ck_assert_uint_eq(listed(), 300);
    restart();
    SAMPLE("GPU-0", "GPU-9");
    ck_assert_uint_eq(listed(), 300);
    restart();
    SAMPLE("GPU-0", "GPU-1");
    ck_assert_uint_eq(listed(), 200);
    rig_stop(&rig);
}
END_TEST

START_TEST(a_card_that_returns_adds_its_ids)
{
    start();
    SAMPLE("GPU-0", "GPU-9");
    const struct card_seen both[] = {
        {.uuid = "GPU-0", .mib = 8192},
        {.uuid = "GPU-9", .index = 1, .mib = 8192},
        {.uuid = "GPU-1", .index = 2, .mib = 8192, .reading = CARD_HEALTH_FAILED}};
    int sent = rig.device_lists;
    RIG_STEP(&rig, .type = ALLOC_IN_CARDS, .seen = both, .n = 3);
    ck_assert_int_eq(rig.device_lists, sent + 1);
    ck_assert_uint_eq(listed(), 300);
    RIG_STEP(&rig, .type = ALLOC_IN_CARDS, .seen = both, .n = 3);
    ck_assert_int_eq(rig.device_lists, sent + 1);
    rig_stop(&rig);
}
END_TEST

UNIT_MAIN("core_ids", a_replaced_card_is_counted_once,
          a_lost_card_counts_as_long_as_a_pod_has_it,
          a_restart_counts_a_card_that_was_lost_before, a_card_that_returns_adds_its_ids)
