/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Node, and the ConfigMap that makes cards of a node unavailable. */
#include "domain/node.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "domain/fields.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "domain/scv.h"

#define AMOUNT_MAX (INT64_C(1) << 40)

/* A whole number of one of our resources. */
static void read_amount(struct field_reader *r, const struct field *f, void *at)
{
    struct span text = {0};
    int64_t *amount = at;
    fields_read_quantity(r->j, f->where, r->a, &text);
    if (!text.p)
        return;
    if (quantity_read(text, amount, NULL))
        jread_fail(r->j, f->where, "a quantity is not a whole number");
    else if (*amount > AMOUNT_MAX)
        jread_fail(r->j, f->where, "a quantity exceeds the capacity of any node");
}

/* Of CPU, memory or pods, in thousandths. */
static void read_milli(struct field_reader *r, const struct field *f, void *at)
{
    struct span text = {0};
    fields_read_quantity(r->j, f->where, r->a, &text);
    *(int64_t *)at = text.p ? quantity_milli(text, RESOURCES_MAX * 1000) : 0;
}

/* status.capacity or status.allocatable; CPU, memory and pods in thousandths. */
struct amounts {
    struct node_resources ours;
    struct resources room;
};

#define AMOUNT(key, member, function)                                                    \
    .name = {key, sizeof(key) - 1}, .at = offsetof(struct amounts, member),              \
    .type = FIELD_OTHER, .read = (function)
static const struct field amount_fields[] = {
    {AMOUNT(KEY_GPU_MEM, ours.mem, read_amount)},
    {AMOUNT(KEY_GPU_COUNT, ours.cards, read_amount)},
    {AMOUNT(KEY_NVIDIA_GPU, ours.devices, read_amount)},
    {AMOUNT(KEY_GPU_CORE, ours.compute_percent, read_amount)},
    {AMOUNT(KEY_GPU_SHARE, ours.slots, read_amount)},
    {AMOUNT("cpu", room.cpu_milli, read_milli)},
    {AMOUNT("memory", room.memory, read_milli)},
    {AMOUNT("pods", room.pods, read_milli)},
    FIELDS_END,
};

struct address {
    struct span type, address;
};
static const struct field address_fields[] = {
    {FIELD("status.addresses[].", "type", address, type)},
    {FIELD("status.addresses[].", "address", address, address)},
    FIELDS_END,
};

static void read_address(struct field_reader *r, const struct field *f, void *at)
{
    struct span *first = at;
    struct address address = {0};
    fields_read(r, f->where, address_fields, &address);
    if (!first->n && span_eq(address.type, SPAN("InternalIP")))
        *first = address.address;
}

/* A Node while it is read. */
struct reading {
    struct node node;
    struct amounts capacity, allocatable;
    struct span mode, cgpu, nodes;
};

static void read_meta(struct field_reader *r, const struct field *f, void *at)
{
    struct reading *q = at;
    const struct object_field fields[] = {
        {OBJECT_LABEL, SPAN(KEY_MODE), &q->mode},
        {OBJECT_LABEL, SPAN(KEY_NODES), &q->nodes},
        {OBJECT_LABEL, SPAN(KEY_CGPU_DISABLE), &q->cgpu},
        {OBJECT_LABEL, SPAN(KEY_DIALECT), &q->node.dialect},
        {OBJECT_LABEL, SPAN(KEY_CARDS), &q->node.cards_label},
        {OBJECT_ANNOTATION, SPAN(KEY_CARDS), &q->node.cards_note},
        {OBJECT_ANNOTATION, SPAN(KEY_HAMI_CORDON), &q->node.cordon},
    };
    (void)f;
    object_meta_read(r->j, r->a, &q->node.meta, fields, ARRAY_LEN(fields));
}

static const struct field spec_fields[] = {
    {FIELD("spec.", "unschedulable", reading, node.cordoned), .type = FIELD_FLAG},
    {FIELD("spec.", "taints", reading, node.terms[TERMS_OF_TAINTS]), .type = FIELD_RAW},
    FIELDS_END,
};
static const struct field info_fields[] = {
    {FIELD("status.nodeInfo.", "containerRuntimeVersion", reading, node.runtime)},
    {FIELD("status.nodeInfo.", "kubeletVersion", reading, node.kubelet)},
    FIELDS_END,
};
static const struct field status_fields[] = {
    {FIELD("status.", "capacity", reading, capacity), FIELD_IS_OBJECT(amount_fields)},
    {FIELD("status.", "allocatable", reading, allocatable),
     FIELD_IS_OBJECT(amount_fields)},
    {FIELD("status.", "addresses", reading, node.address), .type = FIELD_LIST,
     .read = read_address},
    {FIELD("status.", "nodeInfo", reading, node), FIELD_IS_OBJECT(info_fields)},
    FIELDS_END,
};
static const struct field node_fields[] = {
    {FIELD("", "metadata", reading, node), .type = FIELD_OTHER, .read = read_meta},
    {FIELD("", "spec", reading, node), FIELD_IS_OBJECT(spec_fields)},
    {FIELD("", "status", reading, node), FIELD_IS_OBJECT(status_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct reading, node) == 0, "the members of both");

static enum node_mode mode_of(struct span label)
{
    if (!label.p)
        return NODE_ANY;
    if (span_eq(label, SPAN("memory")))
        return NODE_MEMORY;
    if (span_eq(label, SPAN("card")))
        return NODE_CARDS;
    return NODE_MODE_WRONG;
}

void node_read(struct jread *j, struct arena *a, struct node *node)
{
    static const struct node_resources unknown = {-1, -1, -1, -1, -1};
    struct field_reader r = {.j = j, .a = a};
    struct reading q = {.capacity.ours = unknown, .allocatable.ours = unknown};
    fields_read(&r, "node", node_fields, &q);
    const struct resources *room = &q.allocatable.room;
    *node = q.node;
    node->terms[TERMS_OF_LABELS] = node->meta.labels;
    node->capacity = q.capacity.ours;
    node->allocatable = q.allocatable.ours;
    node->room = (struct resources){quantity_at_most(room->cpu_milli, RESOURCES_MAX),
                                    room->memory / 1000,
                                    quantity_at_most(room->pods / 1000, UINT32_MAX)};
    node->mode = mode_of(q.mode);
    node->left_out = span_eq(q.nodes, SPAN("false"));
    node->included = span_eq(q.nodes, SPAN("true"));
    node->cgpu_disable = span_eq(q.cgpu, SPAN("true"));
    object_meta_check(j, &node->meta);
}

int node_name_check(const char *name, struct err *err)
{
    if (!name || !*name)
        return err_set(err, ERR_INVALID, "--node-name (or NODE_NAME) is required");
    if (!object_is_name(span_of(name)) || strpbrk(name, "%?#&"))
        return err_set(err, ERR_INVALID,
                       "--node-name: \"%s\" cannot be the name of a Node", name);
    return 0;
}

/* -- the ConfigMap of unhealthy cards -- */

enum {
    CARDS_MAX = 256,
};

struct configmap {
    struct object_meta meta;
    struct span gpus;
};
static const struct field data_fields[] = {
    {FIELD("data.", KEY_UNHEALTHY_DATA, configmap, gpus)},
    FIELDS_END,
};
static const struct field configmap_fields[] = {
    {FIELD("", "metadata", configmap, meta), .type = FIELD_META},
    {FIELD("", "data", configmap, meta), FIELD_IS_OBJECT(data_fields)},
    FIELDS_END,
};

void node_unhealthy_read(struct jread *j, struct arena *a, struct unhealthy_cards *u)
{
    struct field_reader r = {.j = j, .a = a};
    struct span prefix = SPAN(KEY_UNHEALTHY_PREFIX);
    struct configmap map = {.gpus = {0}};
    fields_read(&r, "configmap", configmap_fields, &map);
    *u = (struct unhealthy_cards){.meta = map.meta};
    object_meta_check(j, &u->meta);
    if (!span_starts(u->meta.name, prefix))
        return;
    u->node = (struct span){u->meta.name.p + prefix.n, u->meta.name.n - prefix.n};
    u->cards = arena_alloc(a, CARDS_MAX * sizeof *u->cards);
    while (map.gpus.p && !u->damaged) {
        struct span item = span_trim(span_cut(&map.gpus, ','));
        int64_t index;
        if (!item.n)
            continue;
        if (!span_i64(item, &index) || index < 0 || index > 65535 || u->n == CARDS_MAX)
            u->damaged = true;
        else
            u->cards[u->n++] = (int32_t)index;
    }
}

/* -- gpushare.io/cards: the cards of a template Node -- */

enum { SHOWN = 64 }; /* bytes of a malformed value: a label has at most 63 */

/* A decimal number of 1..most, written as it is: one spelling only. */
static bool read_number(struct span text, int64_t most, int64_t *n)
{
    return text.n && text.p[0] != '0' && span_i64(text, n) && *n > 0 && *n <= most;
}

int node_cards_parse(struct span text, struct node_cards *cards, struct err *err)
{
    const size_t unit = sizeof "MiB" - 1;
    struct span mib_text = text, number = span_cut(&mib_text, 'x');
    int64_t n, mib;
    bool good = span_ends(mib_text, SPAN("MiB"));
    mib_text.n -= good ? unit : 0;
    good = good && read_number(number, SCV_MAX_CARDS, &n) &&
           read_number(mib_text, NODE_CARD_MIB_MAX, &mib);
    if (!good)
        return err_set(err, ERR_INVALID,
                       KEY_CARDS ": \"%.*s\" is not a number of cards (1..%d) and their "
                                 "size (1..%d MiB), such as 4x16384MiB",
                       (int)(text.n < SHOWN ? text.n : SHOWN), text.n ? text.p : "",
                       SCV_MAX_CARDS, NODE_CARD_MIB_MAX);
    *cards = (struct node_cards){(uint32_t)n, mib};
    return 0;
}

int node_cards_named(const struct node *node, struct node_cards *cards, struct err *err)
{
    struct node_cards label = {0}, note = {0};
    if (node->cards_label.p && node_cards_parse(node->cards_label, &label, err))
        return -1;
    if (node->cards_note.p && node_cards_parse(node->cards_note, &note, err))
        return -1;
    if (label.n && note.n && (label.n != note.n || label.mib != note.mib))
        return err_set(err, ERR_INVALID,
                       "label " KEY_CARDS " is %" PRIu32 "x%" PRId64
                       "MiB, but the annotation is %" PRIu32 "x%" PRId64 "MiB",
                       label.n, label.mib, note.n, note.mib);
    *cards = label.n ? label : note;
    return 0;
}
