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

/* Finds the node that comes closest: of the candidates, or else (`offered` false) of all whose
 * cards could take the pod. kube-scheduler does not offer a node whose sum of memory is too
 * small or that another plugin rejects. No name: none. */
static struct span find_closest(struct core_driver *driver, const struct verb_args *args,
                                bool offered, struct nearest_node *n, struct arena *a)
{
    struct span *names = offered ? arena_alloc(a, args->n * sizeof *names) : NULL;
    for (size_t i = 0; offered && i < args->n; i++)
        names[i] = args->nodes[i].name;
    *n = (struct nearest_node){
        .pod = {&args->request, args->pod.priority, args->pod.meta.uid, NULL},
        .offered = offered};
    return view_nearest_node(core_driver_source(driver), n, names, args->n, !offered, a);
}

/* Writes nothing if the pod fits by now. `other`: a node that was not offered, or empty; `fits`:
 * with enough free memory. */
static void write_rejection(const struct verb_args *args, struct core_driver *driver,
                            struct span other, bool fits, struct arena *a,
                            struct buf *note)
{
    const struct request *r = &args->request;
    struct nearest_node n;
    struct span name = find_closest(driver, args, true, &n, a);
    if (n.fits)
        return;
    if (args->n == 1)
        buf_adds(note,
                 "the pod does not fit on the one node that kube-scheduler offered");
    else
        buf_printf(note,
                   "the pod fits on none of the %zu nodes that kube-scheduler offered",
                   args->n);
    const struct ledger *l = core_ledger(core_driver_read(driver));
    const struct ledger_node *node = ledger_node_find(l, name);
    if (node) {
        buf_printf(note, "; the closest is %.*s: ", SPAN_ARG(name));
        reason_add(note, node, r, select_fit(node, r));
        if (n.fit == FIT_LATER && r->kind == REQUEST_MEMORY && node->best_index >= 0 &&
            n.missing > 0 && n.missing < INT64_MAX)
            buf_printf(note, "; %lld MiB short", (long long)n.missing);
    } else {
        buf_adds(note, ": their GPUs are not known yet");
    }
    core_driver_read_end(driver);
    if (other.n)
        buf_printf(
            note,
            fits ? "; it fits on node %.*s that kube-scheduler did not offer"
                 : "; %.*s, which was not offered, has cards that could take the pod",
            SPAN_ARG(other));
}

void event_pod_rejected(struct event_recorder *r, struct core_driver *driver,
                        const struct verb_args *args, bool later, const char *gang,
                        struct span elsewhere)
{
    const struct object_meta *pod = &args->pod.meta;
    bool invalid = args->invalid.code != ERR_NONE;
    later |= elsewhere.n > 0;
    cleanup_buf struct buf note = {0};
    cleanup_arena struct arena a = {0};
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
        struct nearest_node n;
        struct span other = elsewhere;
        if (!later)
            other = find_closest(driver, args, false, &n, &a);
        if (!later && other.n && n.fit == FIT_NEVER)
            other.n = 0;
        if (other.n)
            event.reason = "GPUNoRoom";
        write_rejection(args, driver, other, elsewhere.n, &a, &note);
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
