/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "integration/suite.h"
#include "lib/promtool.h"

/*
 * gpushare-node between kube-sim and a simulated kubelet: publishing and allocating in one
 * process, and what becomes of one of them when the other fails.
 */

#define CARD(n) "{'uuid':'GPU-" #n "','model':'Tesla T4','memoryTotal':17179869184}"
#define LEASES                                                                           \
    "/apis/coordination.k8s.io/v1/namespaces/nvidia-gpu-scheduler-node-lease/leases"

static struct peer second; /* the port of --publish-port */

/* The port of the second line, or 0. */
static unsigned second_port(void)
{
    const char *mark = "listening on ",
               *at = strstr(program_output(&plugin.program), mark);
    at = at ? strstr(at + 1, mark) : NULL;
    at = at && strchr(at, '\n') ? strchr(at, ':') : NULL;
    return at ? (unsigned)strtoul(at + 1, NULL, 10) : 0;
}

static void set_up(const char *const *more)
{
    agent_setup(&sim);
    agent_cards(CARD(0) "," CARD(1));
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim, more);
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(agent_scv_is(&sim, "Healthy Healthy", "") || /* --isolation=none */
             agent_scv_is(&sim, "Healthy Healthy", "the driver cannot limit"));
    lib_wait(second_port() > 0);
    peer_init(&second, second_port());
}

static void admit(const char *name, int card)
{
    cleanup_answer struct kubelet_answer a = {0};
    plugin_pod(&sim, name, 3, card);
    kubelet_add(&kubelet, name, ARGV("c"));
    kubelet_admit(&kubelet, name, "c", MEM, 3, &a);
    ck_assert_msg(a.status == GRPC_OK, "%s: %s", name, a.words);
    ck_assert_at(a.env, "NVIDIA_VISIBLE_DEVICES", lib_fmt("GPU-%d", card));
}

static const char *page(const struct peer *port, const char *path)
{
    struct buf *text = lib_keep(xcalloc(1, sizeof *text), free);
    ck_assert_uint_eq(peer_call(port, "GET", path, NULL, text), 200);
    return lib_keep(buf_take(text), free);
}

TEST(both_ports_say_what_both_modes_do)
{
    set_up(ARGV("--pods-interval", "1h"));
    admit("p", 1);
    lib_wait(agent_number(&sim, "status.podList.0.units") == 3);
    ck_assert_at(agent_scv(&sim), "status.isolation.0", "library");
    ck_assert(!lib_at(agent_scv(&sim), "status.isolation.1"));
    lib_wait(peer_status(&sim.api, LEASES "/n1") == 200);
    lib_wait(peer_status(&second, "/healthz") == 200);
    static const char *const paths[] = {"/healthz", "/readyz", "/livez", "/metrics"};
    array_items(path, paths) {
        const char *first = page(&plugin.health, *path), *other = page(&second, *path);
        if (strcmp(*path, "/metrics") == 0) { /* promtool rejects what is there twice */
            promtool_check_metrics(span_of(first));
            ck_assert_contains(other, "\nscv_agent_cards 2\n");
            ck_assert_contains(other, "\ngpushare_plugin_cards 2\n");
        } else {
            ck_assert_str_eq(first, other);
        }
    }
    ck_assert_str_eq(page(&second, "/livez"), "dispatcher: ok\nwatch: ok\n");
    static const char *const checks[] = {"cards",
                                         "pods",
                                         "node",
                                         "heartbeat",
                                         "scv",
                                         "podresources",
                                         "aliyun.com/gpu-mem"};
    array_items(check, checks)
        ck_assert_str_eq(agent_line(&plugin.health, "/healthz", *check), "ok");
}

TEST(publishing_that_fails_ends_no_admission)
{
    set_up(ARGV("--late-after", "1s"));
    sim_fault(&sim, "{\"resource\":\"scvs\",\"action\":\"hang\"}");
    sim_fault(&sim, "{\"resource\":\"leases\",\"action\":\"hang\"}");
    agent_cards(CARD(0));
    lib_wait(strstr(agent_line(&plugin.health, "/healthz", "scv"), "is pending for"));
    ck_assert_uint_eq(peer_status(&plugin.health, "/livez"), 200);
    ck_assert_str_eq(agent_line(&plugin.health, "/healthz", "aliyun.com/gpu-mem"), "ok");
    admit("p", 0);
    sim_no_faults(&sim);
    lib_wait(agent_scv_is(&sim, "Healthy Unhealthy", "no longer lists"));
}

TEST(a_driver_that_hangs_ends_no_admission)
{
    set_up(NULL);
    temp_remove(lib_dir, "cards.json");
    ck_assert_int_eq(mkfifo(lib_path("cards.json"), 0600), 0);
    admit("p", 0);
    ck_assert_uint_eq(peer_status(&plugin.health, "/livez"), 200);
}

/* -- modes and options -- */

static bool is_published(void)
{
    return peer_status(&sim.api, "/apis/core.run-linux.com/v1/scvs/n1") == 200;
}

TEST(each_mode_can_be_alone)
{
    agent_setup(&sim);
    agent_cards(CARD(0));
    kubelet_start(&kubelet);
    plugin_start_node(&plugin, &sim, ARGV("--allocate=off"));
    lib_wait(is_published());
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    ck_assert_str_eq(page(&plugin.health, "/livez"), "threads: ok\n");
    ck_assert(!kubelet_serve(&kubelet));
    plugin_stop(&plugin);
    peer_do(&sim.api, "DELETE", "/apis/core.run-linux.com/v1/scvs/n1", NULL);
    plugin_start_node(&plugin, &sim, ARGV("--publish=off"));
    kubelet_wait_registered(&kubelet, -1);
    lib_wait(peer_status(&plugin.health, "/readyz") == 200);
    ck_assert_uint_eq(second_port(), 0);
    ck_assert(!is_published());
}

TEST(options_of_1_0_are_accepted)
{
    temp_write(lib_dir, "options.yaml",
               "refresh-interval: 2m\npods-interval: 40s\non-overuse: evict\n"
               "plugin-state: /x\nlegacy-no-gpu-env: true\nsample-interval: 7s\n"
               "strict-env: true\nnode-interval: 30s\nisolation: none\n");
    set_up(ARGV("--config", lib_path("options.yaml")));
    static const char *const ignored[] = {"--plugin-state", "--legacy-no-gpu-env",
                                          "--sample-interval"};
    array_items(option, ignored)
        ck_assert(program_wait_output(
            &plugin.program, lib_fmt("\"the option has no effect\" option=%s", *option)));
}

TEST(invalid_modes_are_rejected)
{
    static const char *const cases[][4] = {
        {"gpushare-node", "--publish=off", "--allocate=off", "nothing to do"},
        {"gpushare-node", "--cdi-kind=x", "--publish", "--cdi-kind: \"x\" is not VENDOR"},
        {"scv-agent", "--plugin-dir", "/x", "unknown option --plugin-dir"},
        {"gpushare-device-plugin", "--on-overuse", "evict",
         "unknown option --on-overuse"}};
    array_items(c, cases)
        ck_assert_contains(
            lib_output_of(1, (*c)[0], ARGV("--node-name", "n1", (*c)[1], (*c)[2])),
            (*c)[3]);
}

SUITE_MAIN(120, NULL)
