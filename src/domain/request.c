/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/request.h"

#include "base/mem.h"
#include "domain/keys.h"
#include "domain/quantity.h"

enum {
    UNITS_MAX = 1 << 30, /* of one container; with any unit far above any card */
};

/* One resource, added up over the containers of a pod. */
struct sum {
    int64_t running; /* app containers and sidecars */
    int64_t peak;    /* what the init phase needs at most */
    int64_t sidecars;
    bool in_init; /* a plain init container asks for it */
};

static const char *role_name(enum container_role role)
{
    return role == CONTAINER_APP ? "container" : "init container";
}

static int read_limit(const struct pod_container *c, struct span text, const char *key,
                      int64_t *value, struct err *err)
{
    *value = 0;
    if (!text.p)
        return 0;
    if (quantity_read(text, value, err))
        return err_wrap(err, "%s %u: limit %s", role_name(c->role), c->order, key);
    if (*value > UNITS_MAX)
        return err_set(err, ERR_INVALID,
                       "%s %u: limit %s: %lld is more than any node has",
                       role_name(c->role), c->order, key, (long long)*value);
    return 0;
}

static int read_limits(const struct pod_container *c, int64_t *mem, int64_t *cards,
                       struct err *err)
{
    if (read_limit(c, c->mem, KEY_GPU_MEM, mem, err))
        return -1;
    return read_limit(c, c->cards, KEY_GPU_COUNT, cards, err);
}

/* Containers come in the order in which they start: sidecars and init containers in
 * theirs, then all app containers. Kubernetes: pkg/api/v1/resource, PodRequests. */
static void sum_add(struct sum *sum, enum container_role role, int64_t amount)
{
    switch (role) {
    case CONTAINER_APP:
        sum->running += amount;
        break;
    case CONTAINER_SIDECAR:
        sum->running += amount;
        sum->sidecars += amount;
        if (sum->sidecars > sum->peak)
            sum->peak = sum->sidecars;
        break;
    case CONTAINER_INIT:
        if (sum->sidecars + amount > sum->peak)
            sum->peak = sum->sidecars + amount;
        sum->in_init |= amount > 0;
        break;
    }
}

static int64_t sum_total(const struct sum *sum)
{
    return sum->running > sum->peak ? sum->running : sum->peak;
}

/* The number of cards that a label or annotation asks for; 1 without one. */
static int read_count(const struct pod *pod, uint32_t *count, struct err *err)
{
    struct span label = pod->count_label, note = pod->count_annotation;
    *count = 1;
    if (label.p && note.p && !span_eq(span_trim(label), span_trim(note)))
        return err_set(err, ERR_INVALID,
                       "label %s says \"%.*s\" and the annotation says \"%.*s\"",
                       KEY_GPU_COUNT, SPAN_ARG(label), SPAN_ARG(note));
    struct span text = span_trim(label.p ? label : note);
    int64_t value;
    if (!label.p && !note.p)
        return 0;
    if (!span_i64(text, &value) || value < 1 || value > REQUEST_MAX_CARDS)
        return err_set(err, ERR_INVALID,
                       "%s %s: \"%.*s\" is not a number of cards (1..%d)",
                       label.p ? "label" : "annotation", KEY_GPU_COUNT,
                       text.n < 64 ? (int)text.n : 64, text.p, REQUEST_MAX_CARDS);
    *count = (uint32_t)value;
    return 0;
}

static int read_placement(const struct pod *pod, enum request_placement *placement,
                          struct err *err)
{
    struct span text = span_trim(pod->placement);
    *placement = PLACE_BINPACK;
    if (!pod->placement.p || span_eq(text, SPAN("binpack")))
        return 0;
    if (span_eq(text, SPAN("spread"))) {
        *placement = PLACE_SPREAD;
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "annotation %s: \"%.*s\" is neither binpack nor spread", KEY_PLACEMENT,
                   text.n < 64 ? (int)text.n : 64, text.p);
}

static int check_split(const struct pod *pod, const struct request *r,
                       const struct sum *mem, struct err *err)
{
    if (r->cards > 1 && mem->in_init)
        return err_set(
            err, ERR_INVALID,
            "an init container asks for %s, which cannot be split over %u cards",
            KEY_GPU_MEM, r->cards);
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_container *c = &pod->containers[i];
        int64_t units, cards;
        if (read_limits(c, &units, &cards, err))
            return -1;
        if (units % r->cards)
            return err_set(err, ERR_INVALID,
                           "%s %u: %lld units of %s cannot be split evenly over %u cards",
                           role_name(c->role), c->order, (long long)units, KEY_GPU_MEM,
                           r->cards);
    }
    return 0;
}

static int memory_request(const struct pod *pod, const struct sum *mem, int64_t unit_mib,
                          struct request *r, struct err *err)
{
    r->kind = REQUEST_MEMORY;
    r->units = sum_total(mem);
    if (read_count(pod, &r->cards, err) || check_split(pod, r, mem, err))
        return -1;
    r->mib_per_card = r->units / r->cards * unit_mib;
    return 0;
}

static int card_request(const struct sum *cards, struct request *r, struct err *err)
{
    int64_t n = sum_total(cards);
    r->kind = REQUEST_CARDS;
    if (n > REQUEST_MAX_CARDS)
        return err_set(err, ERR_INVALID,
                       "%lld whole cards are more than the %d a pod can "
                       "ask for",
                       (long long)n, REQUEST_MAX_CARDS);
    r->cards = (uint32_t)n;
    return 0;
}

int request_of(const struct pod *pod, int64_t unit_mib, struct arena *a,
               struct request *request, struct err *err)
{
    struct sum mem = {0}, cards = {0};
    struct request r = {.parts = arena_alloc(a, pod->n_containers * sizeof *r.parts)};

    *request = (struct request){0};
    if (pod->n_containers > UINT16_MAX)
        return err_set(err, ERR_INVALID, "%zu containers ask for GPU memory",
                       pod->n_containers);
    for (size_t i = 0; i < pod->n_containers; i++) {
        const struct pod_container *c = &pod->containers[i];
        int64_t units, count;
        if (read_limits(c, &units, &count, err))
            return -1;
        sum_add(&mem, c->role, units);
        sum_add(&cards, c->role, count);
        if (c->role != CONTAINER_INIT && units + count > 0)
            r.parts[r.n_parts++] = (struct request_part){c->index, units + count};
    }
    if (sum_total(&mem) && sum_total(&cards))
        return err_set(err, ERR_INVALID, "limits of both %s and %s in one pod",
                       KEY_GPU_MEM, KEY_GPU_COUNT);
    if (!sum_total(&mem) && !sum_total(&cards))
        return 0;
    if (read_placement(pod, &r.placement, err))
        return -1;
    if (sum_total(&mem) ? memory_request(pod, &mem, unit_mib, &r, err)
                        : card_request(&cards, &r, err))
        return -1;
    *request = r;
    return 0;
}

void request_write(struct buf *out, const struct request *r, int64_t unit_mib)
{
    if (r->kind == REQUEST_NONE) {
        buf_adds(out, "nothing");
        return;
    }
    if (r->kind == REQUEST_CARDS) {
        buf_add_i64(out, r->cards);
        buf_adds(out, r->cards == 1 ? " whole card" : " whole cards");
        return;
    }
    if (unit_mib == 1024) {
        buf_add_i64(out, r->units);
        buf_adds(out, " GiB");
    } else {
        buf_add_i64(out, r->units * unit_mib);
        buf_adds(out, " MiB");
    }
    if (r->cards > 1) {
        buf_adds(out, " on ");
        buf_add_i64(out, r->cards);
        buf_adds(out, " cards");
    }
}
