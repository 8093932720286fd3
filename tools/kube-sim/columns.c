/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/columns_priv.h"

#include "base/clock.h"

static void text(struct buf *out, struct span s)
{
    buf_add_span(out, s.n ? s : SPAN("<none>"));
}

void sim_columns_add_age(struct buf *out, int64_t s)
{
    enum { MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR, YEAR = 365 * DAY };
    int64_t m = s / MINUTE, h = s / HOUR, d = s / DAY, y = s / YEAR;
    if (s < 2 * MINUTE)
        buf_printf(out, "%llds", (long long)(s < 0 ? 0 : s));
    else if (m < 10 && s % MINUTE)
        buf_printf(out, "%lldm%llds", (long long)m, (long long)(s % MINUTE));
    else if (m < 180)
        buf_printf(out, "%lldm", (long long)m);
    else if (h < 8 && m % 60)
        buf_printf(out, "%lldh%lldm", (long long)h, (long long)(m % 60));
    else if (h < 48)
        buf_printf(out, "%lldh", (long long)h);
    else if (d < 8 && h % 24)
        buf_printf(out, "%lldd%lldh", (long long)d, (long long)(h % 24));
    else if (d < 2 * 365)
        buf_printf(out, "%lldd", (long long)d);
    else if (y < 8 && d % 365)
        buf_printf(out, "%lldy%lldd", (long long)y, (long long)(d % 365));
    else
        buf_printf(out, "%lldy", (long long)y);
}

static void add_since(struct buf *out, struct span time, int64_t now_ms)
{
    int64_t then;
    if (clock_parse(time, &then))
        sim_columns_add_age(out, now_ms / 1000 - then);
    else
        buf_adds(out, "<unknown>");
}

#define CELL(fn) static void fn(const json_t *o, int64_t now_ms, struct buf *out)
#define UNUSED   (void)now_ms

CELL(name)
{
    UNUSED;
    buf_add_span(out, sim_jsonx_span(o, "metadata.name"));
}

CELL(age)
{
    add_since(out, sim_jsonx_span(o, "metadata.creationTimestamp"), now_ms);
}

CELL(phase)
{
    UNUSED;
    text(out, sim_jsonx_span(o, "status.phase"));
}

const struct column sim_columns_namespace[] = {{"Name", 0, COLUMN_TEXT, name},
                                               {"Status", 0, COLUMN_TEXT, phase},
                                               {"Age", 0, COLUMN_TEXT, age},
                                               {0}};

/* -- nodes -- */

CELL(node_status)
{
    UNUSED;
    const char *ready = "Unknown";
    size_t i;
    json_t *c;
    json_array_foreach(sim_jsonx_at(o, "status.conditions"), i,
                       c) if (strcmp(sim_jsonx_str(c, "type"), "Ready") == 0) ready =
        strcmp(sim_jsonx_str(c, "status"), "True") == 0 ? "Ready" : "NotReady";
    buf_adds(out, ready);
    if (json_is_true(sim_jsonx_at(o, "spec.unschedulable")))
        buf_adds(out, ",SchedulingDisabled");
}

CELL(node_roles)
{
    UNUSED;
    static const struct span prefix = {"node-role.kubernetes.io/", 24};
    size_t start = out->n;
    const char *key;
    json_t *v;
    json_object_foreach(sim_jsonx_at(o, "metadata.labels"), key, v)
    {
        if (!span_starts(span_of(key), prefix))
            continue;
        if (out->n > start)
            buf_addc(out, ',');
        buf_adds(out, key + prefix.n);
    }
    if (out->n == start)
        buf_adds(out, "<none>");
}

CELL(node_version)
{
    UNUSED;
    buf_add_span(out, sim_jsonx_span(o, "status.nodeInfo.kubeletVersion"));
}

static void node_address(const json_t *o, const char *type, struct buf *out)
{
    size_t i;
    json_t *a;
    struct span ip = {NULL, 0};
    json_array_foreach(sim_jsonx_at(o, "status.addresses"), i,
                       a) if (!ip.n && strcmp(sim_jsonx_str(a, "type"), type) == 0) ip =
        sim_jsonx_span(a, "address");
    text(out, ip);
}

CELL(node_ip)
{
    UNUSED;
    node_address(o, "InternalIP", out);
}

CELL(node_external_ip)
{
    UNUSED;
    node_address(o, "ExternalIP", out);
}

static void node_info(const json_t *o, const char *path, struct buf *out)
{
    struct span s = sim_jsonx_span(o, path);
    buf_add_span(out, s.n ? s : SPAN("<unknown>"));
}

CELL(node_os)
{
    UNUSED;
    node_info(o, "status.nodeInfo.osImage", out);
}

CELL(node_kernel)
{
    UNUSED;
    node_info(o, "status.nodeInfo.kernelVersion", out);
}

CELL(node_runtime)
{
    UNUSED;
    node_info(o, "status.nodeInfo.containerRuntimeVersion", out);
}

const struct column sim_columns_node[] = {
    {"Name", 0, COLUMN_TEXT, name},
    {"Status", 0, COLUMN_TEXT, node_status},
    {"Roles", 0, COLUMN_TEXT, node_roles},
    {"Age", 0, COLUMN_TEXT, age},
    {"Version", 0, COLUMN_TEXT, node_version},
    {"Internal-IP", 1, COLUMN_TEXT, node_ip},
    {"External-IP", 1, COLUMN_TEXT, node_external_ip},
    {"OS-Image", 1, COLUMN_TEXT, node_os},
    {"Kernel-Version", 1, COLUMN_TEXT, node_kernel},
    {"Container-Runtime", 1, COLUMN_TEXT, node_runtime},
    {0}};

/* -- pods -- */

CELL(pod_ready)
{
    UNUSED;
    size_t i, ready = 0;
    json_t *c;
    json_array_foreach(sim_jsonx_at(o, "status.containerStatuses"), i, c) ready +=
        json_is_true(json_object_get(c, "ready"));
    buf_printf(out, "%zu/%zu", ready,
               json_array_size(sim_jsonx_at(o, "spec.containers")));
}

static struct span waiting_reason(const json_t *o)
{
    size_t i;
    json_t *c;
    struct span reason = {NULL, 0};
    json_array_foreach(sim_jsonx_at(o, "status.containerStatuses"), i, c)
    {
        reason = sim_jsonx_span(c, "state.waiting.reason");
        if (!reason.n)
            reason = sim_jsonx_span(c, "state.terminated.reason");
        if (reason.n)
            break;
    }
    return reason;
}

CELL(pod_status)
{
    UNUSED;
    struct span reason = sim_jsonx_span(o, "status.reason"), waiting = waiting_reason(o);
    if (json_array_size(sim_jsonx_at(o, "spec.schedulingGates")))
        reason = SPAN("SchedulingGated");
    if (waiting.n)
        reason = waiting;
    if (sim_jsonx_at(o, "metadata.deletionTimestamp"))
        reason = SPAN("Terminating");
    text(out, reason.n ? reason : sim_jsonx_span(o, "status.phase"));
}

CELL(pod_restarts)
{
    UNUSED;
    int64_t n = 0;
    size_t i;
    json_t *c;
    json_array_foreach(
        sim_jsonx_at(o, "status.containerStatuses"), i,
        c) if (__builtin_add_overflow(n, sim_jsonx_int(c, "restartCount", 0), &n)) n =
        INT64_MAX;
    buf_add_i64(out, n);
}

CELL(pod_ip)
{
    UNUSED;
    text(out, sim_jsonx_span(o, "status.podIP"));
}

CELL(pod_node)
{
    UNUSED;
    text(out, sim_jsonx_span(o, "spec.nodeName"));
}

CELL(none)
{
    UNUSED;
    (void)o;
    buf_adds(out, "<none>");
}

CELL(pod_nominated)
{
    UNUSED;
    text(out, sim_jsonx_span(o, "status.nominatedNodeName"));
}

const struct column sim_columns_pod[] = {
    {"Name", 0, COLUMN_TEXT, name},
    {"Ready", 0, COLUMN_TEXT, pod_ready},
    {"Status", 0, COLUMN_TEXT, pod_status},
    {"Restarts", 0, COLUMN_TEXT, pod_restarts},
    {"Age", 0, COLUMN_TEXT, age},
    {"IP", 1, COLUMN_TEXT, pod_ip},
    {"Node", 1, COLUMN_TEXT, pod_node},
    {"Nominated Node", 1, COLUMN_TEXT, pod_nominated},
    {"Readiness Gates", 1, COLUMN_TEXT, none},
    {0}};

/* -- events -- */

CELL(event_seen)
{
    struct span seen = sim_jsonx_span(o, "lastTimestamp");
    if (!seen.n)
        seen = sim_jsonx_span(o, "series.lastObservedTime");
    if (!seen.n)
        seen = sim_jsonx_span(o, "eventTime");
    add_since(out, seen, now_ms);
}

CELL(event_type)
{
    UNUSED;
    buf_add_span(out, sim_jsonx_span(o, "type"));
}

CELL(event_reason)
{
    UNUSED;
    buf_add_span(out, sim_jsonx_span(o, "reason"));
}

static void add_about(struct buf *out, const json_t *about)
{
    for (const char *c = sim_jsonx_str(about, "kind"); *c; c++)
        buf_addc(out, *c >= 'A' && *c <= 'Z' ? (char)(*c + ('a' - 'A')) : *c);
    buf_printf(out, "/%s", sim_jsonx_str(about, "name"));
}

CELL(event_object)
{
    UNUSED;
    json_t *about = sim_jsonx_at(o, "involvedObject");
    add_about(out, about ? about : sim_jsonx_at(o, "regarding"));
}

CELL(event_message)
{
    UNUSED;
    struct span s = sim_jsonx_span(o, "message");
    buf_add_span(out, span_trim(s.n ? s : sim_jsonx_span(o, "note")));
}

#define EVENT_COLUMNS                                                                    \
    {                                                                                    \
        {"Last Seen", 0, COLUMN_TEXT, event_seen}, {"Type", 0, COLUMN_TEXT, event_type}, \
            {"Reason", 0, COLUMN_TEXT, event_reason},                                    \
            {"Object", 0, COLUMN_TEXT, event_object},                                    \
            {"Message", 0, COLUMN_TEXT, event_message}, {"Name", 1, COLUMN_TEXT, name},  \
        {                                                                                \
            0                                                                            \
        }                                                                                \
    }
const struct column sim_columns_event[] = EVENT_COLUMNS;
const struct column sim_columns_event_v1[] = EVENT_COLUMNS;

/* -- other kinds -- */

CELL(configmap_data)
{
    UNUSED;
    buf_add_i64(out, (int64_t)(json_object_size(sim_jsonx_at(o, "data")) +
                               json_object_size(sim_jsonx_at(o, "binaryData"))));
}

CELL(secret_type)
{
    UNUSED;
    buf_add_span(out, sim_jsonx_span(o, "type"));
}

CELL(lease_holder)
{
    UNUSED;
    buf_add_span(out, sim_jsonx_span(o, "spec.holderIdentity"));
}

CELL(scv_cards)
{
    UNUSED;
    buf_add_i64(out, sim_jsonx_int(o, "status.cardNumber", 0));
}

CELL(scv_total)
{
    UNUSED;
    buf_add_i64(out, sim_jsonx_int(o, "status.totalMemorySum", 0));
}

CELL(scv_free)
{
    UNUSED;
    buf_add_i64(out, sim_jsonx_int(o, "status.freeMemorySum", 0));
}

const struct column sim_columns_configmap[] = {{"Name", 0, COLUMN_TEXT, name},
                                               {"Data", 0, COLUMN_NUMBER, configmap_data},
                                               {"Age", 0, COLUMN_TEXT, age},
                                               {0}};
const struct column sim_columns_secret[] = {{"Name", 0, COLUMN_TEXT, name},
                                            {"Type", 0, COLUMN_TEXT, secret_type},
                                            {"Data", 0, COLUMN_NUMBER, configmap_data},
                                            {"Age", 0, COLUMN_TEXT, age},
                                            {0}};
const struct column sim_columns_lease[] = {{"Name", 0, COLUMN_TEXT, name},
                                           {"Holder", 0, COLUMN_TEXT, lease_holder},
                                           {"Age", 0, COLUMN_TEXT, age},
                                           {0}};
const struct column sim_columns_scv[] = {
    {"Name", 0, COLUMN_TEXT, name},         {"Cards", 0, COLUMN_NUMBER, scv_cards},
    {"Total", 0, COLUMN_NUMBER, scv_total}, {"Free", 0, COLUMN_NUMBER, scv_free},
    {"Age", 0, COLUMN_DATE, age},           {0}};
