/* SPDX-License-Identifier: Apache-2.0 */

/* defrag: which pods may be moved, and to which nodes; computes, writes and executes the
 * plan. */

#include "cli/defrag.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cli/table.h"
#include "domain/keys.h"
#include "kube/body.h"
#include "kube/list_watch.h"

/* -- the rules -- */

#define REQUIRED "requiredDuringSchedulingIgnoredDuringExecution"

static struct span annotation(const json_t *pod, const char *key)
{
    return jpath_text(json_object_get(jpath(pod, "metadata.annotations"), key), "");
}

static const json_t *controller_of(const json_t *pod)
{
    const json_t *owner;
    size_t i;
    json_array_foreach(jpath(pod, "metadata.ownerReferences"), i, owner)
    {
        if (json_is_true(json_object_get(owner, "controller")))
            return owner;
    }
    return NULL;
}

static const char *stays_for_controller(const json_t *pod, bool safe)
{
    static const char *const replacing[] = {"ReplicaSet", "ReplicationController",
                                            "StatefulSet"};
    const json_t *controller = controller_of(pod);
    struct span kind = jpath_text(controller, "kind");
    if (annotation(pod, KEY_MIRROR).n)
        return "is the mirror pod of a static pod";
    if (!controller)
        return "has no controller that would replace it";
    if (span_eq(kind, SPAN("DaemonSet")))
        return "belongs to a DaemonSet";
    for (size_t i = 0; i < ARRAY_LEN(replacing); i++)
        if (span_eq(kind, span_of(replacing[i])))
            return NULL;
    if (safe)
        return NULL;
    return span_eq(kind, SPAN("Job"))
               ? "belongs to a Job, which would lose its work (safe-to-evict is not true)"
               : "has a controller of an unknown kind (safe-to-evict is not true)";
}

static const char *stays_for_volumes(const json_t *spec, bool safe)
{
    const json_t *volume, *dir;
    size_t i;
    json_array_foreach(json_object_get(spec, "volumes"), i, volume)
    {
        if (json_object_get(volume, "persistentVolumeClaim") ||
            json_object_get(volume, "ephemeral"))
            return "has a volume claim, whose volume may be tied to nodes";
        dir = json_object_get(volume, "emptyDir");
        if (!safe && (json_object_get(volume, "hostPath") ||
                      (dir && !span_eq(jpath_text(dir, "medium"), SPAN("Memory")))))
            return "has local data: emptyDir or hostPath (safe-to-evict is not true)";
    }
    return NULL;
}

static bool is_checked_resource(const char *name)
{
    return !strchr(name, '/')
               ? strncmp(name, "hugepages-", 10) != 0
               : !strcmp(name, KEY_GPU_MEM) || !strcmp(name, KEY_GPU_COUNT) ||
                     !strcmp(name, KEY_GPU_SHARE);
}

/* `others`: resources of this domain do not matter; or NULL. */
static const char *stays_for_containers(const json_t *containers, const char *others)
{
    static const char *const lists[] = {"resources.requests", "resources.limits"};
    const json_t *c, *port, *amount;
    const char *name;
    size_t i, k;
    json_array_foreach(containers, i, c)
    {
        json_array_foreach(json_object_get(c, "ports"), k, port)
        {
            if (jpath_number(port, "hostPort"))
                return "uses a port of its node";
        }
        for (k = 0; k < ARRAY_LEN(lists); k++)
            json_object_foreach((json_t *)jpath(c, lists[k]), name, amount)
            {
                if (!is_checked_resource(name) &&
                    !(others && span_starts(span_of(name), span_of(others))))
                    return "requests a resource that the plan does not check";
            }
    }
    return NULL;
}

static const char *stays_for_constraints(const json_t *spec, const char *others)
{
    const json_t *spread;
    size_t i;
    if (jpath(spec, "affinity.podAffinity." REQUIRED) ||
        jpath(spec, "affinity.podAntiAffinity." REQUIRED))
        return "has required pod affinity or anti-affinity, which the plan does not "
               "check";
    json_array_foreach(json_object_get(spec, "topologySpreadConstraints"), i, spread)
    {
        if (!span_eq(jpath_text(spread, "whenUnsatisfiable"), SPAN("ScheduleAnyway")))
            return "has a topology spread constraint, which the plan does not check";
    }
    if (json_array_size(json_object_get(spec, "resourceClaims")))
        return "has resource claims, which the plan does not check";
    const char *why = stays_for_containers(json_object_get(spec, "containers"), others);
    return why ? why
               : stays_for_containers(json_object_get(spec, "initContainers"), others);
}

const char *defrag_rules_ties(const json_t *spec)
{
    const char *why = stays_for_volumes(spec, true);
    return why ? why : stays_for_constraints(spec, "nvidia.com/");
}

/* Also by what the extender does not reserve for: a minimum of 1, the label of Volcano's jobs. */
static bool names_a_group(const json_t *pod)
{
    static const char *const keys[] = {"pod-group.scheduling.sigs.k8s.io",
                                       "pod-group.scheduling.sigs.k8s.io/name",
                                       "scheduling.x-k8s.io/pod-group",
                                       "kueue.x-k8s.io/pod-group-name",
                                       "volcano.sh/job-name",
                                       "scheduling.k8s.io/group-name",
                                       "scheduling.volcano.sh/group-name"};
    bool any = jpath(pod, "spec.workloadRef") || jpath(pod, "spec.schedulingGroup");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        any |= annotation(pod, keys[i]).p ||
               json_object_get(jpath(pod, "metadata.labels"), keys[i]);
    return any;
}

static const char *stays(const json_t *pod)
{
    const json_t *spec = json_object_get(pod, "spec");
    struct span evict = annotation(pod, "cluster-autoscaler.kubernetes.io/safe-to-evict");
    bool safe = span_eq(evict, SPAN("true"));
    const char *why;
    if (jpath(pod, "metadata.deletionTimestamp"))
        return "is being deleted";
    if ((why = stays_for_controller(pod, safe)))
        return why;
    if (span_eq(evict, SPAN("false")))
        return "has the annotation safe-to-evict: false";
    if (names_a_group(pod))
        return "is a member of a gang";
    why = stays_for_volumes(spec, safe);
    return why ? why : stays_for_constraints(spec, NULL);
}

/* An O* that is absent is left out. */
void defrag_rules_add_pods(json_t *rules, const struct ledger *l, const json_t *items)
{
    const json_t *pod;
    size_t i;
    json_array_foreach(items, i, pod)
    {
        struct span uid = jpath_text(pod, "metadata.uid");
        const struct ledger_pod *p = ledger_pod_find(l, uid);
        if (!uid.n || !p)
            continue;
        json_object_set_new(rules, uid.p,
                            json_pack("{s:O*,s:s*}", "controller",
                                      json_object_get(controller_of(pod), "uid"), "stays",
                                      stays(pod)));
    }
}

static const json_t *pod_of(const json_t *rules, struct span uid)
{
    return json_object_getn(rules, uid.n ? uid.p : "", uid.n);
}

const char *defrag_rules_stays(const json_t *rules, struct span uid)
{
    const json_t *p = pod_of(rules, uid);
    return p ? jpath_text(p, "stays").p : "has just been created";
}

struct span defrag_rules_controller(const json_t *rules, struct span uid)
{
    return jpath_text(pod_of(rules, uid), "controller");
}

bool defrag_rules_allow(const struct ledger_pod *pod, const struct ledger_node *node,
                        bool cordoned_too)
{
    const bool open = !cordoned_too || !node->cordoned;
    return pod ? !ledger_node_judge(node, pod->terms) &&
                     (open || terms_tolerate_cordon(pod->terms))
               : open;
}

/* -- the plan -- */

struct sources {
    json_t *rules;
    const struct defrag_plan_goal *goal;
    const struct ledger_pod *pod; /* of the target; NULL: a shape */
};

static bool may_move(void *ctx, const struct ledger_pod *pod)
{
    const struct sources *s = ctx;
    return !defrag_rules_stays(s->rules, pod->uid);
}

static bool may_run(void *ctx, const struct ledger_pod *pod,
                    const struct ledger_node *node)
{
    const struct sources *s = ctx;
    bool target = !pod;
    if (target)
        pod = s->pod;
    return defrag_rules_allow(pod, node, !(target && s->goal->node_is_cordoned));
}

/* 0 of a node means unknown. */
static struct resources node_room(void *ctx, const struct ledger_node *node)
{
    struct resources all = ledger_node_allocatable(node),
                     taken = ledger_node_requested(node);
    (void)ctx;
    return (struct resources){all.cpu_milli ? all.cpu_milli - taken.cpu_milli
                                            : RESOURCES_MAX,
                              all.memory ? all.memory - taken.memory : RESOURCES_MAX,
                              all.pods ? all.pods - taken.pods : RESOURCES_MAX};
}

static struct resources pod_room(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return ledger_pod_requests(pod);
}

int defrag_plan_compute(const struct cluster_state *cs, json_t *rules,
                        const struct defrag_plan_goal *goal, struct arena *a,
                        struct defrag_plan_result *plan, struct err *err)
{
    const struct ledger *l = cluster_state_ledger(cs);
    struct ledger_pod *p = goal->name.n ? ledger_first_pod(l) : NULL;
    *plan = (struct defrag_plan_result){.request = goal->shape};
    while (p && !(span_eq(p->ns, goal->ns) && span_eq(p->name, goal->name)))
        p = ledger_next_pod(l, p);
    if (goal->name.n && !p)
        return err_set(err, ERR_NOT_FOUND, "pod %.*s/%.*s not found among pods with GPUs",
                       SHOW_POD(goal));
    if (p && p->node)
        return err_set(err, ERR_INVALID, "pod %.*s/%.*s is already bound to node %.*s",
                       SHOW_POD(p), SPAN_ARG(p->node->name));
    if (p && p->invalid_reason)
        return err_set(err, ERR_INVALID, "pod %.*s/%.*s: %s", SHOW_POD(p),
                       p->invalid_reason);
    if (p && p->request->kind != REQUEST_MEMORY && p->request->kind != REQUEST_CARDS)
        return err_set(err, ERR_INVALID,
                       "pod %.*s/%.*s requests nvidia.com/gpu, whose cards the kubelet "
                       "chooses; expected gpu-mem or gpu-count",
                       SHOW_POD(p));
    plan->node = goal->node.n ? ledger_node_find(l, goal->node) : NULL;
    if (goal->node.n && !plan->node)
        return err_set(err, ERR_NOT_FOUND, "nodes \"%.*s\" not found",
                       SPAN_ARG(goal->node));
    struct sources s = {rules, goal, p};
    const struct defrag_world world = {l, &s, may_move, may_run, node_room, pod_room};
    struct defrag_target target = {
        .pod.request = &plan->request, .room = {.pods = 1}, .node = goal->node};
    if (p) {
        plan->pod = p;
        plan->request = *p->request;
        target.room = ledger_pod_requests(p);
        target.pod.priority = p->priority;
        target.pod.uid = p->uid;
    }
    plan->found = defrag_find(&world, &target, a, &plan->plan);
    return 0;
}

/* The cards of the pod on the node, as bits. */
static uint64_t cards_of(const struct ledger_node *node, const struct ledger_pod *pod)
{
    uint64_t cards = 0;
    for (uint32_t c = 0; c < node->n_cards; c++)
        cards |= (uint64_t)(ledger_pod_mib(pod, &node->cards[c]) >= 0) << c;
    return cards;
}

/* "n1 GPU0,GPU1" */
static char *place_text(const struct ledger_node *node, uint64_t cards)
{
    struct buf out = {0};
    buf_add_span(&out, node->name);
    for (const char *before = " GPU"; cards; cards &= cards - 1, before = ",GPU")
        buf_printf(&out, "%s%d", before, node->cards[__builtin_ctzll(cards)].index);
    return buf_take(&out);
}

/* A reason for which pods stay. */
struct stay {
    const char *why;
    size_t pods;
    const struct ledger_pod *first; /* by namespace and name */
};
enum { STAYS_MAX = 32 };

static int compare_stays(const void *a, const void *b)
{
    const struct stay *x = a, *y = b;
    if (x->pods != y->pods)
        return x->pods > y->pods ? -1 : 1;
    return strcmp(x->why, y->why);
}

/* The reasons for which pods with cards stay: on the node, or anywhere if it is NULL. */
static size_t list_stays(const struct cluster_state *cs, const json_t *rules,
                         const struct ledger_node *node, struct stay *stays)
{
    const struct ledger *l = cluster_state_ledger(cs);
    size_t n = 0;
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p)) {
        const char *why = p->node && (!node || p->node == node)
                              ? defrag_rules_stays(rules, p->uid)
                              : NULL;
        size_t i = 0;
        if (!why)
            continue;
        while (i < n && strcmp(stays[i].why, why) != 0)
            i++;
        if (i == STAYS_MAX)
            continue;
        if (i == n)
            stays[n++] = (struct stay){.why = why, .first = p};
        stays[i].pods++;
        int order = span_cmp(p->ns, stays[i].first->ns);
        if (order < 0 || (!order && span_cmp(p->name, stays[i].first->name) < 0))
            stays[i].first = p;
    }
    qsort(stays, n, sizeof *stays, compare_stays);
    return n;
}

static void add_stays(struct buf *out, const struct cluster_state *cs,
                      const json_t *rules, const struct ledger_node *node)
{
    struct stay stays[STAYS_MAX];
    size_t n = list_stays(cs, rules, node, stays);
    for (size_t i = 0; i < n; i++) {
        table_text(out, "stays: pod %.*s/%.*s", SHOW_POD(stays[i].first));
        if (stays[i].pods > 1)
            buf_printf(out, " (and %zu more)", stays[i].pods - 1);
        buf_printf(out, " %s\n", stays[i].why);
    }
}

static json_t *cards_json(const struct ledger_node *node, uint64_t cards)
{
    json_t *list = json_array();
    for (; cards; cards &= cards - 1)
        json_array_append_new(list,
                              json_integer(node->cards[__builtin_ctzll(cards)].index));
    return list;
}

static json_t *plan_json(const struct cluster_state *cs, const json_t *rules,
                         const struct defrag_plan_result *plan)
{
    const struct defrag_plan *d = &plan->plan;
    cleanup_buf struct buf text = {0};
    struct stay stays[STAYS_MAX];
    json_t *moves = json_array(), *list = json_array();
    request_write(&text, &plan->request,
                  ledger_settings(cluster_state_ledger(cs))->unit_mib);
    ARRAY_EACH_ITEM(const struct defrag_move, m, d->moves, d->n)
    {
        json_t *o = show_json_pod(m->pod);
        json_object_set_new(o, "fromNode", show_json_text(d->node->name));
        json_object_set_new(o, "fromCards",
                            cards_json(d->node, cards_of(d->node, m->pod)));
        json_object_set_new(o, "toNode", show_json_text(m->to->name));
        json_object_set_new(o, "toCards", cards_json(m->to, m->cards));
        json_array_append_new(moves, o);
    }
    size_t n = list_stays(cs, rules, d->node ? d->node : plan->node, stays);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s,s:I,s:o}", "reason", stays[i].why,
                                              "pods", (json_int_t)stays[i].pods, "first",
                                              show_json_pod(stays[i].first)));
    return json_pack("{s:o*,s:o,s:b,s:b,s:o*,s:o*,s:o,s:o}", "pod",
                     plan->pod ? show_json_pod(plan->pod) : NULL, "request",
                     show_json_text(buf_span(&text)), "found", plan->found, "shortest",
                     !d->bounded, "node",
                     plan->found ? show_json_text(d->node->name) : NULL, "cards",
                     plan->found ? cards_json(d->node, d->cards) : NULL, "moves", moves,
                     "stays", list);
}

void defrag_plan_write(struct buf *out, const struct cluster_state *cs,
                       const json_t *rules, const struct defrag_plan_result *plan,
                       enum show_format format, bool colors)
{
    const struct defrag_plan *d = &plan->plan;
    int64_t unit = ledger_settings(cluster_state_ledger(cs))->unit_mib;
    bool many =
        !plan->pod && plan->request.kind == REQUEST_CARDS && plan->request.cards > 1;
    const char *fits = many ? "fit" : "fits";
    cleanup_buf struct buf request = {0};
    if (format == SHOW_JSON) {
        show_dump(out, plan_json(cs, rules, plan));
        return;
    }
    request_write(&request, &plan->request, unit);
    if (plan->pod)
        table_text(out, "pod %.*s/%.*s (%s)", SHOW_POD(plan->pod), request.p);
    else
        buf_add_printable(out, buf_span(&request));
    if (!plan->found) {
        if (plan->node)
            buf_printf(out, " %s not fit on node %.*s, ", many ? "do" : "does",
                       SPAN_ARG(plan->node->name));
        else
            buf_printf(out, " %s on no node, ", fits);
        buf_adds(out, d->bounded ? "and the search found no moves that help in its time\n"
                                 : "whatever pods move\n");
        add_stays(out, cs, rules, plan->node);
        return;
    }
    cleanup_free char *place = place_text(d->node, d->cards);
    buf_printf(out, " %s on node %.*s (%s) ", fits, SPAN_ARG(d->node->name),
               place + d->node->name.n + 1);
    if (!d->n) {
        buf_adds(out, "already; no pod has to move\n");
        return;
    }
    buf_printf(out, "after %zu move%s%s\n", d->n, show_plural(d->n),
               d->bounded ? " (a shorter plan may exist)" : "");
    cleanup_table struct table t = {.colors = colors};
    table_header(&t, "MOVE\tPOD\tREQUEST\tFROM\tTO");
    for (size_t i = 0; i < d->n; i++) {
        const struct defrag_move *m = &d->moves[i];
        cleanup_free char *from = place_text(d->node, cards_of(d->node, m->pod));
        cleanup_free char *to = place_text(m->to, m->cards);
        buf_clear(&request);
        request_write(&request, m->pod->request, unit);
        table_cell(&t, PLAIN, "%zu", i + 1);
        table_cell(&t, PLAIN, "%.*s/%.*s", SHOW_POD(m->pod));
        table_span(&t, PLAIN, buf_span(&request));
        table_cell(&t, PLAIN, "%s", from);
        table_cell(&t, PLAIN, "%s", to);
        table_end(&t);
    }
    table_write(&t, out);
    add_stays(out, cs, rules, d->node);
}

/* -- Execution, move by move -- */

enum {
    POLL_MS = 200, /* between two looks at signals and time */
    RETRY_S = 5,   /* after an eviction that a PodDisruptionBudget delays */
    RETRY_MAX_S = 60,
};

struct applying {
    struct session *s;
    json_t *rules;
    struct defrag_plan_goal goal; /* node: that of the plan */
    sigset_t signals;
};

__attribute__((format(printf, 1, 2))) static void say(const char *fmt, ...)
{
    cleanup_buf struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    table_vtext(&text, fmt, ap);
    va_end(ap);
    printf("%s\n", text.p);
    fflush(stdout);
}

static void say_bound(const struct ledger_pod *p)
{
    say("pod %.*s/%.*s is bound to node %.*s", SHOW_POD(p), SPAN_ARG(p->node->name));
}

/* Reads the pods that have come since the lists. */
static int read_new_pods(struct applying *w, struct err *err)
{
    const struct ledger *l = cluster_state_ledger(w->s->state);
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p)) {
        cleanup_buf struct buf path = {0};
        if (pod_of(w->rules, p->uid))
            continue;
        session_pod_path(&path, p->ns, p->name);
        json_t *pod = session_get(w->s, path.p, err);
        if (!pod && err->code != ERR_NOT_FOUND)
            return -1;
        json_auto_t *items = json_pack("[o]", pod);
        defrag_rules_add_pods(w->rules, l, items);
    }
    return 0;
}

static int set_cordon(struct applying *w, bool cordoned, struct err *err)
{
    cleanup_buf struct buf path = {0};
    buf_adds(&path, "/api/v1/nodes/");
    list_watch_escape(&path, w->goal.node);
    const struct kube_request request = {
        .method = "PATCH",
        .path = path.p,
        .content_type = "application/merge-patch+json",
        .body = cordoned ? SPAN("{\"spec\":{\"unschedulable\":true}}")
                         : SPAN("{\"spec\":{\"unschedulable\":null}}"),
        .timeout_ms = w->s->config->timeout_ms};
    return kube_send(w->s->client, &request, err)
               ? err_wrap(err, "node %.*s: cannot be %s", SPAN_ARG(w->goal.node),
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
};

/* 429: a PodDisruptionBudget does not allow the eviction now. */
static int evict(struct applying *w, const struct evicted *e, struct err *err)
{
    cleanup_buf struct buf what = {0}, path = {0}, body = {0};
    int64_t until_ms = deadline(w);
    bool said = false;
    session_pod_path(&path, e->ns, e->name);
    buf_adds(&path, "/eviction");
    body_eviction(&body, e->ns, e->name, e->uid, -1);
    buf_printf(&what, "eviction of pod %.*s/%.*s", SHOW_POD(e));
    const struct kube_request request = {.method = "POST",
                                         .path = path.p,
                                         .body = buf_span(&body),
                                         .timeout_ms = w->s->config->timeout_ms};
    for (;;) {
        cleanup_reply struct httpc_reply reply = {0};
        int rc = kube_call(w->s->client, &request, &reply, err);
        if (rc == 0 && reply.status != 404)
            rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
        bool again = rc && reply.status == 429;
        int64_t after_s = reply.retry_after_s > 0 ? reply.retry_after_s : RETRY_S;
        if (!again)
            return rc ? err_wrap(err, "%s", what.p) : 0;
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

static int move_one(struct applying *w, const struct ledger_pod *pod, struct err *err)
{
    const struct ledger *l = cluster_state_ledger(w->s->state);
    cleanup_arena struct arena a = {0};
    json_auto_t *before = json_object(); /* the UIDs of the controller's pods until now */
    const struct evicted e = {
        .uid = arena_copy(&a, pod->uid),
        .ns = arena_copy(&a, pod->ns),
        .name = arena_copy(&a, pod->name),
        .controller = arena_copy(&a, defrag_rules_controller(w->rules, pod->uid))};
    for (struct ledger_pod *p = ledger_first_pod(l); p; p = ledger_next_pod(l, p))
        if (span_eq(defrag_rules_controller(w->rules, p->uid), e.controller))
            json_object_setn_new(before, p->uid.p, p->uid.n, json_true());
    say("evicting pod %.*s/%.*s from node %.*s", SHOW_POD(&e), SPAN_ARG(w->goal.node));
    if (evict(w, &e, err))
        return -1;
    /* Waits until the replacement is bound and the evicted pod is gone. */
    cleanup_buf struct buf what = {0};
    buf_printf(&what, "replacement of pod %.*s/%.*s is bound", SHOW_POD(&e));
    for (int64_t until_ms = deadline(w);;) {
        if (read_new_pods(w, err))
            return -1;
        /* The bound pod that the controller has created since; NULL: none yet. */
        const struct ledger_pod *p = ledger_first_pod(l);
        while (p && !(p->node && !json_object_getn(before, p->uid.p, p->uid.n) &&
                      span_eq(defrag_rules_controller(w->rules, p->uid), e.controller)))
            p = ledger_next_pod(l, p);
        if (p && span_eq(p->node->name, w->goal.node))
            return err_set(
                err, ERR_CONFLICT,
                "pod %.*s/%.*s, which replaces %.*s, is bound to the same node",
                SHOW_POD(p), SPAN_ARG(e.name));
        if (p && !ledger_pod_find(l, e.uid)) {
            say_bound(p);
            return 0;
        }
        if (wait_a_moment(w, until_ms, what.p, err))
            return -1;
    }
}

/* Moves pods until the request fits on the node. */
static int move_all(struct applying *w, struct err *err)
{
    for (;;) {
        cleanup_arena struct arena a = {0};
        struct defrag_plan_result plan;
        if (read_new_pods(w, err) ||
            defrag_plan_compute(w->s->state, w->rules, &w->goal, &a, &plan, err))
            return -1;
        if (!plan.found)
            return err_set(err, ERR_CONFLICT,
                           "the other pods on node %.*s have no place elsewhere now; no "
                           "further pod is evicted",
                           SPAN_ARG(w->goal.node));
        if (!plan.plan.n)
            return 0;
        if (move_one(w, plan.plan.moves[0].pod, err))
            return -1;
    }
}

int defrag_apply_run(struct session *s, json_t *rules,
                     const struct defrag_plan_goal *goal,
                     const struct defrag_plan_result *plan, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct applying w = {.s = s, .rules = rules, .goal = *goal};
    struct span uid = plan->pod ? arena_copy(&a, plan->pod->uid) : (struct span){0};
    bool cordoned = plan->plan.node->cordoned;
    struct err why = {0};
    w.goal.node = arena_copy(&a, plan->plan.node->name);
    w.goal.node_is_cordoned = true;
    w.signals = signals_block();
    if (cordoned) {
        say("node %.*s is cordoned already and stays so", SPAN_ARG(w.goal.node));
        return move_all(&w, err);
    }
    if (set_cordon(&w, true, err))
        return -1;
    say("node %.*s cordoned; if this program is killed: kubectl uncordon %.*s",
        SPAN_ARG(w.goal.node), SPAN_ARG(w.goal.node));
    int rc = move_all(&w, err);
    bool lost = set_cordon(&w, false, &why) != 0;
    /* timeout(1) sends SIGTERM to kubectl, too. */
    bool again = lost && session_reconnect(s, &why) == 0;
    if (again)
        lost = set_cordon(&w, false, &why) != 0;
    if (!lost) {
        say("node %.*s uncordoned", SPAN_ARG(w.goal.node));
        if (again || rc || !uid.n)
            return rc;
        cleanup_buf struct buf what = {0};
        buf_printf(&what, "pod %.*s/%.*s is bound", SHOW_POD(goal));
        for (int64_t until_ms = deadline(&w);;) {
            const struct ledger_pod *p =
                ledger_pod_find(cluster_state_ledger(s->state), uid);
            if (!p)
                return err_set(err, ERR_NOT_FOUND, "pod %.*s/%.*s no longer exists",
                               SHOW_POD(goal));
            if (p->node) {
                say_bound(p);
                return 0;
            }
            if (wait_a_moment(&w, until_ms, what.p, err))
                return -1;
        }
    }
    say("%s; to do: kubectl uncordon %.*s", why.msg, SPAN_ARG(w.goal.node));
    if (rc == 0)
        *err = why;
    return -1;
}
