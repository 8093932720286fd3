/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>

#include "domain/ids.h"
#include "lib/overuse_node.h"
#include "lib/plugin.h"
#include "lib/promtool.h"
#include "lib/stub.h"
#include "lib/tls.h"

/*
 * The real Prometheus, with the shipped rules and dashboard, scrapes the programs: two extenders
 * over HTTPS, and scv-agent and the device plugin of the node n1; kube-sim is their API server.
 * Nothing fires without a fault. In each fault exactly the expected alerts fire, and they end
 * with it. Every query of the dashboard has data, and `kubectl inspect gpushare assess` reads what
 * pods used. The times of the rules, which promtool tests, are some hundred times shorter here.
 * PROMETHEUS=PATH: instead of the program that scripts/e2e-programs builds.
 */

static struct sim sim;
static struct extender extender, second;
static struct agent agent, linked; /* linked: of n3, with the fake NVML */
static struct plugin plugin;
static struct overuse_node node;
static struct program prometheus;
static struct peer api;   /* of Prometheus */
static struct stub *dcgm; /* dcgm-exporter */

/* -- Prometheus -- */

/* Replaces each match of an extended regular expression that begins with `from`. */
static const char *scaled(const char *text)
{
    static const char *const times[][2] = {{"for: [0-9]+[mh]", "for: 2s"},
                                           {"interval: 5m", "interval: 1s"},
                                           {"\\[(5|10|15)m]", "[10s]"},
                                           {"([<>]) 600", " 4"},
                                           {"_seconds > 100", "_seconds > 65"}};
    array_indices(i, times) {
        regex_t re;
        regmatch_t m[2];
        cleanup_buf struct buf out = {0};
        ck_assert_int_eq(regcomp(&re, times[i][0], REG_EXTENDED), 0);
        for (; !regexec(&re, text, 2, m, 0); text += m[0].rm_eo) {
            buf_add(&out, text, (size_t)m[0].rm_so);
            if (times[i][1][0] == ' ') /* keeps the comparison */
                buf_addc(&out, text[m[1].rm_so]);
            buf_adds(&out, times[i][1]);
        }
        buf_adds(&out, text);
        regfree(&re);
        text = lib_fmt("%s", out.p);
    }
    return text;
}

/* Which programs there are; a new list takes effect at once. */
static void write_targets(void)
{
    temp_write(lib_dir, "next",
               lib_fmt("[{\"targets\":[\"127.0.0.1:%u\",\"127.0.0.1:%u\"],"
                       "\"labels\":{\"cluster\":\"c\"}}]",
                       extender.observers.port, second.observers.port));
    ck_assert_int_eq(rename(lib_path("next"), lib_path("extenders.json")), 0);
    temp_write(lib_dir, "next",
               lib_fmt("[{\"targets\":[\"127.0.0.1:%u\",\"127.0.0.1:%u\"],"
                       "\"labels\":{\"cluster\":\"c\",\"node\":\"n1\"}},"
                       "{\"targets\":[\"127.0.0.1:%u\"],\"labels\":{\"cluster\":\"c\","
                       "\"node\":\"n3\"}}]",
                       agent.health.port, plugin.health.port, linked.health.port));
    ck_assert_int_eq(rename(lib_path("next"), lib_path("nodes.json")), 0);
}

static const char *prometheus_path(void)
{
    struct program p;
    if (getenv("PROMETHEUS"))
        return getenv("PROMETHEUS");
    program_start(&p, getenv("HOME"), ARGV("scripts/e2e-programs", "prometheus"));
    const char *programs = lib_keep(program_end(&p, 0), free);
    return lib_fmt("%.*s/prometheus", (int)strcspn(programs, "\n"), programs);
}

#define FB_USED(pod, rest)                                                               \
    "DCGM_FI_DEV_FB_USED{namespace=\"default\",pod=\"" pod "\"} " rest "\n"
static void export_cards(struct stub_conn *conn, void *ctx)
{
    (void)ctx;
    while (stub_read(conn))
        stub_reply(conn, 200, "Content-Type: text/plain; version=0.0.4\r\n",
                   FB_USED("a", "2000") FB_USED("b", "3000"));
}

static void start_prometheus(void)
{
    /* Three days ago a used more. */
    temp_write(lib_dir, "history",
               lib_fmt(FB_USED("a", "9000 %lld") "# EOF\n",
                       (long long)time(NULL) - 3 * 24 * 3600));
    promtool_run(lib_fmt("tsdb create-blocks-from openmetrics '%s' '%s'",
                         lib_path("history"), lib_path("tsdb")));
    dcgm = stub_start(export_cards, NULL);
    temp_write(lib_dir, "rules.yaml",
               scaled(lib_file("manifests/monitoring/prometheus-rules.yaml")));
    temp_write(lib_dir, "prometheus.yml",
               "global: {scrape_interval: 500ms, scrape_timeout: 500ms, "
               "evaluation_interval: 500ms}\n"
               "rule_files: [rules.yaml]\n"
               "scrape_configs:\n"
               "- job_name: extenders\n"
               "  scheme: https\n"
               "  authorization: {credentials: test-token}\n"
               "  tls_config: {ca_file: ca.crt}\n"
               "  file_sd_configs: [{files: [extenders.json]}]\n"
               "- job_name: dcgm\n"
               "  file_sd_configs: [{files: [dcgm.json]}]\n"
               "- job_name: nodes\n"
               "  honor_labels: true\n"
               "  file_sd_configs: [{files: [nodes.json]}]\n");
    temp_write(lib_dir, "dcgm.json",
               lib_fmt("[{\"targets\":[\"127.0.0.1:%u\"],\"labels\":{\"cluster\":\"c\","
                       "\"namespace\":\"gpu-operator\",\"pod\":\"dcgm-exporter\"}}]",
                       stub_port(dcgm)));
    program_start(&prometheus, lib_dir,
                  ARGV(prometheus_path(),
                       lib_fmt("--config.file=%s", lib_path("prometheus.yml")),
                       lib_fmt("--storage.tsdb.path=%s", lib_path("tsdb")),
                       "--web.listen-address=127.0.0.1:0"));
    ck_assert(program_wait_output(&prometheus, "Server is ready"));
    peer_init(&api, program_port(&prometheus, "msg=\"Listening on\""));
}

/* The result of a query; kept. */
static const json_t *query(const char *expr)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/api/v1/query?query=");
    for (const char *c = expr; *c; c++)
        if (isalnum((unsigned char)*c))
            buf_addc(&path, *c);
        else
            buf_printf(&path, "%%%02X", (unsigned char)*c);
    const json_t *result = lib_at(peer_get(&api, path.p), "data.result");
    ck_assert_msg(result != NULL, "%s", expr);
    return result;
}

/* The alerts that fire: "" or " A B "; "A?" has no label cluster. Kept. */
static const char *firing(void)
{
    cleanup_buf struct buf out = {0};
    size_t i;
    json_t *alert;
    buf_adds(&out, "");
    json_array_foreach(
        query("group by (alertname, cluster) (ALERTS{alertstate=\"firing\"})"), i, alert)
    {
        buf_printf(&out, "%s%s%s ", i ? "" : " ",
                   lib_str(alert, "metric.alertname") + strlen("GPUShare"),
                   json_object_get(json_object_get(alert, "metric"), "cluster") ? ""
                                                                                : "?");
    }
    return lib_fmt("%s", out.p);
}

static char *file_of(const char *name)
{
    return lib_path(name);
}

static void start_extender(struct extender *e)
{
    extender_begin(e, &sim,
                   ARGV("--tls-cert", file_of("server.crt"), "--tls-key",
                        file_of("server.key"), "--client-ca", file_of("ca.crt"),
                        "--replica-name", "127.0.0.1", "--node-grace", "4s"));
    extender_connect(e, file_of("ca.crt"), file_of("kube-scheduler.crt"),
                     file_of("kube-scheduler.key"));
    e->observers.authorization = SIM_BEARER;
}

/* -- faults -- */

static bool is_subset(const char *some, const char *all)
{
    for (const char *at = some; *at && at[1]; at += strcspn(at + 1, " ") + 1)
        if (!strstr(all, lib_fmt("%.*s ", (int)strcspn(at + 1, " ") + 1, at)))
            return false;
    return true;
}

static const char *playing; /* of the present fault, for messages */

/* Only these alerts fire until all of them do. `again` is called all the time. */
static bool fires(const char *alerts, void (*again)(void))
{
    const char *now = firing();
    ck_assert_msg(is_subset(now, alerts), "%s: fires \"%s\"", playing, now);
    if (again)
        again();
    return is_subset(alerts, now);
}

static void add_pod(const char *name, const char *uid, const char *node_name, int units,
                    const char *more)
{
    sim_load(
        &sim,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"default\",\"uid\":\"%s\",\"creationTimestamp\":"
        "\"2026-01-01T00:00:00Z\"%s},\"spec\":{\"containers\":[{\"name\":\"c\","
        "\"image\":\"i\",\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}}]"
        "%s%s%s},\"status\":{\"phase\":\"%s\"}}",
        name, uid, more, units, node_name ? ",\"nodeName\":\"" : "", node_name ?: "",
        node_name ? "\"" : "", node_name ? "Running" : "Pending");
}

#define PROMISED(assigned)                                                               \
    ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\",\"ALIYUN_COM_GPU_MEM_"           \
    "ASSIGNED\":"                                                                        \
    "\"" assigned "\",\"gpushare/card-uuid\":\"GPU-0\""

static void add_user(const char *name, const char *uid, int units)
{
    add_pod(name, uid, "n1", units, PROMISED("true") "}");
}

static void filter_pod(const char *name, int units, const char *more)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    lib_filter_body(&body, name, units, ARGV("n1", "n2"));
    const char *text = lib_swap(body.p, "\"spec\":{", lib_fmt("\"spec\":{%s", more));
    peer_call(&extender.verbs, "POST", "/filter", text, &reply);
}

static void pending(void)
{
    add_pod("p", "uid-p", NULL, 1, "");
}
static void ask(void)
{
    filter_pod("p", 1, "");
}
static void no_pod(void)
{
    sim_delete_pod(&sim, "p");
}

static void shrink(void)
{
    add_pod("big", "uid-big", "n2", 12,
            ",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}");
    sim_add_node(&sim, "n2", 2, 8);
}
static void grow(void)
{
    sim_delete_pod(&sim, "big");
    sim_add_node(&sim, "n2", 2, 16);
}

static void break_card(void)
{
    sim_add_scv(&sim, "n2", 2, 16, 1);
}
static void mend_card(void)
{
    sim_add_scv(&sim, "n2", 2, 16, -1);
}

static void config_map(const char *cards)
{
    sim_load(&sim,
             "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":"
             "\"unhealthy-gpu-n2\",\"namespace\":\"kube-system\"},\"data\":{\"gpus\":"
             "\"%s\"}}",
             cards);
}
static void list_rubbish(void)
{
    config_map("x");
}
static void list_unknown(void)
{
    config_map("9");
}
static void list_none(void)
{
    config_map("");
}

static void freeze_agent(void)
{
    program_signal(&agent.program, SIGSTOP);
}
static void thaw_agent(void)
{
    program_signal(&agent.program, SIGCONT);
}

static void bind_past(void)
{
    add_pod("past", "uid-past", "n2", 1, "");
}
static void unbind_past(void)
{
    sim_delete_pod(&sim, "past");
}

static void overuse(void)
{
    overuse_node_use(&node, 8);
}
static void use_less(void)
{
    overuse_node_use(&node, 4);
}

static void hold_lease(void)
{
    sim_load(&sim,
             "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
             "{\"name\":\"gpushare-extender\",\"namespace\":\"kube-system\"},\"spec\":"
             "{\"holderIdentity\":\"%s\",\"leaseDurationSeconds\":3600,\"renewTime\":"
             "\"2026-01-01T00:00:00.000000Z\"}}",
             "somebody");
}
static void free_lease(void)
{
    sim_load(
        &sim,
        "{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":"
        "{\"name\":\"gpushare-extender\",\"namespace\":\"kube-system\"},\"spec\":{}}");
}

static void freeze_extenders(void)
{
    program_signal(&extender.program, SIGSTOP);
    program_signal(&second.program, SIGSTOP);
}
static void thaw_extenders(void)
{
    program_signal(&extender.program, SIGCONT);
    program_signal(&second.program, SIGCONT);
}

static bool may_bind(const struct extender *e)
{
    return extender_metric(e, "gpushare_may_bind") == 1;
}
/* The one that does not lead, because a new leader may bind only seconds later. */
static void restart_second(void)
{
    lib_wait(may_bind(&extender) || may_bind(&second));
    if (may_bind(&second)) {
        struct extender leader = second;
        second = extender;
        extender = leader;
    }
    extender_stop(&second);
    start_extender(&second);
    write_targets();
}
static void hide_scvs(void)
{
    sim_fault(&sim, "{\"verb\":\"list\",\"resource\":\"scvs\",\"action\":\"hang\","
                    "\"hangMs\":600000}");
    restart_second();
}
static void show_scvs(void)
{
    sim_no_faults(&sim);
    restart_second();
}

static int count; /* makes names unique */
static void fail_events(int status)
{
    sim_fault(&sim,
              "{\"verb\":\"create\",\"resource\":\"events\",\"action\":\"answer\","
              "\"status\":%d}",
              status);
}
static void forbid_events(void)
{
    fail_events(403);
}
static void refuse_events(void)
{
    fail_events(503);
}
/* Rejects a new pod between any two scrapes: a counter that begins with 10 has not increased. */
static void cause_event(void)
{
    static int64_t last_ms;
    if (lib_now_ms() - last_ms < 500)
        return;
    last_ms = lib_now_ms();
    const char *name = lib_fmt("never%d", count++);
    sim_add_pod(&sim, name, 99);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    filter_pod(name, 99, "");
    sim_delete_pod(&sim, name);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 0);
}
static void heal_api(void)
{
    sim_no_faults(&sim);
}

static void delay_groups(void)
{
    sim_fault(&sim, "{\"resource\":\"podgroups\",\"action\":\"hang\",\"hangMs\":300}");
}
static void filter_member(void)
{
    filter_pod("member", 1,
               lib_fmt("\"schedulingGroup\":{\"podGroupName\":\"g%d\"},", count++));
}

static pthread_t binding;
static void *bind_pod(void *ctx)
{
    cleanup_buf struct buf body = {0}, reply = {0};
    (void)ctx;
    lib_bind_body(&body, "b", "n2");
    peer_call(&extender.verbs, "POST", "/bind", body.p, &reply);
    return NULL;
}
static void lose_bind(void)
{
    sim_add_pod(&sim, "b", 1);
    lib_wait(json_array_size(query("gpushare_pending_pods == 1")) == 2);
    sim_fault(&sim,
              "[{\"resource\":\"pods\",\"subresource\":\"binding\",\"action\":\"cut\"},"
              "{\"verb\":\"get\",\"resource\":\"pods\",\"action\":\"hang\",\"hangMs\":"
              "600000}]");
    ck_assert_int_eq(pthread_create(&binding, NULL, bind_pod, NULL), 0);
}
static void find_bind(void)
{
    sim_no_faults(&sim);
    pthread_join(binding, NULL);
    sim_delete_pod(&sim, "b");
}

enum { LARGE = 40 };
static void strand(void)
{
    for (int i = 0; i < 2; i++)
        add_pod(lib_fmt("half%d", i), lib_fmt("uid-half%d", i), "n2", 9,
                lib_fmt(",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\"}", i));
    for (int i = 0; i < LARGE; i++)
        add_pod(lib_fmt("large%d", i), lib_fmt("uid-large%d", i), NULL, 15, "");
}
static void unstrand(void)
{
    for (int i = 0; i < 2; i++)
        sim_delete_pod(&sim, lib_fmt("half%d", i));
    for (int i = 0; i < LARGE; i++)
        sim_delete_pod(&sim, lib_fmt("large%d", i));
}

static void nothing(void)
{
}
static void admit_unpromised(void)
{
    cleanup_answer struct kubelet_answer a = {0};
    add_pod("u", "uid-u", "n1", 1, "");
    kubelet_add(&node.kubelet, "u", ARGV("c"));
    kubelet_prefer(&node.kubelet, MEM, 1, &a);
    ck_assert_contains(a.words, "no-promise");
    sim_delete_pod(&sim, "u");
    kubelet_remove(&node.kubelet, "u");
}
static void allocate_unknown(void)
{
    cleanup_answer struct kubelet_answer a = {0};
    kubelet_allocate(&node.kubelet, MEM, lib_own(json_pack("[s]", "unknown")), &a);
    ck_assert_int_ne(a.status, GRPC_OK);
}

static void stop_kubelet(void)
{
    kubelet_stop(&node.kubelet);
}
static void start_kubelet(void)
{
    kubelet_start(&node.kubelet);
    kubelet_wait_registered(&node.kubelet, -1);
}

static void refuse_heartbeats(void)
{
    sim_fault(&sim, "{\"verb\":\"patch\",\"resource\":\"leases\",\"namespace\":\"nvidia-"
                    "gpu-scheduler-node-"
                    "lease\",\"action\":\"answer\",\"status\":503}");
}
static void break_driver(void)
{
    temp_write(lib_dir, "cards.json", "rubbish");
}

static void expire_soon(void)
{
    tls_make_short_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
}
static void renew(void)
{
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
}

#define LINKED(bus, links)                                                               \
    "card uuid=GPU-" bus ";bus=" bus ";total=1000;free=1000;path=0,10;links=" links "\n"
/* scv-agent reads the links again when a card returns that a sample or two lack. */
static void set_links(const char *card)
{
    double before = peer_metric(&linked.health, "scv_agent_samples_total");
    agent_script(LINKED("1a", "2:1b"));
    lib_wait(peer_metric(&linked.health, "scv_agent_samples_total") >= before + 2);
    agent_script(lib_fmt(LINKED("1a", "2:1b") "%s", card));
}
static void lose_link(void)
{
    set_links(LINKED("1b", "1:1a,1:down"));
}
static void find_link(void)
{
    set_links(LINKED("1b", "2:1a"));
}

static void give_other_card(void)
{
    cleanup_buf struct buf id = {0};
    ids_write(&id, IDS_MEM, &(struct ids_id){ids_tag_of(SPAN("GPU-1")), 0});
    add_user("wrong", "uid-wrong", 1);
    kubelet_add(&node.kubelet, "wrong", ARGV("c"));
    kubelet_give(&node.kubelet, "wrong", "c", MEM, lib_own(json_pack("[s]", id.p)));
}
static void take_other_card(void)
{
    kubelet_remove(&node.kubelet, "wrong");
    sim_delete_pod(&sim, "wrong");
}

static void stall(void)
{
    sim_watches(&sim, "stall", "configmaps");
}
static void release(void)
{
    sim_watches(&sim, "release", "configmaps");
    config_map("");
}

/* MPS, which the node has not. */
static void give_no_limit(void)
{
    cleanup_answer struct kubelet_answer a = {0};
    add_pod("unlimited", "uid-unlimited", "n1", 1,
            PROMISED("false") ",\"gpushare/isolation\":\"mps\"}");
    kubelet_add(&node.kubelet, "unlimited", ARGV("c"));
    kubelet_admit(&node.kubelet, "unlimited", "c", MEM, 1, &a);
    ck_assert_int_eq(a.status, GRPC_OK);
}
static void remove_unlimited(void)
{
    kubelet_remove(&node.kubelet, "unlimited");
    sim_delete_pod(&sim, "unlimited");
}

static const struct fault {
    const char *alerts; /* " A B " */
    void (*play)(void), (*again)(void), (*heal)(void);
} faults[] = {
    {" SchedulerDoesNotAsk ", pending, NULL, no_pod},
    {" PodsPending ", pending, ask, no_pod},
    {" Overcommitted ", shrink, NULL, grow},
    {" CardsUnavailable ", break_card, NULL, mend_card},
    {" NodesUnusable ", list_rubbish, NULL, list_none},
    {" Drift ", list_unknown, NULL, list_none},
    {" PodsWithoutCard ", bind_past, NULL, unbind_past},
    {" Overuse ", overuse, NULL, use_less},
    {" NoLeader ", hold_lease, NULL, free_lease},
    {" NodeHeartbeatLost ", freeze_agent, NULL, thaw_agent},
    {" ExtenderDown ", freeze_extenders, NULL, thaw_extenders},
    {" ExtenderNotReady ", hide_scvs, NULL, show_scvs},
    {" BindUnknown ", lose_bind, NULL, find_bind},
    {" APIFailures ", refuse_events, cause_event, heal_api},
    {" FilterSlow ", delay_groups, filter_member, heal_api},
    {" MemoryStranded ", strand, NULL, unstrand},
    {" PluginRefuses ", allocate_unknown, NULL, nothing},
    {" PluginNotRegistered ", stop_kubelet, NULL, start_kubelet},
    {" CertificateExpires ", expire_soon, NULL, renew},
    {" PluginUnhealthy CardsUnavailable ", break_driver, NULL, use_less},
    {" AgentUnhealthy NodeHeartbeatLost ", refuse_heartbeats, NULL, heal_api},
    {" WatchStale ", stall, NULL, release},
    {" CardLinksDown ", lose_link, NULL, find_link},
    {" WrongCard ", give_other_card, NULL, take_other_card},
    {" IsolationFailed ", give_no_limit, NULL, remove_unlimited},
    /* The last ones are of the short form. Pods that fit nowhere, which MemoryStranded counts. */
    {" BoundPastExtender ", admit_unpromised, NULL, nothing},
    {" PermissionDenied ", forbid_events, cause_event, heal_api},
};
enum { SHORT = 2 };

/* -- the cluster -- */

static void set_up(void)
{
    tls_make_ca(lib_dir, "ca");
    tls_make_cert(lib_dir, "ca", "server", "IP:127.0.0.1");
    tls_make_cert(lib_dir, "ca", "kube-scheduler", "DNS:scheduler.test");
    sim_start(&sim, NULL);
    agent_setup(&sim);
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n1\",\"uid\":\"uid-of-n1\"},"
                   "\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":\"16\",\"aliyun.com/"
                   "gpu-count\":\"1\"},"
                   "\"allocatable\":{\"aliyun.com/gpu-mem\":\"16\",\"aliyun.com/"
                   "gpu-count\":\"1\"}}}");
    sim_add_node(&sim, "n2", 2, 16);
    add_user("greedy", OVERUSE_GREEDY, 4);
    add_user("modest", OVERUSE_MODEST, 8);
    overuse_node_start(&node, true);
    use_less();
    agent_start(&agent, &sim, NULL,
                ARGV(OVERUSE_NODE_OPTIONS, "--lease-renew", "1s", "--lease-grace", "4s"));
    sim_load(&sim, "{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"metadata\":{\"name\":"
                   "\"n3\",\"uid\":\"uid-of-n3\"}}");
    agent_script(LINKED("1a", "2:1b") LINKED("1b", "2:1a"));
    agent_start(&linked, &sim, agent_nvml(),
                ARGV("--node-name", "n3", "--update-interval", "100ms", "--healthy-after",
                     "1ms", "--podresources-socket=", "--lease-renew", "1s",
                     "--lease-grace", "4s"));
    plugin_start(&plugin, &sim, NULL);
    kubelet_wait_registered(&node.kubelet, -1);
    start_extender(&extender);
    start_extender(&second);
    extender_wait_ready(&extender);
    extender_wait_ready(&second);
    write_targets();
    start_prometheus();
}

/* Every query of the dashboard has data, while two nodes differ from their objects, a pod is
 * pending and another one uses too much. */
static void check_dashboard(void)
{
    static const char *const variables[][2] = {{"$cluster", ".*"},
                                               {"$node", ".*"},
                                               {"$namespace", ".*"},
                                               {"$__rate_interval", "10m"}};
    const json_t *j =
        lib_own(json_load_file("manifests/monitoring/grafana-dashboard.json", 0, NULL));
    json_t *panel, *target;
    size_t n = 0;
    sim_add_pod(&sim, "bound", 1);
    lib_wait(extender_metric(&extender, "gpushare_pending_pods") == 1);
    ck_assert(extender_bind(&extender, "bound", "n2", NULL));
    list_unknown();
    pending();
    overuse();
    lib_each(panel, lib_at(j, "panels"))
        lib_each(target, lib_at(panel, "targets")) {
            const char *expr = lib_str(target, "expr");
            array_indices(k, variables)
                while (strstr(expr, variables[k][0]))
                    expr = lib_swap(expr, variables[k][0], variables[k][1]);
            lib_wait_within(20000, json_array_size(query(expr)) > 0, "no data: %s", expr);
            n++;
        }
    ck_assert_uint_gt(n, 50);
}

#define ASSESSED(name, kind, limit, more)                                                \
    "{\"kind\":\"Pod\",\"metadata\":{\"namespace\":\"default\",\"name\":\"" name         \
    "\",\"uid\":\"" name "\"" more "},\"spec\":{\"nodeName\":\"m\",\"containers\":[{"    \
    "\"resources\":{\"limits\":{\"" kind "\":\"" limit "\"}}}]}}"

/* Of a, what it used three days ago; of b, now; of greedy, what scv-agent measures. */
static void check_assess(void)
{
    temp_write(lib_dir, "objects.json",
               "{\"kind\":\"List\",\"items\":[{\"kind\":\"Node\",\"metadata\":{\"name\":"
               "\"m\",\"labels\":{\"nvidia.com/gpu.product\":\"T4\",\"nvidia.com/"
               "gpu.count\":\"4\",\"nvidia.com/gpu.memory\":\"16384\"}}}," ASSESSED(
                   "a", "nvidia.com/gpu", "1",
                   "") "," ASSESSED("b", "nvidia.com/gpu", "1",
                                    "") "," ASSESSED("greedy", "aliyun.com/gpu-mem", "4",
                                                     ",\"annotations\":{\"ALIYUN_COM_GPU_"
                                                     "MEM_IDX\":\"3\"}") "]}");
    ck_assert_str_eq(
        lib_output_of(0, "kubectl-inspect-gpushare",
                      ARGV("assess", lib_fmt("--from=%s", lib_path("objects.json")),
                           "--prometheus", lib_fmt("http://127.0.0.1:%u", api.port))),
        "POD             NODE  USED(MiB)  NEEDS(MiB)  COULD SHARE  REASON\n"
        "default/a       m     9000       10800       yes          -\n"
        "default/greedy  m     8192       9831        yes          -\n"
        "default/b       m     3000       3600        yes          -\n\n"
        "MODEL  CARDS  HELD  NEEDED  PODS  COULD SHARE\n"
        "T4     4      3     2       3     3\n");
}

static void start_healthy(void)
{
    set_up();
    lib_wait_saying(json_array_size(query("up == 1")) == 6, "%s",
                    program_output(&prometheus));
    lib_wait(!*firing()); /* of the time before the first scrape */
    playing = "healthy";
    lib_wait(fires("", NULL) &&
             json_array_size(query("count_over_time(gpushare_ready[1m]) >= 12")) == 2);
}

static void play(const struct fault *f, size_t n)
{
    for (const struct fault *end = f + n; f < end; f++) {
        playing = f->alerts;
        f->play();
        lib_wait_within(LIB_WAIT_MS * 3 / 2, fires(f->alerts, f->again),
                        "%s: fires only \"%s\"", f->alerts, firing());
        f->heal();
        lib_wait_saying(!*firing(), "%s: \"%s\" does not end", f->alerts, firing());
    }
}

static void stop_all(void)
{
    peer_fini(&api);
    program_stop(&prometheus);
    stub_stop(dcgm);
    extender_stop(&extender);
    extender_stop(&second);
    agent_stop(&agent);
    agent_stop(&linked);
    plugin_stop(&plugin);
    overuse_node_stop(&node);
    sim_stop(&sim);
}

TEST(programs_are_scraped_and_queries_have_data)
{
    start_healthy();
    play(faults + ARRAY_LEN(faults) - SHORT, SHORT);
    check_dashboard();
    check_assess();
    stop_all();
}

TEST(each_alert_fires_in_its_fault_and_in_no_other)
{
    start_healthy();
    play(faults, ARRAY_LEN(faults));
    stop_all();
}

LIB_MAIN(600)
