/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the limits, labels and annotations of a pod to its request: request_of, upwards
 * from "in a dialect". Most pods pass plain_request, limit_request, memory_request and
 * read_conditions.
 *
 * For few pods alone, and skipped otherwise: slots_request, label_request, the parts of
 * containers and request_settle, all that is in a dialect, and what follows request_of,
 * which compares and writes.
 */
#include "domain/request.h"

#include "base/array.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "domain/dialect.h"
#include "domain/gang.h"
#include "domain/keys.h"
#include "domain/links.h"
#include "domain/quantity.h"
#include "domain/scv.h"

/* -- limits -- */

static int64_t limit_amount(struct span limit)
{
    return limit.p ? quantity_at_most(quantity_ceil(limit), LIMITS_MAX) : 0;
}

static int64_t sum_total(const struct container_sum *sum)
{
    bool forgets = MUTANT(init_containers_forgotten);
    return quantity_at_most(forgets ? sum->running : container_sum_most(sum), LIMITS_MAX);
}

struct limits limits_of(const struct pod *pod)
{
    struct container_sum sums[POD_LIMITS] = {0};
    struct limits l = {0};
    ARRAY_EACH_ITEM(const struct pod_container, c, pod->containers, pod->n_containers)
    {
        for (int k = 0; k < POD_LIMITS; k++)
            container_sum_add(&sums[k], c->role, limit_amount(c->limits[k]));
        l.mem_in_init |= c->role == CONTAINER_INIT && limit_amount(c->mem) > 0;
    }
    for (int k = 0; k < POD_LIMITS; k++)
        l.of[k] = sum_total(&sums[k]);
    return l;
}

int64_t limits_of_go(const struct pod *pod)
{
    int64_t sum = 0, units;
    ARRAY_EACH_ITEM(const struct pod_container, c, pod->containers, pod->n_containers)
    {
        if (c->role == CONTAINER_APP && c->mem.p &&
            quantity_read(c->mem, &units, NULL) == 0)
            sum += quantity_at_most(units, LIMITS_MAX);
    }
    return sum;
}

/* -- requests -- */

enum {
    WORDS_MAX = 256,     /* bytes of `words` */
    UNITS_MAX = 1 << 30, /* of one container: far above any card, in any unit */
    SHOWN_MAX = 64,      /* bytes of an invalid value in a message */
    MIB = 1 << 20,       /* in bytes */
};
static const int64_t mib_max = (int64_t)1 << 40;

static int shown(struct span text)
{
    return text.n < SHOWN_MAX ? (int)text.n : SHOWN_MAX;
}

static const char *role_name(enum container_role role)
{
    return role == CONTAINER_APP ? "container" : "init container";
}

/* In the order of the limits of a container. */
static const char *const limit_keys[POD_LIMITS] = {
    KEY_GPU_MEM, KEY_GPU_COUNT, KEY_NVIDIA_GPU, KEY_GPU_SHARE, KEY_GPU_CORE};

/* Parses a whole number from 1 up; without the text *value is unchanged. */
static int read_number(struct span text, const char *where, const char *key,
                       const char *what, int64_t most, int64_t *value, struct err *err)
{
    int64_t v;
    if (!text.p)
        return 0;
    if (!span_i64(text, &v) || v < 1 || v > most)
        return err_set(err, ERR_INVALID, "%s %s: \"%.*s\" is not %s (1..%lld)", where,
                       key, shown(text), text.p, what, (long long)most);
    *value = v;
    return 0;
}

static const char a_count[] = "a number of cards";

/* The number of cards in the label or annotation; 1 without either. */
static int read_count(const struct pod *pod, uint32_t *count, struct err *err)
{
    struct span label = span_trim(pod->count_label);
    struct span note = span_trim(pod->count_annotation);
    int64_t value = 1;
    if (label.p && note.p && !span_eq(label, note))
        return err_set(
            err, ERR_INVALID, "label %s is \"%.*s\", but the annotation is \"%.*s\"",
            KEY_GPU_COUNT, SPAN_ARG(pod->count_label), SPAN_ARG(pod->count_annotation));
    if (read_number(label.p ? label : note, label.p ? "label" : "annotation",
                    KEY_GPU_COUNT, a_count, REQUEST_MAX_CARDS, &value, err))
        return -1;
    *count = (uint32_t)value;
    return 0;
}

/* After the number of cards is known. One card has no pairs. */
static int read_links(const struct pod *pod, const struct request_rules *rules,
                      struct request *r, struct err *err)
{
    struct span text = span_trim(pod->topology), least = span_trim(pod->min_link);
    bool none = span_eq(text, SPAN("none")), gang = span_eq(text, SPAN("gang"));
    if (pod->topology.p && !none && !gang)
        return err_set(err, ERR_INVALID, "annotation %s: \"%.*s\" is not none or gang",
                       KEY_TOPOLOGY, shown(text), text.p);
    uint8_t width = span_eq(least, SPAN("NV")) ? LINK_NV : link_width(least);
    if (pod->min_link.p && (width > LINK_NV || width <= LINK_SYS))
        return err_set(err, ERR_INVALID,
                       "annotation %s: \"%.*s\" is not NV, PIX, PXB, PHB or NODE",
                       KEY_MIN_LINK, shown(least), least.p);
    r->min_link = r->cards > 1 ? width : 0;
    r->ignores_links = !r->min_link && (rules->ignore_links || none);
    r->near_gang = gang && !rules->ignore_links;
    return 0;
}

/* What decides whether, where and how a pod starts, and nothing of what it takes. So it is checked
 * before the bind alone: one that runs keeps its cards, whatever was accepted then. */
static int read_start(const struct pod *pod, struct request *r, struct err *err)
{
    /* What the node must have one of. node/response.c says what the pod gets there, which can be
     * more: with limit-env the driver's limit as well. */
    static const struct {
        const char *word;
        uint8_t by;
    } words[] = {{"driver", SCV_ISOLATION_DRIVER},
                 {"limit", SCV_ISOLATION_DRIVER | SCV_ISOLATION_LIBRARY},
                 {"limit-env", SCV_ISOLATION_LIBRARY},
                 {"limit-file", SCV_ISOLATION_LIBRARY},
                 {"mps", SCV_ISOLATION_MPS},
                 {"none", 0}};
    struct span asks = pod->isolation;
    size_t i = 0;
    while (i < ARRAY_LEN(words) && !span_eq(asks, span_of(words[i].word)))
        i++;
    if (i < ARRAY_LEN(words) && r->kind == REQUEST_MEMORY)
        r->isolation = words[i].by;
    if (i == ARRAY_LEN(words) && asks.p && !pod->node.n)
        return err_set(err, ERR_INVALID,
                       "annotation %s: \"%.*s\" is not driver, limit, limit-env, "
                       "limit-file, mps or none",
                       KEY_ISOLATION, shown(asks), asks.p);
    return pod->node.n ? 0 : gang_check(pod, err);
}

/* Each container's memory and compute are split evenly over the cards; the compute of a
 * container is a share of the cards on which it has memory. The limits are valid. */
static int check_split(const struct pod *pod, const struct request *r,
                       const struct limits *limits, struct err *err)
{
    const char *key = r->slots ? KEY_GPU_SHARE : KEY_GPU_MEM;
    if (r->cards > 1 && limits->mem_in_init)
        return err_set(
            err, ERR_INVALID,
            "an init container requests %s, which cannot be split over %u cards",
            KEY_GPU_MEM, r->cards);
    ARRAY_EACH_ITEM(const struct pod_container, c, pod->containers, pod->n_containers)
    {
        int64_t units = limit_amount(r->slots ? c->slots : c->mem),
                percent = limit_amount(c->compute_percent);
        if (units % r->cards)
            return err_set(err, ERR_INVALID,
                           "%s %u: %lld units of %s cannot be split evenly over %u cards",
                           role_name(c->role), c->order, (long long)units, key, r->cards);
        if (percent && !units)
            return err_set(err, ERR_INVALID, "%s %u: limit %s without limit %s",
                           role_name(c->role), c->order, KEY_GPU_CORE, key);
        if (percent % r->cards)
            return err_set(
                err, ERR_INVALID,
                "%s %u: %lld percent of compute cannot be split evenly over %u "
                "cards",
                role_name(c->role), c->order, (long long)percent, r->cards);
    }
    return 0;
}

/* The rest of the card is the driver's, so a container that asks for more than can be promised and
 * has a card of that size has all of it. */
int64_t request_part_mib(const struct request_part *part, int64_t total_mib,
                         int64_t kept_mib)
{
    if (part->percent)
        return total_mib * part->percent / 100;
    return part->amount <= total_mib + kept_mib
               ? quantity_at_most(part->amount, total_mib)
               : part->amount;
}

/* `limits`: without what defaults add, and of a percentage one MiB less, so that the rounding of
 * several on a card that grows does not exceed the card. */
static int64_t sum_parts(const struct request *r, bool limits, int64_t total_mib,
                         int64_t kept_mib)
{
    struct container_sum sum = {0};
    ARRAY_EACH_ITEM(const struct request_part, part, r->parts, r->n_parts)
    if (!limits || !part->by_default) {
        int64_t mib = request_part_mib(part, total_mib, kept_mib);
        container_sum_add(&sum, part->role, mib - (limits && part->percent && mib));
    }
    return container_sum_most(&sum);
}

int64_t request_mib_of_parts(const struct request *r, int64_t total_mib, int64_t kept_mib)
{
    return sum_parts(r, false, total_mib, kept_mib);
}

int64_t request_mib_of_limits(const struct request *r, int64_t total_mib)
{
    return r->dialect && !MUTANT(record_lowers_limits)
               ? quantity_at_most(sum_parts(r, true, total_mib, 0), total_mib)
               : 0;
}

void request_settle(struct request *r, int64_t mib, int64_t total_mib)
{
    r->percent = 0;
    if (r->kind == REQUEST_MEMORY) {
        r->mib_per_card = mib;
        r->units = mib * r->cards;
    }
    ARRAY_EACH_ITEM(struct request_part, part, r->parts, r->n_parts)
    {
        part->amount = r->dialect ? request_part_mib(part, total_mib, part->amount)
                                  : mib / r->slots * r->cards;
        part->percent = 0;
    }
}

/* "6Gi" or "6144Mi": *mib; "50%": *percent. The other gets 0. */
static int read_memory(struct span text, int64_t *mib, uint32_t *percent, struct err *err)
{
    int64_t number = 0;
    *mib = *percent = 0;
    text = span_trim(text);
    if (text.n > 1 && text.p[text.n - 1] == '%') {
        struct span digits = {text.p, text.n - 1};
        if (span_i64(digits, &number) && number >= 1 && number <= 100)
            *percent = (uint32_t)number;
    } else if (quantity_read(text, &number, NULL) == 0 && number % MIB == 0 &&
               number / MIB <= UNITS_MAX) {
        *mib = number / MIB;
    }
    if (*mib || *percent)
        return 0;
    return err_set(err, ERR_INVALID,
                   "annotation %s: \"%.*s\" is not memory in whole MiB, such as 6Gi or "
                   "6144Mi, and no percentage from 1 to 100",
                   KEY_MEMORY, shown(text), text.p);
}

/* The containers share the cards of the pod, so all have slots on as many. */
static int slots_request(const struct pod *pod, const struct limits *limits,
                         struct request *r, struct err *err)
{
    int64_t mib, cards = 0;
    uint32_t percent, count;
    ARRAY_EACH_ITEM(const struct pod_container, c, pod->containers, pod->n_containers)
    {
        int64_t own = limit_amount(c->slots);
        if (own && cards && own != cards)
            return err_set(err, ERR_INVALID,
                           "%s %u: limit %s: %lld cards, and another container has %lld: "
                           "all memory of a pod is on the same cards",
                           role_name(c->role), c->order, KEY_GPU_SHARE, (long long)own,
                           (long long)cards);
        cards = own ? own : cards;
    }
    if (cards > REQUEST_MAX_CARDS)
        return err_set(err, ERR_INVALID,
                       "limit %s: %lld cards exceed the limit of %d per pod",
                       KEY_GPU_SHARE, (long long)cards, REQUEST_MAX_CARDS);
    if (!pod->memory.p)
        return err_set(err, ERR_INVALID, "limit %s without annotation %s", KEY_GPU_SHARE,
                       KEY_MEMORY);
    if (read_count(pod, &count, err) || read_memory(pod->memory, &mib, &percent, err))
        return -1;
    if ((pod->count_label.p || pod->count_annotation.p) && count != cards)
        return err_set(err, ERR_INVALID, "%s is %u, but limit %s is %lld", KEY_GPU_COUNT,
                       count, KEY_GPU_SHARE, (long long)cards);
    r->cards = (uint32_t)cards;
    r->slots = (uint32_t)(limits->slots / cards);
    if (mib && mib < r->slots)
        return err_set(err, ERR_INVALID, "annotation %s: %lld MiB for %u containers",
                       KEY_MEMORY, (long long)mib, r->slots);
    request_settle(r, MUTANT(slots_of_the_pod) ? mib / cards : mib, 0);
    r->percent = percent;
    return 0;
}

static int memory_request(const struct pod *pod, const struct limits *limits,
                          int64_t unit_mib, struct request *r, struct err *err)
{
    r->kind = REQUEST_MEMORY;
    r->units = limits->mem;
    if (limits->slots ? slots_request(pod, limits, r, err)
                      : read_count(pod, &r->cards, err))
        return -1;
    if (check_split(pod, r, limits, err))
        return -1;
    if (!r->slots)
        r->mib_per_card = r->units / r->cards *
                          (MUTANT(units_mixed_up) && r->n_parts > 1 ? 1000 : unit_mib);
    if (limits->compute_percent / r->cards > REQUEST_CORE)
        return err_set(err, ERR_INVALID,
                       "limit %s: %lld percent exceed the compute of %u card%s",
                       KEY_GPU_CORE, (long long)limits->compute_percent, r->cards,
                       r->cards == 1 ? "" : "s");
    r->compute_percent = (uint8_t)(limits->compute_percent / r->cards);
    return 0;
}

/* Labels and annotations that restrict any request */

/* 0: no such label. */
struct labels {
    int64_t number, memory, clock;
};

static int read_models(const struct pod *pod, struct arena *a, struct request *r,
                       struct err *err)
{
    struct span models = span_trim(pod->models), rest = models;
    bool any = false;
    if (!pod->models.p)
        return 0;
    if (models.n > REQUEST_MAX_MODELS)
        return err_set(err, ERR_INVALID, "annotation %s is longer than %d bytes",
                       KEY_GPU_MODEL, REQUEST_MAX_MODELS);
    while (rest.p)
        any |= span_trim(span_cut(&rest, ',')).n > 0;
    if (!any)
        return err_set(err, ERR_INVALID, "annotation %s: \"%.*s\" names no model",
                       KEY_GPU_MODEL, shown(models), models.p);
    r->models = arena_copy(a, models);
    return 0;
}

/* Reads what a pod says beside its limits, in whatever words these are: in which order it takes
 * cards, and what a card must be. A new condition on a card is read here. */
static int read_conditions(const struct pod *pod, struct arena *a, struct labels *l,
                           struct request *r, struct err *err)
{
    struct span order = span_trim(pod->placement);
    bool spread = span_eq(order, SPAN("spread"));
    *l = (struct labels){0};
    if (pod->placement.p && r->kind != REQUEST_DEVICES) {
        if (!spread && !span_eq(order, SPAN("binpack")))
            return err_set(err, ERR_INVALID,
                           "annotation %s: \"%.*s\" is neither binpack nor spread",
                           KEY_PLACEMENT, shown(order), order.p);
        r->placement = spread ? PLACE_SPREAD : PLACE_BINPACK;
    }
    if (read_number(pod->scv_number, "label", KEY_SCV_NUMBER, a_count, REQUEST_MAX_CARDS,
                    &l->number, err) ||
        read_number(pod->scv_memory, "label", KEY_SCV_MEMORY, "a number of MiB", mib_max,
                    &l->memory, err) ||
        read_number(pod->scv_clock, "label", KEY_SCV_CLOCK, "a number of MHz", mib_max,
                    &l->clock, err))
        return -1;
    r->clock_mhz = l->clock;
    return read_models(pod, a, r, err);
}

/* Without limits the labels are the request. The allocation annotation gives it to the
 * first container. */
static void label_request(const struct labels *l, const struct request_rules *rules,
                          struct request *r)
{
    int64_t unit = rules->unit_mib;
    r->by_label = true;
    r->cards = l->number ? (uint32_t)l->number : 1;
    r->mib_per_card = l->memory;
    r->kind = l->memory || rules->number_shares ? REQUEST_MEMORY : REQUEST_CARDS;
    r->units = r->cards * ((l->memory + unit - 1) / unit);
    r->parts[0] = (struct request_part){
        .amount = r->kind == REQUEST_MEMORY ? r->units : (int64_t)r->cards};
    r->n_parts = 1;
}

/* Labels beside limits: they must not request more than the limits reserve. */
static int label_limits(const struct labels *l, struct request *r, struct err *err)
{
    if (l->number && l->number != r->cards)
        return err_set(
            err, ERR_INVALID, "label %s is %lld, but the limits request %u card%s",
            KEY_SCV_NUMBER, (long long)l->number, r->cards, r->cards == 1 ? "" : "s");
    if (r->slots && l->memory)
        return err_set(err, ERR_INVALID, "label %s beside limit %s", KEY_SCV_MEMORY,
                       KEY_GPU_SHARE);
    if (r->kind != REQUEST_MEMORY)
        r->mib_per_card = l->memory;
    else if (l->memory > r->mib_per_card)
        return err_set(err, ERR_INVALID,
                       "label %s is %lld, but the limits request %lld MiB per card",
                       KEY_SCV_MEMORY, (long long)l->memory, (long long)r->mib_per_card);
    return 0;
}

/* Reads the limits of each container, and collects the containers that run concurrently. */
static int read_limits(const struct pod *pod, struct request *r, struct err *err)
{
    ARRAY_EACH_ITEM(const struct pod_container, c, pod->containers, pod->n_containers)
    {
        int64_t amounts[POD_LIMITS] = {0};
        for (int k = 0; k < POD_LIMITS; k++) {
            const struct span text = c->limits[k];
            if (text.p && quantity_read(text, &amounts[k], err))
                return err_wrap(err, "%s %u: limit %s", role_name(c->role), c->order,
                                limit_keys[k]);
            if (amounts[k] > UNITS_MAX)
                return err_set(
                    err, ERR_INVALID,
                    "%s %u: limit %s: %lld exceeds the capacity of any node%s",
                    role_name(c->role), c->order, limit_keys[k], (long long)amounts[k],
                    text.p[text.n - 1] == 'i' ? "; write units, without Gi or Mi" : "");
        }
        /* Memory, whole cards or slots. */
        int64_t ours = amounts[0] + amounts[1] + amounts[3];
        if (c->role != CONTAINER_INIT && ours > 0)
            r->parts[r->n_parts++] =
                (struct request_part){.index = c->index, .amount = ours, .name = c->name};
    }
    return 0;
}

static int check_kinds(const struct limits *l, struct err *err)
{
    const char *other = NULL;
    for (int k = 0; k < POD_LIMITS - 1; k++) { /* compute goes with memory */
        if (l->of[k] && other)
            return err_set(err, ERR_INVALID, "limits of both %s and %s in one pod", other,
                           limit_keys[k]);
        other = l->of[k] ? limit_keys[k] : other;
    }
    if (l->compute_percent && !l->mem && !l->slots)
        return err_set(err, ERR_INVALID, "limit of %s without limit of %s in the pod",
                       KEY_GPU_CORE, KEY_GPU_MEM);
    return 0;
}

/* With time-slicing a node can have more devices than cards. */
static uint32_t device_count(const struct limits *l)
{
    return (uint32_t)quantity_at_most(l->devices, UNITS_MAX);
}

/* The request of the limits alone. */
static int limit_request(const struct pod *pod, const struct limits *l,
                         const struct request_rules *rules, struct request *r,
                         struct err *err)
{
    if (l->mem || l->slots)
        return memory_request(pod, l, rules->unit_mib, r, err);
    if (l->cards > REQUEST_MAX_CARDS)
        return err_set(err, ERR_INVALID,
                       "%lld whole cards exceed the limit of %d per pod",
                       (long long)l->cards, REQUEST_MAX_CARDS);
    if (l->cards || l->devices) {
        r->kind = l->cards ? REQUEST_CARDS : REQUEST_DEVICES;
        r->cards = l->cards ? (uint32_t)l->cards : device_count(l);
    }
    return 0;
}

void request_of_limits(const struct limits *l, const struct request_rules *rules,
                       struct request *r)
{
    *r = (struct request){.devices = device_count(l), .units = l->mem};
    if (l->cards) {
        r->kind = REQUEST_CARDS;
        r->cards = (uint32_t)quantity_at_most(l->cards, REQUEST_MAX_CARDS);
    } else if (l->mem || l->slots) {
        r->kind = REQUEST_MEMORY;
        r->cards = 1;
        r->mib_per_card = l->mem * rules->unit_mib;
        r->slots = (uint32_t)quantity_at_most(l->slots, UINT16_MAX);
        r->percent = l->slots ? 100 : 0;
        r->compute_percent = (uint8_t)quantity_at_most(l->compute_percent, REQUEST_CORE);
    } else if (l->devices) {
        r->kind = REQUEST_DEVICES;
        r->cards = r->devices;
    }
}

static int plain_request(const struct pod *pod, const struct request_rules *rules,
                         struct arena *a, struct request *request, struct err *err)
{
    struct limits limits = limits_of(pod);
    struct labels labels;
    struct request r = {.parts =
                            arena_alloc(a, (pod->n_containers + 1) * sizeof *r.parts),
                        .clock_exact = rules->clock_exact};

    *request = (struct request){0};
    if (pod->memory.p && !limits.slots && !pod->node.n)
        return err_set(err, ERR_INVALID, "annotation %s without limit %s", KEY_MEMORY,
                       KEY_GPU_SHARE);
    if (pod->n_containers > UINT16_MAX)
        return err_set(err, ERR_INVALID, "%zu containers request GPU memory",
                       pod->n_containers);
    if (read_limits(pod, &r, err) || check_kinds(&limits, err) ||
        limit_request(pod, &limits, rules, &r, err))
        return -1;
    bool labeled = pod->scv_number.p || pod->scv_memory.p || pod->scv_clock.p;
    if (r.kind == REQUEST_NONE && !labeled)
        return 0;
    if (read_conditions(pod, a, &labels, &r, err))
        return -1;
    if (r.kind == REQUEST_NONE)
        label_request(&labels, rules, &r);
    else if (label_limits(&labels, &r, err))
        return -1;
    if (read_links(pod, rules, &r, err) || read_start(pod, &r, err))
        return -1;
    *request = r;
    return 0;
}

/* -- in a dialect -- */

static void write_rules(struct buf *out, const struct dialect_pod *d)
{
    bool any = false;
    for (enum dialect_note k = DIALECT_USE_TYPE; k <= DIALECT_NOUSE_UUID; k++)
        any |= span_trim(d->notes[k]).n > 0;
    for (enum dialect_note k = DIALECT_USE_TYPE; k <= DIALECT_NOUSE_UUID && any; k++) {
        struct span list = d->notes[k];
        list.n = (size_t)quantity_at_most((int64_t)list.n, DIALECT_LIST_MAX + 1);
        for (size_t i = 0; i < list.n; i++) /* no model or UUID has a line break */
            buf_addc(out, list.p[i] == '\n' ? ' ' : list.p[i]);
        buf_addc(out, '\n');
    }
}

bool request_rules_accept(const struct request *r, const struct span *model,
                          const struct span *uuid)
{
    struct span rest = r->rules, lists[DIALECT_NOUSE_UUID + 1];
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        lists[k] = span_cut(&rest, '\n');
    return dialect_accepts(lists, model, uuid);
}

/* The memory of each container, for all of them what they take of slots and, to show it, of
 * memory. */
static void add_parts(const struct dialect_pod *d, struct arena *a, struct request *r)
{
    struct container_sum slots = {0}, percent = {0};
    size_t n = 0;
    for (const struct dialect_container *c = d->containers; c; c = c->next)
        n++;
    r->parts = arena_alloc(a, n * sizeof *r->parts);
    for (const struct dialect_container *c = d->containers; c; c = c->next) {
        if (!c->cards)
            continue;
        container_sum_add(&slots, c->role, 1);
        container_sum_add(&percent, c->role, c->percent);
        r->parts[r->n_parts++] = (struct request_part){
            .index = c->index,
            .role = (uint8_t)c->role,
            .percent = c->percent,
            .by_default = c->by == DIALECT_CARDS,
            .alone = (c->set[DIALECT_CORES] || c->limits[DIALECT_CORES].p) &&
                     c->cores == REQUEST_CORE,
            .amount = MUTANT(slots_of_the_pod) ? c->mib / c->cards : c->mib,
            .name = c->name};
    }
    if (r->kind == REQUEST_MEMORY)
        r->slots = (uint32_t)sum_total(&slots);
    r->percent = (uint32_t)sum_total(&percent);
    r->mib_per_card = r->percent ? 0 : request_mib_of_parts(r, mib_max, 0);
}

/* -1: the pod is invalid where its limits have this meaning. */
static int dialect_meaning(const struct pod *pod, const struct request_rules *rules,
                           struct dialect_pod *d, struct arena *a, struct request *r,
                           struct err *err)
{
    cleanup_buf struct buf lists = {0}, words = {0};
    struct labels labels;
    if (dialect_request(d, err))
        return -1;
    if (pod->node.n) /* it runs, whatever mode was allowed then */
        d->notes[DIALECT_MODE] = (struct span){0};
    for (const struct dialect_container *c = d->containers; c; c = c->next)
        if (c->set[DIALECT_CARDS] && !pod->node.n)
            return err_set(err, ERR_INVALID,
                           "container %.*s: no limit %.*s, which admission adds to the "
                           "others",
                           SPAN_ARG(c->name), SPAN_ARG(d->d->limits[DIALECT_CARDS].key));
    if (dialect_join(d, err))
        return -1;
    if (!d->cards)
        return 0;
    r->dialect = SCV_DIALECT_HAMI;
    r->kind = d->alone ? REQUEST_CARDS : REQUEST_MEMORY;
    r->cards = d->cards;
    r->compute_percent = d->alone ? 0 : d->cores;
    r->placement = d->placement;
    add_parts(d, a, r);
    if (read_conditions(pod, a, &labels, r, err) || read_links(pod, rules, r, err) ||
        read_start(pod, r, err))
        return -1;
    if (d->one_numa && r->cards > 1 && r->min_link < LINK_NODE)
        r->min_link = LINK_NODE;
    r->ignores_links &= !r->min_link;
    write_rules(&lists, d);
    dialect_write(&words, d, 0, 0);
    r->rules = arena_copy(a, buf_span(&lists));
    r->words = arena_copy(a, span_clip(buf_span(&words), WORDS_MAX));
    return 0;
}

/* Adds the meaning that the limits of the pod have in a dialect. `plain`: that without it is valid,
 * and in *request. */
static int add_dialect(const struct pod *pod, const struct request_rules *rules,
                       struct arena *a, struct request *request, bool plain,
                       struct err *err)
{
    struct dialect_pod d;
    struct jread j;
    struct request r = {.clock_exact = rules->clock_exact};
    struct err why = {0};
    jread_init(&j, pod->object.p, pod->object.n);
    dialect_read(&j, a, rules->dialect, &d);
    bool bad = jread_finish(&j, &why) || dialect_meaning(pod, rules, &d, a, &r, &why);
    bool ours = request->kind == REQUEST_MEMORY || request->kind == REQUEST_CARDS;
    const bool bound = pod->node.n > 0;
    if ((!plain && !bound) || !d.containers || (!bad && r.kind == REQUEST_NONE) ||
        (ours && !d.certain)) /* by labels, beside 0 devices */
        return plain ? 0 : -1;
    if (ours && !bad)
        bad = err_set(&why, ERR_INVALID,
                      "limits of both aliyun.com/... and %.*s... in one pod",
                      SPAN_ARG(d.d->limits[DIALECT_CARDS].key)) != 0;
    if (bad && d.certain) {
        *request = (struct request){0};
        plain = err_set(err, why.code, "%s", why.msg) == 0;
    }
    if (!plain && !bound)
        return -1;
    /* One that is bound has cards, whatever system gave them, and keeps what its limits ask for
     * when an edit makes the rest invalid. */
    if (bad && !(bound && r.kind != REQUEST_NONE))
        r = (struct request){.dialect = SCV_DIALECT_HAMI,
                             .kind = bound ? REQUEST_CARDS : REQUEST_NONE,
                             .cards = !bound ? 0
                                      : request->cards - 1 < REQUEST_MAX_CARDS
                                          ? request->cards
                                          : REQUEST_MAX_CARDS,
                             .words = arena_copy(a, span_of(why.msg))};
    if (d.certain && !bound) {
        *request = r;
        return 0;
    }
    struct request *hami = arena_alloc(a, sizeof *hami);
    *hami = r;
    request->hami = hami;
    return plain ? 0 : -1;
}

int request_of(const struct pod *pod, const struct request_rules *rules, struct arena *a,
               struct request *request, struct err *err)
{
    int rc = plain_request(pod, rules, a, request, err);
    if (rules->dialect && pod->object.n)
        rc = add_dialect(pod, rules, a, request, rc == 0, err);
    if (rc || request->kind != REQUEST_DEVICES || !request->min_link)
        return rc;
    request->min_link = 0; /* one that runs has its cards */
    if (pod->node.n)
        return 0;
    *request = (struct request){0};
    return err_set(err, ERR_INVALID, "annotation %s: the kubelet chooses the cards of %s",
                   KEY_MIN_LINK, KEY_NVIDIA_GPU);
}

bool request_names_model(const struct request *r, struct span model)
{
    struct span rest = r->models;
    model = span_trim(model);
    while (model.n && rest.p)
        if (span_eq_nocase(span_trim(span_cut(&rest, ',')), model))
            return true;
    return false;
}

bool request_accepts_instance(const struct request *r, const struct card_kind *kind)
{
    const bool one = r->cards == 1;
    if (!r->models.n)
        return (r->kind == REQUEST_MEMORY && one) || MUTANT(instance_is_a_whole_card);
    return (request_names_model(r, kind->model) ||
            request_names_model(r, kind->profile)) &&
           (one || !memchr(r->models.p, ',', r->models.n));
}

int64_t request_amount(const struct request *r, const struct card_kind *kind)
{
    const int64_t mib = request_mib(r, kind->total_mib, kind->kept_mib);
    bool small = (r->kind == REQUEST_CARDS && kind->total_mib < mib) || mib < r->slots;
    return small || !request_accepts_card(r, kind) ? -1 : mib;
}

struct request request_copy_without_parts(const struct request *r, struct arena *a)
{
    struct request copy = request_without_parts(r);
    copy.models = arena_copy(a, r->models);
    copy.rules = arena_copy(a, r->rules);
    copy.words = arena_copy(a, r->words);
    copy.parts = arena_alloc(a, copy.n_parts * sizeof *copy.parts);
    for (size_t i = 0; i < copy.n_parts; i++) {
        copy.parts[i] = r->parts[i];
        copy.parts[i].name = arena_copy(a, r->parts[i].name);
    }
    if (r->hami) {
        struct request *hami = arena_alloc(a, sizeof *hami);
        *hami = request_copy_without_parts(r->hami, a);
        copy.hami = hami;
    }
    return copy;
}

bool request_equal(const struct request *a, const struct request *b)
{
    struct request x = request_without_parts(a), y = request_without_parts(b);
    const struct request_part *of_x = x.parts, *of_y = y.parts;
    x.models.p = x.rules.p = x.words.p = y.models.p = y.rules.p = y.words.p = NULL;
    x.parts = y.parts = NULL;
    x.hami = y.hami = NULL;
    if (memcmp(&x, &y, sizeof x) != 0 || !span_eq(a->models, b->models) ||
        !span_eq(a->rules, b->rules) || !span_eq(a->words, b->words) ||
        !a->hami != !b->hami || (a->hami && !request_equal(a->hami, b->hami)))
        return false;
    for (size_t i = 0; i < x.n_parts; i++)
        if (of_x[i].role != of_y[i].role || of_x[i].percent != of_y[i].percent ||
            of_x[i].amount != of_y[i].amount ||
            of_x[i].by_default != of_y[i].by_default || of_x[i].alone != of_y[i].alone)
            return false;
    return true;
}

void request_write_card(struct buf *out, const struct request *r)
{
    if (r->models.n)
        buf_printf(out, ", model %.*s", SPAN_ARG(r->models));
    if (r->clock_mhz)
        buf_printf(out, ", memory clock %s%lld MHz", r->clock_exact ? "" : "at least ",
                   (long long)r->clock_mhz);
}

void request_write_kind(struct buf *out, const struct request *r,
                        const struct card_kind *kind)
{
    buf_add_span(out, kind->model.n ? kind->model : SPAN("unknown model"));
    if (!r->clock_mhz)
        return;
    buf_adds(out, " (");
    buf_add_i64(out, kind->spec.clock_mhz);
    buf_adds(out, " MHz)");
}

void request_write(struct buf *out, const struct request *r, int64_t unit_mib)
{
    bool gib = unit_mib == 1024 && !r->by_label && !r->slots;
    char word[8];
    if (r->kind == REQUEST_NONE) {
        buf_adds(out, "nothing");
        return;
    }
    if (r->words.n) {
        buf_add_span(out, r->words);
    } else if (r->kind == REQUEST_MEMORY) {
        if (r->percent)
            buf_printf(out, "%u %% of the memory%s", r->percent,
                       r->cards > 1 ? " of each" : " of a card");
        else
            buf_printf(out, "%lld %s",
                       (long long)(gib ? r->units : r->mib_per_card * r->cards),
                       gib ? "GiB" : "MiB");
        if (r->cards > 1)
            buf_printf(out, " on %u cards", r->cards);
        if (r->compute_percent)
            buf_printf(out, " with %u %% of the compute%s", r->compute_percent,
                       r->cards > 1 ? " of each" : "");
    } else {
        buf_printf(out, "%u %s", r->cards,
                   r->kind == REQUEST_DEVICES ? KEY_NVIDIA_GPU
                   : r->cards == 1            ? "whole card"
                                              : "whole cards");
        if (r->mib_per_card)
            buf_printf(out, " of at least %lld MiB", (long long)r->mib_per_card);
    }
    request_write_card(out, r);
    if (r->min_link)
        buf_printf(out, ", each two connected by %s or better",
                   link_word(r->min_link, word));
    if (r->isolation) {
        buf_adds(out, ", memory isolated by ");
        scv_isolation_add(out, r->isolation, " or ");
    }
    if (r->hami)
        buf_printf(out, "; on nodes of HAMi: %.*s", SPAN_ARG(r->hami->words));
}
