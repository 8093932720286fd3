/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "base/log.h"
#include "extender/core_driver_rig.h"
#include "extender/event_scan.h"

/*
 * Events: filter and bind with a recorder that posts to the test, and scans of nodes whose
 * cards change, and of pods whose annotations differ from their request or cards.
 */

static struct core_driver_rig rig;
static struct verbs *verbs;
static struct event_recorder *recorder;
static struct event_scan *scan;

/* -- posted events -- */

enum { POSTED_MAX = EVENTS_BURST + 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static json_t *posted[POSTED_MAX];
static size_t n_posted;

static size_t count_posted(void)
{
    pthread_mutex_lock(&lock);
    size_t n = n_posted;
    pthread_mutex_unlock(&lock);
    return n;
}

static int post(void *ctx, const struct kube_request *request, struct err *err)
{
    (void)ctx;
    (void)err;
    ck_assert_str_eq(request->method, "POST");
    pthread_mutex_lock(&lock);
    if (n_posted < POSTED_MAX)
        posted[n_posted++] = json_loadb(request->body.p, request->body.n, 0, NULL);
    pthread_mutex_unlock(&lock);
    return 0;
}

static const char *said(size_t i, const char *key)
{
    return json_string_value(json_object_get(posted[i], key));
}

static const char *regards(size_t i, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(posted[i], "regarding"), key));
}

/* Waits until `n` events have been posted. */
static void wait_for(size_t n)
{
    lib_wait(count_posted() >= n);
    ck_assert_uint_eq(count_posted(), n);
}

static void ck_said(size_t i, const char *reason, const char *note)
{
    wait_for(i + 1);
    ck_assert_str_eq(said(i, "reason"), reason);
    ck_assert_str_eq(said(i, "note"), note);
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
#define ILL(id)  CARD(id, "Unhealthy", 4096)
#define WELL(id) CARD(id, "Healthy", 4096)
#define OTHER(id, uuid)                                                                  \
    "{\"id\":" #id ",\"health\":\"Healthy\",\"totalMemory\":4096,\"uuid\":\"" uuid "\"}"

static json_t *scv(const char *name, const char *cards)
{
    return rig_scv(name, cards, "");
}

#define POD(uid, limit, more)                                                            \
    "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p\",\"namespace\":\"ns\",\"uid\":\"" uid \
    "\"" more                                                                            \
    "},\"spec\":{\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/" limit        \
    "}}}]}}"

/* Takes the objects. */
static void begin(json_t *objects)
{
    struct ledger_settings ledger = {.unit_mib = 1024, .external_tolerance_mib = 1024};
    struct event_recorder_settings settings = {.post = post, .instance = "me"};
    log_set_level(LOG_ERROR);
    rig_start(&rig, &ledger, false);
    rig_deliver(&rig, objects);
    recorder = event_recorder_start(&settings);
    verbs = verbs_new(&(struct verbs_config){
        .driver = rig.driver, .policy = SCORE_FGD, .recorder = recorder});
    scan = event_scan_new();
}

static void begin_node(const char *cards)
{
    begin(json_pack("[o]", scv("n1", cards)));
}

/* After `n` events in all. */
static void end(size_t n)
{
    wait_for(n);
    event_recorder_stop(recorder, INT64_MAX);
    ck_assert_uint_eq(n_posted, n);
    event_recorder_free(recorder);
    event_scan_free(scan);
    verbs_free(verbs);
    rig_stop(&rig);
    for (size_t i = 0; i < n_posted; i++)
        json_decref(posted[i]);
}

/* -- pods, from filter and bind -- */

static json_t *two_nodes(void)
{
    return json_pack("[oo]", scv("n1", CARD(0, "Healthy", 4096)),
                     scv("n2", CARD(0, "Healthy", 8192) "," CARD(1, "Unhealthy", 16384)));
}

static void filter(const char *pod, const char *nodes)
{
    rig_watched(&rig, "ADDED", rig_json(pod));
    json_decref(rig_ask(verbs, filter_answer, rig_json(pod), rig_json(nodes)));
}

#define OFFERED " nodes that kube-scheduler offered; the closest is "

TEST(a_rejected_pod_gets_one_event_with_the_closest_node)
{
    begin(two_nodes());
    for (int i = 0; i < 5; i++)
        filter(POD("u1", "gpu-mem\":\"10\"", ""), "[\"n1\",\"n2\",\"n9\"]");
    ck_said(0, "GPUNoRoom",
            "the pod fits on none of the 3" OFFERED
            "n2: needs 10240 MiB on one card; most free: 8192 of 8192 MiB on GPU0; "
            "unhealthy: GPU1; 2048 MiB short");
    ck_assert_str_eq(said(0, "type"), "Warning");
    ck_assert_str_eq(regards(0, "uid"), "u1");
    ck_assert_int_eq(figure("{result=\"deduplicated\"} "), 4);
    ck_assert_int_eq(figure("{result=\"rate-limited\"} "), 0);
    filter(POD("u2", "gpu-mem\":\"20\"", ""), "[\"n1\",\"n2\"]");
    ck_said(1, "GPUNeverFits",
            "the pod fits on none of the 2" OFFERED
            "n2: needs 20480 MiB on one card; the largest card has 16384 MiB");
    filter(POD("u3", "gpu-mem\":\"0.5\"", ""), "[\"n1\"]");
    wait_for(3);
    ck_assert_str_eq(said(2, "reason"), "GPURequestInvalid");
    ck_assert_contains(said(2, "note"), "0.5");
    end(3);
}

/* kube-scheduler does not offer a full node, so this is not "never". */
TEST(the_event_names_a_better_node_that_was_not_offered)
{
    json_t *taker = rig_json(POD("u1", "gpu-mem\":\"16\"",
                                 ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}"));
    json_object_set_new(json_object_get(taker, "spec"), "nodeName", json_string("n2"));
    begin(json_pack("[ooo]", scv("n1", CARD(0, "Healthy", 8192)),
                    scv("n2", CARD(0, "Healthy", 16384)), taker));
    for (int i = 0; i < 3; i++)
        filter(POD("u2", "gpu-mem\":\"10\"", ""), "[\"n1\"]");
    ck_said(0, "GPUNoRoom",
            "the pod does not fit on the one node that kube-scheduler offered; the "
            "closest is n1: needs 10240 MiB on one card; the largest card has 8192 MiB; "
            "n2, which was not offered, has cards that could take the pod");
    filter(POD("u3", "gpu-mem\":\"20\"", ""), "[\"n1\"]");
    wait_for(2);
    ck_assert_str_eq(said(1, "reason"), "GPUNeverFits");
    end(2);
}

TEST(the_event_names_a_node_that_was_not_offered_and_fits)
{
    cleanup_buf struct buf nodes = {0};
    begin(json_pack("[oo]", scv("n1", CARD(0, "Healthy", 8192)),
                    scv("n2", CARD(0, "Healthy", 16384))));
    buf_adds(&nodes, "[\"n1\"");
    for (int i = 0; i < 99; i++)
        buf_printf(&nodes, ",\"x%d\"", i);
    buf_addc(&nodes, ']');
    filter(POD("u2", "gpu-mem\":\"10\"", ""), nodes.p);
    ck_said(0, "GPUNoRoom",
            "the pod fits on none of the 100" OFFERED
            "n1: needs 10240 MiB on one card; the largest card has 8192 MiB; it fits on "
            "node n2 that kube-scheduler did not offer");
    end(1);
}

TEST(a_fitting_pod_gets_no_event_from_filter)
{
    begin(two_nodes());
    filter(POD("u1", "gpu-mem\":\"8\"", ""), "[\"n1\",\"n2\"]");
    filter(POD("u2", "gpu-mem\":\"8\"", ""), "[]");
    filter(POD("u4", "gpu-mem\":\"5\"", ""), "[\"n1\"]");
    wait_for(1); /* only the last one */
    ck_assert_str_eq(regards(0, "uid"), "u4");
    end(1);
}

TEST(a_bound_pod_gets_its_card_and_the_policy)
{
    static const struct {
        const char *uid, *note;
    } pods[] = {
        {"u1", "3072 MiB on GPU0 of node n2, of the cards that fit the one with least "
               "free memory (binpack); 5120 of 8192 MiB stay free there"},
        {"u2", "4096 MiB on GPU1 of node n2, of the cards that fit the one with most "
               "free memory (spread); 12288 of 16384 MiB stay free there"},
        {"u3", "5120 MiB on GPU0 of node n2, of the cards that fit the one with least "
               "free memory (binpack); 0 of 8192 MiB stay free there"},
        {"u4", "the whole cards GPU2,GPU3 of node n2"}};
    begin(json_pack(
        "[ooooo]",
        scv("n2", CARD(0, "Healthy", 8192) "," CARD(1, "Healthy", 16384) "," //
            CARD(2, "Healthy", 2048) "," CARD(3, "Healthy", 2048)),
        rig_json(
            POD("u1", "gpu-mem\":\"3\"",
                ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4\"}")),
        rig_json(POD("u2", "gpu-mem\":\"4\"",
                     ",\"annotations\":{\"gpushare/placement\":\"spread\"}")),
        rig_json(POD("u3", "gpu-mem\":\"5\"", "")),
        rig_json(POD("u4", "gpu-count\":\"2\"", ""))));
    array_indices(i, pods) {
        cleanup_buf struct buf reply = {0};
        cleanup_free char *body =
            xasprintf("{\"PodName\":\"p\",\"PodNamespace\":\"ns\",\"PodUID\":\"%s\","
                      "\"Node\":\"n2\"}",
                      pods[i].uid);
        rig_renew(&rig);
        ck_assert_uint_eq(rig_call(bind_answer, verbs, span_of(body), &reply), 200);
        ck_assert_str_eq(reply.p, "{\"Error\":\"\"}");
        ck_said(i, "GPUPlaced", pods[i].note);
        ck_assert_str_eq(said(i, "type"), "Normal");
    }
    end(ARRAY_LEN(pods));
}

/* -- scans -- */

static const int64_t start_ms = 1000 * 1000;

/* `leads`: this process writes events. True: an event is left to write. */
static bool look_at(int64_t now_ms, bool leads, int64_t led_ms)
{
    const struct ledger *l = core_ledger(core_driver_read(rig.driver));
    event_scan_begin(
        scan, &(struct event_scan_settings){now_ms, leads ? recorder : NULL, led_ms});
    for (uint32_t i = 0; i < ledger_node_slots(l); i++)
        if (ledger_node_at(l, i))
            event_scan_node(scan, ledger_node_at(l, i));
    bool left = event_scan_end(scan);
    core_driver_read_end(rig.driver);
    return left;
}

/* Sets the Scv of n1 and scans: everything can be reported. */
static void show(const char *cards)
{
    rig_watched(&rig, "ADDED", scv("n1", cards));
    ck_assert(!look_at(start_ms, true, 0));
}

#define LOST(cards) "no new pods are placed on " cards "; existing promises stay"
#define BACK(cards) "new pods are placed again on " cards

/* A card is identified by its UUID: a replacement is another card, and a card that moved to
 * another index is the same. */
static const struct {
    const char *cards;  /* of the Scv */
    const char *events; /* reason and note of each, in lines */
} changes[] = {
    /* GPU1 was unhealthy before: not reported */
    {WELL(0) "," ILL(1) "," WELL(2), ""},
    {WELL(0) "," ILL(1) "," WELL(2), ""},
    {ILL(0) "," ILL(1),
     "GPULost " LOST("GPU0 (unhealthy), GPU2 (no longer listed)") "\n"},
    /* GPU3 is new: not reported */
    {WELL(0) "," WELL(1) "," WELL(2) "," WELL(3),
     "GPUBack " BACK("GPU0, GPU1, GPU2") "\n"},
    /* unhealthy, gone, and replaced by another one */
    {ILL(0) "," WELL(1) "," WELL(2) "," WELL(3),
     "GPULost " LOST("GPU0 (unhealthy)") "\n"},
    {WELL(1) "," WELL(2) "," WELL(3), ""},
    {OTHER(0, "A") "," WELL(1) "," WELL(2) "," WELL(3),
     "GPUBack " BACK("GPU0 (now A)") "\n"},
    /* exchanged, which is not reported, and replaced */
    {WELL(1) "," OTHER(4, "A") "," OTHER(2, "B") "," WELL(3),
     "GPULost " LOST(
         "GPU2 (GPU-2 was replaced by another card)") "\n"
                                                      "GPUBack " BACK(
                                                          "GPU2 (now B)") "\n"},
};

TEST(lost_and_replaced_cards_and_their_return_are_reported)
{
    size_t n = 0;
    begin_node(changes[0].cards);
    array_items(change, changes) {
        show(change->cards);
        for (struct span rest = span_of(change->events); rest.n; n++) {
            struct span note = span_cut(&rest, '\n'), reason = span_cut(&note, ' ');
            wait_for(n + 1 + (rest.n > 0));
            ck_assert_span_eq(note, said(n, "note"));
            ck_assert_span_eq(reason, said(n, "reason"));
            ck_assert_str_eq(said(n, "type"),
                             span_eq(reason, SPAN("GPUBack")) ? "Normal" : "Warning");
            ck_assert_str_eq(regards(n, "kind"), "Node");
        }
    }
    end(n);
}

TEST(an_overcommitted_card_is_reported)
{
    json_t *pod = rig_json(POD("u1", "gpu-mem\":\"4\"",
                               ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}"));
    json_object_set_new(json_object_get(pod, "spec"), "nodeName", json_string("n1"));
    begin(json_pack("[oo]", scv("n1", WELL(0)), pod));
    show(WELL(0));
    show(CARD(0, "Healthy", 3000));
    show(CARD(0, "Healthy", 3000));
    ck_said(0, "GPUOvercommitted",
            "GPU0 has 3000 MiB, but 4096 MiB are promised; no new pods are placed there, "
            "and no pod is evicted");
    end(1);
}

TEST(the_next_leader_reports_changes_without_a_leader)
{
    begin_node(WELL(0) "," WELL(1));
    ck_assert(!look_at(start_ms, false, 0));
    rig_watched(&rig, "ADDED", scv("n1", ILL(0) "," ILL(1)));
    ck_assert(look_at(start_ms + 1000, false, 0));
    rig_watched(&rig, "ADDED", scv("n1", ILL(0) "," WELL(1))); /* GPU1 was never known */
    ck_assert(look_at(start_ms + 60 * 1000, false, 0));
    ck_assert(!look_at(start_ms + 61 * 1000, true, 0));
    ck_said(0, "GPULost", LOST("GPU0 (unhealthy)"));
    end(1);
}

/* Another leader dies: it has reported what it had the time for. */
TEST(changes_reported_by_another_leader_are_not_repeated)
{
    int64_t lost_ms = start_ms + 1000;
    begin_node(WELL(0) "," WELL(1));
    ck_assert(!look_at(start_ms, false, start_ms));
    rig_watched(&rig, "ADDED", scv("n1", ILL(0) "," WELL(1)));
    ck_assert(look_at(lost_ms, false, lost_ms - 100));
    int64_t told_ms = lost_ms + EVENT_SCAN_OTHER_MS;
    ck_assert(look_at(told_ms, false, told_ms - 1));
    ck_assert(!look_at(told_ms + 1000, false, told_ms));
    lost_ms += 2LL * EVENT_SCAN_OTHER_MS;
    rig_watched(&rig, "ADDED", scv("n1", ILL(0) "," ILL(1)));
    ck_assert(look_at(lost_ms, false, lost_ms - 100));
    ck_assert(look_at(lost_ms + 60 * 1000, false, lost_ms - 100));
    ck_assert(!look_at(lost_ms + 61 * 1000, true, 0));
    ck_said(0, "GPULost", LOST("GPU1 (unhealthy)"));
    end(1);
}

/* A flapping card does not flood the API server, and the last event is correct. */
TEST(a_flapping_card_is_rate_limited)
{
    int64_t now_ms = start_ms;
    bool left = false;
    begin_node(WELL(0));
    look_at(now_ms, true, 0);
    for (int i = 0; i < 99; i++, now_ms += 100) {
        rig_watched(&rig, "ADDED", scv("n1", i % 2 ? WELL(0) : ILL(0)));
        left = look_at(now_ms, true, 0);
    }
    ck_assert(left); /* unhealthy, but the last event says healthy */
    wait_for(EVENT_SCAN_BURST);
    ck_assert_str_eq(said(EVENT_SCAN_BURST - 1, "reason"), "GPUBack");
    ck_assert(!look_at(now_ms + EVENT_SCAN_EVERY_MS, true, 0));
    ck_said(EVENT_SCAN_BURST, "GPULost", LOST("GPU0 (unhealthy)"));
    end(EVENT_SCAN_BURST + 1);
}

/* A rack loses power: more nodes than the rate limit allows at once. */
TEST(rate_limited_events_are_written_later)
{
    enum { NODES = EVENTS_BURST + 10 };
    json_t *objects = json_array();
    char name[32];
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        json_array_append_new(objects, scv(name, WELL(0)));
    }
    begin(objects);
    ck_assert(!look_at(start_ms, true, 0));
    for (int i = 0; i < NODES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        rig_watched(&rig, "ADDED", scv(name, ILL(0)));
    }
    ck_assert(look_at(start_ms, true, 0));
    lib_wait(!look_at(start_ms, true, 0)); /* the rate limit refills */
    wait_for(NODES);
    ck_assert_int_eq(figure("{result=\"rate-limited\"} "), 0);
    end(NODES);
}

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
TEST(many_cards_of_one_node_are_all_reported)
{
    bool reported[SCV_MAX_CARDS] = {0};
    cleanup_free char *well = cards_of("Healthy", 0), *ill = cards_of("Unhealthy", 0);
    begin_node(well);
    show(well);
    rig_watched(&rig, "ADDED", scv("n1", ill));
    while (look_at(start_ms, true, 0))
        ;
    wait_for(2);
    for (size_t i = 0; i < 2; i++)
        for (const char *at = said(i, "note"); (at = strstr(at, "GPU")); at++)
            reported[atoi(at + 3)] = true;
    for (int i = 0; i < SCV_MAX_CARDS; i++)
        ck_assert_msg(reported[i], "GPU%d", i);
    end(2);
}

/* A node that reports ever new UUIDs does not grow the state. */
TEST(invented_uuids_do_not_grow_the_state)
{
    begin_node(WELL(0));
    for (int round = 0; round <= 20; round++) {
        /* At last, the previous cards are still known. */
        cleanup_free char *cards = cards_of("Healthy", round < 20 ? round : 18);
        rig_watched(&rig, "ADDED", scv("n1", cards));
        look_at(start_ms + round / 20, false,
                round < 20 ? 0 : start_ms + 2LL * EVENT_SCAN_OTHER_MS);
    }
    ck_assert(!look_at(start_ms + 2, true, 0));
    rig_watched(&rig, "ADDED", scv("n1", WELL(0)));
    look_at(start_ms + 3, true, 0);
    wait_for(2);
    ck_assert_str_eq(said(0, "reason"), "GPULost");
    ck_said(1, "GPUBack", BACK("GPU0 (now GPU-0)"));
    end(2);
}

/* -- pods whose annotations differ -- */

#define TWO_CARDS OTHER(0, "U0") "," OTHER(1, "U1")

static void see_pod(const char *uid, const char *index, const char *units)
{
    cleanup_free char *text = xasprintf(
        "{\"kind\":\"Pod\",\"metadata\":{\"namespace\":\"default\",\"name\":\"p\","
        "\"uid\":"
        "\"%s\",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"%s\","
        "\"ALIYUN_COM_GPU_MEM_POD\":\"%s\"}},\"spec\":{\"nodeName\":\"n1\","
        "\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"2\"}}}]}}",
        uid, index, units);
    rig_watched(&rig, "ADDED", rig_json(text));
}

static void end_differences(size_t n)
{
    wait_for(n);
    for (size_t i = 0; i < n; i++)
        ck_assert_str_eq(said(i, "reason"), "GPUPromiseDiffers");
    end(n);
}

TEST(each_difference_is_reported_once)
{
    begin_node(TWO_CARDS);
    see_pod("a", "0", "2");
    ck_assert(!look_at(1000, true, 0));
    see_pod("b", "0", "99");
    ck_assert(!look_at(2000, true, 0));
    ck_assert(!look_at(3000, true, 0));
    see_pod("c", "1", "98");
    ck_assert(!look_at(4000, true, 0));
    end_differences(2);
}

/* The recorder takes one event of a pod in ten minutes. */
TEST(a_changed_difference_is_reported_later)
{
    begin_node(TWO_CARDS);
    see_pod("b", "0", "99");
    ck_assert(!look_at(1000, true, 0));
    see_pod("b", "0", "98");
    ck_assert(look_at(2000, true, 0));
    see_pod("b", "0", "2"); /* repaired meanwhile */
    ck_assert(!look_at(3000, true, 0));
    end_differences(1);
}

TEST(other_cards_are_reported_when_they_last)
{
    begin_node(TWO_CARDS);
    see_pod("a", "0", "2");
    rig_watched(&rig, "ADDED",
                rig_scv("n1", TWO_CARDS,
                        ",\"podList\":[{\"namespace\":\"default\",\"name\":\"p\","
                        "\"container\":\"c\",\"resource\":\"aliyun.com/gpu-mem\","
                        "\"units\":2,\"cards\":[\"U1\"]}]"));
    ck_assert(look_at(1000, true, 0));
    ck_assert(look_at(1000 + EVENT_SCAN_CARDS_MS - 1, true, 0));
    ck_assert(!look_at(1000 + EVENT_SCAN_CARDS_MS, true, 0));
    end_differences(1);
}

TEST(only_the_leader_reports_differences)
{
    begin_node(TWO_CARDS);
    see_pod("a", "0", "99");
    ck_assert(look_at(10000, false, 0)); /* no leader: this process may become it */
    ck_assert(look_at(11000, false, 11000));
    ck_assert(!look_at(16000, false, 16000)); /* the leader has had time */
    ck_assert(!look_at(17000, true, 0));
    see_pod("b", "0", "99");
    ck_assert(look_at(18000, false, 18000));
    ck_assert(!look_at(19000, true, 0));
    end_differences(1);
}
