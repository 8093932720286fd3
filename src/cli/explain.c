/* SPDX-License-Identifier: Apache-2.0 */

/* explain pod: loads what it needs, the page, and the text of a bound pod. Pending pods:
 * explain_pending.c. */

#include "cli/explain_priv.h"

#include <inttypes.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "domain/diagnosis.h"
#include "domain/keys.h"
#include "kube/pod_group.h"

void explain_request(struct explain_page *p)
{
    cleanup_buf struct buf text = {0};
    request_write(&text, p->pod->request, p->unit);
    buf_add_printable(p->out, buf_span(&text));
}

struct span explain_unscheduled(const json_t *pod, bool *tried)
{
    const json_t *conditions = jpath(pod, "status.conditions"), *item;
    struct span message = {0};
    size_t i;
    json_array_foreach(conditions, i, item)
    {
        if (!span_eq(jpath_text(item, "type"), SPAN("PodScheduled")))
            continue;
        if (tried)
            *tried = true;
        if (span_eq(jpath_text(item, "status"), SPAN("False")))
            message = jpath_text(item, "message");
    }
    return message;
}

static void add_condition(struct explain_page *p)
{
    enum { UNTRIED_S = 10 };
    bool tried = false, known = false;
    int64_t created_s;
    struct span message = explain_unscheduled(p->facts->object, &tried);
    if (message.n)
        table_line(p->out, "kube-scheduler: %.*s", SPAN_ARG(message));
    struct span scheduler = jpath_text(p->facts->object, "spec.schedulerName");
    if (tried ||
        !clock_parse(jpath_text(p->facts->object, "metadata.creationTimestamp"),
                     &created_s) ||
        p->facts->now_s - created_s < UNTRIED_S)
        return;
    const uint32_t hash = ledger_scheduler(scheduler);
    for (const struct ledger_pod *pod = ledger_first_pod(p->l); pod && !known;
         pod = ledger_next_pod(p->l, pod))
        known = pod->node && pod->scheduler == hash;
    table_line(p->out,
               "! no scheduler has tried the pod for %" PRId64 " s: schedulerName is "
               "%.*s%s",
               p->facts->now_s - created_s,
               SPAN_ARG(scheduler.n ? scheduler : SPAN("default-scheduler")),
               known ? "" : ", by which no pod with a card was bound");
}

void explain_promises(struct buf *out, const struct ledger_node *node,
                      const struct card *card, int64_t unit, struct arena *a)
{
    const struct ledger_pod **pods;
    size_t n = view_sort_pods(node->pods, a, &pods);
    const char *before = "; promised: ";
    for (size_t i = 0; i < n; i++) {
        int64_t mib = ledger_pod_mib(pods[i], card);
        if (mib < 0)
            continue;
        buf_printf(out, "%s%.*s/%.*s %s", before, SHOW_POD(pods[i]),
                   show_units(mib, unit).s);
        before = ", ";
    }
}

/* -- a bound pod -- */

static void add_source(struct explain_page *p, const struct cluster_state_pod *object)
{
    const struct request *r = p->pod->request;
    bool binpack = r->placement == PLACE_BINPACK;
    if (r->kind == REQUEST_DEVICES) {
        buf_adds(p->out, "  the kubelet chooses the card of an nvidia.com/gpu request\n");
        return;
    }
    if (r->kind == REQUEST_NONE)
        return;
    if (!p->pod->n_shares) {
        buf_adds(p->out,
                 "  its card is unknown: no valid annotation " KEY_MEM_IDX
                 "; so it counts on the cards of the podList once it runs, else on every "
                 "card of the node\n");
        return;
    }
    if (p->pod->shares[0].card < 0) {
        buf_adds(p->out, "  promised by hami.io/vgpu-devices-allocated\n");
        return;
    }
    table_text(p->out, "  annotation %s \"%.*s\", %s",
               object->idx.p ? KEY_MEM_IDX : KEY_ALLOCATION,
               SPAN_ARG(object->idx.p ? object->idx : object->allocation),
               object->allocation.p ? "written by the extender at bind"
                                    : "in the form of the Go extender");
    if (r->kind == REQUEST_MEMORY && object->allocation.p)
        buf_printf(p->out, "; policy %s: the card with the %s free memory that fits",
                   binpack ? "binpack" : "spread", binpack ? "least" : "most");
    buf_addc(p->out, '\n');
    buf_adds(p->out, span_eq(object->assigned, SPAN("true"))
                         ? "  confirmed by the device plugin\n"
                         : "  not yet confirmed by the device plugin\n");
}

static void add_difference(void *ctx, const struct disagreement *d)
{
    const struct explain_page *p = ctx;
    cleanup_buf struct buf text = {0};
    disagreement_write(&text, p->pod->node, d);
    if (text.n)
        table_line(p->out, "  difference: %s", text.p);
}

static void explain_bound(struct explain_page *p, const struct cluster_state_pod *object)
{
    const struct ledger_node *node = p->pod->node;
    bool any = false;
    struct span leaves = jpath_text(p->facts->object, "metadata.deletionTimestamp");
    table_text(p->out, " is bound to node %.*s%s", SPAN_ARG(node->name),
               p->pod->running ? " and running" : ", not running yet");
    if (p->pod->terminating)
        table_text(p->out, ", terminating%s%.*s", leaves.n ? " since " : "",
                   SPAN_ARG(leaves));
    buf_adds(p->out, "; requests ");
    if (p->pod->invalid_reason)
        table_text(p->out, "%s", p->pod->invalid_reason);
    else
        explain_request(p);
    buf_addc(p->out, '\n');
    if (node->state == NODE_UNKNOWN) {
        table_line(p->out, "  node %.*s does not exist", SPAN_ARG(node->name));
        return;
    }
    if (p->pod->terminating && node->state == NODE_STALE)
        table_line(p->out,
                   "  node %.*s does not answer: the pod ends when it does, or when its "
                   "Node is deleted",
                   SPAN_ARG(node->name));
    for (uint32_t k = 0; k < node->n_cards; k++) {
        int64_t mib = ledger_pod_mib(p->pod, &node->cards[k]);
        if (mib < 0)
            continue;
        const struct card *card = &node->cards[k];
        cleanup_arena struct arena a = {0};
        cleanup_buf struct buf others = {0}, enforced = {0};
        struct ledger_use use;
        any = true;
        if (card->pods > 1)
            explain_promises(&others, node, card, p->unit, &a);
        table_text(p->out, "  GPU%" PRId32 "  %.*s%s%.*s%s%s promised of %s", card->index,
                   SPAN_ARG(card->kind->model), card->kind->model.n ? "  " : "",
                   SPAN_ARG(card->uuid), card->uuid.n ? "  " : "",
                   show_units(mib, p->unit).s, show_units(card->total_mib, p->unit).s);
        if (p->pod->request->kind == REQUEST_CARDS)
            buf_adds(p->out, " (the whole card)");
        if (ledger_pod_use(node, p->pod, card, &use))
            show_enforced(&enforced, use.enforced_by);
        if (enforced.n)
            buf_printf(p->out, "; enforced by %s", enforced.p);
        if (card->used_mib >= 0)
            buf_printf(p->out, "; in use by all processes: %s",
                       show_units(card->used_mib, p->unit).s);
        table_line(p->out, "; %s%s", view_health(card->state), others.n ? others.p : "");
    }
    if (!any && !p->pod->n_shares)
        buf_adds(p->out, "  no card is recorded for this pod\n");
    diagnosis_pod(p->l, p->pod, add_difference, p);
    add_source(p, object);
    /* The Go plugin overwrites the time when it confirms the pod; our device plugin does
     * not. */
    struct span time =
        jpath_text(p->facts->object, "metadata.annotations." KEY_MEM_ASSUME_TIME);
    int64_t ns;
    if (span_i64(time, &ns) && ns > 0) {
        buf_adds(p->out, span_eq(object->assigned, SPAN("true"))
                             ? "  cards chosen, or confirmed by the Go plugin, at "
                             : "  cards chosen at ");
        clock_format_s(p->out, ns / 1000000000);
        buf_addc(p->out, '\n');
    }
}

/* -- any pod -- */

int explain_pod(struct buf *out, const struct cluster_state *cs, struct span ns,
                struct span name, const struct explain_facts *facts, struct err *err)
{
    cleanup_arena struct arena a = {0};
    const struct cluster_state_pod **pods, *found = NULL;
    size_t n = cluster_state_pods(cs, &a, &pods);
    for (size_t i = 0; i < n && !found; i++)
        if (span_eq(pods[i]->ns, ns) && span_eq(pods[i]->name, name))
            found = pods[i];
    struct explain_page p = {.out = out,
                             .cs = cs,
                             .l = cluster_state_ledger(cs),
                             .facts = facts,
                             .unit = ledger_settings(cluster_state_ledger(cs))->unit_mib};
    struct span reason = jpath_text(facts->object, "status.reason"),
                message = jpath_text(facts->object, "status.message");
    if (!found && reason.n &&
        span_eq(jpath_text(facts->object, "status.phase"), SPAN("Failed"))) {
        table_text(out, "pod %.*s/%.*s failed with %.*s", SPAN_ARG(ns), SPAN_ARG(name),
                   SPAN_ARG(reason));
        if (message.n && strstr(message.p, KEY_NO_PROMISE))
            table_text(out,
                       ": it was bound to node %.*s without a card; kube-scheduler did "
                       "not ask the extender",
                       SPAN_ARG(jpath_text(facts->object, "spec.nodeName")));
        buf_adds(out, "\n  ");
        table_line(out, "status.message: %.*s", SPAN_ARG(message));
        return 0;
    }
    if (!found)
        return err_set(err, ERR_NOT_FOUND,
                       "pod %.*s/%.*s not found, or all its containers have ended",
                       SPAN_ARG(ns), SPAN_ARG(name));
    p.pod = ledger_pod_find(p.l, found->uid);
    table_text(out, "pod %.*s/%.*s", SPAN_ARG(ns), SPAN_ARG(name));
    if (!p.pod) {
        buf_adds(out,
                 " requests no GPU memory; gpushare does not affect where it runs\n");
        add_condition(&p);
    } else if (p.pod->node) {
        explain_bound(&p, found);
    } else {
        explain_pending(&p);
        add_condition(&p);
    }
    return 0;
}

/* -- the API server -- */

/* Those of the pod's namespace, for the ledger, which knows what its pods use. */
static int read_quotas(const struct session *s, struct span ns, struct err *err)
{
    const struct ledger *l = cluster_state_ledger(s->state);
    cleanup_buf struct buf path = {0};
    const json_t *item;
    size_t i;
    buf_adds(&path, "/api/v1/namespaces/");
    list_watch_escape(&path, ns);
    buf_adds(&path, "/resourcequotas");
    if (!ledger_settings(l)->dialect)
        return 0;
    json_auto_t *list = session_get(s, path.p, err);
    json_array_foreach(json_object_get(list, "items"), i, item)
    {
        cleanup_free char *hard = json_dumps(jpath(item, "spec.hard"), 0);
        const struct quota quota = {
            .meta = {.ns = ns, .name = jpath_text(item, "metadata.name")},
            .hard = span_of(hard)};
        quotas_seen(ledger_quotas((struct ledger *)l), &quota, 0);
    }
    return list ? 0 : -1;
}

int explain_run(struct buf *out, struct session *s, struct span ns, struct span name,
                bool colors, struct err *err)
{
    enum { MEMBERS_MAX = 8 };
    const struct pod_group_reader from = {kube_ask, s->client, clock_mono_ms};
    const struct ledger_pod *pending =
        show_find_pod(ledger_first_pending(cluster_state_ledger(s->state)), ns, name);
    const struct ledger_member *member = pending ? pending->member : NULL, *m;
    json_auto_t *members = json_array(), *pod = NULL;
    cleanup_buf struct buf path = {0};
    struct err why = {0}, quotas;
    struct explain_facts facts = {.view = session_view(s),
                                  .members = members,
                                  .now_s = clock_wall_ns() / 1000000000,
                                  .colors = colors};
    session_pod_path(&path, ns, name);
    facts.object = pod = session_get(s, path.p, NULL);
    /* A user need not be allowed to read this object. */
    if (member && !member->minimum) {
        struct gang gang;
        struct span of;
        gang_of_key(member->gang->key, &of, &gang);
        pod_group_read(&from, ns, &gang, s->config->timeout_ms, &facts.minimum, &why);
        facts.invalid = why.code == ERR_INVALID ? why.msg : NULL;
    }
    /* Of the gang, those that wait beside the pod; of many, some. */
    for (m = member ? member->gang->members : NULL;
         m && json_array_size(members) < MEMBERS_MAX; m = m->next) {
        if (m->pod->node || m == member)
            continue;
        buf_clear(&path);
        session_pod_path(&path, ns, m->pod->name);
        json_array_append_new(members, session_get(s, path.p, NULL) ?: json_null());
    }
    facts.no_quotas = read_quotas(s, ns, &quotas) ? quotas.msg : NULL;
    session_write_outage(out, s, facts.view);
    return explain_pod(out, s->state, ns, name, &facts, err);
}
