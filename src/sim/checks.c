/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/checks_priv.h"

#include <stdio.h>

#include "base/mem.h"
#include "sim/names_priv.h"
#include "sim/quantity_priv.h"

void sim_fill_namespace(json_t *object)
{
    json_t *meta = json_object_get(object, "metadata");
    json_t *spec = sim_jsonx_make(object, "spec"),
           *status = sim_jsonx_make(object, "status");
    sim_jsonx_set_str(sim_jsonx_make(meta, "labels"), "kubernetes.io/metadata.name",
                      sim_jsonx_str(meta, "name"));
    if (!json_object_get(spec, "finalizers"))
        json_object_set_new(spec, "finalizers", json_pack("[s]", "kubernetes"));
    sim_jsonx_default_str(status, "phase", "Active");
}

void sim_check_namespace(const json_t *object, const json_t *old, struct faultlist *f)
{
    if (old && !span_eq(sim_jsonx_span(object, "status.phase"),
                        sim_jsonx_span(old, "status.phase")))
        sim_fault_invalid(f, "status.phase", sim_jsonx_span(object, "status.phase"),
                          "may only be 'Active' if `deletionTimestamp` is empty");
}

/* Extended resources of a node are whole numbers; nothing is negative. */
static void check_node_amounts(const json_t *amounts, const char *field,
                               struct faultlist *f)
{
    const char *name;
    json_t *v;
    struct quantity q;
    json_object_foreach((json_t *)amounts, name, v)
    {
        char path[128];
        snprintf(path, sizeof path, "%s.%.60s", field, name);
        if (!sim_quantity_parse(sim_jsonx_text(v), &q))
            continue; /* the shape has been checked */
        if (q.nano < 0)
            sim_fault_invalid(f, path, sim_jsonx_text(v),
                              "must be greater than or equal to 0");
        else if (strchr(name, '/') && !sim_quantity_is_whole(q))
            sim_fault_invalid(f, path, sim_jsonx_text(v), "must be an integer");
    }
}

void sim_check_node(const json_t *object, const json_t *old, struct faultlist *f)
{
    check_node_amounts(sim_jsonx_at(object, "status.capacity"), "status.capacity", f);
    check_node_amounts(sim_jsonx_at(object, "status.allocatable"), "status.allocatable",
                       f);
    if (!old)
        return;
    const json_t *provider = sim_jsonx_at(old, "spec.providerID");
    if (provider && !json_equal(provider, sim_jsonx_at(object, "spec.providerID")))
        sim_fault_forbidden(f, "spec.providerID",
                            "node updates may only change labels, taints, or capacity");
}

void sim_check_event(const json_t *object, const json_t *old, struct faultlist *f)
{
    (void)old;
    struct span ns = sim_jsonx_span(object, "metadata.namespace");
    struct span about = sim_jsonx_span(object, "involvedObject.namespace");
    if (!about.n && !span_eq(ns, SPAN("default")))
        sim_fault_invalid(f, "involvedObject.namespace", about,
                          "does not match event.namespace");
    if (about.n && !span_eq(ns, about))
        sim_fault_invalid(f, "involvedObject.namespace", about,
                          "does not match event.namespace");
}

static void demand(const json_t *object, const char *field, size_t max,
                   struct faultlist *f)
{
    struct span v = sim_jsonx_span(object, field);
    if (!v.n)
        sim_fault_required(f, field, "");
    else if (v.n > max)
        sim_fault_too_long(f, field, (int64_t)max);
}

void sim_check_event_v1(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const unset[] = {"deprecatedSource", "deprecatedFirstTimestamp",
                                        "deprecatedLastTimestamp", "deprecatedCount"};
    if (old)
        return; /* most of it was checked at creation and may not change */
    if (!sim_jsonx_at(object, "eventTime"))
        sim_fault_required(f, "eventTime", "");
    demand(object, "reportingController", 253, f);
    demand(object, "reportingInstance", 128, f);
    demand(object, "action", 128, f);
    demand(object, "reason", 128, f);
    struct span controller = sim_jsonx_span(object, "reportingController");
    if (controller.n && !sim_name_is_qualified(controller))
        sim_fault_invalid(f, "reportingController", controller, sim_name_qualified_rule);
    if (sim_jsonx_span(object, "note").n > 1024)
        sim_fault_too_long(f, "note", 1024);
    struct span type = sim_jsonx_span(object, "type");
    if (!span_eq(type, SPAN("Normal")) && !span_eq(type, SPAN("Warning")))
        sim_fault_invalid(f, "type", type, "has invalid value");
    for (size_t i = 0; i < ARRAY_LEN(unset); i++)
        if (sim_jsonx_at(object, unset[i]))
            sim_fault_invalid(f, unset[i], SPAN(""), "needs to be unset");
}

void sim_check_configmap(const json_t *object, const json_t *old, struct faultlist *f)
{
    enum { MAX = 1024 * 1024 };
    static const char *const members[] = {"data", "binaryData"};
    size_t total = 0;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const char *key;
        json_t *v;
        json_object_foreach(sim_jsonx_at(object, members[i]), key, v)
        {
            total += json_string_length(v);
            if (!key[0] || strlen(key) > 253 ||
                strspn(key,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                       "-_.") != strlen(key))
                sim_fault_invalid(
                    f, members[i], span_of(key),
                    "a valid config key must consist of alphanumeric characters, "
                    "'-', '_' or '.'");
        }
    }
    if (total > MAX)
        sim_fault_too_long(f, "", MAX);
    if (json_is_true(sim_jsonx_at(old, "immutable")) &&
        !json_equal(sim_jsonx_at(old, "data"), sim_jsonx_at(object, "data")))
        sim_fault_forbidden(f, "data", "field is immutable when `immutable` is set");
}

void sim_check_lease(const json_t *object, const json_t *old, struct faultlist *f)
{
    (void)old;
    if (sim_jsonx_int(object, "spec.leaseDurationSeconds", 1) <= 0)
        sim_fault_invalid(f, "spec.leaseDurationSeconds", SPAN(""),
                          "must be greater than 0");
    if (sim_jsonx_int(object, "spec.leaseTransitions", 0) < 0)
        sim_fault_invalid(f, "spec.leaseTransitions", SPAN(""),
                          "must be greater than or equal to 0");
}

void sim_check_scv(const json_t *object, const json_t *old, struct faultlist *f)
{
    (void)old;
    size_t i;
    json_t *card;
    json_array_foreach(sim_jsonx_at(object, "status.cardList"), i, card)
    {
        char path[48];
        snprintf(path, sizeof path, "status.cardList[%zu].id", i);
        if (!sim_jsonx_at(card, "id"))
            sim_fault_required(f, path, "");
    }
}
