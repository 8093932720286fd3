/* SPDX-License-Identifier: Apache-2.0 */

/* Executes a plan of defrag, move by move. */

#include "cli/defrag_apply.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/table.h"
#include "kube/body.h"
#include "kube/list_watch.h"

enum {
    PAGE = 500,    /* objects per list call */
    POLL_MS = 200, /* between two looks at signals and time */
    RETRY_S = 5,   /* after an eviction that a PodDisruptionBudget delays */
    RETRY_MAX_S = 60,
};

struct applying {
    struct session *s;
    struct defrag_rules *rules;
    struct defrag_plan_goal goal; /* node: that of the plan */
    sigset_t signals;
    bool cordoned_here;
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    cleanup_buf struct buf text = {0}, plain = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    table_plain(&plain, buf_span(&text));
    printf("%s\n", plain.p ? plain.p : "");
    fflush(stdout);
}

/* -- Calls -- */

static json_t *body_of(const struct httpc_reply *reply)
{
    return json_loadb(reply->body.n ? reply->body.p : "", reply->body.n, 0, NULL);
}

static int call(const struct session *s, const char *method, const char *path,
                const char *type, struct span body, struct httpc_reply *reply,
                struct err *err)
{
    const struct kube_request request = {.method = method,
                                         .path = path,
                                         .content_type = type,
                                         .body = body,
                                         .gzip = true,
                                         .timeout_ms = s->config->timeout_ms};
    return kube_call(s->client, &request, reply, err);
}

typedef void (*add_items_fn)(struct session *s, struct defrag_rules *rules,
                             const json_t *items);

static void add_pods(struct session *s, struct defrag_rules *rules, const json_t *items)
{
    defrag_rules_add_pods(rules, cluster_state_ledger(session_state(s)), items);
}

static void add_nodes(struct session *s, struct defrag_rules *rules, const json_t *items)
{
    (void)s;
    defrag_rules_add_nodes(rules, items);
}

/* Reads one page; *next is the token of the following one. */
static int read_page(struct session *s, const char *path, struct defrag_rules *rules,
                     add_items_fn add, struct buf *next, struct err *err)
{
    struct httpc_reply reply = {0};
    int rc = call(s, "GET", path, NULL, (struct span){0}, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    json_t *list = rc == 0 ? body_of(&reply) : NULL;
    httpc_reply_fini(&reply);
    if (rc == 0 && !list)
        rc = err_set(err, ERR_INVALID, "GET %s: the response is not JSON", path);
    buf_clear(next);
    if (rc == 0) {
        const json_t *meta = json_object_get(list, "metadata");
        const char *token = json_string_value(json_object_get(meta, "continue"));
        buf_adds(next, token ? token : "");
        add(s, rules, json_object_get(list, "items"));
    }
    json_decref(list);
    return rc;
}

static int read_list(struct session *s, const char *what, struct defrag_rules *rules,
                     add_items_fn add, struct err *err)
{
    cleanup_buf struct buf next = {0}, path = {0};
    do {
        buf_clear(&path);
        buf_printf(&path, "%s?limit=%d", what, PAGE);
        if (next.n) {
            buf_adds(&path, "&continue=");
            list_watch_escape(&path, buf_span(&next));
        }
        if (read_page(s, path.p, rules, add, &next, err))
            return -1;
    } while (next.n);
    return 0;
}

int defrag_apply_load(struct session *s, struct defrag_rules *rules, struct err *err)
{
    return read_list(s, "/api/v1/nodes", rules, add_nodes, err) ||
                   read_list(s, "/api/v1/pods", rules, add_pods, err)
               ? -1
               : 0;
}

/* Reads the pods that have come since the lists. */
static int read_new_pods(struct applying *w, struct err *err)
{
    const struct ledger *l = cluster_state_ledger(session_state(w->s));
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p)) {
        cleanup_buf struct buf path = {0};
        struct httpc_reply reply = {0};
        if (defrag_rules_has_pod(w->rules, p->uid))
            continue;
        session_pod_path(&path, p->ns, p->name);
        int rc = call(w->s, "GET", path.p, NULL, (struct span){0}, &reply, err);
        if (rc == 0 && reply.status != 404)
            rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
        if (rc == 0 && reply.status == 200) {
            json_t *items = json_pack("[o]", body_of(&reply));
            add_pods(w->s, w->rules, items);
            json_decref(items);
        }
        httpc_reply_fini(&reply);
        if (rc)
            return -1;
    }
    return 0;
}

static int set_cordon(struct applying *w, bool cordoned, struct err *err)
{
    cleanup_buf struct buf path = {0};
    struct httpc_reply reply = {0};
    struct span body = cordoned ? SPAN("{\"spec\":{\"unschedulable\":true}}")
                                : SPAN("{\"spec\":{\"unschedulable\":null}}");
    buf_adds(&path, "/api/v1/nodes/");
    list_watch_escape(&path, w->goal.node);
    int rc =
        call(w->s, "PATCH", path.p, "application/merge-patch+json", body, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    httpc_reply_fini(&reply);
    return rc ? err_wrap(err, "node %.*s: cannot be %s", SPAN_ARG(w->goal.node),
                         cordoned ? "cordoned" : "uncordoned")
              : 0;
}

/* -- Waiting -- */

/* Follows the cluster for a moment. -1: interrupted, or too late. */
static int wait_a_moment(struct applying *w, int64_t until_ms, const char *what,
                         struct err *err)
{
    static const struct timespec now = {0};
    if (sigtimedwait(&w->signals, NULL, &now) > 0)
        return err_set(err, ERR_UNAVAILABLE, "interrupted while waiting for %s", what);
    if (clock_mono_ms() >= until_ms)
        return err_set(err, ERR_TIMEOUT, "%s: not within --move-timeout %lld s", what,
                       (long long)w->s->config->move_timeout_ms / 1000);
    session_wait(w->s, POLL_MS);
    return 0;
}

static int64_t deadline(const struct applying *w)
{
    return clock_mono_ms() + w->s->config->move_timeout_ms;
}

/* -- One move -- */

/* The evicted pod. The strings are in the arena, because the ledger drops the pod. */
struct evicted {
    struct span uid, ns, name, controller;
    struct span *before; /* UIDs of the controller's pods before the eviction */
    size_t n_before;
};

static void read_evicted(struct applying *w, const struct ledger_pod *pod,
                         struct arena *a, struct evicted *e)
{
    const struct ledger *l = cluster_state_ledger(session_state(w->s));
    size_t n = 0;
    *e = (struct evicted){.uid = arena_copy(a, pod->uid),
                          .ns = arena_copy(a, pod->ns),
                          .name = arena_copy(a, pod->name)};
    e->controller = arena_copy(a, defrag_rules_controller(w->rules, pod->uid));
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p))
        n++;
    e->before = arena_alloc(a, (n + 1) * sizeof *e->before);
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p))
        if (span_eq(defrag_rules_controller(w->rules, p->uid), e->controller))
            e->before[e->n_before++] = arena_copy(a, p->uid);
}

static int post_eviction(struct applying *w, const struct evicted *e,
                         struct httpc_reply *reply, struct err *err)
{
    cleanup_buf struct buf path = {0};
    session_pod_path(&path, e->ns, e->name);
    buf_adds(&path, "/eviction");
    cleanup_buf struct buf body = {0};
    body_eviction(&body, e->ns, e->name, e->uid, -1);
    return call(w->s, "POST", path.p, NULL, buf_span(&body), reply, err);
}

/* 429: a PodDisruptionBudget does not allow the eviction now. */
static int evict(struct applying *w, const struct evicted *e, struct err *err)
{
    cleanup_buf struct buf what = {0};
    int64_t until_ms = deadline(w);
    bool said = false;
    buf_printf(&what, "eviction of pod %.*s/%.*s", SPAN_ARG(e->ns), SPAN_ARG(e->name));
    for (;;) {
        struct httpc_reply reply = {0};
        if (post_eviction(w, e, &reply, err))
            return err_wrap(err, "%s", what.p);
        int rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
        unsigned status = reply.status;
        int64_t after_s = reply.retry_after_s > 0 ? reply.retry_after_s : RETRY_S;
        httpc_reply_fini(&reply);
        if (rc == 0 || status == 404)
            return 0;
        if (status != 429)
            return err_wrap(err, "%s", what.p);
        if (!said)
            say("%s: %s; retrying", what.p, err->msg);
        said = true;
        int64_t retry_ms =
            clock_mono_ms() + (after_s < RETRY_MAX_S ? after_s : RETRY_MAX_S) * 1000;
        while (clock_mono_ms() < retry_ms)
            if (wait_a_moment(w, until_ms, what.p, err))
                return -1;
    }
}

static bool was_before(const struct evicted *e, struct span uid)
{
    for (size_t i = 0; i < e->n_before; i++)
        if (span_eq(e->before[i], uid))
            return true;
    return false;
}

/* The bound pod that the controller has created since; NULL: none yet. */
static const struct ledger_pod *find_replacement(struct applying *w,
                                                 const struct evicted *e)
{
    const struct ledger *l = cluster_state_ledger(session_state(w->s));
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p))
        if (p->node && !was_before(e, p->uid) &&
            span_eq(defrag_rules_controller(w->rules, p->uid), e->controller))
            return p;
    return NULL;
}

/* Waits until the replacement is bound and the evicted pod is gone. */
static int await_replacement(struct applying *w, const struct evicted *e, struct err *err)
{
    cleanup_buf struct buf what = {0};
    int64_t until_ms = deadline(w);
    buf_printf(&what, "replacement of pod %.*s/%.*s is bound", SPAN_ARG(e->ns),
               SPAN_ARG(e->name));
    for (;;) {
        if (read_new_pods(w, err))
            return -1;
        const struct ledger *l = cluster_state_ledger(session_state(w->s));
        const struct ledger_pod *p = find_replacement(w, e);
        if (p && span_eq(p->node->name, w->goal.node))
            return err_set(
                err, ERR_CONFLICT,
                "pod %.*s/%.*s, which replaces %.*s, is bound to the same node",
                SPAN_ARG(p->ns), SPAN_ARG(p->name), SPAN_ARG(e->name));
        if (p && !ledger_pod_find(l, e->uid)) {
            say("pod %.*s/%.*s is bound to node %.*s", SPAN_ARG(p->ns), SPAN_ARG(p->name),
                SPAN_ARG(p->node->name));
            return 0;
        }
        if (wait_a_moment(w, until_ms, what.p, err))
            return -1;
    }
}

static int move_one(struct applying *w, const struct defrag_move *move, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct evicted e;
    read_evicted(w, move->pod, &a, &e);
    say("evicting pod %.*s/%.*s from node %.*s", SPAN_ARG(e.ns), SPAN_ARG(e.name),
        SPAN_ARG(w->goal.node));
    return evict(w, &e, err) || await_replacement(w, &e, err) ? -1 : 0;
}

/* Moves pods until the request fits on the node. */
static int move_all(struct applying *w, struct err *err)
{
    for (;;) {
        cleanup_arena struct arena a = {0};
        struct defrag_plan_result plan;
        if (read_new_pods(w, err) ||
            defrag_plan_compute(session_state(w->s), w->rules, &w->goal, &a, &plan, err))
            return -1;
        if (!plan.found)
            return err_set(err, ERR_CONFLICT,
                           "the other pods on node %.*s have no place elsewhere now; no "
                           "further pod is evicted",
                           SPAN_ARG(w->goal.node));
        if (!plan.plan.n)
            return 0;
        if (move_one(w, &plan.plan.moves[0], err))
            return -1;
    }
}

static int await_bound(struct applying *w, struct span uid, struct err *err)
{
    cleanup_buf struct buf what = {0};
    int64_t until_ms = deadline(w);
    buf_printf(&what, "pod %.*s/%.*s is bound", SPAN_ARG(w->goal.ns),
               SPAN_ARG(w->goal.name));
    for (;;) {
        const struct ledger_pod *p =
            ledger_pod_find(cluster_state_ledger(session_state(w->s)), uid);
        if (!p)
            return err_set(err, ERR_NOT_FOUND, "pod %.*s/%.*s no longer exists",
                           SPAN_ARG(w->goal.ns), SPAN_ARG(w->goal.name));
        if (p->node) {
            say("pod %.*s/%.*s is bound to node %.*s", SPAN_ARG(p->ns), SPAN_ARG(p->name),
                SPAN_ARG(p->node->name));
            return 0;
        }
        if (wait_a_moment(w, until_ms, what.p, err))
            return -1;
    }
}

static int cordon(struct applying *w, bool cordoned, struct err *err)
{
    if (cordoned) {
        say("node %.*s is cordoned already and stays so", SPAN_ARG(w->goal.node));
        return 0;
    }
    if (set_cordon(w, true, err))
        return -1;
    w->cordoned_here = true;
    say("node %.*s cordoned; if this program is killed: kubectl uncordon %.*s",
        SPAN_ARG(w->goal.node), SPAN_ARG(w->goal.node));
    return 0;
}

static int uncordon(struct applying *w, int rc, struct err *err)
{
    struct err why = {0};
    if (!w->cordoned_here)
        return rc;
    if (set_cordon(w, false, &why) == 0) {
        say("node %.*s uncordoned", SPAN_ARG(w->goal.node));
        return rc;
    }
    say("%s; to do: kubectl uncordon %.*s", why.msg, SPAN_ARG(w->goal.node));
    if (rc == 0)
        *err = why;
    return -1;
}

int defrag_apply_run(struct session *s, struct defrag_rules *rules,
                     const struct defrag_plan_goal *goal,
                     const struct defrag_plan_result *plan, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct applying w = {.s = s, .rules = rules, .goal = *goal};
    struct span uid = plan->pod ? arena_copy(&a, plan->pod->uid) : (struct span){0};
    bool cordoned = plan->plan.node->cordoned;
    w.goal.node = arena_copy(&a, plan->plan.node->name);
    w.goal.node_is_cordoned = true;
    w.signals = signals_block();
    int rc = cordon(&w, cordoned, err);
    if (rc == 0)
        rc = move_all(&w, err);
    rc = uncordon(&w, rc, err);
    if (rc == 0 && uid.n && !cordoned)
        return await_bound(&w, uid, err);
    return rc;
}
