/* SPDX-License-Identifier: Apache-2.0 */

/* Computes and writes the plan of defrag. */

#include "cli/defrag_plan.h"

#include "base/mem.h"
#include "cli/table.h"

struct sources {
    struct defrag_rules *rules;
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
    return defrag_rules_allow(s->rules, pod ? pod->uid : (struct span){0}, node->name,
                              !(target && s->goal->node_is_cordoned));
}

/* 0 of a node means unknown. */
static int64_t left(int64_t allocatable, int64_t requested)
{
    return allocatable ? allocatable - requested : RESOURCES_MAX;
}

static struct resources node_room(void *ctx, const struct ledger_node *node)
{
    struct resources all = ledger_node_allocatable(node),
                     taken = ledger_node_requested(node);
    (void)ctx;
    return (struct resources){left(all.cpu_milli, taken.cpu_milli),
                              left(all.memory, taken.memory), left(all.pods, taken.pods)};
}

static struct resources pod_room(void *ctx, const struct ledger_pod *pod)
{
    (void)ctx;
    return ledger_pod_requests(pod);
}

struct request defrag_plan_shape(int64_t cards, int64_t mib, struct span models,
                                 int64_t unit_mib)
{
    return (struct request){.kind = mib ? REQUEST_MEMORY : REQUEST_CARDS,
                            .cards = (uint32_t)cards,
                            .units = mib ? (mib + unit_mib - 1) / unit_mib * cards : 0,
                            .mib_per_card = mib,
                            .by_label = mib % unit_mib != 0,
                            .models = models};
}

static int find_pod(const struct ledger *l, const struct defrag_plan_goal *goal,
                    struct defrag_plan_result *plan, struct err *err)
{
    struct ledger_pod *p = ledger_first_pod(l);
    while (p && !(span_eq(p->ns, goal->ns) && span_eq(p->name, goal->name)))
        p = ledger_next_pod(l, p);
    if (!p)
        return err_set(err, ERR_NOT_FOUND, "pod %.*s/%.*s not found among pods with GPUs",
                       SPAN_ARG(goal->ns), SPAN_ARG(goal->name));
    if (p->node)
        return err_set(err, ERR_INVALID, "pod %.*s/%.*s is already bound to node %.*s",
                       SPAN_ARG(p->ns), SPAN_ARG(p->name), SPAN_ARG(p->node->name));
    if (p->invalid_reason)
        return err_set(err, ERR_INVALID, "pod %.*s/%.*s: %s", SPAN_ARG(p->ns),
                       SPAN_ARG(p->name), p->invalid_reason);
    if (p->request->kind != REQUEST_MEMORY && p->request->kind != REQUEST_CARDS)
        return err_set(err, ERR_INVALID,
                       "pod %.*s/%.*s requests nvidia.com/gpu, whose cards the kubelet "
                       "chooses; expected gpu-mem or gpu-count",
                       SPAN_ARG(p->ns), SPAN_ARG(p->name));
    plan->pod = p;
    plan->request = *p->request;
    return 0;
}

int defrag_plan_compute(const struct cluster_state *cs, struct defrag_rules *rules,
                        const struct defrag_plan_goal *goal, struct arena *a,
                        struct defrag_plan_result *plan, struct err *err)
{
    const struct ledger *l = cluster_state_ledger(cs);
    *plan = (struct defrag_plan_result){.request = goal->shape};
    if (goal->name.n && find_pod(l, goal, plan, err))
        return -1;
    plan->node = goal->node.n ? ledger_node_find(l, goal->node) : NULL;
    if (goal->node.n && !plan->node)
        return err_set(err, ERR_NOT_FOUND, "nodes \"%.*s\" not found",
                       SPAN_ARG(goal->node));
    struct sources s = {rules, goal, plan->pod};
    const struct defrag_world world = {l, &s, may_move, may_run, node_room, pod_room};
    struct defrag_target target = {
        .pod.request = &plan->request, .room = {.pods = 1}, .node = goal->node};
    if (plan->pod) {
        target.room = pod_room(NULL, plan->pod);
        target.pod.priority = plan->pod->priority;
        target.pod.uid = plan->pod->uid;
    }
    plan->found = defrag_find(&world, &target, a, &plan->plan);
    return 0;
}

/* Appends what is to fit: "pod ns/name (8 whole cards)". */
static void defrag_plan_subject(struct buf *out, const struct cluster_state *cs,
                                const struct defrag_plan_result *plan)
{
    cleanup_buf struct buf text = {0};
    int64_t unit = ledger_settings(cluster_state_ledger(cs))->unit_mib;
    if (plan->pod)
        buf_printf(&text, "pod %.*s/%.*s (", SPAN_ARG(plan->pod->ns),
                   SPAN_ARG(plan->pod->name));
    request_write(&text, &plan->request, unit);
    if (plan->pod)
        buf_addc(&text, ')');
    table_plain(out, buf_span(&text));
}

/* The cards of the pod: "GPU0,GPU1". */
static void add_cards_of(struct buf *out, const struct ledger_node *node,
                         const struct ledger_pod *pod)
{
    const char *before = "GPU";
    for (uint32_t c = 0; c < node->n_cards; c++)
        if (ledger_pod_mib(pod, &node->cards[c]) >= 0) {
            buf_printf(out, "%s%d", before, node->cards[c].index);
            before = ",GPU";
        }
}

static void add_chosen(struct buf *out, const struct ledger_node *node, uint64_t chosen)
{
    for (const char *before = "GPU"; chosen; chosen &= chosen - 1, before = ",GPU")
        buf_printf(out, "%s%d", before, node->cards[__builtin_ctzll(chosen)].index);
}

static void add_rows(struct buf *out, const struct defrag_plan_result *plan, int64_t unit,
                     bool colors)
{
    static const char *const header[] = {"MOVE", "POD", "REQUEST", "FROM"};
    cleanup_table struct table t = {.colors = colors};
    for (size_t i = 0; i < ARRAY_LEN(header); i++)
        table_cell(&t, BOLD, "%s", header[i]);
    table_end(&t, BOLD, "TO");
    for (size_t i = 0; i < plan->plan.n; i++) {
        const struct defrag_move *m = &plan->plan.moves[i];
        cleanup_buf struct buf request = {0}, from = {0}, to = {0};
        request_write(&request, m->pod->request, unit);
        add_cards_of(&from, plan->plan.node, m->pod);
        add_chosen(&to, m->to, m->cards);
        table_cell(&t, PLAIN, "%zu", i + 1);
        table_cell(&t, PLAIN, "%.*s/%.*s", SPAN_ARG(m->pod->ns), SPAN_ARG(m->pod->name));
        table_span(&t, PLAIN, buf_span(&request));
        table_cell(&t, PLAIN, "%.*s %s", SPAN_ARG(plan->plan.node->name), from.p);
        table_end(&t, PLAIN, "%.*s %s", SPAN_ARG(m->to->name), to.p);
    }
    table_write(&t, out);
}

/* A reason for which pods stay. */
struct stay {
    const char *why;
    size_t pods;
    const struct ledger_pod *first; /* by namespace and name */
};
enum { STAYS_MAX = 32 };

static bool is_before(const struct ledger_pod *a, const struct ledger_pod *b)
{
    int order = span_cmp(a->ns, b->ns);
    return order ? order < 0 : span_cmp(a->name, b->name) < 0;
}

/* The reasons for which pods with cards stay: on the node, or anywhere if it is NULL. */
static size_t list_stays(const struct cluster_state *cs, const struct defrag_rules *rules,
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
        if (is_before(p, stays[i].first))
            stays[i].first = p;
    }
    return n;
}

static int compare_stays(const void *a, const void *b)
{
    const struct stay *x = a, *y = b;
    if (x->pods != y->pods)
        return x->pods > y->pods ? -1 : 1;
    return strcmp(x->why, y->why);
}

static void add_stays(struct buf *out, const struct cluster_state *cs,
                      const struct defrag_rules *rules, const struct ledger_node *node)
{
    struct stay stays[STAYS_MAX];
    size_t n = list_stays(cs, rules, node, stays);
    qsort(stays, n, sizeof *stays, compare_stays);
    for (size_t i = 0; i < n; i++) {
        cleanup_buf struct buf name = {0};
        buf_printf(&name, "%.*s/%.*s", SPAN_ARG(stays[i].first->ns),
                   SPAN_ARG(stays[i].first->name));
        buf_adds(out, "stays: pod ");
        table_plain(out, buf_span(&name));
        if (stays[i].pods > 1)
            buf_printf(out, " (and %zu more)", stays[i].pods - 1);
        buf_printf(out, " %s\n", stays[i].why);
    }
}

static void write_text(struct buf *out, const struct cluster_state *cs,
                       const struct defrag_rules *rules,
                       const struct defrag_plan_result *plan, bool colors)
{
    const struct defrag_plan *d = &plan->plan;
    cleanup_buf struct buf cards = {0};
    defrag_plan_subject(out, cs, plan);
    if (!plan->found) {
        if (plan->node)
            buf_printf(out, " does not fit on node %.*s, ", SPAN_ARG(plan->node->name));
        else
            buf_adds(out, " fits on no node, ");
        buf_adds(out, d->bounded ? "and the search found no moves that help in its time\n"
                                 : "whatever pods move\n");
        add_stays(out, cs, rules, plan->node);
        return;
    }
    add_chosen(&cards, d->node, d->cards);
    buf_printf(out, " fits on node %.*s (%s) ", SPAN_ARG(d->node->name), cards.p);
    if (!d->n) {
        buf_adds(out, "already; no pod has to move\n");
        return;
    }
    buf_printf(out, "after %zu move%s%s\n", d->n, d->n == 1 ? "" : "s",
               d->bounded ? " (a shorter plan may exist)" : "");
    add_rows(out, plan, ledger_settings(cluster_state_ledger(cs))->unit_mib, colors);
    add_stays(out, cs, rules, d->node);
}

static json_t *text_json(struct span text)
{
    json_t *s = json_stringn(text.n ? text.p : "", text.n);
    return s ? s : json_string("?");
}

static json_t *pod_json(const struct ledger_pod *pod)
{
    json_t *o = json_object();
    json_object_set_new(o, "namespace", text_json(pod->ns));
    json_object_set_new(o, "name", text_json(pod->name));
    json_object_set_new(o, "uid", text_json(pod->uid));
    return o;
}

static json_t *chosen_json(const struct ledger_node *node, uint64_t chosen)
{
    json_t *list = json_array();
    for (; chosen; chosen &= chosen - 1)
        json_array_append_new(list,
                              json_integer(node->cards[__builtin_ctzll(chosen)].index));
    return list;
}

static json_t *move_json(const struct defrag_plan *d, const struct defrag_move *m)
{
    json_t *o = pod_json(m->pod), *from = json_array();
    for (uint32_t c = 0; c < d->node->n_cards; c++)
        if (ledger_pod_mib(m->pod, &d->node->cards[c]) >= 0)
            json_array_append_new(from, json_integer(d->node->cards[c].index));
    json_object_set_new(o, "fromNode", text_json(d->node->name));
    json_object_set_new(o, "fromCards", from);
    json_object_set_new(o, "toNode", text_json(m->to->name));
    json_object_set_new(o, "toCards", chosen_json(m->to, m->cards));
    return o;
}

static json_t *plan_json(const struct cluster_state *cs, const struct defrag_rules *rules,
                         const struct defrag_plan_result *plan)
{
    const struct defrag_plan *d = &plan->plan;
    cleanup_buf struct buf text = {0};
    struct stay stays[STAYS_MAX];
    json_t *o = json_object(), *moves = json_array(), *list = json_array();
    request_write(&text, &plan->request,
                  ledger_settings(cluster_state_ledger(cs))->unit_mib);
    if (plan->pod)
        json_object_set_new(o, "pod", pod_json(plan->pod));
    json_object_set_new(o, "request", text_json(buf_span(&text)));
    json_object_set_new(o, "found", json_boolean(plan->found));
    json_object_set_new(o, "shortest", json_boolean(!d->bounded));
    if (plan->found) {
        json_object_set_new(o, "node", text_json(d->node->name));
        json_object_set_new(o, "cards", chosen_json(d->node, d->cards));
    }
    for (size_t i = 0; i < d->n; i++)
        json_array_append_new(moves, move_json(d, &d->moves[i]));
    json_object_set_new(o, "moves", moves);
    size_t n = list_stays(cs, rules, d->node ? d->node : plan->node, stays);
    qsort(stays, n, sizeof *stays, compare_stays);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s,s:I,s:o}", "reason", stays[i].why,
                                              "pods", (json_int_t)stays[i].pods, "first",
                                              pod_json(stays[i].first)));
    json_object_set_new(o, "stays", list);
    return o;
}

void defrag_plan_write(struct buf *out, const struct cluster_state *cs,
                       const struct defrag_rules *rules,
                       const struct defrag_plan_result *plan, enum show_format format,
                       bool colors)
{
    if (format == SHOW_TABLE || format == SHOW_WIDE) {
        write_text(out, cs, rules, plan, colors);
        return;
    }
    json_t *o = plan_json(cs, rules, plan);
    show_dump(out, o, format == SHOW_YAML);
    json_decref(o);
}
