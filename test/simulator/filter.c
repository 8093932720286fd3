/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include "extender/tried.h"

#include <string.h>

#include "extender/gang_minimum.h"
#include "extender/verb.h"

/*
 * filter of a replica: extender/filter.c itself, from the bytes of the call to those of the
 * reply. What it asks of its process is answered here, in the place of core_driver.c,
 * forward.c and gang_minimum.c: the linker takes these definitions before the archive's.
 *
 * While filter waits for a PodGroup the world goes on: leases lapse, pods change, and the
 * replica may freeze or crash. kube-scheduler waits, too.
 */

/* A call of filter at a replica. */
struct core_driver {
    struct world *w;
    struct replica *r;
    struct core *core; /* kept after a crash, until the call ends */
    struct core_driver *outer;
};

/* Of the last core_driver_read: core_driver_now has no argument. */
static struct step_time read_at;

static bool has_crashed(const struct core_driver *d)
{
    return d->r->core != d->core;
}

bool filter_keeps(const struct world *w, const struct core *core)
{
    const struct core_driver *d = w->filter;
    while (d && d->core != core)
        d = d->outer;
    return d;
}

static void wait_until_up(const struct core_driver *d)
{
    while (!has_crashed(d) && !replica_up(d->w, d->r) &&
           world_run(d->w, d->r->paused_until))
        ;
}

const struct core *core_driver_read(struct core_driver *d)
{
    read_at = replica_time(d->w, d->r);
    return d->core;
}

void core_driver_read_end(struct core_driver *d)
{
    (void)d;
}

struct step_time core_driver_now(void)
{
    return read_at;
}

const struct view_source *core_driver_source(const struct core_driver *d)
{
    (void)d;
    return NULL; /* for Events, which are off */
}

void core_driver_input(struct core_driver *d, const struct core_input *in)
{
    if (!has_crashed(d))
        replica_input(d->w, d->r, in);
}

void core_driver_refresh_lease(struct core_driver *d)
{
    core_driver_input(d, &(struct core_input){.type = CORE_REFRESH_LEASE});
}

struct core_driver_route core_driver_route(struct core_driver *d, bool forwarded,
                                           bool *ready, struct err *err)
{
    struct bind_route way =
        core_bind_route(d->core, replica_time(d->w, d->r), forwarded, err);
    struct core_driver_route out = {.route = way.route};
    *ready = true;
    memcpy(out.address, way.address.p ? way.address.p : "", way.address.n);
    return out;
}

enum core_reserve_outcome core_driver_reserve(struct core_driver *d,
                                              const struct core_input *wanted,
                                              struct buf *why, size_t *at)
{
    struct world *w = d->w;
    *at = wanted->n_nodes;
    if (has_crashed(d))
        return CORE_RESERVE_NOT_NOW;
    replica_input(w, d->r, wanted);
    cleanup_free struct core_output *o = steal(&w->reserved);
    w->reserve = o->reserve;
    w->stats.gangs_held += o->reserve == CORE_RESERVE_GANG_WAITS;
    if (why && o->text)
        buf_adds(why, o->text);
    for (size_t i = wanted->n_nodes; o->node && i-- > 0;)
        if (span_eq(wanted->nodes[i], span_of(o->node)))
            *at = i;
    return o->reserve;
}

/* Gangs whose name begins with b have the policy basic. */
int gang_minimum_of(struct gang_minimum *g, struct span ns, const struct gang *gang,
                    uint32_t *minimum, struct err *err)
{
    const struct core_driver *d = (const struct core_driver *)g;
    (void)ns, (void)err;
    if (chance(d->w, 100)) {
        d->w->stats.gang_waits++;
        if (chance(d->w, 100)) /* the lease may lapse meanwhile */
            replica_pause(d->w, d->r, between(d->w, 500, 12000));
        world_run(d->w, d->w->now_ms + between(d->w, 0, GANG_MINIMUM_CALL_MS));
    }
    wait_until_up(d);
    cleanup_free char *name = xmemdup0(gang->name.p, gang->name.n);
    *minimum = *name == 'b' ? 1 : gangs_minimum(d->w, name);
    return 0;
}

/* The status; 0: the replica has crashed. */
static unsigned answer(struct world *w, struct replica *r, struct span body,
                       enum verb_source source, struct buf *reply)
{
    struct core_driver d = {w, r, r->core, w->filter};
    const struct verbs_config config = {.driver = &d,
                                        .policy =
                                            (enum score_policy)any(w, SCORE_POLICIES),
                                        .answer = 1,
                                        .forward = (struct forward *)&d,
                                        .gangs = (struct gang_minimum *)&d};
    w->filter = &d;
    struct verbs *verbs = verbs_new(&config);
    struct tried *none = verbs->tried, *tried = r->tried;
    verbs->tried = tried;
    unsigned status = filter_answer(&(struct verb_call){
        .verbs = verbs, .body = body, .source = source, .reply = reply});
    verbs->tried = none;
    verbs_free(verbs);
    w->filter = d.outer;
    if (!has_crashed(&d))
        return status;
    tried_free(tried);
    core_free(d.core);
    return 0;
}

/* The network between the replicas may lose the answer. */
unsigned forward_verb(struct forward *f, const struct forward_call *call,
                      struct buf *reply, bool *sent, struct err *err)
{
    const struct core_driver *d = (const struct core_driver *)f;
    struct world *w = d->w;
    int to = replica_at(span_of(call->address));
    *sent = to < w->n_replicas && to != d->r->id &&
            w->apart_until[d->r->id][to] <= w->now_ms && replica_up(w, &w->replicas[to]);
    err_set(err, ERR_UNAVAILABLE, "no answer");
    unsigned status =
        *sent ? answer(w, &w->replicas[to], call->body, VERB_REPLICA, reply) : 0;
    wait_until_up(d);
    return chance(w, w->weather.lose_reply) ? 0 : status;
}

/* Those of layout preemption are made by evictions.c. */
struct forward_reports *forward_reports_start(struct forward *f, struct budget *budget,
                                              int64_t timeout_ms)
{
    (void)budget, (void)timeout_ms;
    return (struct forward_reports *)f;
}

bool forward_reports_add(struct forward_reports *r, const char *address, struct span body)
{
    const struct core_driver *d = (const struct core_driver *)r;
    int to = replica_at(span_of(address));
    cleanup_buf struct buf reply = {0};
    return to < d->w->n_replicas && to != d->r->id &&
           d->w->apart_until[d->r->id][to] <= d->w->now_ms &&
           replica_up(d->w, &d->w->replicas[to]) &&
           answer(d->w, &d->w->replicas[to], body, VERB_REPORT, &reply);
}

void forward_reports_free(struct forward_reports *r)
{
    (void)r;
}

/* Does a replica reserve cards for the pod, or promise them? */
static bool has_cards(const struct world *w, const char *uid)
{
    for (int i = 0; i < w->n_replicas; i++) {
        const struct core *core = w->replicas[i].core;
        const struct ledger_pod *pod = core ? replica_pod(&w->replicas[i], uid) : NULL;
        if ((pod && pod->node) ||
            (core && ledger_reservation_find(core_ledger(core), span_of(uid))))
            return true;
    }
    return false;
}

/* Sends the body of a call; the result is that of filter_call. */
static int send_call(struct world *w, struct replica *asked, const char *uid,
                     const struct buf *body, bool reservable)
{
    cleanup_buf struct buf reply = {0};
    w->reserve = CORE_RESERVE_NOT_NOW;
    *w->refusal = '\0';
    if (answer(w, asked, buf_span(body), VERB_SCHEDULER, &reply) != 200)
        return -2;
    json_t *root = json_loadb(reply.p, reply.n, 0, NULL);
    json_t *first = json_array_get(json_object_get(root, "NodeNames"), 0);
    /* A plain pod of nvidia.com/gpu passes on the nodes x0, x1 ..., which nobody knows here. */
    int node = first && *json_string_value(first) == 'x'
                   ? -2
                   : oracle_index(json_string_value(first));
    static const char *const maps[] = {"FailedNodes", "FailedAndUnresolvableNodes"};
    for (size_t i = 0; i < ARRAY_LEN(maps) && !*w->refusal; i++) {
        void *at = json_object_iter(json_object_get(root, maps[i]));
        const char *text = at ? json_string_value(json_object_iter_value(at)) : NULL;
        snprintf(w->refusal, sizeof w->refusal, "%s", text ? text : "");
    }
    json_decref(root);
    bool in_gang = strstr(body->p, "pod-group\":\"g");
    bool bare = node >= 0 && reservable && w->reserve != CORE_RESERVE_PROMISED &&
                !has_cards(w, uid);
    w->stats.unreserved += bare && !in_gang;
    if (bare && in_gang)
        violated(w, "%s, a member of a gang, gets a node and no reservation", uid);
    return node;
}

int filter_call(struct world *w, struct replica *asked, const char *uid, struct span pod,
                bool reservable)
{
    cleanup_buf struct buf body = {0};
    buf_printf(&body, "{\"Pod\":%.*s,\"NodeNames\":[", SPAN_ARG(pod));
    for (int i = 0; i < (w->samples ? NODES / 2 : NODES); i++)
        buf_printf(&body, "%s\"%s\"", i ? "," : "",
                   node_names[(w->offered_from + i) % NODES]);
    for (int i = 0; w->samples && i < 100; i++)
        buf_printf(&body, ",\"x%d\"", i);
    buf_adds(&body, "]}");
    if (w->samples)
        w->offered_from = any(w, NODES);
    return send_call(w, asked, uid, &body, reservable);
}

int filter_call_on(struct world *w, struct replica *asked, const char *uid,
                   struct span pod, bool reservable, const int *nodes, size_t n)
{
    cleanup_buf struct buf body = {0};
    buf_printf(&body, "{\"Pod\":%.*s,\"NodeNames\":[", SPAN_ARG(pod));
    for (size_t i = 0; i < n; i++)
        buf_printf(&body, "%s\"%s\"", i ? "," : "", node_names[nodes[i]]);
    buf_adds(&body, "]}");
    return send_call(w, asked, uid, &body, reservable);
}
