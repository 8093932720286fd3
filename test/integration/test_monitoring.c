/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>

#include "integration/suite.h"
#include "lib/promtool.h"

/*
 * /metrics and events of the real programs; and alerts, dashboard and documents name
 * only metrics that exist.
 */

#define RULES      "manifests/monitoring/prometheus-rules.yaml"
#define HAMI_RULES "manifests/monitoring/hami-names.yaml"
#define RULES_TEST "test/data/prometheus-rules.test.yaml"
#define DASHBOARD  "manifests/monitoring/grafana-dashboard.json"
#define DOC        "docs/metrics.md"
#define NODE_DOC   "docs/device-plugin.md"
#define ALERT_DOC  "docs/alerts.md"

/* /metrics of a server, which promtool accepts. Kept. */
static const char *metrics_of(const struct peer *p)
{
    cleanup_buf struct buf reply = {0};
    ck_assert_uint_eq(peer_call(p, "GET", "/metrics", NULL, &reply), 200);
    promtool_check_metrics(buf_span(&reply));
    return lib_fmt("%s", reply.p);
}

/* -- the extender -- */

TEST(both_ports_export_the_counters)
{
    static const struct {
        const char *sample;
        int64_t value;
    } is[] = {
        {"gpushare_ready", 1},
        {"gpushare_leader", 1},
        {"gpushare_cards{state=\"healthy\"}", 2},
        {"gpushare_memory_capacity_bytes", 32LL << 30},
        {"gpushare_memory_promised_bytes", 8LL << 30},
        {"gpushare_memory_free_bytes", 24LL << 30},
        {"gpushare_node_memory_promised_bytes{node=\"n1\"}", 8LL << 30},
        {"gpushare_card_memory_promised_bytes{node=\"n1\",card=\"0\"}", 8LL << 30},
        {"gpushare_verb_duration_seconds_count{verb=\"filter\"}", 2},
        {"gpushare_verb_requests_total{verb=\"bind\",code=\"200\"}", 1},
        {"gpushare_filter_rejected_nodes_total{reason=\"size\"}", 1},
        {"gpushare_binds_total{result=\"ok\"}", 1},
        {"gpushare_api_requests_total{call=\"bind\",code=\"ok\"}", 1},
    };
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "a", 8);
    suite_extender(ARGV("--metrics-detail", "card"));
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    ck_assert_int_eq(extender_filter(&extender, 8, "n1", NULL), FITS);
    ck_assert_int_eq(extender_filter(&extender, 20, "n1", NULL), NEVER);
    metrics_of(&extender.observers);
    metrics_of(&extender.verbs);
    array_items(c, is)
        ck_assert_msg(extender_metric(&extender, c->sample) == c->value, "%s is %lld",
                      c->sample, (long long)extender_metric(&extender, c->sample));
    ck_assert_int_ge(
        extender_metric(&extender,
                        "gpushare_api_requests_total{call=\"list\",code=\"ok\"}"),
        5);
    ck_assert_int_ge(
        extender_metric(&extender, "gpushare_watch_age_seconds{resource=\"pods\"}"), 0);
}

/* -- events -- */

static int events(const char *reason, const char *words)
{
    return sim_events(&sim, NULL, reason, words);
}

TEST(pods_and_nodes_get_their_events)
{
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_pod(&sim, "a", 8);
    suite_extender(NULL);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    lib_wait(events("GPUPlaced", "8192 MiB on GPU0 of node n1") == 1);
    sim_add_pod(&sim, "big", 17);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    for (int i = 0; i < 3; i++) {
        cleanup_buf struct buf body = {0}, reply = {0};
        lib_filter_body(&body, "big", 17, ARGV("n1"));
        ck_assert_uint_eq(peer_call(&extender.verbs, "POST", "/filter", body.p, &reply),
                          200);
    }
    lib_wait(events("GPUNeverFits", "the largest card has 16384 MiB") == 1);
    lib_wait(extender_metric(&extender,
                             "gpushare_events_total{result=\"deduplicated\"}") == 2);
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
    lib_wait(extender_metric(&extender, "gpushare_events_total{result=\"written\"}") ==
             7);
    ck_assert_int_eq(events("GPUNeverFits", ""), 1);
    json_t *e;
    lib_each(
        e, lib_at(peer_get(&sim.api, "/apis/events.k8s.io/v1/namespaces/default/events"),
                  "items"))
        ck_assert_at(e, "reportingController", "gpushare-extender");
}

TEST(events_off_writes_no_events)
{
    sim_add_node(&sim, "n1", 1, 16);
    sim_add_pod(&sim, "a", 8);
    suite_extender(ARGV("--events=off"));
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "a", "n1", NULL));
    ck_assert_int_eq(extender_filter(&extender, 20, "n1", NULL), NEVER);
    ck_assert_int_eq(
        extender_metric(&extender, "gpushare_events_total{result=\"written\"}"), -1);
    extender_stop(&extender); /* completes what was begun */
    ck_assert_int_eq(sim_count(&sim, "create", "events", ""), 0);
}

/* -- names -- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Whether it is the name of a metric family in the text, or of a sample of a family. */
static bool is_exported(const char *metrics, struct span name)
{
    static const char *const suffixes[] = {"", "_bucket", "_sum", "_count"};
    array_items(suffix, suffixes) {
        size_t cut = strlen(*suffix);
        if (name.n <= cut || memcmp(name.p + name.n - cut, *suffix, cut) != 0)
            continue;
        if (strstr(metrics, lib_fmt("# TYPE %.*s ", (int)(name.n - cut), name.p)))
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

/* Some program exports every metric that the file names. */
static void check_names(const char *path, const char *metrics)
{
    struct span name;
    size_t n = 0;
    for (const char *at = lib_file(path); (name = next_name(&at)).n; n++)
        ck_assert_msg(is_exported(metrics, name), "%s: there is no metric %.*s", path,
                      SPAN_ARG(name));
    ck_assert_uint_gt(n, 10);
}

/* The document explains every exported metric. */
static void check_doc(const char *metrics)
{
    const char *doc = lib_file(DOC);
    size_t n = 0;
    for (const char *at = metrics; (at = strstr(at, "# TYPE ")); n++) {
        at += strlen("# TYPE ");
        char *word = lib_fmt("`%.*s`", (int)strcspn(at, " "), at);
        ck_assert_msg(strstr(doc, word) != NULL, "%s does not explain %s", DOC, word);
    }
    ck_assert_uint_gt(n, 50);
}

/* The documents explain every value of the labels that have a fixed set of values. */
static void check_words(const char *metrics)
{
    /* The latter have the rejections of the device plugin, and the kinds of drift. */
    const char *doc =
        lib_fmt("%s%s%s", lib_file(DOC), lib_file(NODE_DOC), lib_file(ALERT_DOC));
    size_t n = 0;
    for (const char *at = metrics; (at = strstr(at, "=\"")); at += 2) {
        const char *label = at, *text = at + 2;
        while (is_name_char(label[-1]))
            label--;
        if (!strstr(" reason state result call part verb kind ",
                    lib_fmt(" %.*s ", (int)(at - label), label)))
            continue;
        char *word = lib_fmt("`%.*s`", (int)strcspn(text, "\""), text);
        ck_assert_msg(strstr(doc, word) != NULL, "%s does not explain %.*s %s", DOC,
                      (int)(at - label), label, word);
        n++;
    }
    ck_assert_uint_gt(n, 50);
}

/* The samples with these words; NULL: those of no card. */
static int samples_with(const char *metrics, const char *words)
{
    int n = 0;
    for (const char *end; *metrics; metrics = end + 1) {
        end = strchrnul(metrics, '\n');
        const char *line = lib_fmt("%.*s", (int)(end - metrics), metrics);
        n += *line != '#' &&
             (words ? strstr(line, words) != NULL : !strstr(line, "card=\""));
        if (!*end)
            break;
    }
    return n;
}

TEST(alerts_dashboard_and_docs_name_existing_metrics)
{
    agent_setup(&sim);
    agent_cards("{'uuid':'GPU-0','model':'T4','memoryTotal':2097152,'memoryFree':"
                "2097152,'temperature':30}");
    suite_extender(NULL);
    const char *node_metrics = metrics_of(&extender.observers);
    extender_stop(&extender);
    suite_extender(ARGV("--metrics-detail=card", "--requests-of=hami"));
    agent_start(&agent, &sim, NULL, NULL);
    kubelet_start(&kubelet);
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(agent_part_is(&agent, "cards", "ok"));
    const char *of_agent = metrics_of(&agent.health);
    const char *metrics = lib_fmt("%s%s%s", metrics_of(&extender.observers), of_agent,
                                  metrics_of(&plugin.health));
    ck_assert_contains(of_agent, "\nscv_agent_healthcheck{name=\"cards\"} 1\n");
    ck_assert_contains(of_agent,
                       "\nscv_agent_card_healthy{card=\"0\",uuid=\"GPU-0\"} 1\n");
    ck_assert_contains(of_agent, "scv_agent_card_memory_free_bytes{card=\"0\","
                                 "uuid=\"GPU-0\"} 2097152\n");
    /* Those of a card have its label; Series in the document. */
    ck_assert_int_le(samples_with(of_agent, NULL) +
                         samples_with(metrics_of(&plugin.health), NULL) +
                         samples_with(node_metrics, "{node=\"n1\"} "),
                     40);
    check_names(RULES, metrics);
    check_names(HAMI_RULES, metrics);
    check_names(DASHBOARD, metrics);
    check_names(DOC, metrics);
    check_doc(metrics);
    check_words(metrics);
}

/* -- the rules -- */

TEST(promtool_accepts_the_rules)
{
    promtool_run("check rules " RULES " " HAMI_RULES);
    promtool_run("test rules " RULES_TEST " test/data/prometheus-workloads.test.yaml "
                 "test/data/prometheus-hami.test.yaml");
}

/* Each alert fires in a test, and has a section that says what to do; each section has its
 * alert. */
TEST(every_alert_is_tested_and_explained)
{
    const char *rules = lib_file(RULES), *tests = lib_file(RULES_TEST),
               *doc = lib_file(ALERT_DOC);
    size_t n = 0;
    for (const char *at = rules; (at = strstr(at, "- alert: ")); n++) {
        at += strlen("- alert: ");
        int len = (int)strcspn(at, "\n");
        ck_assert_contains(
            tests, lib_fmt("{labels: 'ALERTS{alertname=\"%.*s\",alertstate=\"firing\"",
                           len, at));
        ck_assert_contains(doc, lib_fmt("\n### %.*s\n", len, at));
        char *url = lib_fmt("runbook_url: " ALERT_DOC "#%.*s\n", len, at);
        for (char *c = strchr(url, '#'); *c; c++)
            *c = (char)tolower((unsigned char)*c);
        const char *next = strstr(at, "- alert: ");
        ck_assert_contains(next ? lib_fmt("%.*s", (int)(next - at), at) : at, url);
    }
    ck_assert_uint_gt(n, 10);
    for (const char *at = doc; (at = strstr(at, "\n### GPUShare"));) {
        at += strlen("\n### ");
        ck_assert_contains(rules, lib_fmt("- alert: %.*s\n", (int)strcspn(at, "\n"), at));
    }
}

/* The address of a pod tells nobody which node or pod it is. */
TEST(no_alert_names_an_address_alone)
{
    const char *at = lib_file(RULES);
    size_t n = 0;
    for (; (at = strstr(at, "$labels.instance")); at++, n++)
        ck_assert_msg(strncmp(at - strlen("or $labels.pod "), "or $labels.", 11) == 0 ||
                          strncmp(at - strlen("or $labels.node "), "or $labels.", 11) ==
                              0,
                      "%.60s", at);
    ck_assert_uint_ge(n, 11);
}

TEST(the_dashboard_is_valid)
{
    const json_t *j = lib_own(json_load_file(DASHBOARD, 0, NULL));
    json_t *panel, *target, *seen = lib_own(json_object());
    size_t i;
    json_array_foreach(lib_at(j, "panels"), i, panel)
    {
        const char *id = lib_text(panel, "id");
        ck_assert_msg(!json_object_get(seen, id), "two panels with id %s", id);
        json_object_set_new(seen, id, json_true());
        lib_each(target, lib_at(panel, "targets"))
            ck_assert_str_ne(lib_str(target, "expr"), "");
    }
    ck_assert_uint_gt(i, 20);
}

SUITE_MAIN(300, NULL)
