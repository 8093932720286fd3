/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_pod_priv.h"

#include "domain/keys.h"
#include "placement/closest.h"

/* -- rejected -- */

/* The body of a request proves nothing: a pod exists if the API server has listed it. */
static bool is_listed(const struct ledger *l, const struct object_meta *pod)
{
    const struct ledger_pod *known = ledger_pod_find(l, pod->uid);
    return known && span_eq(known->ns, pod->ns) && span_eq(known->name, pod->name);
}

static bool exists(struct store *store, const struct object_meta *pod)
{
    bool listed = is_listed(core_ledger(store_read(store)), pod);
    store_read_end(store);
    return listed;
}

/* Finds the candidate that comes closest; none if the ledger knows no candidate. */
static void find_closest(struct closest *n, const struct verb_args *args,
                         const struct ledger *l)
{
    closest_init(n, &args->request, args->pod.priority, args->pod.meta.uid);
    n->offered = true;
    for (size_t i = 0; i < args->n; i++) {
        const struct ledger_node *node = ledger_node_find(l, args->nodes[i].name);
        if (node)
            closest_visit(n, node);
    }
}

/* The closest of all nodes whose cards could take the pod; NULL: none. kube-scheduler
 * does not offer a node whose sum of memory is too small or that another plugin rejects.
 */
static const struct ledger_node *find_not_offered(const struct verb_args *args,
                                                  const struct ledger *l)
{
    struct closest n;
    closest_init(&n, &args->request, args->pod.priority, args->pod.meta.uid);
    for (uint32_t i = 0; i < ledger_node_slots(l); i++) {
        const struct ledger_node *node = ledger_node_at(l, i);
        if (node && node->state == NODE_USABLE)
            closest_visit(&n, node);
    }
    return n.node && n.fit != FIT_NEVER ? n.node : NULL;
}

/* Writes nothing if the pod fits by now. `other`: the result of find_not_offered(). */
static void write_rejection(const struct verb_args *args, const struct ledger *l,
                            const struct ledger_node *other, struct buf *note)
{
    const struct request *r = &args->request;
    struct closest n;
    find_closest(&n, args, l);
    if (n.fits)
        return;
    if (args->n == 1)
        buf_adds(note,
                 "the pod does not fit on the one node that kube-scheduler offered");
    else
        buf_printf(note,
                   "the pod fits on none of the %zu nodes that kube-scheduler offered",
                   args->n);
    if (!n.node) {
        buf_adds(note, ": their GPUs are not known yet");
        return;
    }
    buf_adds(note, "; the closest is ");
    buf_add_span(note, n.node->name);
    buf_adds(note, ": ");
    reason_add(note, n.node, r, placement_fit(n.node, r));
    if (n.fit == FIT_LATER && r->kind == REQUEST_MEMORY && n.node->best_index >= 0 &&
        n.missing > 0 && n.missing < INT64_MAX)
        buf_printf(note, "; %lld MiB short", (long long)n.missing);
    if (other) {
        buf_adds(note, "; ");
        buf_add_span(note, other->name);
        buf_adds(note, ", which was not offered, has cards that could take the pod");
    }
}

void event_pod_rejected(struct event_recorder *r, struct store *store,
                        const struct verb_args *args, bool later)
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
    if (!r || !args->n || !pod->uid.n || !exists(store, pod) ||
        !event_recorder_wants(r, pod->uid, event.reason))
        return;
    /* The full search for a node that was not offered is rate-limited, too. */
    if (!invalid && !later && !event_recorder_wants(r, pod->uid, "GPUNoRoom"))
        return;
    if (invalid) {
        buf_adds(&note, args->invalid.msg);
    } else {
        const struct ledger *l = core_ledger(store_read(store));
        const struct ledger_node *other = later ? NULL : find_not_offered(args, l);
        if (other)
            event.reason = "GPUNoRoom";
        write_rejection(args, l, other, &note);
        store_read_end(store);
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
    const struct card *card = pod->shares[0].on;
    buf_printf(note, "%lld MiB on %s", (long long)pod->shares[0].mib,
               pod->n_shares > 1 ? "each of " : "");
    write_cards(pod, note);
    buf_adds(note,
             pod->request.placement == PLACE_SPREAD
                 ? ", of the cards that fit the one with most free memory (spread)"
                 : ", of the cards that fit the one with least free memory (binpack)");
    if (pod->n_shares == 1 && card)
        buf_printf(note, "; %lld of %lld MiB stay free there", (long long)card->free_mib,
                   (long long)card->total_mib);
}

static void write_placed(const struct ledger_pod *pod, struct buf *note)
{
    if (pod->request.kind == REQUEST_DEVICES) {
        buf_adds(note, "node ");
        buf_add_span(note, pod->node->name);
        buf_adds(note, " has enough cards; the device plugin of " KEY_NVIDIA_GPU
                       " chooses among them");
    } else if (pod->n_shares == 0) {
        buf_adds(note, "node ");
        buf_add_span(note, pod->node->name);
    } else if (pod->request.kind == REQUEST_CARDS) {
        buf_adds(note, pod->n_shares == 1 ? "the whole card " : "the whole cards ");
        write_cards(pod, note);
    } else {
        write_choice(pod, note);
    }
}

void event_pod_placed(struct event_recorder *r, struct store *store,
                      const struct store_bind *bind)
{
    static const char reason[] = "GPUPlaced";
    cleanup_buf struct buf note = {0};
    if (!event_recorder_wants(r, bind->uid, reason))
        return;
    const struct ledger *l = core_ledger(store_read(store));
    const struct ledger_pod *pod = ledger_pod_find(l, bind->uid);
    if (pod && pod->node && span_eq(pod->ns, bind->ns) && span_eq(pod->name, bind->name))
        write_placed(pod, &note);
    store_read_end(store);
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
