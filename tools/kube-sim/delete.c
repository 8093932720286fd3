/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/clock.h"

/* DELETE of one object, and evictions. */

/* DeleteOptions: of the body, or else of the query. New; NULL: the request has been
 * refused. */
static json_t *read_options(struct call *c)
{
    struct err err;
    struct shape_fault wrong;
    int64_t grace_s;
    cleanup_json_value json_t *options =
        c->req->body.n ? sim_jsonx_parse(c->req->body, &err) : json_object();
    if (!json_is_object(options)) {
        sim_refuse(c, 400, "couldn't get version/kind; json parse error: %s",
                   options ? "no JSON object" : err.msg);
        return NULL;
    }
    sim_jsonx_strip_nulls(options);
    bool bad = sim_query_int(&c->query, "gracePeriodSeconds", -1, &grace_s, &err);
    if (bad || sim_shape_check("gracePeriodSeconds int\n"
                               "preconditions object\n"
                               "preconditions.uid string\n"
                               "preconditions.resourceVersion string\n"
                               "propagationPolicy string\n",
                               options, &wrong)) {
        sim_refuse(c, 400, "%s", bad ? err.msg : wrong.err.msg);
        return NULL;
    }
    if (!json_object_get(options, "gracePeriodSeconds"))
        sim_jsonx_set_int(options, "gracePeriodSeconds", grace_s);
    return json_incref(options);
}

static int check_preconditions(struct call *c, const json_t *options,
                               const struct object *o)
{
    return sim_check_preconditions(c, sim_jsonx_at(options, "preconditions"), o, true);
}

/* Sets deletionTimestamp first, also for grace period 0, and removes the object later. A
 * second deletion can only shorten the grace period. `asked_s` -1: the pod's own. */
static const struct object *delete_pod(struct call *c, const struct object *o,
                                       int64_t asked_s)
{
    enum { GRACE_MAX = 366 * 24 * 3600, KUBELET_MS = 1000 };
    cleanup_json_value json_t *root = sim_object_parse(o);
    json_t *meta = json_object_get(root, "metadata");
    int64_t grace_s = sim_pod_grace_s(root, asked_s);
    int64_t old_s = sim_jsonx_int(meta, "deletionGracePeriodSeconds", 0);
    int64_t start_s = c->now_ms / 1000, end_s;
    if (o->deleting && (asked_s < 0 || grace_s >= old_s))
        return o;
    if (grace_s > GRACE_MAX)
        grace_s = GRACE_MAX;
    if (clock_parse(sim_jsonx_span(meta, "deletionTimestamp"), &end_s))
        start_s = end_s - old_s;
    cleanup_buf struct buf text = {0};
    clock_format_s(&text, start_s + grace_s);
    sim_jsonx_set_str(meta, "deletionTimestamp", text.p);
    sim_jsonx_set_int(meta, "deletionGracePeriodSeconds", grace_s);
    const struct object *now = sim_change_put(c->api, c->route.kind, root);
    if (grace_s == 0)
        return sim_change_remove(c->api, now);
    int64_t wait_ms = (start_s + grace_s) * 1000 - c->now_ms / 1000 * 1000;
    if (c->api->config.run_pods && wait_ms > KUBELET_MS)
        wait_ms = KUBELET_MS; /* the containers end soon after SIGTERM */
    sim_change_schedule(c->api, c->now_ms + wait_ms, TIMER_REMOVE, now);
    return now;
}

void sim_delete_handle(struct call *c)
{
    cleanup_json_value json_t *options = read_options(c);
    const struct object *o = options ? sim_call_object(c) : NULL;
    if (!o || check_preconditions(c, options, o))
        return;
    if (c->route.kind->graceful) {
        o = delete_pod(c, o, sim_jsonx_int(options, "gracePeriodSeconds", -1));
        sim_answer_object(c, 200, o);
        return;
    }
    cleanup_buf struct buf uid = {0};
    buf_add_span(&uid, o->uid);
    sim_change_remove(c->api, o);
    struct status_about about = *SIM_ABOUT(c->route.kind, c->route.name);
    about.uid = uid.p;
    c->reply->status = 200;
    sim_status_write_success(&c->reply->body, 200, &about);
}

/*
 * Evicts a pod: sets the condition DisruptionTarget and deletes it gracefully. There are no
 * PodDisruptionBudgets here, so none refuses an eviction.
 */

static const struct object *mark_evicted(struct call *c, const struct object *o)
{
    cleanup_json_value json_t *pod = sim_object_parse(o);
    sim_pod_set_condition(pod, "DisruptionTarget", "True", c->now_ms);
    json_t *all = sim_jsonx_at(pod, "status.conditions");
    json_t *last = json_array_get(all, json_array_size(all) - 1);
    sim_jsonx_set_str(last, "reason", "EvictionByEvictionAPI");
    sim_jsonx_set_str(last, "message", "Eviction API: evicting");
    return sim_change_put(c->api, c->route.kind, pod);
}

void sim_eviction_handle(struct call *c)
{
    cleanup_json_value json_t *e =
        sim_body_of(c, "Eviction",
                    "deleteOptions object\n"
                    "deleteOptions.gracePeriodSeconds int\n"
                    "deleteOptions.preconditions object\n"
                    "deleteOptions.preconditions.uid string\n"
                    "deleteOptions.preconditions.resourceVersion string\n");
    if (!e)
        return;
    if (!span_eq(sim_jsonx_span(e, "metadata.name"), c->route.name)) {
        sim_refuse(c, 400, "name in URL does not match name in Eviction object");
        return;
    }
    const json_t *options = sim_jsonx_at(e, "deleteOptions");
    const struct object *o = sim_call_object(c);
    if (!o || check_preconditions(c, options, o))
        return;
    o = o->deleting ? o : mark_evicted(c, o);
    delete_pod(c, o, sim_jsonx_int(options, "gracePeriodSeconds", -1));
    c->reply->status = 201;
    sim_status_write_success(&c->reply->body, 201, NULL);
}
