/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/told_priv.h"

#include "domain/keys.h"
#include "placement/closest.h"

/* -- refused -- */

/* The node that comes closest, of those that were asked about; NULL: none is known. */
static void find_closest(struct closest *n, const struct extender_args *args,
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

/* The closest of all nodes whose cards would do; NULL: there is none. kube-scheduler does
 * not ask about a node that is too full in all, or that something else rules out. */
static const struct ledger_node *find_other(const struct extender_args *args,
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

/* Nothing is written when there is room by now. `other`: as find_other() says. */
static void write_refusal(const struct extender_args *args, const struct ledger *l,
                          const struct ledger_node *other, struct buf *note)
{
    const struct request *r = &args->request;
    struct closest n;
    find_closest(&n, args, l);
    if (n.fits)
        return;
    if (args->n == 1)
        buf_adds(note, "no room on the one node that kube-scheduler offered");
    else
        buf_printf(note, "no room on any of the %zu nodes that kube-scheduler offered",
                   args->n);
    if (!n.node) {
        buf_adds(note, ": nothing is known of their GPUs yet");
        return;
    }
    buf_adds(note, "; closest is ");
    buf_add_span(note, n.node->name);
    buf_adds(note, ": ");
    reason_add(note, n.node, r, placement_fit(n.node, r));
    if (n.fit == FIT_LATER && r->kind == REQUEST_MEMORY && n.node->best_index >= 0 &&
        n.missing > 0 && n.missing < INT64_MAX)
        buf_printf(note, "; %lld MiB are missing there", (long long)n.missing);
    if (other) {
        buf_adds(note, "; ");
        buf_add_span(note, other->name);
        buf_adds(note, ", which was not offered, has cards that would do");
    }
}

void told_refused(struct recorder *r, struct store *store,
                  const struct extender_args *args, bool later)
{
    const struct object_meta *pod = &args->pod.meta;
    bool bad = args->bad.code != ERR_NONE;
    cleanup_buf struct buf note = {0};
    struct event event = {.kind = EVENT_POD,
                          .ns = pod->ns,
                          .name = pod->name,
                          .uid = pod->uid,
                          .warning = true,
                          .reason = bad     ? "GPURequestInvalid"
                                    : later ? "GPUNoRoom"
                                            : "GPUNeverFits",
                          .action = "Filtering"};
    if (!args->n || !pod->uid.n || !recorder_wants(r, pod->uid, event.reason))
        return;
    /* What is told as "never" is looked at in full, once in a while. */
    if (!bad && !later && !recorder_wants(r, pod->uid, "GPUNoRoom"))
        return;
    if (bad) {
        buf_adds(&note, args->bad.msg);
    } else {
        const struct ledger *l = core_ledger(store_read(store));
        const struct ledger_node *other = later ? NULL : find_other(args, l);
        if (other)
            event.reason = "GPUNoRoom";
        write_refusal(args, l, other, &note);
        store_read_end(store);
    }
    event.note = buf_span(&note);
    if (note.n)
        recorder_add(r, &event);
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
    buf_adds(note, pod->request.placement == PLACE_SPREAD
                       ? ": of its cards with room, most free memory first (spread)"
                       : ": of its cards with room, least free memory first (binpack)");
    if (pod->n_shares == 1 && card)
        buf_printf(note, "; %lld of %lld MiB are still free on it",
                   (long long)card->free_mib, (long long)card->total_mib);
}

static void write_placed(const struct ledger_pod *pod, struct buf *note)
{
    if (pod->request.kind == REQUEST_DEVICES) {
        buf_adds(note, "node ");
        buf_add_span(note, pod->node->name);
        buf_adds(note,
                 " has enough cards; which of them the pod gets through " KEY_NVIDIA_GPU
                 " is decided there");
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

void told_placed(struct recorder *r, struct store *store, const struct store_bind *bind)
{
    static const char reason[] = "GPUPlaced";
    cleanup_buf struct buf note = {0};
    if (!recorder_wants(r, bind->uid, reason))
        return;
    const struct ledger *l = core_ledger(store_read(store));
    const struct ledger_pod *pod = ledger_pod_find(l, bind->uid);
    if (pod && pod->node)
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
        recorder_add(r, &event);
}
