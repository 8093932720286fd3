/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/quantity.h"
#include "extender/event_pod.h"
#include "extender/forward.h"
#include "extender/gang_minimum.h"
#include "extender/tried.h"
#include "extender/verb.h"
#include "kube/client.h"
#include "wire/httpd.h"

/*
 * The verb bind: its body, its reply, and which replica answers. core/core_bind.c is the bind
 * itself: the cards, the Binding and its outcome. Readers of that path skip from take_error to the
 * end of `forward`, which only followers do.
 *
 * kube-scheduler sends names and a UID, not the pod; the pod's request is known
 * from the watch. If no card fits any more, nothing is bound and Error gives the reason.
 * (The Go extender returned no error in that case and relied on the scheduler's assume
 * timeout. Since Kubernetes 1.23 an assumed pod never times out, so the pod would be
 * stuck.)
 *
 * Only the leader binds. A follower forwards the bind to the leader, and again if the
 * leader does not answer: to the same process, where the bind joins the first one, or to
 * the next leader, which lists all pods before it binds. While no replica is the leader,
 * the bind waits in bind_answer, the only place that waits for the lease.
 */

enum {
    FIND_MS = 2000,     /* to find a leader, beyond the duration of a lease, */
    LONGEST_MS = 20000, /* ... but no longer: kube-scheduler waits 30 s in all */
    ANSWER_MS = 20000,  /* for the leader's answer, once the leader may have the bind */
    STOP_MS = 2000,     /* to find a leader while this process stops */
    RETRY_MS = 100,     /* between two attempts */
    ATTEMPT_MIN_MS = 200,
    UNRENEWED_MS = 2000, /* an attempt when the last seen lease has expired */
};

static int read_args(struct span body, struct arena *a, struct core_driver_bind *bind,
                     struct err *err)
{
    const struct {
        const char *key, *what;
        struct span *to;
    } members[] = {{"PodName", "name", &bind->name},
                   {"PodNamespace", "name", &bind->ns},
                   {"PodUID", "UID", &bind->uid},
                   {"Node", "name", &bind->node}};
    struct jread j;
    struct jread_str key;
    jread_init(&j, body.p, body.n);
    jread_object(&j, "body");
    while (jread_member(&j, &key)) {
        size_t i = 0;
        while (i < ARRAY_LEN(members) &&
               !jread_str_eq_nocase(key, span_of(members[i].key)))
            i++;
        if (i < ARRAY_LEN(members))
            jread_text(&j, members[i].key, a, members[i].to);
        else
            jread_skip(&j);
    }
    if (jread_finish(&j, err))
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (!kube_is_path_part(*members[i].to))
            return err_set(err, ERR_INVALID, "%s is missing or not a valid %s",
                           members[i].key, members[i].what);
    return 0;
}

/* One call of the verb. */
struct bind_call {
    struct verbs *v;
    struct core_driver_bind bind;
    struct span body;
    bool forwarded; /* by another replica */
    bool at_leader; /* sent on to a leader, which may have received it */
    bool tried;     /* here; err is the result */
    int64_t since_ms;
    struct buf *reply;
    struct err err; /* why the pod is not bound yet */
};

static void log_result(const struct bind_call *c, const struct err *err)
{
    const struct core_driver_bind *b = &c->bind;
    if (err)
        log_info("bind", "bind failed", LOG_SPAN("namespace", b->ns),
                 LOG_SPAN("pod", b->name), LOG_SPAN("node", b->node), LOG_ERR(err));
    else
        log_info("bind", "pod bound", LOG_SPAN("namespace", b->ns),
                 LOG_SPAN("pod", b->name), LOG_SPAN("node", b->node));
}

static unsigned fail(struct bind_call *c, unsigned status)
{
    counters_bind(c->v->config.counters, c->err.code);
    log_result(c, &c->err);
    return verb_error(c->reply, status, &c->err);
}

/* Other requests can run while the bind waits: for members of its gang, for a bind that it joined,
 * until a GET decides, or, at a follower, for the leader. */
static void bind_waits(void *request)
{
    httpd_hold(request);
}

static bool bind_caller_gone(void *request)
{
    return httpd_client_gone(request);
}

/* Sets how many members of the pod's gang must start together, as struct core_input has it. -1:
 * the gang's object says what cannot be read. */
static int read_minimum(struct bind_call *c)
{
    struct verbs *v = c->v;
    cleanup_buf struct buf key = {0};
    uint32_t *minimum = &c->bind.gang_minimum;
    *minimum = 0;
    const struct ledger *l = core_ledger(core_driver_read(v->config.driver));
    const struct ledger_pod *pod = ledger_pod_find(l, c->bind.uid);
    if (pod && pod->member && !pod->node) {
        *minimum = pod->member->minimum;
        buf_add_span(&key, pod->member->gang->key);
    }
    core_driver_read_end(v->config.driver);
    struct span ns;
    struct gang gang;
    if (!key.n || *minimum || !v->config.gangs)
        return 0;
    gang_of_key(buf_span(&key), &ns, &gang);
    return gang_minimum_of(v->config.gangs, ns, &gang, minimum, &c->err);
}

/* 0: not bound, and this process may not bind now: another leads, or it must renew its lease, and
 * then BIND_ROUTE_WAIT leads back here. */
static unsigned bind_here(struct bind_call *c)
{
    const struct verbs_config *config = &c->v->config;
    bool not_now;
    if (read_minimum(c))
        return fail(c, 200);
    if (core_driver_bind(config->driver, &c->bind, &not_now, &c->err) == 0) {
        log_result(c, NULL);
        counters_bind(config->counters, ERR_NONE);
        event_pod_placed(config->recorder, config->driver, &c->bind);
        tried_forget(c->v->tried, c->bind.uid);
        buf_adds(c->reply, "{\"Error\":\"\"}");
        return 200;
    }
    c->tried = true;
    return not_now ? 0 : fail(c, 200);
}

static int64_t find_ms(const struct bind_call *c)
{
    int64_t lease_ms = c->v->config.lease_ms ?: CORE_LEASE_MS;
    return quantity_at_most(lease_ms + FIND_MS, LONGEST_MS);
}

/* A leader that was found late gets some time, too. */
static int64_t answer_ms(const struct bind_call *c)
{
    int64_t find = find_ms(c);
    return find > ANSWER_MS ? find : ANSWER_MS;
}

static bool is_late(const struct bind_call *c, bool stopping)
{
    int64_t limit = c->at_leader ? answer_ms(c) : stopping ? STOP_MS : find_ms(c);
    return clock_mono_ms() >= c->since_ms + limit;
}

/* Sets err to the Error of the leader's answer, or to the whole answer if it is not JSON.
 */
static void take_error(struct bind_call *c, const char *address, unsigned status,
                       const struct buf *answer)
{
    cleanup_arena struct arena a = {0};
    struct jread j;
    struct jread_str key;
    struct span error = {0};
    jread_init(&j, answer->n ? answer->p : "", answer->n);
    jread_object(&j, "answer");
    while (jread_member(&j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("Error")))
            jread_text(&j, "Error", &a, &error);
        else
            jread_skip(&j);
    }
    if (jread_finish(&j, NULL))
        error = buf_span(answer);
    err_set(&c->err, ERR_UNAVAILABLE, "the leader at %s answers %u: %.*s", address,
            status, (int)(error.n < 500 ? error.n : 500), error.n ? error.p : "");
}

/* A bind that the leader may hold for its gang, beyond the lease as this process has seen it. */
struct forwarded {
    const struct bind_call *c;
    const struct core_driver_route *route;
};

/* Ends the wait: the caller has gone, or the lease has expired or has another holder. */
static bool is_in_vain(void *ctx)
{
    const struct forwarded *f = ctx;
    const struct bind_call *c = f->c;
    bool ready;
    if (c->bind.gone && c->bind.gone(c->bind.ctx))
        return true;
    struct core_driver_route now =
        core_driver_route(c->v->config.driver, c->forwarded, &ready, NULL);
    return now.route != BIND_ROUTE_FORWARD || strcmp(now.address, f->route->address) != 0;
}

/* 0: no answer, or one that does not settle the bind. */
static unsigned forward(struct bind_call *c, const struct core_driver_route *route)
{
    const struct verbs_config *config = &c->v->config;
    cleanup_buf struct buf answer = {0};
    bool sent;
    int64_t now_ms = clock_mono_ms(), wait = c->since_ms + answer_ms(c) - now_ms;
    /* If its lease has expired, the leader stopped renewing or this process cannot read the Lease;
     * the leader, if it runs, is then asked again. */
    if (route->until_ms < now_ms && wait > UNRENEWED_MS)
        wait = UNRENEWED_MS;
    const struct forward_call call = {"bind",
                                      FORWARD_HEADER,
                                      route->address,
                                      c->body,
                                      wait < ATTEMPT_MIN_MS ? ATTEMPT_MIN_MS : wait,
                                      is_in_vain,
                                      &(struct forwarded){c, route}};
    if (c->bind.waits)
        c->bind.waits(c->bind.ctx);
    unsigned status = forward_verb(config->forward, &call, &answer, &sent, &c->err);
    c->at_leader |= sent && status != FORWARD_MISDIRECTED;
    log_debug("bind", "bind forwarded to the leader", LOG_SPAN("pod", c->bind.name),
              LOG_S("to", route->address), LOG_I("status", status));
    if (status == 200) {
        counters_bind_forwarded(config->counters);
        buf_add_span(c->reply, buf_span(&answer));
        return status;
    }
    if (status)
        take_error(c, route->address, status, &answer);
    core_driver_refresh_lease(config->driver);
    return 0;
}

/* 0: the attempt is to be repeated. */
static unsigned attempt(struct bind_call *c, bool *stopping)
{
    const struct verbs_config *config = &c->v->config;
    bool ready;
    struct err why = {0};
    struct core_driver_route route =
        core_driver_route(config->driver, c->forwarded, &ready, &why);
    *stopping = route.stopping;
    if (route.route == BIND_ROUTE_FORWARD && config->forward)
        return forward(c, &route);
    if (route.route != BIND_ROUTE_LOCAL && !c->tried)
        c->err = why;
    if (!ready)
        return fail(c, 503);
    if (route.route == BIND_ROUTE_LOCAL)
        return bind_here(c);
    if (route.route == BIND_ROUTE_REJECT)
        return fail(c, FORWARD_MISDIRECTED);
    core_driver_refresh_lease(config->driver);
    return 0;
}

unsigned bind_answer(struct verb_call *call)
{
    cleanup_arena struct arena a = {0};
    struct bind_call c = {.v = call->verbs,
                          .body = call->body,
                          .forwarded = call->source != VERB_SCHEDULER,
                          .since_ms = clock_mono_ms(),
                          .reply = call->reply};
    bool stopping;
    unsigned status;
    if (read_args(call->body, &a, &c.bind, &c.err))
        return verb_error(call->reply, 400, &c.err);
    if (call->request) {
        c.bind.waits = bind_waits;
        c.bind.gone = bind_caller_gone;
        c.bind.ctx = (void *)call->request;
    }
    while ((status = attempt(&c, &stopping)) == 0) {
        if (is_late(&c, stopping) || (c.bind.gone && c.bind.gone(c.bind.ctx)))
            return fail(&c, 200);
        core_driver_wait_may_bind(call->verbs->config.driver, RETRY_MS);
    }
    return status;
}
