/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/sim.h"

#include "base/clock.h"

/* DELETE of one object or a collection, and evictions. */

struct options {
    int64_t grace_s; /* -1: absent */
    json_t *body;    /* DeleteOptions, or NULL */
};

static int read_options(struct call *c, struct options *o)
{
    struct err err;
    *o = (struct options){.grace_s = -1};
    if (sim_query_int(&c->query, "gracePeriodSeconds", -1, &o->grace_s, &err))
        return sim_refuse(c, 400, "%s", err.msg);
    if (!c->req->body.n)
        return 0;
    o->body = sim_jsonx_parse(c->req->body, &err);
    if (!json_is_object(o->body))
        return sim_refuse(c, 400, "couldn't get version/kind; json parse error: %s",
                          o->body ? "no JSON object" : err.msg);
    sim_jsonx_strip_nulls(o->body);
    if (sim_shape_check(sim_shape_delete_options, o->body, &err))
        return sim_refuse(c, 400, "%s", err.msg);
    o->grace_s = sim_jsonx_int(o->body, "gracePeriodSeconds", o->grace_s);
    return 0;
}

static int sim_delete_check(struct call *c, const json_t *options, const struct object *o)
{
    struct span uid = sim_jsonx_span(options, "preconditions.uid");
    struct span wanted = sim_jsonx_span(options, "preconditions.resourceVersion");
    cleanup_buf struct buf rv = {0};
    buf_add_i64(&rv, (int64_t)o->rv);
    if (uid.n && !span_eq(uid, o->uid))
        return sim_refuse_deletion(c, "UID", uid.p, o->uid);
    if (wanted.n && !span_eq(wanted, buf_span(&rv)))
        return sim_refuse_deletion(c, "ResourceVersion", wanted.p, buf_span(&rv));
    return 0;
}

/* Sets deletionTimestamp to `end_s`. */
static const struct object *mark(struct call *c, json_t *root, int64_t end_s,
                                 int64_t grace_s)
{
    cleanup_buf struct buf text = {0};
    json_t *meta = json_object_get(root, "metadata");
    bool first = !json_object_get(meta, "deletionTimestamp");
    clock_format_s(&text, end_s);
    sim_jsonx_set_str(meta, "deletionTimestamp", text.p);
    sim_jsonx_set_int(meta, "deletionGracePeriodSeconds", grace_s);
    if (first && json_object_get(meta, "generation"))
        sim_jsonx_set_int(meta, "generation", sim_jsonx_int(meta, "generation", 0) + 1);
    return sim_change_put(c->api, c->route.kind, root);
}

/* Removes the object, or sets deletionTimestamp if it has finalizers. */
static const struct object *delete_now(struct call *c, const struct object *o,
                                       json_t *root)
{
    if (!sim_meta_has_finalizers(root))
        return sim_change_remove(c->api, o);
    return o->deleting ? o : mark(c, root, c->now_ms / 1000, 0);
}

/* Sets deletionTimestamp first, also for grace period 0, and removes the object later. A
 * second deletion can only shorten the grace period. */
static const struct object *delete_gracefully(struct call *c, const struct object *o,
                                              json_t *root, int64_t grace_s, bool asked)
{
    enum { GRACE_MAX = 366 * 24 * 3600, KUBELET_MS = 1000 };
    int64_t old_s = sim_jsonx_int(root, "metadata.deletionGracePeriodSeconds", 0);
    int64_t start_s = c->now_ms / 1000, end_s;
    if (o->deleting && (!asked || grace_s >= old_s))
        return o;
    if (grace_s > GRACE_MAX)
        grace_s = GRACE_MAX;
    if (clock_parse(sim_jsonx_span(root, "metadata.deletionTimestamp"), &end_s))
        start_s = end_s - old_s;
    const struct object *now = mark(c, root, start_s + grace_s, grace_s);
    if (grace_s == 0)
        return sim_meta_has_finalizers(root) ? now : sim_change_remove(c->api, now);
    int64_t wait_ms = (start_s + grace_s) * 1000 - c->now_ms / 1000 * 1000;
    if (c->api->config.run_pods && wait_ms > KUBELET_MS)
        wait_ms = KUBELET_MS; /* the containers end soon after SIGTERM */
    sim_change_schedule(c->api, c->now_ms + wait_ms, TIMER_REMOVE, now);
    return now;
}

/* Pods, and objects that stay because of finalizers, are answered with the object; others
 * with a Status. */
static void answer_deleted(struct call *c, const struct object *o, const char *uid)
{
    cleanup_buf struct buf key = {0};
    bool stays = sim_store_find(
        c->store, sim_kind_key(c->route.kind, c->route.ns, c->route.name, &key));
    if (c->route.kind->graceful || (stays && !c->dry_run)) {
        sim_answer_object(c, 200, o);
        return;
    }
    struct status_about about = {.group = c->route.kind->group,
                                 .kind = c->route.kind->plural,
                                 .name = c->route.name,
                                 .uid = uid};
    c->reply->status = 200;
    sim_status_write_success(&c->reply->body, 200, &about);
}

const struct object *sim_delete_pod(struct call *c, const struct object *o,
                                    int64_t grace_s)
{
    cleanup_json_value json_t *root = sim_object_parse(o);
    return delete_gracefully(c, o, root, sim_pod_grace_s(root, grace_s), grace_s >= 0);
}

static void delete_object(struct call *c, const struct object *o,
                          const struct options *options)
{
    cleanup_buf struct buf uid = {0};
    buf_add_span(&uid, o->uid);
    if (!c->dry_run && c->route.kind->graceful) {
        o = sim_delete_pod(c, o, options->grace_s);
    } else if (!c->dry_run) {
        cleanup_json_value json_t *root = sim_object_parse(o);
        o = delete_now(c, o, root);
    }
    answer_deleted(c, o, uid.p);
}

void sim_delete_handle(struct call *c)
{
    struct options options;
    cleanup_buf struct buf key = {0};
    if (read_options(c, &options) == 0) {
        const struct object *o = sim_store_find(
            c->store, sim_kind_key(c->route.kind, c->route.ns, c->route.name, &key));
        if (!o)
            sim_refuse_not_found(c, c->route.kind, c->route.name);
        else if (sim_delete_check(c, options.body, o) == 0)
            delete_object(c, o, &options);
    }
    json_decref(options.body);
}

/*
 * Evicts a pod: sets the condition DisruptionTarget and deletes it gracefully. There are no
 * PodDisruptionBudgets here, so none refuses an eviction.
 */

static json_t *read_eviction(struct call *c)
{
    struct err err;
    cleanup_json_value json_t *e = sim_jsonx_parse(c->req->body, &err);
    if (!json_is_object(e)) {
        sim_refuse(c, 400, "couldn't get version/kind; json parse error: %s",
                   e ? "no JSON object" : err.msg);
        return NULL;
    }
    sim_jsonx_strip_nulls(e);
    sim_jsonx_make(e, "metadata");
    if (sim_shape_check(sim_shape_meta, e, &err) ||
        sim_shape_check(sim_shape_eviction, e, &err)) {
        sim_refuse(c, 400,
                   "Eviction in version \"v1\" cannot be handled as a Eviction: %s",
                   err.msg);
        return NULL;
    }
    if (!span_eq(sim_jsonx_span(e, "metadata.name"), c->route.name)) {
        sim_refuse(c, 400, "name in URL does not match name in Eviction object");
        return NULL;
    }
    return json_incref(e);
}

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
    cleanup_buf struct buf key = {0};
    cleanup_json_value json_t *e = read_eviction(c);
    if (!e)
        return;
    const json_t *options = sim_jsonx_at(e, "deleteOptions");
    const struct object *o = sim_store_find(
        c->store, sim_kind_key(c->route.kind, c->route.ns, c->route.name, &key));
    if (!o) {
        sim_refuse_not_found(c, c->route.kind, c->route.name);
        return;
    }
    if (sim_delete_check(c, options, o))
        return;
    c->dry_run |= json_array_size(sim_jsonx_at(options, "dryRun")) > 0;
    if (!c->dry_run) {
        o = o->deleting ? o : mark_evicted(c, o);
        sim_delete_pod(c, o, sim_jsonx_int(options, "gracePeriodSeconds", -1));
    }
    c->reply->status = 201;
    sim_status_write_success(&c->reply->body, 201, NULL);
}
