/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

/* The rules of pods that other kinds do not have: defaults, and what an update may change. */

static const char *const container_lists[] = {"initContainers", "containers"};

/* Requests default to the limits. */
static void fill_requests(json_t *container)
{
    json_t *limits = sim_jsonx_at(container, "resources.limits");
    if (!json_object_size(limits))
        return;
    json_t *requests =
        sim_jsonx_make(json_object_get(container, "resources"), "requests");
    json_object_update_missing(requests, limits);
}

void sim_pod_fill(json_t *pod)
{
    json_t *spec = sim_jsonx_make(pod, "spec"), *status = sim_jsonx_make(pod, "status");
    sim_jsonx_default_str(spec, "restartPolicy", "Always");
    sim_jsonx_default_str(spec, "dnsPolicy", "ClusterFirst");
    sim_jsonx_default_str(spec, "schedulerName", "default-scheduler");
    if (!json_object_get(spec, "terminationGracePeriodSeconds"))
        sim_jsonx_set_int(spec, "terminationGracePeriodSeconds", 30);
    sim_jsonx_make(spec, "securityContext");
    sim_jsonx_default_str(status, "phase", "Pending");
    for (size_t i = 0; i < ARRAY_LEN(container_lists); i++) {
        size_t k;
        json_t *c;
        json_array_foreach(json_object_get(spec, container_lists[i]), k, c)
            fill_requests(c);
    }
}

/* -- checks -- */

static void check_container(const json_t *container, const char *path,
                            struct faultlist *f)
{
    char field[64];
    snprintf(field, sizeof field, "%s.name", path);
    struct span name = sim_jsonx_span(container, "name");
    if (!name.n)
        sim_fault_required(f, field, "");
    else if (!sim_name_is_dns_label(name))
        sim_fault_invalid(f, field, name, sim_name_dns_label_rule);
    snprintf(field, sizeof field, "%s.image", path);
    if (!sim_jsonx_span(container, "image").n)
        sim_fault_required(f, field, "");
}

static void check_containers(const json_t *pod, struct faultlist *f)
{
    for (size_t i = 0; i < ARRAY_LEN(container_lists); i++) {
        const char *list = container_lists[i];
        size_t k;
        json_t *c;
        json_array_foreach(json_object_get(sim_jsonx_at(pod, "spec"), list), k, c)
        {
            char path[48];
            snprintf(path, sizeof path, "spec.%s[%zu]", list, k);
            check_container(c, path, f);
        }
    }
    if (!json_array_size(sim_jsonx_at(pod, "spec.containers")))
        sim_fault_required(f, "spec.containers", "");
}

/* Is every element of `old` in `now`? */
static bool only_appended(json_t *old, json_t *now)
{
    size_t i;
    json_t *v;
    json_array_foreach(old, i, v)
    {
        bool found = false;
        for (size_t k = 0; !found && k < json_array_size(now); k++)
            found = json_equal(v, json_array_get(now, k));
        if (!found)
            return false;
    }
    return true;
}

/* Removes the members that an update may change from a copy of a spec. */
static void drop_mutable(json_t *spec)
{
    json_object_del(spec, "activeDeadlineSeconds");
    json_object_del(spec, "tolerations");
    json_object_del(spec, "schedulingGates");
    for (size_t i = 0; i < ARRAY_LEN(container_lists); i++) {
        size_t k;
        json_t *c;
        json_array_foreach(json_object_get(spec, container_lists[i]), k, c)
            json_object_del(c, "image");
    }
}

static void check_update(const json_t *pod, const json_t *old, struct faultlist *f)
{
    json_t *was = sim_jsonx_at(old, "spec"), *is = sim_jsonx_at(pod, "spec");
    if (json_equal(was, is))
        return;
    cleanup_json_value json_t *a = json_deep_copy(was), *b = json_deep_copy(is);
    drop_mutable(a);
    drop_mutable(b);
    json_t *gates = json_object_get(is, "schedulingGates");
    if (!only_appended(json_object_get(was, "tolerations"),
                       json_object_get(is, "tolerations")))
        sim_fault_forbidden(
            f, "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds");
    else if (!json_equal(a, b))
        sim_fault_forbidden(
            f, "spec",
            "pod updates may not change fields other than "
            "`spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions "
            "to existing tolerations),`spec.terminationGracePeriodSeconds` "
            "(allow it to be set to 1 if it was previously negative)");
    if (!only_appended(gates, json_object_get(was, "schedulingGates")))
        sim_fault_forbidden(f, "spec.schedulingGates", "only deletion is allowed");
}

void sim_pod_check(const json_t *pod, const json_t *old, struct faultlist *f)
{
    check_containers(pod, f);
    struct span node = sim_jsonx_span(pod, "spec.nodeName");
    if (node.n && !sim_name_is_dns_subdomain(node))
        sim_fault_invalid(f, "spec.nodeName", node, sim_name_dns_subdomain_rule);
    if (!old && node.n && json_array_size(sim_jsonx_at(pod, "spec.schedulingGates")))
        sim_fault_forbidden(f, "spec.nodeName",
                            "cannot be set until all schedulingGates have been cleared");
    if (old)
        check_update(pod, old, f);
}

/* -- life cycle -- */

int64_t sim_pod_grace_s(const json_t *pod, int64_t asked)
{
    struct span phase = sim_jsonx_span(pod, "status.phase");
    int64_t grace =
        asked >= 0 ? asked : sim_jsonx_int(pod, "spec.terminationGracePeriodSeconds", 30);
    if (!sim_jsonx_span(pod, "spec.nodeName").n || span_eq(phase, SPAN("Succeeded")) ||
        span_eq(phase, SPAN("Failed")))
        return 0;
    return grace < 0 ? 1 : grace;
}

void sim_pod_set_condition(json_t *pod, const char *type, const char *status,
                           int64_t now_ms)
{
    cleanup_buf struct buf now = {0};
    clock_format_s(&now, now_ms / 1000);
    json_t *all = json_object_get(sim_jsonx_make(pod, "status"), "conditions");
    if (!json_is_array(all)) {
        all = json_array();
        json_object_set_new(json_object_get(pod, "status"), "conditions", all);
    }
    size_t i;
    json_t *c, *found = NULL;
    json_array_foreach(all, i, c) if (strcmp(sim_jsonx_str(c, "type"), type) == 0) found =
        c;
    if (found && strcmp(sim_jsonx_str(found, "status"), status) == 0)
        return;
    if (!found) {
        found = json_pack("{s:s,s:n}", "type", type, "lastProbeTime");
        json_array_append_new(all, found);
    }
    sim_jsonx_set_str(found, "status", status);
    sim_jsonx_set_str(found, "lastTransitionTime", now.p);
    json_object_del(found, "reason");
    json_object_del(found, "message");
}

void sim_pod_gate(json_t *pod, int64_t now_ms)
{
    if (!json_array_size(sim_jsonx_at(pod, "spec.schedulingGates")))
        return;
    sim_pod_set_condition(pod, "PodScheduled", "False", now_ms);
    json_t *gated = json_array_get(sim_jsonx_at(pod, "status.conditions"), 0);
    sim_jsonx_set_str(gated, "reason", "SchedulingGated");
    sim_jsonx_set_str(gated, "message",
                      "Scheduling is blocked due to non-empty scheduling gates");
}

static json_t *running_status(const json_t *container, const char *now)
{
    return json_pack("{s:s,s:{s:{s:s}},s:{},s:b,s:i,s:s,s:s,s:s,s:b}", "name",
                     sim_jsonx_str(container, "name"), "state", "running", "startedAt",
                     now, "lastState", "ready", 1, "restartCount", 0, "image",
                     sim_jsonx_str(container, "image"), "imageID", "", "containerID", "",
                     "started", 1);
}

void sim_pod_run(json_t *pod, int64_t now_ms)
{
    static const char *const conditions[] = {"Initialized", "Ready", "ContainersReady",
                                             "PodScheduled"};
    cleanup_buf struct buf now = {0};
    clock_format_s(&now, now_ms / 1000);
    json_t *status = sim_jsonx_make(pod, "status"), *all = json_array(), *c;
    size_t i;
    sim_jsonx_set_str(status, "phase", "Running");
    for (i = 0; i < ARRAY_LEN(conditions); i++)
        sim_pod_set_condition(pod, conditions[i], "True", now_ms);
    sim_jsonx_default_str(status, "startTime", now.p);
    json_array_foreach(sim_jsonx_at(pod, "spec.containers"), i, c)
        json_array_append_new(all, running_status(c, now.p));
    json_object_set_new(status, "containerStatuses", all);
}
