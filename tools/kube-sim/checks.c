/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/checks_priv.h"

#include <stdio.h>

#include "base/mem.h"
#include "kube-sim/names_priv.h"
#include "kube-sim/quantity_priv.h"

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

/* allocatable defaults to capacity. */
void sim_fill_node(json_t *object)
{
    json_t *status = sim_jsonx_make(object, "status");
    const json_t *capacity = json_object_get(status, "capacity");
    sim_jsonx_make(object, "spec");
    if (json_object_size(capacity) && !json_object_get(status, "allocatable"))
        json_object_set_new(status, "allocatable", json_deep_copy(capacity));
}

void sim_fill_event(json_t *object)
{
    sim_jsonx_make(object, "source");
    sim_jsonx_default_str(object, "reportingComponent", "");
    sim_jsonx_default_str(object, "reportingInstance", "");
}

void sim_fill_event_v1(json_t *object)
{
    sim_jsonx_make(object, "deprecatedSource");
    sim_jsonx_make(object, "regarding");
}

void sim_fill_lease(json_t *object)
{
    sim_jsonx_make(object, "spec");
}

void sim_fill_secret(json_t *object)
{
    if (!sim_jsonx_span(object, "type").n)
        json_object_set_new(object, "type", json_string("Opaque"));
}

/* Extended resources of a node must be whole numbers, and all amounts at least 0. */
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
            continue; /* sim_shape_check reports it */
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

/* An event is in the namespace of its object, or in "default" for a cluster-scoped
 * object. */
static void check_event_namespace(const json_t *object, const char *path,
                                  struct faultlist *f)
{
    struct span ns = sim_jsonx_span(object, "metadata.namespace");
    struct span about = sim_jsonx_span(object, path);
    if (!span_eq(ns, about.n ? about : SPAN("default")))
        sim_fault_invalid(f, "involvedObject.namespace", about,
                          "does not match event.namespace");
}

void sim_check_event(const json_t *object, const json_t *old, struct faultlist *f)
{
    (void)old;
    check_event_namespace(object, "involvedObject.namespace", f);
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

static void check_event_source(const json_t *object, struct faultlist *f)
{
    demand(object, "reportingController", 253, f);
    struct span controller = sim_jsonx_span(object, "reportingController");
    if (controller.n && !sim_name_is_qualified(controller))
        sim_fault_invalid(f, "reportingController", controller, sim_name_qualified_rule);
    demand(object, "reportingInstance", 128, f);
    demand(object, "action", 128, f);
    demand(object, "reason", 128, f);
    if (sim_jsonx_span(object, "note").n > 1024)
        sim_fault_too_long(f, "message", 1024);
}

void sim_check_event_v1(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const unset[][2] = {
        {"deprecatedFirstTimestamp", "firstTimestamp"},
        {"deprecatedLastTimestamp", "lastTimestamp"},
        {"deprecatedCount", "count"},
        {"deprecatedSource.component", "source"},
        {"deprecatedSource.host", "source"},
    };
    cleanup_buf struct buf why = {0};
    bool timed = sim_jsonx_at(object, "eventTime");
    if (old)
        return; /* the other fields are validated at creation and immutable */
    check_event_namespace(object, "regarding.namespace", f);
    if (timed)
        check_event_source(object, f);
    else
        sim_fault_required(f, "eventTime", "");
    struct span type = sim_jsonx_span(object, "type");
    buf_printf(&why, "has invalid value: %.*s", SPAN_ARG(type));
    if (!span_eq(type, SPAN("Normal")) && !span_eq(type, SPAN("Warning")))
        sim_fault_invalid(f, "type", SPAN(""), why.p);
    for (size_t i = 0; i < ARRAY_LEN(unset); i++)
        if (sim_jsonx_at(object, unset[i][0]))
            sim_fault_invalid(f, unset[i][1], SPAN(""), "needs to be unset");
}

static void check_key(const char *member, const char *key, struct faultlist *f)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    cleanup_buf struct buf field = {0};
    buf_printf(&field, "%s[%s]", member, key);
    if (!key[0] || strlen(key) > 253 || strspn(key, letters) != strlen(key))
        sim_fault_invalid(
            f, field.p, span_of(key),
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation "
            "is '[-._a-zA-Z0-9]+')");
}

static void check_immutable(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char why[] = "field is immutable when `immutable` is set";
    static const char *const members[] = {"data", "binaryData"};
    if (!json_is_true(sim_jsonx_at(old, "immutable")))
        return;
    if (!json_is_true(sim_jsonx_at(object, "immutable")))
        sim_fault_forbidden(f, "immutable", why);
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        json_t *was = sim_jsonx_at(old, members[i]),
               *is = sim_jsonx_at(object, members[i]);
        if ((was || is) && !json_equal(was, is))
            sim_fault_forbidden(f, members[i], why);
    }
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
            cleanup_buf struct buf field = {0};
            buf_printf(&field, "%s[%s]", members[i], key);
            total += json_string_length(v);
            check_key(members[i], key, f);
            if (i == 0 && json_object_get(sim_jsonx_at(object, "binaryData"), key))
                sim_fault_invalid(f, field.p, span_of(key),
                                  "duplicate of key present in binaryData");
        }
    }
    if (total > MAX)
        sim_fault_too_long(f, "", MAX);
    check_immutable(object, old, f);
}

void sim_check_secret(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const tls[] = {"tls.crt", "tls.key"};
    const char *key;
    json_t *v, *data = sim_jsonx_at(object, "data");
    struct span type = sim_jsonx_span(object, "type");
    json_object_foreach(data, key, v) check_key("data", key, f);
    for (size_t i = 0; span_eq(type, SPAN("kubernetes.io/tls")) && i < ARRAY_LEN(tls);
         i++) {
        cleanup_free char *field = xasprintf("data[%s]", tls[i]);
        if (!json_object_get(data, tls[i]))
            sim_fault_required(f, field, "");
    }
    if (old && !span_eq(type, sim_jsonx_span(old, "type")))
        sim_fault_invalid(f, "type", type, "field is immutable");
    check_immutable(object, old, f);
}

void sim_check_lease(const json_t *object, const json_t *old, struct faultlist *f)
{
    (void)old;
    int64_t duration = sim_jsonx_int(object, "spec.leaseDurationSeconds", 1);
    int64_t transitions = sim_jsonx_int(object, "spec.leaseTransitions", 0);
    if (duration <= 0)
        sim_fault_number(f, "spec.leaseDurationSeconds", duration,
                         "must be greater than 0");
    if (transitions < 0)
        sim_fault_number(f, "spec.leaseTransitions", transitions,
                         "must be greater than or equal to 0");
}

/* A number with bounds in the schema. */
static void check_bounds(const json_t *at, const char *path, const char *member,
                         int64_t max, struct faultlist *f)
{
    cleanup_buf struct buf field = {0}, why = {0};
    int64_t v = sim_jsonx_int(at, member, 0);
    buf_printf(&field, "%s.%s", path, member);
    buf_printf(&why, "%s in body should be %s than or equal to %lld", field.p,
               v < 0 ? "greater" : "less", v < 0 ? 0LL : (long long)max);
    if (v < 0 || v > max)
        sim_fault_number(f, field.p, v, why.p);
}

static void check_card(const json_t *card, size_t i, struct faultlist *f)
{
    static const char *const members[] = {"id",         "power",      "totalMemory",
                                          "freeMemory", "usedMemory", "clock",
                                          "core",       "bandwidth"};
    char path[48], id[56];
    snprintf(path, sizeof path, "status.cardList[%zu]", i);
    snprintf(id, sizeof id, "%s.id", path);
    if (!sim_jsonx_at(card, "id"))
        sim_fault_required(f, id, "");
    for (size_t k = 0; k < ARRAY_LEN(members); k++)
        check_bounds(card, path, members[k], INT64_MAX, f);
    check_bounds(card, path, "utilization", 100, f);
}

void sim_check_scv(const json_t *object, const json_t *old, struct faultlist *f)
{
    static const char *const members[] = {"cardNumber", "totalMemorySum",
                                          "freeMemorySum"};
    const json_t *status = sim_jsonx_at(object, "status");
    size_t i;
    json_t *card;
    (void)old;
    for (i = 0; i < ARRAY_LEN(members); i++)
        check_bounds(status, "status", members[i], INT64_MAX, f);
    json_array_foreach(sim_jsonx_at(object, "status.cardList"), i, card)
        check_card(card, i, f);
}
