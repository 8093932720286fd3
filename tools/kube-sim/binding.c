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
        return sim_refuse(
            c, 400,
            "the namespace of the provided object does not match the namespace "
            "sent on the request");
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

static int check_preconditions(struct call *c, const json_t *b, const struct object *o)
{
    struct span uid = sim_jsonx_span(b, "metadata.uid");
    struct span wanted = sim_jsonx_span(b, "metadata.resourceVersion");
    cleanup_buf struct buf rv = {0};
    buf_add_i64(&rv, (int64_t)o->rv);
    if (uid.n && !span_eq(uid, o->uid))
        return sim_refuse_precondition(c, "UID", uid.p, o->uid);
    if (wanted.n && !span_eq(wanted, buf_span(&rv)))
        return sim_refuse_precondition(c, "ResourceVersion", wanted.p, buf_span(&rv));
    return 0;
}

static int refuse_binding(struct call *c, const char *why)
{
    struct status_about about = {.kind = "pods/binding", .name = c->route.name};
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "Operation cannot be fulfilled on pods/binding \"%.*s\": %s",
               SPAN_ARG(c->route.name), why);
    c->reply->status = 409;
    sim_status_write(&c->reply->body, 409, "Conflict", text.p, &about);
    return -1;
}

static int check_pod(struct call *c, const json_t *pod)
{
    cleanup_buf struct buf why = {0};
    struct span node = sim_jsonx_span(pod, "spec.nodeName");
    if (sim_jsonx_at(pod, "metadata.deletionTimestamp"))
        buf_printf(&why, "pod %.*s is being deleted, cannot be assigned to a host",
                   SPAN_ARG(c->route.name));
    else if (node.n)
        buf_printf(&why, "pod %.*s is already assigned to node \"%.*s\"",
                   SPAN_ARG(c->route.name), SPAN_ARG(node));
    else if (json_array_size(sim_jsonx_at(pod, "spec.schedulingGates")))
        buf_printf(&why, "pod %.*s has non-empty .spec.schedulingGates",
                   SPAN_ARG(c->route.name));
    return why.n ? refuse_binding(c, why.p) : 0;
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
    cleanup_json_value json_t *b = sim_body_of(c, "Binding", sim_shape_binding);
    if (!b || check_binding(c, b))
        return;
    const struct object *o = sim_call_object(c);
    if (!o)
        return;
    cleanup_json_value json_t *pod = sim_object_parse(o);
    if (check_preconditions(c, b, o) || check_pod(c, pod))
        return;
    bind_pod(c, pod, b);
    c->reply->status = 201;
    sim_status_write_success(&c->reply->body, 201, NULL);
}
