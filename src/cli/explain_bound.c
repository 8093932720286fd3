/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/clock.h"
#include "cli/explain_priv.h"
#include "domain/keys.h"
#include "domain/quantity.h"

static void add_share(struct explain_page *p, const struct card *card, int64_t mib)
{
    cleanup_arena struct arena a = {0};
    buf_printf(p->out, "  GPU%" PRId32 "  ", card->index);
    explain_plain(p, card->model);
    buf_adds(p->out, card->model.n ? "  " : "");
    explain_plain(p, card->uuid);
    buf_adds(p->out, card->uuid.n ? "  " : "");
    explain_amount(p->out, mib, p->unit);
    buf_adds(p->out, " promised of ");
    explain_amount(p->out, card->total_mib, p->unit);
    if (p->pod->request->kind == REQUEST_CARDS)
        buf_adds(p->out, " (the whole card)");
    if (card->used_mib >= 0) {
        buf_adds(p->out, "; in use by all processes: ");
        explain_amount(p->out, card->used_mib, p->unit);
    }
    buf_printf(p->out, "; %s", show_health(card->state));
    if (card->pods > 1) {
        cleanup_buf struct buf others = {0};
        explain_promises(&others, p->pod->node, card, p->unit, &a);
        explain_plain(p, buf_span(&others));
    }
    buf_addc(p->out, '\n');
}

/* The Go plugin overwrites the time when it confirms the pod; our device plugin does not.
 */
static void add_time(struct explain_page *p, const struct cluster_state_pod *object)
{
    const json_t *metadata = json_object_get(p->facts->object, "metadata");
    const json_t *annotations = json_object_get(metadata, "annotations");
    struct span time =
        span_of(json_string_value(json_object_get(annotations, KEY_MEM_ASSUME_TIME)));
    int64_t ns;
    if (time.n && span_i64(time, &ns) && ns > 0) {
        buf_adds(p->out, span_eq(object->assigned, SPAN("true"))
                             ? "  cards chosen, or confirmed by the Go plugin, at "
                             : "  cards chosen at ");
        clock_format_s(p->out, ns / 1000000000);
        buf_addc(p->out, '\n');
    }
}

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
    buf_adds(p->out, "  annotation ");
    if (object->idx.p)
        buf_adds(p->out, KEY_MEM_IDX " \"");
    else
        buf_adds(p->out, KEY_ALLOCATION " \"");
    explain_plain(p, object->idx.p ? object->idx : object->allocation);
    buf_adds(p->out, object->allocation.p ? "\", written by the extender at bind"
                                          : "\", in the form of the Go extender");
    if (r->kind == REQUEST_MEMORY && object->allocation.p)
        buf_printf(p->out, "; policy %s: the card with the %s free memory that fits",
                   binpack ? "binpack" : "spread", binpack ? "least" : "most");
    buf_addc(p->out, '\n');
    buf_adds(p->out, span_eq(object->assigned, SPAN("true"))
                         ? "  confirmed by the device plugin\n"
                         : "  not yet confirmed by the device plugin\n");
}

static void add_differences(struct explain_page *p)
{
    cleanup_buf struct buf why = {0};
    bool only_cards;
    if (!ledger_pod_is_forged(p->pod->node, p->pod, &why, &only_cards))
        return;
    buf_adds(p->out, "  difference: ");
    explain_plain(p, buf_span(&why));
    buf_addc(p->out, '\n');
}

void explain_bound(struct explain_page *p, const struct cluster_state_pod *object)
{
    const struct ledger_node *node = p->pod->node;
    bool any = false;
    buf_adds(p->out, " is bound to node ");
    explain_plain(p, node->name);
    buf_adds(p->out, p->pod->running ? " and running" : ", not running yet");
    buf_adds(p->out, "; requests ");
    if (p->pod->invalid_reason)
        explain_plain(p, span_of(p->pod->invalid_reason));
    else
        explain_request(p);
    buf_addc(p->out, '\n');
    for (uint32_t k = 0; k < node->n_cards; k++) {
        int64_t mib = ledger_pod_mib(p->pod, &node->cards[k]);
        if (mib < 0)
            continue;
        add_share(p, &node->cards[k], mib);
        any = true;
    }
    for (uint32_t i = 0; i < p->pod->n_shares; i++) {
        const struct ledger_pod_share *share = &p->pod->shares[i];
        if (share->on)
            continue;
        buf_printf(p->out, "  GPU%" PRId32 "  ", share->card);
        char text[CARD_UUID_TEXT];
        explain_plain(p, card_uuid_text(&share->uuid, text));
        buf_adds(p->out, card_uuid_is_empty(&share->uuid) ? "" : "  ");
        explain_amount(p->out, share->mib, p->unit);
        buf_adds(p->out, " promised, but the node does not have this card\n");
        any = true;
    }
    if (!any)
        buf_adds(p->out, "  no card is recorded for this pod\n");
    add_differences(p);
    add_source(p, object);
    add_time(p, object);
}
