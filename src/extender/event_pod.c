/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_pod.h"

#include "domain/keys.h"
#include "extender/verb.h"
#include "placement/reason.h"

/* -- rejected -- */

/* The body of a request proves nothing: a pod exists if the API server has listed it. */
static bool exists(struct core_driver *driver, const struct object_meta *pod)
{
    const struct ledger *l = core_ledger(core_driver_read(driver));
    const struct ledger_pod *known = ledger_pod_find(l, pod->uid);
    bool listed = known && span_eq(known->ns, pod->ns) && span_eq(known->name, pod->name);
    core_driver_read_end(driver);
    return listed;
}

/* A search for the closest node, VERB_LOCK_NODES under one lock. In between the closest so
 * far is kept by name, because it may be deleted. */
struct search {
    struct nearest_node n;
    char name[256];
};

static const struct ledger *resume(struct search *s, struct core_driver *driver)
{
    const struct ledger *l = core_ledger(core_driver_read(driver));
    s->n.node = s->name[0] ? ledger_node_find(l, span_of(s->name)) : NULL;
    return l;
}

static void pause_search(struct search *s, struct core_driver *driver)
{
    const struct ledger_node *node = s->n.node;
    size_t n = node && node->name.n < sizeof s->name ? node->name.n : 0;
    if (n)
        memcpy(s->name, node->name.p, n);
    s->name[n] = '\0';
    core_driver_read_end(driver);
}

/* Finds the node that comes closest: of the candidates, or else (`offered` false) of all whose
 * cards could take the pod. kube-scheduler does not offer a node whose sum of memory is too
 * small or that another plugin rejects. No name: none. */
static void find_closest(struct search *s, struct core_driver *driver,
                         const struct verb_args *args, bool offered)
{
    nearest_node_init(&s->n, &(struct select_pod){&args->request, args->pod.priority,
                                                  args->pod.meta.uid, NULL});
    s->n.offered = offered;
    for (size_t i = 0, n = 1; i < n;) {
        const struct ledger *l = resume(s, driver);
        n = offered ? args->n : ledger_node_slots(l);
        for (size_t k = 0; k < VERB_LOCK_NODES && i < n; k++, i++) {
            const struct ledger_node *node =
                offered ? ledger_node_find(l, args->nodes[i].name)
                        : ledger_node_at(l, (uint32_t)i);
            if (node && (offered || node->state == NODE_USABLE))
                nearest_node_visit(&s->n, node);
        }
        pause_search(s, driver);
    }
    if (!offered && s->n.fit == FIT_NEVER)
        s->name[0] = '\0';
}

static void write_closest(const struct search *s, struct buf *note)
{
    const struct nearest_node *n = &s->n;
    const struct request *r = n->pod.request;
    if (!n->node) {
        buf_adds(note, ": their GPUs are not known yet");
        return;
    }
    buf_adds(note, "; the closest is ");
    buf_add_span(note, n->node->name);
    buf_adds(note, ": ");
    reason_add(note, n->node, r, select_fit(n->node, r));
    if (n->fit == FIT_LATER && r->kind == REQUEST_MEMORY && n->node->best_index >= 0 &&
        n->missing > 0 && n->missing < INT64_MAX)
        buf_printf(note, "; %lld MiB short", (long long)n->missing);
}

/* Writes nothing if the pod fits by now. `other`: a node that was not offered, or "". */
static void write_rejection(const struct verb_args *args, struct core_driver *driver,
                            const char *other, struct buf *note)
{
    struct search s = {0};
    find_closest(&s, driver, args, true);
    if (s.n.fits)
        return;
    if (args->n == 1)
        buf_adds(note,
                 "the pod does not fit on the one node that kube-scheduler offered");
    else
        buf_printf(note,
                   "the pod fits on none of the %zu nodes that kube-scheduler offered",
                   args->n);
    resume(&s, driver);
    write_closest(&s, note);
    core_driver_read_end(driver);
    if (*other)
        buf_printf(note, "; %s, which was not offered, has cards that could take the pod",
                   other);
}

void event_pod_rejected(struct event_recorder *r, struct core_driver *driver,
                        const struct verb_args *args, bool later, const char *gang)
{
    const struct object_meta *pod = &args->pod.meta;
    bool invalid = args->invalid.code != ERR_NONE;
    cleanup_buf struct buf note = {0};
    struct event event = {.kind = EVENT_POD,
                          .ns = pod->ns,
                          .name = pod->name,
                          .uid = pod->uid,
                          .warning = true,
                          .reason = invalid ? "GPURequestInvalid"
                                    : later ? "GPUNoRoom"
                                            : "GPUNeverFits",
                          .action = "Filtering"};
    if (!r || !args->n || !pod->uid.n || !exists(driver, pod) ||
        !event_recorder_wants(r, pod->uid, event.reason))
        return;
    /* The full search for a node that was not offered is rate-limited, too. */
    if (!invalid && !later && !event_recorder_wants(r, pod->uid, "GPUNoRoom"))
        return;
    if (invalid) {
        buf_adds(&note, args->invalid.msg);
    } else if (gang) {
        buf_adds(&note, gang);
    } else {
        struct search other = {0};
        if (!later)
            find_closest(&other, driver, args, false);
        if (other.name[0])
            event.reason = "GPUNoRoom";
        write_rejection(args, driver, other.name, &note);
    }
    event.note = buf_span(&note);
    if (note.n)
        event_recorder_add(r, &event);
}

/* -- placed -- */

static void write_cards(const struct ledger_pod *pod, struct buf *note)
{
    for (uint32_t i = 0; i < pod->n_shares; i++)
        buf_printf(note, "%sGPU%d", i ? "," : "", pod->shares[i].card);
    buf_adds(note, " of node ");
    buf_add_span(note, pod->node->name);
}

static void write_choice(const struct ledger_pod *pod, struct buf *note)
{
    const struct card *card = ledger_share_card(pod->node, &pod->shares[0]);
    buf_printf(note, "%lld MiB on %s", (long long)pod->shares[0].mib,
               pod->n_shares > 1 ? "each of " : "");
    write_cards(pod, note);
    buf_adds(note,
             pod->request->placement == PLACE_SPREAD
                 ? ", of the cards that fit the one with most free memory (spread)"
                 : ", of the cards that fit the one with least free memory (binpack)");
    if (pod->n_shares == 1 && card)
        buf_printf(note, "; %lld of %lld MiB stay free there", (long long)card->free_mib,
                   (long long)card->total_mib);
}

static void write_placed(const struct ledger_pod *pod, struct buf *note)
{
    if (pod->request->kind == REQUEST_DEVICES) {
        buf_adds(note, "node ");
        buf_add_span(note, pod->node->name);
        buf_adds(note, " has enough cards; the device plugin of " KEY_NVIDIA_GPU
                       " chooses among them");
    } else if (pod->n_shares == 0) {
        buf_adds(note, "node ");
        buf_add_span(note, pod->node->name);
    } else if (pod->request->kind == REQUEST_CARDS) {
        buf_adds(note, pod->n_shares == 1 ? "the whole card " : "the whole cards ");
        write_cards(pod, note);
    } else {
        write_choice(pod, note);
    }
}

void event_pod_placed(struct event_recorder *r, struct core_driver *driver,
                      const struct core_driver_bind *bind)
{
    static const char reason[] = "GPUPlaced";
    cleanup_buf struct buf note = {0};
    if (!event_recorder_wants(r, bind->uid, reason))
        return;
    const struct ledger *l = core_ledger(core_driver_read(driver));
    const struct ledger_pod *pod = ledger_pod_find(l, bind->uid);
    if (pod && pod->node && span_eq(pod->ns, bind->ns) && span_eq(pod->name, bind->name))
        write_placed(pod, &note);
    core_driver_read_end(driver);
    struct event event = {.kind = EVENT_POD,
                          .ns = bind->ns,
                          .name = bind->name,
                          .uid = bind->uid,
                          .reason = reason,
                          .action = "Binding",
                          .note = buf_span(&note)};
    if (note.n)
        event_recorder_add(r, &event);
}

/* -- layout preemption -- */

void event_pod_preemption(struct event_recorder *r, const struct core_output *call)
{
    bool evicted = call->type == CORE_CALL_EVICT;
    struct event event = {.kind = EVENT_POD,
                          .ns = span_of(call->ns),
                          .name = span_of(call->name),
                          .uid = span_of(call->uid),
                          .reason = evicted ? "GPUPreempted" : "GPUPreempting",
                          .action = "Preempting",
                          .note = span_of(call->text)};
    if (call->text) /* not for a nomination that is taken back */
        event_recorder_add(r, &event);
}
