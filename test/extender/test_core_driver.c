/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "domain/keys.h"
#include "extender/core_driver_rig.h"
#include "extender/verb.h"

enum {
    THREADS = 32,
};

static struct core_driver_rig rig;
static _Atomic unsigned bindings;
static pthread_barrier_t together;

/* An API server for many threads, which counts Bindings; all pods are bound to n1. */
static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer)
{
    (void)ctx;
    struct apisync_result ok = {.status = 201, .body = SPAN("{}"), .sent = true};
    cleanup_free char *pod =
        xasprintf("{\"metadata\":{\"namespace\":\"default\",\"name\":\"%s\",\"uid\":"
                  "\"%s\"},\"spec\":{\"nodeName\":\"n1\"}}",
                  call->name, call->uid);
    if (call->type == CORE_CALL_GET_POD)
        ok = (struct apisync_result){
            .status = 200, .body = arena_copy(arena, span_of(pod)), .sent = true};
    else
        ck_assert_int_eq(call->type, CORE_CALL_BIND);
    atomic_fetch_add(&bindings, call->type == CORE_CALL_BIND);
    sched_yield();
    apisync_answer(call, &ok, arena, answer);
}

/* Creates pods p0, p1, ... of `mib` MiB each, and node n1 with `cards` cards of 16000. */
static void start(int pods, int mib, int cards)
{
    struct ledger_settings ledger = {.unit_mib = 1, .external_tolerance_mib = 1024};
    log_set_level(LOG_ERROR);
    rig_start(&rig, &ledger, false);
    json_t *objects = json_array();
    cleanup_buf struct buf list = {0};
    for (int i = 0; i < cards; i++)
        buf_printf(&list, "%s{\"id\":%d,\"health\":\"Healthy\",\"totalMemory\":16000}",
                   i ? "," : "", i);
    json_array_append_new(objects, rig_scv("n1", list.p, ""));
    for (int i = 0; i < pods; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        json_array_append_new(objects, rig_pod(name, mib));
    }
    rig_deliver(&rig, objects);
    /* From here on, many threads make calls. */
    rig.perform = perform;
    atomic_store(&bindings, 0);
    pthread_barrier_init(&together, NULL, THREADS);
}

static void *bind_one(void *arg)
{
    char name[16];
    struct err err = {0};
    snprintf(name, sizeof name, "p%d", *(int *)arg);
    struct core_driver_bind bind = {.ns = SPAN("default"),
                                    .name = span_of(name),
                                    .uid = span_of(name),
                                    .node = SPAN("n1")};
    pthread_barrier_wait(&together);
    bool not_now;
    int rc = core_driver_bind(rig.driver, &bind, &not_now, &err);
    /* On a busy machine more time than the lease allows can pass since its renewal. */
    for (int64_t end = clock_mono_ms() + 60000;
         rc && err.code == ERR_UNAVAILABLE && clock_mono_ms() < end;) {
        core_driver_input(rig.driver, &(struct core_input){.type = CORE_TICK});
        rc = core_driver_bind(rig.driver, &bind, &not_now, &err);
    }
    if (rc && !strstr(err.msg, "no card of node n1 fits"))
        ck_abort_msg("%s", err.msg);
    return rc ? NULL : arg;
}

static int bind_all(const int *pods)
{
    pthread_t threads[THREADS];
    int bound = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, bind_one, (void *)&pods[i]);
    for (int i = 0; i < THREADS; i++) {
        void *ok;
        pthread_join(threads[i], &ok);
        bound += ok != NULL;
    }
    return bound;
}

TEST(as_many_concurrent_binds_succeed_as_fit)
{
    int pods[THREADS];
    for (int i = 0; i < THREADS; i++)
        pods[i] = i;
    start(THREADS, 5000, 4); /* three on each card */
    ck_assert_int_eq(bind_all(pods), 12);
    ck_assert_uint_eq(atomic_load(&bindings), 12);
    const struct ledger *l = core_ledger(core_driver_read(rig.driver));
    const struct ledger_node *n = ledger_node_find(l, SPAN("n1"));
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(n->cards[i].promised_mib, 15000);
    core_driver_read_end(rig.driver);
    rig_stop(&rig);
}

static void note_wait(void *ctx)
{
    *(int64_t *)ctx = clock_mono_ms();
}

static bool has_gone(void *ctx)
{
    return *(const int64_t *)ctx;
}

/* Otherwise a gang of more members than there are handlers is late. */
TEST(a_held_bind_leaves_its_place_at_once)
{
    enum { TRIES = 20, AT_ONCE_MS = 100 };
    int64_t waits_ms, least_ms = INT64_MAX;
    bool not_now;
    start(0, 5000, 1);
    for (int i = 0; i < 2; i++) {
        json_t *pod = rig_pod(i ? "p1" : "p0", 5000);
        json_object_set_new(json_object_get(pod, "metadata"), "labels",
                            json_pack("{ss}", "scheduling.x-k8s.io/pod-group", "g"));
        rig_watched(&rig, "ADDED", pod);
    }
    struct core_driver_bind bind = {.ns = SPAN("default"),
                                    .name = SPAN("p0"),
                                    .uid = SPAN("p0"),
                                    .node = SPAN("n1"),
                                    .gang_minimum = 2,
                                    .waits = note_wait,
                                    .gone = has_gone,
                                    .ctx = &waits_ms};
    for (int i = 0; i < TRIES && least_ms >= AT_ONCE_MS; i++) {
        struct err err = {0};
        int64_t begun_ms = clock_mono_ms();
        waits_ms = 0;
        core_driver_input(rig.driver, &(struct core_input){.type = CORE_TICK});
        ck_assert_int_eq(core_driver_bind(rig.driver, &bind, &not_now, &err), -1);
        if (waits_ms && waits_ms - begun_ms < least_ms)
            least_ms = waits_ms - begun_ms;
    }
    ck_assert_int_lt(least_ms, AT_ONCE_MS);
    ck_assert_uint_eq(atomic_load(&bindings), 0);
    rig_stop(&rig);
}

TEST(many_binds_of_one_pod_are_one_binding)
{
    int pods[THREADS] = {0};
    start(1, 5000, 1);
    ck_assert_int_eq(bind_all(pods), THREADS);
    ck_assert_uint_eq(atomic_load(&bindings), 1);
    rig_stop(&rig);
}

static _Atomic bool done;

static void *filter_for_ever(void *arg)
{
    struct verbs *v = arg;
    while (!atomic_load(&done))
        json_decref(rig_ask(v, filter_answer, rig_pod("x", 1), json_pack("[s]", "n1")));
    return NULL;
}

TEST(a_bind_succeeds_under_constant_filter_load)
{
    enum { READERS = 8, PODS = 50 };
    pthread_t readers[READERS];
    start(PODS, 100, 1);
    struct verbs *v = verbs_new(&(struct verbs_config){.driver = rig.driver});
    atomic_store(&done, false);
    for (int i = 0; i < READERS; i++)
        pthread_create(&readers[i], NULL, filter_for_ever, v);
    pthread_barrier_destroy(&together);
    pthread_barrier_init(&together, NULL, 1);
    for (int i = 0; i < PODS; i++)
        ck_assert_ptr_nonnull(bind_one(&i));
    atomic_store(&done, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    verbs_free(v);
    rig_stop(&rig);
}

TEST(a_stop_waits_until_the_lease_is_released)
{
    start(0, 0, 1);
    rig.perform = NULL;
    ck_assert(!core_driver_stop(rig.driver, 50)); /* the deferred call is not made */
    ck_assert_uint_eq(rig.n_deferred, 1);
    ck_assert_int_eq(rig.deferred[0]->type, CORE_CALL_LEASE_WRITE);
    ck_assert_contains(rig.deferred[0]->body, "\"holderIdentity\":\"\"");
    rig_stop(&rig);
}

/* The thread of a filter makes no API calls: its step does not tick, so the GET of the lease that is
 * due waits for the next one. */
TEST(a_reservation_takes_no_call_of_the_leader)
{
    struct core_driver_io io = {rig_stream, rig_defer, rig_perform, rig_hurry, &rig};
    const struct core_input reserve = {.type = CORE_RESERVE, .uid = SPAN("u")};
    size_t at;
    rig = (struct core_driver_rig){0};
    rig.driver = core_driver_new(&(struct core_settings){.ledger = {.unit_mib = 1},
                                                         .identity = "me",
                                                         .lease_namespace = "kube-system",
                                                         .lease_name = "l"},
                                 &io);
    core_driver_reserve(rig.driver, &reserve, NULL, &at);
    ck_assert_uint_eq(rig.n_deferred, 0);
    core_driver_input(rig.driver, &(struct core_input){.type = CORE_TICK});
    ck_assert_uint_eq(rig.n_deferred, 1);
    ck_assert_int_eq(rig.deferred[0]->type, CORE_CALL_LEASE_GET);
    rig_stop(&rig);
}

/* Only bind_answer waits for the lease, so that no bind waits twice. */
TEST(a_bind_at_a_follower_fails_at_once)
{
    struct err err = {0};
    struct core_driver_bind bind = {
        .ns = SPAN("default"), .name = SPAN("p"), .uid = SPAN("u"), .node = SPAN("n")};
    bool ready, not_now;
    log_set_level(LOG_ERROR);
    rig_start_core(&rig, (struct core_settings){.ledger = {.unit_mib = 1}}, true);
    rig_deliver(&rig, json_array());
    ck_assert_int_eq(core_driver_route(rig.driver, false, &ready, NULL).route,
                     BIND_ROUTE_WAIT);
    ck_assert(ready);
    int64_t began_ms = clock_mono_ms();
    ck_assert_int_eq(core_driver_bind(rig.driver, &bind, &not_now, &err), -1);
    ck_assert(not_now && err.code == ERR_UNAVAILABLE);
    ck_assert_int_lt(clock_mono_ms() - began_ms, 10000 * LIB_SLOWER);
    ck_assert_uint_eq(rig.bindings, 0);
    rig_stop(&rig);
}

/* A pod on a card of n1, or pending without `at`. */
static json_t *prioritized(const char *uid, int units, int priority, const char *at)
{
    json_t *pod = rig_pod(uid, units), *spec = json_object_get(pod, "spec");
    json_object_set_new(spec, "priority", json_integer(priority));
    if (!at)
        return pod;
    json_object_set_new(spec, "nodeName", json_string("n1"));
    json_object_set_new(
        json_object_get(pod, "metadata"), "annotations",
        json_pack("{ss,ss,ss}", KEY_MEM_IDX, at, KEY_MEM_POD, "10", KEY_MEM_DEV, "16"));
    return pod;
}

/* Only a call that is deferred is followed by its Event. */
static void perform_no_preemption(void *ctx, const struct core_output *call,
                                  struct arena *arena, struct apisync_answer *answer)
{
    ck_assert_int_ne(call->type, CORE_CALL_NOMINATE);
    rig_api(ctx, call, arena, answer);
}

TEST(a_bind_leaves_the_nomination_of_its_pod_to_others)
{
    struct core_driver_bind bind = {
        .ns = SPAN("default"), .name = SPAN("p"), .uid = SPAN("p"), .node = SPAN("n1")};
    struct span n1 = SPAN("n1");
    struct err err;
    bool not_now;
    log_set_level(LOG_ERROR);
    rig_start_core(
        &rig, (struct core_settings){.preempt_after_ms = 1, .ledger = {.unit_mib = 1}},
        false);
    rig.perform = perform_no_preemption;
    rig_deliver(
        &rig, json_pack("[ooooo]",
                        json_pack("{ss,s{ss}}", "kind", "Node", "metadata", "name", "n1"),
                        rig_scv("n1",
                                "{\"id\":0,\"health\":\"Healthy\","
                                "\"totalMemory\":16},{\"id\":1,\"health\":"
                                "\"Healthy\",\"totalMemory\":16}",
                                ""),
                        prioritized("a", 10, 0, "0"), prioritized("b", 10, 0, "1"),
                        prioritized("p", 12, 10, NULL)));
    core_driver_input(rig.driver, &(struct core_input){.type = CORE_REJECTED,
                                                       .uid = bind.uid,
                                                       .nodes = &n1,
                                                       .n_nodes = 1});
    lib_wait(core_driver_bind(rig.driver, &bind, &not_now, &err) && rig.n_deferred);
    ck_assert_int_eq(rig.deferred[0]->type, CORE_CALL_NOMINATE);
    ck_assert_str_eq(rig.deferred[0]->uid, "p");
    rig_stop(&rig);
}
