/* SPDX-License-Identifier: Apache-2.0 */
/* The options of the node program, by the name that it was started as. */
#include "node/options.h"

#include <stddef.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "domain/node.h"
#include "domain/quantity.h"
#include "kube/deviceplugin.h"

static int parse_unit(struct span text, void *field, struct err *err)
{
    return quantity_read_unit(text, field, err);
}

#define OPT_CONFIG struct node_options
#define YEAR_MS    (366LL * 24 * 3600 * 1000)

enum {
    NODE = 1,
    AGENT = 2,
    PLUGIN = 4,
    PUBLISHES = NODE | AGENT,
    ALLOCATES = NODE | PLUGIN
};

static const struct opt table[] = {
    OPT_STRING("node-name", node_name, "NAME", NULL,
               "Name of the Node that this program runs on, and of its Scv and Lease; "
               "required.",
               .env = "NODE_NAME"),
    OPT_BOOL("publish", publishes, "on",
             "Publish the cards of the node and their use as its Scv, as scv-agent does.",
             .names = NODE),
    OPT_BOOL("allocate", allocates, "on",
             "Allocate cards to containers, as gpushare-device-plugin does.",
             .names = NODE),
    OPT_CUSTOM("memory-unit", unit_mib, "GiB|MiB|<n>MiB", "GiB", parse_unit,
               "One unit of aliyun.com/gpu-mem; must be the same in the extender and the "
               "kubectl plugin."),
    OPT_INT("slots", alloc.slots, "N", "32", 0, CARDS_SLOTS_MAX,
            "Slots of a card, aliyun.com/gpu-share; a container takes one on each of its "
            "cards; 0: none.",
            .names = ALLOCATES),
    OPT_CHOICE("requests-of", requests_of, "none|hami", "none",
               "Whose nvidia.com/gpu is served here, with slots; the Node's label "
               "gpushare/dialect overrides it.",
               .names = NODE),
    OPT_STRING("hami-values", hami_values, "KEY=VALUE,...", NULL,
               "Values of HAMi's chart as resourceCores, where they differ, as in the "
               "extender; default: HAMi's.",
               .names = NODE),
    OPT_STRING("gpu-source", gpu_source, "nvml|nvml:LIBRARY|nvml:DIR|file:PATH", "nvml",
               "Source of the cards: NVML (libnvidia-ml.so.1, LIBRARY, or in driver root "
               "DIR), or a JSON file."),
    OPT_SIZE("unified-memory", unified_bytes, "0", 0, 1LL << 50,
             "Memory of a card whose memory is the system's, as GB10; 0: such a card is "
             "Unhealthy."),
    OPT_BOOL("once", once, "off",
             "Print the Scv of this node as JSON and exit, without an API server.",
             .names = PUBLISHES),
    OPT_DURATION(
        "update-interval", publisher.interval_ms, "1s", PUBLISHER_MIN_INTERVAL_MS,
        PUBLISHER_MAX_INTERVAL_MS,
        "Time between two samples of the cards; also spec.updateInterval of a new Scv.",
        .names = PUBLISHES),
    OPT_DURATION("sample-interval", sample_ms, NULL, 50, YEAR_MS,
                 "Time between two samples of the cards where they are not published; "
                 "default: 5s.",
                 .names = ALLOCATES),
    OPT_DURATION("refresh-interval", publisher.refresh_ms, "1m", 0, YEAR_MS,
                 "Minimum time between Scv writes for utilization, temperature or usage "
                 "alone; 0s: never.",
                 .names = PUBLISHES),
    OPT_DURATION(
        "unhealthy-after", health.unhealthy_after_ms, "3s", 0, YEAR_MS,
        "Time that unreadable cards stay Healthy; lost cards are Unhealthy at once."),
    OPT_DURATION(
        "healthy-after", health.healthy_after_ms, "30s", 0, YEAR_MS,
        "Time without a failure after which an Unhealthy card is Healthy again."),
    OPT_DURATION(
        "xid-hold", health.xid_hold_ms, "10m", 0, YEAR_MS,
        "Minimum time that a card stays Unhealthy after an XID or an uncorrectable "
        "ECC error."),
    OPT_CUSTOM(
        "xid-ignore", health.xid_ignore, "LIST|all", NULL, card_health_parse_xids,
        "XIDs that leave a card Healthy besides 13, 31, 43, 45, 68 and 109; default: "
        "none."),
    OPT_CUSTOM(
        "xid-fatal", health.xid_fatal, "LIST|all", NULL, card_health_parse_xids,
        "XIDs that make a card Unhealthy even if applications cause them; default: "
        "none."),
    OPT_DURATION(
        "keep-lost", keep_lost_ms, "24h", 0, YEAR_MS,
        "Time that a card that NVML no longer lists stays in the Scv as Unhealthy.",
        .names = PUBLISHES),
    OPT_DURATION(
        "sampler-limit", sampler_limit_ms, "30s", 1000, YEAR_MS,
        "Time beyond the interval without a driver response that makes all cards "
        "Unhealthy."),
    OPT_DURATION(
        "late-after", late_ms, "15s", 1000, YEAR_MS,
        "Time that the API server or the kubelet can fail before /healthz reports it."),
    OPT_STRING("podresources-socket", podresources, "FILE",
               "/var/lib/kubelet/pod-resources/kubelet.sock",
               "Socket of the kubelet's podresources service.", .names = ALLOCATES),
    OPT_STRING("podresources-socket", podresources, "PATH", NULL,
               "Kubelet socket pod-resources/kubelet.sock for podList; default: none, no "
               "podList.",
               .names = AGENT),
    OPT_DURATION(
        "pods-interval", pods_ms, "30s", 1000, YEAR_MS,
        "Time between two List calls to the kubelet; short intervals disturb pod "
        "admission.",
        .names = PUBLISHES),
    OPT_STRING("plugin-state", plugin_state, "FILE", NULL, "No effect; default: none.",
               .names = PUBLISHES),
    OPT_CHOICE("on-overuse", overuse.most, "event|evict|kill", "event",
               "What happens to containers that use more memory of a card than promised; "
               "evict: the pod.",
               .names = PUBLISHES),
    OPT_CHOICE(
        "on-unpromised", overuse.unpromised, "none|event|evict|kill", "none",
        "What happens to pods without a promise on cards that were promised to other "
        "pods.",
        .names = PUBLISHES),
    OPT_DURATION("overuse-grace", overuse.grace_ms, "30s", 1000, YEAR_MS,
                 "Time, in sum, that a pod may use more memory of a card than promised.",
                 .names = PUBLISHES),
    OPT_SIZE(
        "overuse-tolerance", overuse_tolerance, "512Mi", 0, 1LL << 50,
        "Memory of a card beyond the promise that is no overuse, for the CUDA context "
        "of a process.",
        .names = PUBLISHES),
    OPT_BOOL("overuse-always", overuse.always, "off",
             "Act on overuse also where every pod on the card can still get what it was "
             "promised.",
             .names = PUBLISHES),
    OPT_DURATION("lease-renew", publisher.renew_ms, "10s", 1000, YEAR_MS,
                 "Time between two heartbeats; at 10s, 5,000 nodes send 500 requests per "
                 "second.",
                 .names = PUBLISHES),
    OPT_DURATION(
        "lease-grace", publisher.grace_ms, "40s", 1000, YEAR_MS,
        "Age at which the extender rejects the node; also leaseDurationSeconds of "
        "the Lease.",
        .names = PUBLISHES),
    OPT_CHOICE(
        "device-list", driver.by_index, "uuid|index", "uuid",
        "How containers name their cards: by UUID, or by index, which can change at "
        "a reboot.",
        .names = ALLOCATES),
    OPT_CHOICE(
        "device-list-strategy", driver.strategy,
        "auto|envvar|volume-mounts|cdi-annotations|cdi-cri", "auto",
        "How the container runtime learns the cards; auto: cdi-cri where the node has "
        "it, else envvar.",
        .names = ALLOCATES),
    OPT_STRING("host-root", driver.host_root, "DIR", "",
               "Host's root: proc, var/log, dev, usr, etc/cdi; empty: processes in /, no "
               "look at the driver."),
    OPT_STRING("driver-root", driver.driver_root, "DIR", "/",
               "Root of NVIDIA's driver on the host; /run/nvidia/driver for a driver "
               "container.",
               .names = ALLOCATES),
    OPT_STRING("cdi-dir", driver.cdi_dir, "DIR", "/var/run/cdi",
               "Directory of CDI specifications, where the plugin writes its own.",
               .names = ALLOCATES),
    OPT_STRING(
        "cdi-kind", driver.cdi_kind, "VENDOR/CLASS", "",
        "Kind of the CDI names; empty: nvidia.com/gpu if it has all cards, else own "
        "names.",
        .names = ALLOCATES),
    OPT_BOOL("strict-env", alloc.strict_env, "off",
             "Reject containers that set NVIDIA_VISIBLE_DEVICES themselves, or are "
             "privileged.",
             .names = ALLOCATES),
    OPT_BOOL("allow-unpromised", alloc.allow_unpromised, "off",
             "Give a pod without a promise a card that has no promises, and annotate the "
             "pod.",
             .names = ALLOCATES),
    OPT_BOOL("legacy-no-gpu-env", legacy_no_gpu_env, "off", "No effect.",
             .names = ALLOCATES),
    OPT_CHOICE("isolation", alloc.response.isolation, "none|mps|limit|driver|auto",
               "auto",
               "Memory limit: driver: NVIDIA's, always; auto: where it can; limit: a "
               "library too; mps: MPS.",
               .names = ALLOCATES),
    OPT_BOOL(
        "allow-less-isolation", alloc.response.less_isolation, "off",
        "Let pods have less than --isolation, by annotation gpushare/isolation: none, "
        "limit-env, limit-file.",
        .names = ALLOCATES),
    OPT_BOOL("limit-env", alloc.response.limit_env, "off",
             "Limit by the driver where containers get no CDI names; the driver must "
             "stay 615 or newer.",
             .names = ALLOCATES),
    OPT_STRING("cgroup-root", cgroup_root, "DIR", "/sys/fs/cgroup",
               "Where the host's cgroup v2 is mounted, which the driver's limit needs.",
               .names = ALLOCATES),
    OPT_BOOL("set-limits", set_limits, "off",
             "Set the driver's limits of containers here, too; needs CAP_SYS_ADMIN, and "
             "--cgroup-root writable.",
             .names = ALLOCATES),
    OPT_STRING("limit-dir", limit_dir, "DIR", "/var/lib/gpushare/limit",
               "Directory of the limits of pods; it needs the same path on the host and "
               "here."),
    OPT_STRING("limit-library", limit_library, "FILE",
               "/usr/local/lib/gpushare/libgpushare-limit.so",
               "The library for containers with a limit, which is copied to --limit-dir.",
               .names = ALLOCATES),
    OPT_STRING(
        "mps-dir", alloc.response.mps_dir, "DIR", "/run/nvidia-mps",
        "Directory on the host where the MPS daemon has its directories pipe and shm.",
        .names = ALLOCATES),
    OPT_DURATION("identify-timeout", alloc.wait_ms, "5s", 0, 60 * 1000,
                 "Time to identify a container's pod; the kubelet admits no other pod "
                 "meanwhile.",
                 .names = ALLOCATES),
    OPT_DURATION(
        "reconcile-interval", alloc.reconcile_interval_ms, "60s", 0, YEAR_MS,
        "Time between two comparisons of a pod's allocation with its promise; 0s "
        "disables them.",
        .names = ALLOCATES),
    OPT_DURATION(
        "node-interval", alloc.node_ms, "60s", 100, YEAR_MS,
        "Time between two reads of the Node, for its label cgpu.disable.isolation.",
        .names = ALLOCATES),
    OPT_STRING("plugin-dir", plugin_dir, "DIR", DP_DIR,
               "The kubelet's device plugin directory.", .names = ALLOCATES),
    OPT_STRING("state-file", state, "FILE", "/var/lib/gpushare/device-plugin.json",
               "File that stores the allocation state.", .names = ALLOCATES),
    OPT_INT("port", port, "N", "12348", 0, 65535,
            "Port for health, metrics and version; 0 takes a free port, printed on "
            "standard error.",
            .names = ALLOCATES, .env = "PORT"),
    OPT_INT("port", port, "N", "12347", 0, 65535,
            "Port for health, metrics and version; 0 takes a free port, printed on "
            "standard error.",
            .names = AGENT, .env = "PORT"),
    OPT_INT("publish-port", publish_port, "N", "12347", 0, 65535,
            "Second port with the same answers, that of scv-agent 1.0; unused with "
            "--publish=off.",
            .names = NODE),
    {.more = entry_table},
};

const struct opt_program *node_options_of(const char *name, struct node_options *options)
{
    static const struct opt_program programs[] = {
        {.name = "gpushare-node",
         .summary = "publishes the GPU cards of its node, and allocates shares of them",
         .version = GPUSHARE_VERSION,
         .table = table,
         .name_bit = NODE},
        {.name = "scv-agent",
         .summary = "publishes the GPU cards of its node as an Scv object",
         .version = GPUSHARE_VERSION,
         .table = table,
         .name_bit = AGENT},
        {.name = "gpushare-device-plugin",
         .summary = "kubelet device plugin for shares of GPU memory and whole cards",
         .version = GPUSHARE_VERSION,
         .table = table,
         .name_bit = PLUGIN},
    };
    const struct opt_program *program = programs;
    const char *slash = strrchr(name, '/');
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        if (strcmp(slash ? slash + 1 : name, programs[i].name) == 0)
            program = &programs[i];
    options->publishes = program->name_bit & PUBLISHES;
    options->allocates = program->name_bit & ALLOCATES;
    options->publish_port = -1;
    return program;
}

int node_options_check(const struct node_options *o, struct err *err)
{
    const char *kind = o->driver.cdi_kind;
    if (!o->publishes && !o->allocates)
        return err_set(err, ERR_INVALID, "--publish=off, --allocate=off: nothing to do");
    if (node_name_check(o->node_name, err))
        return -1;
    if (o->publishes && o->publisher.grace_ms <= o->publisher.renew_ms)
        return err_set(err, ERR_INVALID,
                       "--lease-grace: must be longer than --lease-renew");
    if (o->requests_of && !(o->publishes && o->allocates))
        return err_set(err, ERR_INVALID,
                       "--requests-of: the Scv must say so; needs --publish, --allocate");
    if (o->allocates && kind[0] && (!strchr(kind, '/') || strpbrk(kind, "= ")))
        return err_set(err, ERR_INVALID, "--cdi-kind: \"%s\" is not VENDOR/CLASS", kind);
    const struct {
        const char *name;
        bool given;
    } ignored[] = {
        {"--plugin-state", o->plugin_state},
        {"--legacy-no-gpu-env", o->legacy_no_gpu_env},
        {"--sample-interval", o->publishes && o->sample_ms},
    };
    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        if (ignored[i].given)
            log_info("main", "the option has no effect",
                     LOG_S("option", ignored[i].name));
    return 0;
}
