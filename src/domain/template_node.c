/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/template_node.h"

#include <inttypes.h>
#include <string.h>

#include "domain/keys.h"

enum { SHOWN = 64 }; /* bytes of a malformed value: a label has at most 63 */

/* A decimal number of 1..most, written as it is: one spelling only. */
static bool read_number(struct span text, int64_t most, int64_t *n)
{
    return text.n && text.p[0] != '0' && span_i64(text, n) && *n > 0 && *n <= most;
}

int template_node_parse(struct span text, struct template_node_cards *cards,
                        struct err *err)
{
    const size_t unit = sizeof "MiB" - 1;
    struct span mib_text = text, number = span_cut(&mib_text, 'x');
    int64_t n, mib;
    bool good =
        mib_text.n > unit && memcmp(mib_text.p + mib_text.n - unit, "MiB", unit) == 0;
    mib_text.n -= good ? unit : 0;
    good = good && read_number(number, SCV_MAX_CARDS, &n) &&
           read_number(mib_text, TEMPLATE_NODE_MIB_MAX, &mib);
    if (!good)
        return err_set(err, ERR_INVALID,
                       KEY_CARDS ": \"%.*s\" is not a number of cards (1..%d) and their "
                                 "size (1..%d MiB), such as 4x16384MiB",
                       (int)(text.n < SHOWN ? text.n : SHOWN), text.n ? text.p : "",
                       SCV_MAX_CARDS, TEMPLATE_NODE_MIB_MAX);
    *cards = (struct template_node_cards){(uint32_t)n, mib};
    return 0;
}

int template_node_named(const struct node *node, struct template_node_cards *cards,
                        struct err *err)
{
    struct template_node_cards label = {0}, note = {0};
    if (node->cards_label.p && template_node_parse(node->cards_label, &label, err))
        return -1;
    if (node->cards_note.p && template_node_parse(node->cards_note, &note, err))
        return -1;
    if (label.n && note.n && (label.n != note.n || label.mib != note.mib))
        return err_set(err, ERR_INVALID,
                       "label " KEY_CARDS " is %" PRIu32 "x%" PRId64
                       "MiB, but the annotation is %" PRIu32 "x%" PRId64 "MiB",
                       label.n, label.mib, note.n, note.mib);
    *cards = label.n ? label : note;
    return 0;
}

static int read_object(struct span object, struct arena *a, struct node *node,
                       struct err *err)
{
    struct jread j;
    jread_init(&j, object.p, object.n);
    node_read(&j, a, node);
    return jread_finish(&j, err);
}

static bool names_cards(const struct node *node)
{
    return node->cards_label.p || node->cards_note.p;
}

bool template_node_is(struct span object)
{
    cleanup_arena struct arena a = {0};
    struct node node;
    return read_object(object, &a, &node, NULL) == 0 && names_cards(&node);
}

static void add_scv(struct ledger *l, const struct node *node,
                    const struct template_node_cards *named)
{
    struct scv_card cards[SCV_MAX_CARDS] = {0};
    const struct scv scv = {
        .meta = {.name = node->meta.name}, .cards = cards, .n_cards = named->n};
    for (uint32_t i = 0; i < named->n; i++)
        cards[i] = (struct scv_card){.id = (int32_t)i,
                                     .healthy = true,
                                     .total_mib = named->mib,
                                     .free_mib = named->mib};
    ledger_scv_seen(l, &scv, 0);
}

struct ledger *template_node_ledger(struct span object,
                                    const struct ledger_settings *settings,
                                    struct template_node_cards *cards, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct ledger_settings alone = *settings;
    struct node node;
    if (read_object(object, &a, &node, err)) {
        err_wrap(err, "the Node object of the call cannot be decoded");
        return NULL;
    }
    if (!names_cards(&node)) {
        err_set(err, ERR_NOT_FOUND, "the GPUs of this node are not known yet");
        return NULL;
    }
    if (template_node_named(&node, cards, err))
        return NULL;
    alone.require_scv = alone.require_node = false;
    struct ledger *l = ledger_new(&alone, 0);
    ledger_node_seen(l, &node, 0);
    add_scv(l, &node, cards);
    return l;
}

bool template_node_matches(const struct template_node_cards *cards,
                           const struct ledger_node *node)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (node->cards[i].total_mib != cards->mib)
            return false;
    return node->n_cards == cards->n;
}
