/* SPDX-License-Identifier: Apache-2.0 */

/* The chart on the node: helm, images and values. */

#include "e2e-node/chart.h"

#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "e2e-node/node.h"
#include "e2e-node/real.h"

enum { ARGS = 32, NODE_PORT = 32766 };

#define INSTEAD "the chart is not installed"

/* The first library folder of Debian's loader. */
#ifdef __aarch64__
#define LIBRARIES "/usr/lib/aarch64-linux-gnu"
#else
#define LIBRARIES "/usr/lib/x86_64-linux-gnu"
#endif

static const char *const programs[] = {"gpushare-extender", "gpushare-device-plugin",
                                       "scv-agent"};
static const char *const workloads[] = {"deployment/gpushare-schd-extender",
                                        "daemonset/gpushare-device-plugin-ds",
                                        "daemonset/scv-agent"};

/* -- the machine -- */

/* Without the library, where the driver's root has it. */
static void write_host_values(const char *nvml)
{
    static const char form[] = "%s:\n"
                               "  extraEnv: [{name: FAKE_NVML, value: /nvml}]\n"
                               "  extraVolumes: [{name: nvml, hostPath: {path: \"%s\", "
                               "type: File}}]\n"
                               "  extraVolumeMounts: [{name: nvml, mountPath: /nvml}]\n";
    cleanup_free char *agent = xasprintf(form, "scvAgent", nvml);
    cleanup_free char *plugin = xasprintf(form, "devicePlugin", nvml);
    cleanup_free char *driver = temp_path(cell_dir(), "driver");
    cleanup_free char *text =
        xasprintf("platform: kubeadm\nextender: {insecure: true}\n"
                  "gpuNodes: {nvml: host, driverRoot: \"%s\"}\n%s%s",
                  driver, agent, plugin);
    temp_write(cluster.dir, "host-values.yaml", text);
}

static void write_values(void)
{
    static const char form[] =
        "%s:\n"
        "  extraEnv: [{name: FAKE_NVML, value: /nvml}]\n"
        "  extraVolumes:\n"
        "  - {name: nvml, hostPath: {path: \"%s\", type: File}}\n"
        "  - {name: library, hostPath: {path: \"%s\", type: File}}\n"
        "  extraVolumeMounts:\n"
        "  - {name: nvml, mountPath: /nvml, readOnly: true}\n"
        "  - {name: library, mountPath: " LIBRARIES
        "/libnvidia-ml.so.1, readOnly: true}\n";
    cleanup_free char *nvml = node_write_cards(), *library = node_nvml();
    cleanup_free char *agent = xasprintf(form, "scvAgent", nvml, library);
    cleanup_free char *plugin = xasprintf(form, "devicePlugin", nvml, library);
    /* kube-scheduler runs before the chart is installed, without certificates. The only node
     * gets its label of the control plane afterwards. */
    cleanup_free char *text =
        xasprintf("platform: kubeadm\nextender: {insecure: true}\n%s%s", agent, plugin);
    temp_write(cluster.dir, "values.yaml", text);
    write_host_values(nvml);
}

const char *chart_values(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/values.yaml", cluster.dir);
    return path;
}

const char *chart_host_values(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/host-values.yaml", cluster.dir);
    return path;
}

static void import_images(void)
{
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        struct err err = {0};
        cleanup_free char *name = xasprintf("images/%s-0.1.0.tar", programs[i]);
        cleanup_free char *archive = program_path(name);
        ck_assert_done(real_import(archive, &err), err);
    }
}

bool chart_begin(void)
{
    cleanup_free char *yes = temp_path(cluster.dir, "ready-for-chart");
    cleanup_free char *no = temp_path(cluster.dir, "not-for-chart");
    struct err err = {0};
    node_daemons_are_pods();
    if (access(no, F_OK) == 0 || !node_decide("", INSTEAD))
        return false;
    cluster_extender_at(NODE_PORT);
    if (access(yes, F_OK) == 0)
        return true;
    if (real_start_proxy(&err)) {
        node_say(INSTEAD, err.msg);
        temp_write(cluster.dir, "not-for-chart", "");
        return false;
    }
    import_images();
    write_values();
    temp_write(cluster.dir, "ready-for-chart", "");
    return true;
}

/* -- helm -- */

void chart_helm_start(struct program *p, const char *const *args)
{
    cleanup_free char *helm = cluster_program("helm");
    cleanup_free char *config = temp_path(cluster.dir, "admin.kubeconfig");
    const char *argv[ARGS] = {helm, "--kubeconfig", config, "--namespace", "kube-system"};
    for (size_t n = 5; *args; n++) {
        ck_assert_uint_lt(n, ARGS - 1);
        argv[n] = *args++;
    }
    program_start(p, lib_dir, argv);
}

void chart_label_node(void)
{
    free(cluster_kubectl(ARGV("label", "--overwrite", "node", NODE, "gpushare=true",
                              "node-role.kubernetes.io/control-plane=")));
}

void chart_wait_well(void)
{
    for (size_t i = 0; i < ARRAY_LEN(workloads); i++)
        free(cluster_kubectl(ARGV("-n", "kube-system", "rollout", "status", workloads[i],
                                  "--timeout", "60s")));
    node_wait_well();
}

bool chart_up(void)
{
    if (!chart_begin())
        return false;
    free(chart_helm("upgrade", "--install", CHART_RELEASE));
    chart_label_node();
    chart_wait_well();
    return true;
}

/* -- state that must not change -- */

static json_t *containers_of(const json_t *pod)
{
    json_t *all = json_object(), *c;
    size_t i;
    json_array_foreach(lib_at(pod, "status.containerStatuses"), i, c)
        json_object_set_new(all, lib_str(c, "name"),
                            json_pack("{s:O, s:O}", "id", lib_at(c, "containerID"),
                                      "restarts", lib_at(c, "restartCount")));
    return all;
}

json_t *chart_remember(void)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    json_t *all = json_object(), *pod;
    size_t i;
    json_array_foreach(pods, i, pod)
    {
        if (strcmp(lib_str(pod, "status.phase"), "Running") != 0)
            continue;
        json_object_set_new(all, lib_str(pod, "metadata.uid"),
                            json_pack("{s:O, s:O, s:o}", "name",
                                      lib_at(pod, "metadata.name"), "promise",
                                      lib_at(pod, "metadata.annotations"), "containers",
                                      containers_of(pod)));
    }
    return all;
}

void chart_check_kept(const json_t *before)
{
    cleanup_json json_t *now = chart_remember();
    const char *uid;
    json_t *was;
    ck_assert_uint_gt(json_object_size(before), 0);
    json_object_foreach((json_t *)before, uid, was)
    {
        const json_t *is = json_object_get(now, uid);
        cleanup_free char *a = json_dumps(was, JSON_SORT_KEYS);
        cleanup_free char *b = is ? json_dumps(is, JSON_SORT_KEYS) : NULL;
        ck_assert_msg(json_equal(was, is), "what ran as\n%s\nis\n%s", a,
                      b ? b : "not running");
    }
}
