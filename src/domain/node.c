/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a Node, and the ConfigMap that makes cards of a node unavailable. */
#include "domain/node.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"
#include "domain/scv.h"

static const int64_t amount_max = (int64_t)1 << 40;

static void read_quantity(struct jread *j, struct arena *a, const char *where,
                          int64_t *out)
{
    struct span text = {0};
    if (jread_peek(j) == JREAD_NUMBER)
        jread_raw(j, &text);
    else
        jread_text(j, where, a, &text);
    if (!text.p)
        return;
    if (quantity_read(text, out, NULL))
        jread_fail(j, where, "a quantity is not a whole number");
    else if (*out > amount_max)
        jread_fail(j, where, "a quantity exceeds the capacity of any node");
}

static int64_t at_most(int64_t n, int64_t limit)
{
    return n < limit ? n : limit;
}

/* Of CPU, memory or pods, in thousandths. */
static int64_t read_milli(struct jread *j, struct arena *a, const char *where)
{
    struct span text = {0};
    if (jread_peek(j) == JREAD_NUMBER)
        jread_raw(j, &text);
    else
        jread_text(j, where, a, &text);
    return text.p ? quantity_milli(text, RESOURCES_MAX * 1000) : 0;
}

/* Reads the amounts of our resources to `out`, and CPU, memory and pods to `room` unless it
 * is NULL. */
static void read_resources(struct jread *j, struct arena *a, const char *where,
                           struct node_resources *out, struct resources *room)
{
    struct jread_str key;
    jread_object(j, where);
    while (jread_member(j, &key)) {
        if (jread_key_is(key, KEY_GPU_MEM))
            read_quantity(j, a, where, &out->mem);
        else if (jread_key_is(key, KEY_GPU_COUNT))
            read_quantity(j, a, where, &out->cards);
        else if (jread_key_is(key, KEY_NVIDIA_GPU))
            read_quantity(j, a, where, &out->devices);
        else if (jread_key_is(key, KEY_GPU_CORE))
            read_quantity(j, a, where, &out->core);
        else if (room && jread_key_is(key, "cpu"))
            room->cpu_milli = at_most(read_milli(j, a, where), RESOURCES_MAX);
        else if (room && jread_key_is(key, "memory"))
            room->memory = read_milli(j, a, where) / 1000;
        else if (room && jread_key_is(key, "pods"))
            room->pods = at_most(read_milli(j, a, where) / 1000, UINT32_MAX);
        else
            jread_skip(j);
    }
}

static void read_address(struct jread *j, struct arena *a, struct node *node)
{
    struct jread_str key;
    struct span type = {0}, address = {0};
    jread_object(j, "status.addresses[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "type"))
            jread_text(j, "status.addresses[].type", a, &type);
        else if (jread_key_is(key, "address"))
            jread_text(j, "status.addresses[].address", a, &address);
        else
            jread_skip(j);
    }
    if (!node->address.n && span_eq(type, SPAN("InternalIP")))
        node->address = address;
}

static void read_addresses(struct jread *j, struct arena *a, struct node *node)
{
    jread_array(j, "status.addresses");
    while (jread_item(j))
        read_address(j, a, node);
}

static void read_status(struct jread *j, struct arena *a, struct node *node)
{
    struct jread_str key;
    jread_object(j, "status");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "capacity"))
            read_resources(j, a, "status.capacity", &node->capacity, NULL);
        else if (jread_key_is(key, "allocatable"))
            read_resources(j, a, "status.allocatable", &node->allocatable, &node->room);
        else if (jread_key_is(key, "addresses"))
            read_addresses(j, a, node);
        else
            jread_skip(j);
    }
}

static void read_spec(struct jread *j, struct node *node)
{
    struct jread_str key;
    jread_object(j, "spec");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "unschedulable"))
            jread_bool(j, "spec.unschedulable", &node->cordoned);
        else
            jread_skip(j);
    }
}

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
    struct span mode = {0};
    const struct object_field fields[] = {
        {OBJECT_LABEL, SPAN(KEY_MODE), &mode},
        {OBJECT_LABEL, SPAN(KEY_CARDS), &node->cards_label},
        {OBJECT_ANNOTATION, SPAN(KEY_CARDS), &node->cards_note},
    };
    struct jread_str key;
    *node = (struct node){.capacity = {-1, -1, -1, -1}, .allocatable = {-1, -1, -1, -1}};
    jread_object(j, "node");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &node->meta, fields, ARRAY_LEN(fields));
        else if (jread_key_is(key, "spec"))
            read_spec(j, node);
        else if (jread_key_is(key, "status"))
            read_status(j, a, node);
        else
            jread_skip(j);
    }
    node->mode = mode_of(mode);
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

static void read_list(struct arena *a, struct span text, struct unhealthy_cards *u)
{
    u->n = 0;
    u->cards = arena_alloc(a, CARDS_MAX * sizeof *u->cards);
    while (text.p) {
        struct span item = span_trim(span_cut(&text, ','));
        int64_t index;
        if (!item.n)
            continue;
        if (!span_i64(item, &index) || index < 0 || index > 65535 || u->n == CARDS_MAX) {
            u->damaged = true;
            return;
        }
        u->cards[u->n++] = (int32_t)index;
    }
}

static void read_data(struct jread *j, struct arena *a, struct span *gpus)
{
    struct jread_str key;
    jread_object(j, "data");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, KEY_UNHEALTHY_DATA))
            jread_text(j, "data.gpus", a, gpus);
        else
            jread_skip(j);
    }
}

void node_unhealthy_read(struct jread *j, struct arena *a, struct unhealthy_cards *u)
{
    struct jread_str key;
    struct span gpus = {0}, prefix = SPAN(KEY_UNHEALTHY_PREFIX);
    *u = (struct unhealthy_cards){0};
    jread_object(j, "configmap");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, a, &u->meta, NULL, 0);
        else if (jread_key_is(key, "data"))
            read_data(j, a, &gpus);
        else
            jread_skip(j);
    }
    object_meta_check(j, &u->meta);
    if (!span_starts(u->meta.name, prefix))
        return;
    u->node = (struct span){u->meta.name.p + prefix.n, u->meta.name.n - prefix.n};
    read_list(a, gpus, u);
}

/* -- gpushare.io/cards: the cards of a template Node -- */

enum { SHOWN = 64 }; /* bytes of a malformed value: a label has at most 63 */

/* A decimal number of 1..most, written as it is: one spelling only. */
static bool read_number(struct span text, int64_t most, int64_t *n)
{
    return text.n && text.p[0] != '0' && span_i64(text, n) && *n > 0 && *n <= most;
}

int node_cards_parse(struct span text, struct node_cards *cards,
                        struct err *err)
{
    const size_t unit = sizeof "MiB" - 1;
    struct span mib_text = text, number = span_cut(&mib_text, 'x');
    int64_t n, mib;
    bool good =
        mib_text.n > unit && memcmp(mib_text.p + mib_text.n - unit, "MiB", unit) == 0;
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

int node_cards_named(const struct node *node, struct node_cards *cards,
                        struct err *err)
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
