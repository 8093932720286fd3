/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

/*
 * Binds a pod to a node. Node, annotations, labels and the condition change in one write.
 * Like a real server, this does not validate the annotations: an invalid key or too many
 * bytes are accepted here and make every later update of the pod fail.
 */

static int check_binding(struct call *c, const json_t *b)
{
    struct span ns = sim_jsonx_span(b, "metadata.namespace");
    struct span kind = sim_jsonx_span(b, "kind"),
                target = sim_jsonx_span(b, "target.kind");
    if (kind.n && !span_eq(kind, SPAN("Binding")))
        return sim_refuse(c, 400,
                          "Binding in version \"v1\" cannot be handled as a Binding");
    if (ns.n && !span_eq(ns, c->route.ns))
        return sim_refuse_namespace(c);
    if (!span_eq(sim_jsonx_span(b, "metadata.name"), c->route.name))
        return sim_refuse(c, 400, "name in URL does not match name in Binding object");
    /* A real server answers these two errors with 500. */
    if (target.n && !span_eq(target, SPAN("Node")))
        return sim_refuse_unknown(c,
                                  "target.kind: Unsupported value: \"%.*s\": supported "
                                  "values: \"Node\", \"<empty>\"",
                                  SPAN_ARG(target));
    if (!sim_jsonx_span(b, "target.name").n)
        return sim_refuse_unknown(c, "target.name: Required value");
    return 0;
}

static int check_pod(struct call *c, const json_t *pod)
{
    const struct status_about about = {.kind = "pods/binding", .name = c->route.name};
    cleanup_buf struct buf why = {0};
    struct span node = sim_jsonx_span(pod, "spec.nodeName");
    if (sim_jsonx_at(pod, "metadata.deletionTimestamp"))
        buf_adds(&why, "is being deleted, cannot be assigned to a host");
    else if (node.n)
        buf_printf(&why, "is already assigned to node \"%.*s\"", SPAN_ARG(node));
    else if (json_array_size(sim_jsonx_at(pod, "spec.schedulingGates")))
        buf_adds(&why, "has non-empty .spec.schedulingGates");
    if (!why.n)
        return 0;
    return sim_refuse_with(
        c, 409, "Conflict", &about,
        "Operation cannot be fulfilled on pods/binding \"%.*s\": pod %.*s %s",
        SPAN_ARG(c->route.name), SPAN_ARG(c->route.name), why.p);
}

static void merge_texts(json_t *pod, const json_t *b, const char *key)
{
    json_t *texts = json_object_get(json_object_get(b, "metadata"), key);
    if (json_object_size(texts))
        json_object_update(sim_jsonx_make(json_object_get(pod, "metadata"), key), texts);
}

static void bind_pod(struct call *c, json_t *pod, const json_t *b)
{
    json_t *spec = sim_jsonx_make(pod, "spec");
    sim_jsonx_set_str(spec, "nodeName", sim_jsonx_str(b, "target.name"));
    json_object_del(sim_jsonx_make(pod, "status"), "nominatedNodeName");
    merge_texts(pod, b, "annotations");
    merge_texts(pod, b, "labels");
    sim_pod_set_condition(pod, "PodScheduled", "True", c->now_ms);
    sim_change_put(c->api, c->route.kind, pod);
}

void sim_binding_handle(struct call *c)
{
    cleanup_json_value json_t *b = sim_body_of(
        c, "Binding", "target object\ntarget.kind string\ntarget.name string\n");
    if (!b || check_binding(c, b))
        return;
    const struct object *o = sim_call_object(c);
    if (!o)
        return;
    cleanup_json_value json_t *pod = sim_object_parse(o);
    if (sim_check_preconditions(c, json_object_get(b, "metadata"), o, false) ||
        check_pod(c, pod))
        return;
    bind_pod(c, pod, b);
    c->reply->status = 201;
    sim_status_write_success(&c->reply->body, 201, NULL);
}
