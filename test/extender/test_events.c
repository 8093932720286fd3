/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "extender/core_driver_rig.h"
#include "extender/event_scan.h"
#include "extender/verb.h"

/*
 * Events of pods and of cards: filter and bind with a recorder that posts to the test,
 * and scans of nodes whose cards change.
 */

static struct core_driver_rig rig;
static struct verbs *verbs;
static struct event_recorder *recorder;

/* -- posted events -- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static json_t *posted[64];
static size_t n_posted;
static bool hold; /* posts block while it is true */

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    (void)err;
    ck_assert_str_eq(request->method, "POST");
    pthread_mutex_lock(&lock);
    while (hold)
        pthread_cond_wait(&changed, &lock);
    if (n_posted < ARRAY_LEN(posted))
        posted[n_posted++] = json_loadb(request->body.p, request->body.n, 0, NULL);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return 0;
}

static const char *said(size_t i, const char *key)
{
    return json_string_value(json_object_get(posted[i], key));
}

/* Waits until `n` events have been posted. */
static void wait_for(size_t n)
{
    struct timespec until;
    int late = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    pthread_mutex_lock(&lock);
    while (n_posted < n && !late)
        late = pthread_cond_timedwait(&changed, &lock, &until);
    pthread_mutex_unlock(&lock);
    ck_assert_uint_eq(n_posted, n);
}

static void set_hold(bool value)
{
    pthread_mutex_lock(&lock);
    hold = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* The value of a metric line of the recorder. */
static long figure(const char *line)
{
    cleanup_buf struct buf text = {0};
    event_recorder_write(recorder, &text);
    const char *at = strstr(text.p, line);
    ck_assert_msg(at != NULL, "no %s in %s", line, text.p);
    return strtol(at + strlen(line), NULL, 10);
}

/* -- set-up -- */

#define CARD(id, health, total)                                                          \
    "{\"id\":" #id ",\"health\":\"" health                                               \
    "\",\"model\":\"Tesla T4\",\"totalMemory\":" #total ",\"uuid\":\"GPU-" #id "\"}"

static json_t *scv(const char *name, const char *cards)
{
    cleanup_free char *text =
        xasprintf("{\"kind\":\"Scv\",\"metadata\":{\"name\":\"%s\"},\"status\":{"
                  "\"cardList\":[%s]}}",
                  name, cards);
    json_t *j = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

#define POD(uid, limit, more)                                                            \
    "{\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"" uid "\"" more        \
    "},\"spec\":{\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/" limit        \
    "}}}]}}"

static json_t *waiting(const char *pod)
{
    json_t *j = json_loads(pod, 0, NULL);
    ck_assert_ptr_nonnull(j);
    json_object_set_new(j, "kind", json_string("Pod"));
    return j;
}

static void begin(json_t *objects)
{
    struct ledger_settings ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024};
    struct event_recorder_settings settings = {.post = post, .instance = "me"};
    log_set_level(LOG_ERROR);
    rig_start(&rig, &ledger, false);
    rig_deliver(&rig, objects);
    json_decref(objects);
    recorder = event_recorder_start(&settings);
    verbs = verbs_new(&(struct verbs_config){
        .driver = rig.driver, .policy = SCORE_FGD, .recorder = recorder});
}

static void end(void)
{
    set_hold(false);
    event_recorder_stop(recorder, INT64_MAX);
    event_recorder_free(recorder);
    verbs_free(verbs);
    rig_stop(&rig);
    for (size_t i = 0; i < n_posted; i++)
        json_decref(posted[i]);
}

static json_t *two_nodes(void)
{
    return json_pack("[oo]", scv("n1", CARD(0, "Healthy", 4096)),
                     scv("n2", CARD(0, "Healthy", 8192) "," CARD(1, "Unhealthy", 16384)));
}

/* The watch shows the pod. */
static void list_pod(const char *text)
{
    cleanup_arena struct arena a = {0};
    struct pod pod;
    struct jread in;
    struct err err;
    jread_init(&in, text, strlen(text));
    pod_read(&in, &a, &pod);
    ck_assert_done(jread_finish(&in, &err), err);
    struct core_input seen = {.type = CORE_OBJECT,
                              .kind = CORE_PODS,
                              .run = rig.runs[CORE_PODS],
                              .version = SPAN("10"),
                              .pod = &pod};
    if (pod.meta.uid.n)
        core_driver_input(rig.driver, &seen);
}

static void filter_invented(const char *pod, const char *nodes)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *body = xasprintf("{\"Pod\":%s,\"NodeNames\":[%s]}", pod, nodes);
    ck_assert_uint_eq(rig_call(filter_answer, verbs, span_of(body), &reply), 200);
}

static void filter(const char *pod, const char *nodes)
{
    list_pod(pod);
    filter_invented(pod, nodes);
}

/* The body of a filter may name any pod. */
START_TEST(a_pod_that_is_not_listed_gets_no_event)
{
    begin(two_nodes());
    filter_invented(POD("u1", "gpu-mem\":\"10\"", ""), "\"n1\"");
    filter_invented(POD("u2", "gpu-mem\":\"0.5\"", ""), "\"n1\"");
    filter(POD("u3", "gpu-mem\":\"10\"", ""), "\"n1\"");
    wait_for(1);
    ck_assert_str_eq(json_string_value(
                         json_object_get(json_object_get(posted[0], "regarding"), "uid")),
                     "u3");
    end();
}
END_TEST

START_TEST(a_rejected_pod_gets_one_event_with_the_closest_node)
{
    static const char pod[] = POD("u1", "gpu-mem\":\"10\"", "");
    begin(two_nodes());
    for (int i = 0; i < 5; i++)
        filter(pod, "\"n1\",\"n2\",\"n9\"");
    wait_for(1);
    ck_assert_str_eq(said(0, "reason"), "GPUNoRoom");
    ck_assert_str_eq(said(0, "type"), "Warning");
    ck_assert_str_eq(
        said(0, "note"),
        "the pod fits on none of the 3 nodes that kube-scheduler offered; the closest is "
        "n2: needs "
        "10240 MiB on one card; most free: 8192 of 8192 MiB on GPU0; unhealthy: GPU1; "
        "2048 MiB short");
    ck_assert_str_eq(json_string_value(
                         json_object_get(json_object_get(posted[0], "regarding"), "uid")),
                     "u1");
    ck_assert_int_eq(figure("{result=\"deduplicated\"} "), 4);
    ck_assert_int_eq(figure("{result=\"rate-limited\"} "), 0);
    end();
}
END_TEST

START_TEST(never_fitting_and_invalid_pods_get_their_own_reasons)
{
    begin(two_nodes());
    filter(POD("u1", "gpu-mem\":\"20\"", ""), "\"n1\",\"n2\"");
    wait_for(1);
    ck_assert_str_eq(said(0, "reason"), "GPUNeverFits");
    ck_assert_str_eq(
        said(0, "note"),
        "the pod fits on none of the 2 nodes that kube-scheduler offered; the closest "
        "is n2: needs 20480 MiB on one card; the largest card has 16384 MiB");
    filter(POD("u2", "gpu-mem\":\"0.5\"", ""), "\"n1\"");
    wait_for(2);
    ck_assert_str_eq(said(1, "reason"), "GPURequestInvalid");
    ck_assert_ptr_nonnull(strstr(said(1, "note"), "0.5"));
    end();
}
END_TEST

/* kube-scheduler does not offer a full node, so this is not "never". */
START_TEST(the_event_names_a_better_node_that_was_not_offered)
{
    json_t *taker = waiting(POD("u1", "gpu-mem\":\"16\"",
                                ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}"));
    json_object_set_new(json_object_get(taker, "spec"), "nodeName", json_string("n2"));
    begin(json_pack("[ooo]", scv("n1", CARD(0, "Healthy", 8192)),
                    scv("n2", CARD(0, "Healthy", 16384)), taker));
    for (int i = 0; i < 3; i++)
        filter(POD("u2", "gpu-mem\":\"10\"", ""), "\"n1\"");
    filter(POD("u3", "gpu-mem\":\"20\"", ""), "\"n1\"");
    wait_for(2);
    ck_assert_str_eq(said(0, "reason"), "GPUNoRoom");
    ck_assert_str_eq(
        said(0, "note"),
        "the pod does not fit on the one node that kube-scheduler offered; the closest "
        "is n1: "
        "needs 10240 MiB on one card; the largest card has 8192 MiB; n2, which "
        "was not offered, has cards that could take the pod");
    ck_assert_str_eq(said(1, "reason"), "GPUNeverFits");
    end();
}
END_TEST

START_TEST(a_fitting_pod_gets_no_event_from_filter)
{
    begin(two_nodes());
    filter(POD("u1", "gpu-mem\":\"8\"", ""), "\"n1\",\"n2\"");
    filter(POD("u2", "gpu-mem\":\"8\"", ""), "");
    filter(POD("", "gpu-mem\":\"10\"", ""), "\"n1\"");
    filter(POD("u4", "gpu-mem\":\"5\"", ""), "\"n1\"");
    wait_for(1); /* only the last one */
    ck_assert_str_eq(json_string_value(
                         json_object_get(json_object_get(posted[0], "regarding"), "uid")),
                     "u4");
    end();
}
END_TEST

static void bind(const char *uid)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *body =
        xasprintf("{\"PodName\":\"p\",\"PodNamespace\":\"ns\",\"PodUID\":\"%s\","
                  "\"Node\":\"n2\"}",
                  uid);
    rig_renew(&rig);
    ck_assert_uint_eq(rig_call(bind_answer, verbs, span_of(body), &reply), 200);
    ck_assert_str_eq(reply.p, "{\"Error\":\"\"}");
}

START_TEST(a_bound_pod_gets_its_card_and_the_policy)
{
    json_t *objects = json_pack(
        "[oooo]", scv("n2", CARD(0, "Healthy", 8192) "," CARD(1, "Healthy", 16384)),
        waiting(POD("u1", "gpu-mem\":\"3\"", "")),
        waiting(POD("u2", "gpu-mem\":\"4\"",
                    ",\"annotations\":{\"gpushare/placement\":\"spread\"}")),
        waiting(POD("u3", "gpu-mem\":\"5\"", "")));
    begin(objects);
    bind("u1");
    bind("u2");
    bind("u3");
    wait_for(3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(said(i, "reason"), "GPUPlaced");
        ck_assert_str_eq(said(i, "type"), "Normal");
    }
    ck_assert_str_eq(
        said(0, "note"),
        "3072 MiB on GPU0 of node n2, of the cards that fit the one with least "
        "free memory (binpack); 5120 of 8192 MiB stay free there");
    ck_assert_ptr_nonnull(
        strstr(said(1, "note"),
               "4096 MiB on GPU1 of node n2, of the cards that fit the one with most"));
    ck_assert_ptr_nonnull(strstr(said(2, "note"), "; 0 of 8192 MiB stay free"));
    end();
}
END_TEST

START_TEST(a_pod_with_whole_cards_gets_their_indexes)
{
    json_t *objects = json_pack(
        "[oo]", scv("n2", CARD(0, "Healthy", 8192) "," CARD(1, "Healthy", 16384)),
        waiting(POD("u1", "gpu-count\":\"2\"", "")));
    begin(objects);
    bind("u1");
    wait_for(1);
    ck_assert_str_eq(said(0, "note"), "the whole cards GPU0,GPU1 of node n2");
    end();
}
END_TEST

/* An API server that does not answer delays no caller. */
START_TEST(a_hanging_api_server_blocks_no_caller)
{
    begin(two_nodes());
    set_hold(true);
    for (int i = 0; i < 1000; i++) {
        cleanup_free char *pod = xasprintf(POD("u%d", "gpu-mem\":\"10\"", ""), i);
        filter(pod, "\"n1\"");
    }
    ck_assert_int_ge(figure("{result=\"rate-limited\"} "), 1000 - 2 * EVENTS_BURST);
    ck_assert_int_ge(figure("\ngpushare_events_queued "), EVENTS_BURST);
    ck_assert_int_le(figure("\ngpushare_events_queued "), EVENTS_QUEUE);
    end();
}
END_TEST

/* -- nodes -- */

static const int64_t start_ms = 1000 * 1000;

/* True: an event is left to write. */
static bool look_at(struct event_scan *w, int64_t now_ms, bool tell, int64_t led_ms)
{
    const struct ledger *l = core_ledger(core_driver_read(rig.driver));
    struct event_scan_settings look = {now_ms, tell ? recorder : NULL, led_ms};
    event_scan_begin(w, &look);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        if (ledger_node_at(l, i))
            event_scan_node(w, ledger_node_at(l, i));
    bool left = event_scan_end(w);
    core_driver_read_end(rig.driver);
    return left;
}

static void look(struct event_scan *w)
{
    ck_assert(!look_at(w, start_ms, true, 0));
}

static void ck_said(size_t i, const char *reason, const char *note)
{
    ck_assert_str_eq(said(i, "reason"), reason);
    ck_assert_str_eq(said(i, "note"), note);
}

#define PROMISED "; existing promises stay"

static void show_on(const char *node, const char *cards)
{
    struct scv seen = {0};
    cleanup_arena struct arena a = {0};
    json_t *j = scv(node, cards);
    char *text = json_dumps(j, JSON_COMPACT);
    struct jread in;
    struct err err;
    jread_init(&in, text, strlen(text));
    scv_read(&in, &a, &seen);
    ck_assert_done(jread_finish(&in, &err), err);
    ledger_scv_seen((struct ledger *)core_ledger(core_driver_read(rig.driver)), &seen, 1);
    core_driver_read_end(rig.driver);
    free(text);
    json_decref(j);
}

/* Sets the Scv of n1. */
static void show(const char *cards)
{
    show_on("n1", cards);
}

START_TEST(a_lost_card_and_its_return_are_reported)
{
    begin(json_pack("[o]", scv("n1", CARD(0, "Healthy", 4096) "," //
                               CARD(1, "Unhealthy", 4096) "," CARD(2, "Healthy", 4096))));
    struct event_scan *w = event_scan_new();
    look(w); /* GPU1 was unhealthy before: not reported */
    look(w);
    show(CARD(0, "Unhealthy", 4096) "," CARD(1, "Unhealthy", 4096));
    look(w);
    wait_for(1);
    ck_assert_str_eq(said(0, "reason"), "GPULost");
    ck_assert_str_eq(said(0, "type"), "Warning");
    ck_assert_str_eq(
        said(0, "note"),
        "no new pods are placed on GPU0 (unhealthy), GPU2 (no longer listed); "
        "existing promises stay");
    ck_assert_str_eq(json_string_value(json_object_get(
                         json_object_get(posted[0], "regarding"), "kind")),
                     "Node");
    show(CARD(0, "Healthy", 4096) "," CARD(1, "Healthy", 4096) "," //
         CARD(2, "Healthy", 4096) "," CARD(3, "Healthy", 4096));
    look(w); /* GPU3 is new: not reported */
    wait_for(2);
    ck_assert_str_eq(said(1, "reason"), "GPUBack");
    ck_assert_str_eq(said(1, "note"), "new pods are placed again on GPU0, GPU1, GPU2");
    look(w);
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, 2);
}
END_TEST

START_TEST(an_overcommitted_card_is_reported)
{
    json_t *pod = waiting(POD("u1", "gpu-mem\":\"4\"",
                              ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}"));
    json_object_set_new(json_object_get(pod, "spec"), "nodeName", json_string("n1"));
    begin(json_pack("[oo]", scv("n1", CARD(0, "Healthy", 4096)), pod));
    struct event_scan *w = event_scan_new();
    look(w);
    show(CARD(0, "Healthy", 3000));
    look(w);
    look(w);
    wait_for(1);
    ck_assert_str_eq(said(0, "reason"), "GPUOvercommitted");
    ck_assert_str_eq(
        said(0, "note"),
        "GPU0 has 3000 MiB, but 4096 MiB are promised; no new pods are placed "
        "there, and no pod is evicted");
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, 1);
}
END_TEST

#define ILL(id)  CARD(id, "Unhealthy", 4096)
#define WELL(id) CARD(id, "Healthy", 4096)

#define OTHER(id, uuid)                                                                  \
    "{\"id\":" #id ",\"health\":\"Healthy\",\"totalMemory\":4096,\"uuid\":\"" uuid "\"}"

/* A card is identified by its UUID: a replacement is another card, and a card that moved
 * to another index is the same. */
START_TEST(a_replaced_card_is_reported)
{
    begin(json_pack("[o]", scv("n1", OTHER(0, "A") "," OTHER(1, "B"))));
    struct event_scan *w = event_scan_new();
    look(w);
    show(OTHER(0, "B") "," OTHER(1, "A"));
    look(w); /* not reported */
    show(OTHER(0, "C") "," OTHER(1, "A"));
    look(w);
    wait_for(2);
    ck_said(0, "GPULost",
            "no new pods are placed on GPU0 (B was replaced by another card)" PROMISED);
    ck_said(1, "GPUBack", "new pods are placed again on GPU0 (now C)");
    show(OTHER(0, "B") "," OTHER(1, "A"));
    look(w);
    wait_for(4);
    ck_said(2, "GPULost",
            "no new pods are placed on GPU0 (C was replaced by another card)" PROMISED);
    ck_said(3, "GPUBack", "new pods are placed again on GPU0 (now B)");
    event_scan_free(w);
    end();
}
END_TEST

/* An unhealthy card is replaced by another one. */
START_TEST(a_lost_card_replaced_by_another_is_reported)
{
    begin(json_pack("[o]", scv("n1", WELL(0) "," WELL(1))));
    struct event_scan *w = event_scan_new();
    look(w);
    show(ILL(0) "," WELL(1));
    look(w);
    show(WELL(1));
    look(w);
    show(OTHER(0, "C") "," WELL(1));
    look(w);
    wait_for(2);
    ck_said(0, "GPULost", "no new pods are placed on GPU0 (unhealthy)" PROMISED);
    ck_said(1, "GPUBack", "new pods are placed again on GPU0 (now C)");
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, 2);
}
END_TEST

START_TEST(the_next_leader_reports_changes_without_a_leader)
{
    begin(json_pack("[o]", scv("n1", WELL(0) "," WELL(1))));
    struct event_scan *w = event_scan_new();
    ck_assert(!look_at(w, start_ms, false, 0));
    show(ILL(0) "," ILL(1));
    ck_assert(look_at(w, start_ms + 1000, false, 0));
    show(ILL(0) "," WELL(1)); /* GPU1 was never known */
    ck_assert(look_at(w, start_ms + 60 * 1000, false, 0));
    ck_assert(!look_at(w, start_ms + 61 * 1000, true, 0));
    wait_for(1);
    ck_said(0, "GPULost", "no new pods are placed on GPU0 (unhealthy)" PROMISED);
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, 1);
}
END_TEST

/* Another leader dies: it has reported what it had the time for. */
START_TEST(changes_reported_by_another_leader_are_not_repeated)
{
    int64_t lost_ms = start_ms + 1000;
    begin(json_pack("[o]", scv("n1", WELL(0) "," WELL(1))));
    struct event_scan *w = event_scan_new();
    ck_assert(!look_at(w, start_ms, false, start_ms));
    show(ILL(0) "," WELL(1));
    ck_assert(look_at(w, lost_ms, false, lost_ms - 100));
    ck_assert(look_at(w, lost_ms + EVENT_SCAN_OTHER_MS, false,
                      lost_ms + EVENT_SCAN_OTHER_MS - 1));
    ck_assert(!look_at(w, lost_ms + EVENT_SCAN_OTHER_MS + 1000, false,
                       lost_ms + EVENT_SCAN_OTHER_MS));
    lost_ms += 2LL * EVENT_SCAN_OTHER_MS;
    show(ILL(0) "," ILL(1));
    ck_assert(look_at(w, lost_ms, false, lost_ms - 100));
    ck_assert(look_at(w, lost_ms + 60 * 1000, false, lost_ms - 100));
    ck_assert(!look_at(w, lost_ms + 61 * 1000, true, 0));
    wait_for(1);
    ck_said(0, "GPULost", "no new pods are placed on GPU1 (unhealthy)" PROMISED);
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, 1);
}
END_TEST

/* A flapping card does not flood the API server, and the last event is correct. */
START_TEST(a_flapping_card_is_rate_limited)
{
    int64_t now_ms = start_ms;
    bool left = false;
    begin(json_pack("[o]", scv("n1", WELL(0))));
    struct event_scan *w = event_scan_new();
    look_at(w, now_ms, true, 0);
    for (int i = 0; i < 99; i++, now_ms += 100) {
        show(i % 2 ? WELL(0) : ILL(0));
        left = look_at(w, now_ms, true, 0);
    }
    ck_assert(left); /* unhealthy, but the last event says healthy */
    wait_for(EVENT_SCAN_BURST);
    ck_assert_str_eq(said(EVENT_SCAN_BURST - 1, "reason"), "GPUBack");
    ck_assert(!look_at(w, now_ms + EVENT_SCAN_EVERY_MS, true, 0));
    wait_for(EVENT_SCAN_BURST + 1);
    ck_said(EVENT_SCAN_BURST, "GPULost",
            "no new pods are placed on GPU0 (unhealthy)" PROMISED);
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, EVENT_SCAN_BURST + 1);
}
END_TEST

/* A rack loses power: more nodes than the rate limit allows at once. */
START_TEST(rate_limited_events_are_written_later)
{
    enum { NODES = EVENTS_BURST + 10 };
    json_t *objects = json_array();
    char name[32];
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        json_array_append_new(objects, scv(name, WELL(0)));
    }
    begin(objects);
    struct event_scan *w = event_scan_new();
    look(w);
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        show_on(name, ILL(0));
    }
    ck_assert(look_at(w, start_ms, true, 0));
    for (int tries = 0; look_at(w, start_ms, true, 0); tries++) {
        ck_assert_int_lt(tries, 3000);
        usleep(10 * 1000); /* the rate limit refills */
    }
    for (int tries = 0; figure("\ngpushare_events_queued "); tries++) {
        ck_assert_int_lt(tries, 3000);
        usleep(10 * 1000);
    }
    ck_assert_int_eq(figure("{result=\"written\"} "), NODES);
    ck_assert_int_eq(figure("{result=\"rate-limited\"} "), 0);
    event_scan_free(w);
    end();
}
END_TEST

static char *cards_of(const char *health, int round)
{
    struct buf cards = {0};
    for (int i = 0; i < SCV_MAX_CARDS; i++)
        buf_printf(&cards,
                   "%s{\"id\":%d,\"health\":\"%s\",\"totalMemory\":4096,"
                   "\"uuid\":\"GPU-%d-%d\"}",
                   i ? "," : "", i, health, i, round);
    return buf_take(&cards);
}

/* No card is cut off at the end of a note. */
START_TEST(many_cards_of_one_node_are_all_reported)
{
    bool reported[SCV_MAX_CARDS] = {0};
    cleanup_free char *well = cards_of("Healthy", 0), *ill = cards_of("Unhealthy", 0);
    begin(json_pack("[o]", scv("n1", well)));
    struct event_scan *w = event_scan_new();
    look(w);
    show(ill);
    while (look_at(w, start_ms, true, 0))
        ;
    wait_for(2);
    for (size_t i = 0; i < 2; i++)
        for (const char *at = said(i, "note"); (at = strstr(at, "GPU")); at++)
            reported[atoi(at + 3)] = true;
    for (int i = 0; i < SCV_MAX_CARDS; i++)
        ck_assert_msg(reported[i], "GPU%d", i);
    event_scan_free(w);
    end();
    ck_assert_uint_eq(n_posted, 2);
}
END_TEST

/* A node that reports ever new UUIDs does not grow the state. */
START_TEST(invented_uuids_do_not_grow_the_state)
{
    begin(json_pack("[o]", scv("n1", WELL(0))));
    struct event_scan *w = event_scan_new();
    for (int round = 0; round < 20; round++) {
        cleanup_free char *cards = cards_of("Healthy", round);
        show(cards);
        look_at(w, start_ms, false, 0);
    }
    cleanup_free char *last = cards_of("Healthy", 18);
    show(last); /* the previous cards are still known */
    look_at(w, start_ms + 1, false, start_ms + 2LL * EVENT_SCAN_OTHER_MS);
    ck_assert(!look_at(w, start_ms + 2, true, 0));
    show(WELL(0));
    look_at(w, start_ms + 3, true, 0);
    wait_for(2);
    ck_assert_str_eq(said(0, "reason"), "GPULost");
    ck_assert_str_eq(said(1, "note"), "new pods are placed again on GPU0 (now GPU-0)");
    event_scan_free(w);
    end();
}
END_TEST

UNIT_MAIN("events", a_pod_that_is_not_listed_gets_no_event,
          a_rejected_pod_gets_one_event_with_the_closest_node,
          never_fitting_and_invalid_pods_get_their_own_reasons,
          the_event_names_a_better_node_that_was_not_offered,
          a_fitting_pod_gets_no_event_from_filter,
          a_bound_pod_gets_its_card_and_the_policy,
          a_pod_with_whole_cards_gets_their_indexes,
          a_hanging_api_server_blocks_no_caller, a_lost_card_and_its_return_are_reported,
          an_overcommitted_card_is_reported, a_replaced_card_is_reported,
          a_lost_card_replaced_by_another_is_reported,
          the_next_leader_reports_changes_without_a_leader,
          changes_reported_by_another_leader_are_not_repeated,
          a_flapping_card_is_rate_limited, rate_limited_events_are_written_later,
          many_cards_of_one_node_are_all_reported, invented_uuids_do_not_grow_the_state)
