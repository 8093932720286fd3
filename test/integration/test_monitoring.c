/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/agent.h"
#include "lib/plugin.h"
#include "lib/promtool.h"

/*
 * /metrics and events of the real programs; and alerts, dashboard and documents name
 * only metrics that exist.
 */

#define RULES     "manifests/monitoring/prometheus-rules.yaml"
#define DASHBOARD "manifests/monitoring/grafana-dashboard.json"
#define DOC       "docs/metrics.md"
#define NODE_DOC  "docs/device-plugin.md"
#define ALERT_DOC "docs/alerts.md"

static struct sim sim;
static struct extender extender;

/* /metrics of a server. New. */
static char *metrics_of(const struct peer *p)
{
    struct buf reply = {0};
    ck_assert_uint_eq(peer_call(p, "GET", "/metrics", NULL, &reply), 200);
    return buf_take(&reply);
}

#define GIB (1LL << 30)

/* -- the extender -- */

START_TEST(both_ports_export_the_counters)
{
    cleanup_buf struct buf why = {0};
    sim_start(&sim, ARGV(NULL));
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "a", 8);
    extender_start(&extender, &sim, ARGV("--metrics-detail", "card"));
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "a", "n1", &why));
    ck_assert_int_eq(extender_filter(&extender, 8, "n1", NULL), FITS);
    ck_assert_int_eq(extender_filter(&extender, 20, "n1", NULL), NEVER);
    cleanup_free char *observers = metrics_of(&extender.observers);
    cleanup_free char *verbs = metrics_of(&extender.verbs);
    promtool_check_metrics(span_of(observers));
    promtool_check_metrics(span_of(verbs));
    ck_assert_int_eq(extender_metric(&extender, "gpushare_ready"), 1);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_leader"), 1);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_cards{state=\"healthy\"}"), 2);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_memory_capacity_bytes"), 32 * GIB);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_memory_promised_bytes"), 8 * GIB);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_memory_free_bytes"), 24 * GIB);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_node_memory_promised_bytes{node=\"n1\"}"),
                        8 * GIB);
    ck_assert_int_eq(
        extender_metric(&extender, "gpushare_card_memory_promised_bytes{node=\"n1\",card=\"0\"}"), 8 * GIB);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_verb_duration_seconds_count{verb=\"filter\"}"),
                        2);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_verb_requests_total{verb=\"bind\",code=\"200\"}"),
                        1);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_filter_rejected_nodes_total{reason=\"size\"}"),
                        1);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_binds_total{result=\"ok\"}"), 1);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_api_requests_total{call=\"bind\",code=\"ok\"}"),
                        1);
    ck_assert_int_ge(extender_metric(&extender, "gpushare_api_requests_total{call=\"list\",code=\"ok\"}"),
                        5);
    ck_assert_int_ge(extender_metric(&extender, "gpushare_watch_age_seconds{resource=\"pods\"}"), 0);
    extender_stop(&extender);
    sim_stop(&sim);
}
END_TEST

/* -- events -- */

/* The number of events of that reason whose note contains the text. */
static int events(const char *reason, const char *words)
{
    cleanup_json json_t *all = peer_json(
        &sim.api, "GET", "/apis/events.k8s.io/v1/namespaces/default/events", NULL);
    json_t *e;
    size_t i;
    int n = 0;
    json_array_foreach(json_object_get(all, "items"), i, e)
    {
        ck_assert_str_eq(lib_str(e, "reportingController"), "gpushare-extender");
        n += strcmp(lib_str(e, "reason"), reason) == 0 &&
             strstr(lib_str(e, "note"), words) != NULL;
    }
    return n;
}

START_TEST(pods_and_nodes_get_their_events)
{
    sim_start(&sim, ARGV(NULL));
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "a", 8);
    extender_start(&extender, &sim, ARGV(NULL));
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    lib_wait(events("GPUPlaced", "8192 MiB on GPU0 of node n1") == 1);
    sim_add_pod(&sim, "big", 17);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    for (int i = 0; i < 3; i++) {
        cleanup_buf struct buf body = {0}, reply = {0};
        lib_filter_body(&body, "big", 17, (const char *const[]){"n1", NULL});
        ck_assert_uint_eq(peer_call(&extender.verbs, "POST", "/filter", body.p, &reply),
                          200);
    }
    lib_wait(events("GPUNeverFits", "the largest card has 16384 MiB") == 1);
    lib_wait(extender_metric(&extender, "gpushare_events_total{result=\"deduplicated\"}") == 2);
    ck_assert(program_wait_output(&extender.program, "first scan of all cards complete"));
    sim_add_scv(&sim, "n1", 2, 16, 1);
    lib_wait(events("GPULost", "no new pods are placed on GPU1 (unhealthy)") == 1);
    sim_add_scv(&sim, "n1", 2, 16, -1);
    lib_wait(events("GPUBack", "GPU1") == 1);
    sim_add_scv(&sim, "n1", 2, 16, 1); /* what is said last is what is so */
    lib_wait(events("GPULost", "no new pods are placed on GPU1 (unhealthy)") == 2);
    sim_add_scv(&sim, "n1", 2, 16, -1);
    lib_wait(events("GPUBack", "GPU1") == 2);
    sim_add_scv(&sim, "n1", 2, 4, -1);
    lib_wait(events("GPUOvercommitted", "GPU0 has 4096 MiB, but 8192 MiB are promised") ==
             1);
    lib_wait(extender_metric(&extender, "gpushare_cards_overcommitted") == 1);
    lib_wait(extender_metric(&extender, "gpushare_overcommits_total") == 1);
    lib_wait(extender_metric(&extender, "gpushare_events_total{result=\"written\"}") == 7);
    ck_assert_int_eq(events("GPUNeverFits", ""), 1);
    extender_stop(&extender);
    sim_stop(&sim);
}
END_TEST

START_TEST(events_off_writes_no_events)
{
    sim_start(&sim, ARGV(NULL));
    sim_add_node(&sim, "n1", 1, 16);
    sim_add_pod(&sim, "a", 8);
    extender_start(&extender, &sim, ARGV("--events=off"));
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    ck_assert_int_eq(extender_filter(&extender, 20, "n1", NULL), NEVER);
    ck_assert_int_eq(extender_metric(&extender, "gpushare_events_total{result=\"written\"}"), -1);
    extender_stop(&extender); /* completes what was begun */
    ck_assert_int_eq(sim_count(&sim, "create", "events", ""), 0);
    sim_stop(&sim);
}
END_TEST

/* -- names -- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether it is the name of a metric family in the text, or of a sample of a family. */
static bool is_exported(const char *metrics, struct span name)
{
    static const char *const suffixes[] = {"", "_bucket", "_sum", "_count"};
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        size_t cut = strlen(suffixes[i]);
        if (name.n <= cut || memcmp(name.p + name.n - cut, suffixes[i], cut) != 0)
            continue;
        cleanup_free char *line = xasprintf("# TYPE %.*s ", (int)(name.n - cut), name.p);
        if (strstr(metrics, line))
            return true;
    }
    return false;
}

/* The next word of the text that is named like a gpushare metric; empty: there is none.
 */
static struct span next_name(const char **text)
{
    static const char *const prefixes[] = {"gpushare_", "scv_agent_", "process_"};
    for (const char *p = *text; *p; p++) {
        const char *end = p;
        while (is_name_char(*end))
            end++;
        for (size_t i = 0; i < ARRAY_LEN(prefixes) && end > p; i++)
            if (strncmp(p, prefixes[i], strlen(prefixes[i])) == 0) {
                *text = end;
                return (struct span){p, (size_t)(end - p)};
            }
        p = end > p ? end - 1 : p;
    }
    return (struct span){0};
}

static void read_whole(const char *path, struct buf *out)
{
    struct err err;
    ck_assert_done(file_read(path, 1 << 20, out, &err), err);
}

/* Some program exports every metric that the file names. */
static void check_names(const char *path, const char *metrics)
{
    cleanup_buf struct buf text = {0};
    struct span name;
    size_t n = 0;
    read_whole(path, &text);
    for (const char *at = text.p; (name = next_name(&at)).n; n++)
        ck_assert_msg(is_exported(metrics, name), "%s: there is no metric %.*s", path,
                      SPAN_ARG(name));
    ck_assert_uint_gt(n, 10);
}

/* The document explains every exported metric. */
static void check_doc(const char *metrics)
{
    cleanup_buf struct buf doc = {0};
    size_t n = 0;
    read_whole(DOC, &doc);
    for (const char *at = metrics; (at = strstr(at, "# TYPE ")); n++) {
        at += strlen("# TYPE ");
        cleanup_free char *word = xasprintf("`%.*s`", (int)strcspn(at, " "), at);
        ck_assert_msg(strstr(doc.p, word) != NULL, "%s does not explain %s", DOC, word);
    }
    ck_assert_uint_gt(n, 50);
}

/* Whether the label has a fixed set of values. */
static bool is_word_label(struct span label)
{
    static const char *const labels[] = {"reason", "state", "result", "call",
                                         "part",   "verb",  "kind"};
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (span_eq(label, span_of(labels[i])))
            return true;
    return false;
}

/* The documents explain every such value. */
static void check_words(const char *metrics)
{
    cleanup_buf struct buf doc = {0};
    size_t n = 0;
    read_whole(DOC, &doc);
    read_whole(NODE_DOC, &doc); /* the rejections of the device plugin */
    for (const char *at = metrics; (at = strstr(at, "=\"")); at += 2) {
        const char *label = at, *text = at + 2;
        while (is_name_char(label[-1]))
            label--;
        if (!is_word_label((struct span){label, (size_t)(at - label)}))
            continue;
        cleanup_free char *word = xasprintf("`%.*s`", (int)strcspn(text, "\""), text);
        ck_assert_msg(strstr(doc.p, word) != NULL, "%s does not explain %.*s %s", DOC,
                      (int)(at - label), label, word);
        n++;
    }
    ck_assert_uint_gt(n, 50);
}

/* The metrics of all three programs. New. */
static char *all_metrics(void)
{
    struct agent agent;
    struct plugin plugin;
    static struct kubelet kubelet;
    sim_start(&sim, ARGV(NULL));
    agent_setup(&sim);
    agent_cards("{'uuid':'GPU-0','model':'T4','memoryTotal':2097152,'memoryFree':"
                "2097152,'temperature':30}");
    cleanup_free char *source = agent_file();
    extender_start(&extender, &sim, ARGV("--metrics-detail=card"));
    agent_start(&agent, &sim, source, ARGV(NULL));
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, ARGV(NULL));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(agent_part_is(&agent, "cards", "ok"));
    cleanup_free char *of_extender = metrics_of(&extender.observers);
    cleanup_free char *of_agent = metrics_of(&agent.health);
    cleanup_free char *of_plugin = metrics_of(&plugin.health);
    promtool_check_metrics(span_of(of_agent));
    promtool_check_metrics(span_of(of_plugin));
    ck_assert_contains(of_agent, "\nscv_agent_healthcheck{name=\"cards\"} 1\n");
    ck_assert_contains(of_agent,
                       "\nscv_agent_card_healthy{card=\"0\",uuid=\"GPU-0\"} 1\n");
    ck_assert_contains(of_agent, "scv_agent_card_memory_capacity_bytes{card=\"0\","
                                 "uuid=\"GPU-0\"} 2097152\n");
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
    agent_stop(&agent);
    extender_stop(&extender);
    sim_stop(&sim);
    return xasprintf("%s%s%s", of_extender, of_agent, of_plugin);
}

START_TEST(alerts_dashboard_and_docs_name_existing_metrics)
{
    cleanup_free char *metrics = all_metrics();
    check_names(RULES, metrics);
    check_names(DASHBOARD, metrics);
    check_names(DOC, metrics);
    check_doc(metrics);
    check_words(metrics);
}
END_TEST

/* -- the rules -- */

START_TEST(promtool_accepts_the_rules)
{
    promtool_rules("check rules", RULES);
    promtool_rules("test rules", "test/data/prometheus-rules.test.yaml");
}
END_TEST

/* Each alert fires in a test, and has a section that says what to do; each section has its
 * alert. */
START_TEST(every_alert_is_tested_and_explained)
{
    cleanup_buf struct buf rules = {0}, tests = {0}, doc = {0};
    size_t n = 0;
    read_whole(RULES, &rules);
    read_whole("test/data/prometheus-rules.test.yaml", &tests);
    read_whole(ALERT_DOC, &doc);
    for (const char *at = rules.p; (at = strstr(at, "- alert: ")); n++) {
        at += strlen("- alert: ");
        int len = (int)strcspn(at, "\n");
        cleanup_free char *fires = xasprintf(
            "{labels: 'ALERTS{alertname=\"%.*s\",alertstate=\"firing\"", len, at);
        cleanup_free char *section = xasprintf("\n### %.*s\n", len, at);
        ck_assert_msg(strstr(tests.p, fires) != NULL, "no test of %.*s", len, at);
        ck_assert_msg(strstr(doc.p, section) != NULL, "%s has no section %.*s", ALERT_DOC,
                      len, at);
    }
    ck_assert_uint_gt(n, 10);
    for (const char *at = doc.p; (at = strstr(at, "\n### GPUShare"));) {
        at += strlen("\n### ");
        cleanup_free char *rule =
            xasprintf("- alert: %.*s\n", (int)strcspn(at, "\n"), at);
        ck_assert_msg(strstr(rules.p, rule) != NULL, "%s: there is no rule %s", ALERT_DOC,
                      rule);
    }
}
END_TEST

START_TEST(the_dashboard_is_valid)
{
    json_error_t error;
    cleanup_json json_t *j = json_load_file(DASHBOARD, 0, &error);
    ck_assert_msg(j != NULL, "%s", error.text);
    json_t *panel, *target, *seen = json_object();
    size_t i, k;
    json_array_foreach(json_object_get(j, "panels"), i, panel)
    {
        cleanup_free char *id = xasprintf(
            "%lld", (long long)json_integer_value(json_object_get(panel, "id")));
        ck_assert_msg(!json_object_get(seen, id), "two panels with id %s", id);
        json_object_set_new(seen, id, json_true());
        json_array_foreach(json_object_get(panel, "targets"), k, target)
            ck_assert_str_ne(lib_str(target, "expr"), "");
    }
    ck_assert_uint_gt(i, 20);
    json_decref(seen);
}
END_TEST

LIB_MAIN("monitoring", 300, both_ports_export_the_counters,
         pods_and_nodes_get_their_events, events_off_writes_no_events,
         alerts_dashboard_and_docs_name_existing_metrics, promtool_accepts_the_rules,
         every_alert_is_tested_and_explained, the_dashboard_is_valid)
