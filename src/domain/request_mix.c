/* SPDX-License-Identifier: Apache-2.0 */
/* The request mix: shapes and weights of requests, kinds of cards. */
#include "domain/request_mix.h"

#include "base/array.h"
#include "base/hash.h"

enum { POD_WEIGHT = 1 << 20 }; /* of a new pod: it vanishes after 20 half-lives */

/* Of a model, as request_accepts_card compares it: trimmed, without case. 0: no model. Not
 * keyed, because replicas have to agree; a collision costs a tenant's own shape its
 * accuracy. */
static uint32_t model_hash(struct span model)
{
    char lower[REQUEST_MAX_MODELS];
    model = span_trim(model);
    if (!model.n)
        return 0;
    size_t n = model.n < sizeof lower ? model.n : sizeof lower;
    for (size_t i = 0; i < n; i++)
        lower[i] = model.p[i] >= 'A' && model.p[i] <= 'Z' ? (char)(model.p[i] | 0x20)
                                                          : model.p[i];
    uint32_t hash = (uint32_t)hash_bytes(0, lower, n);
    return hash ? hash : 1;
}

/* Reads the hashes, rising. A longer list than MIX_MODELS counts as any model. */
static void read_models(struct request_mix_shape *shape, struct span list)
{
    uint32_t *models = shape->models;
    while (list.n) {
        uint32_t hash = model_hash(span_cut(&list, ','));
        size_t n = shape->n_models, at = ARRAY_LOWER_BOUND(m, models, n, *m < hash);
        if (!hash || (at < n && models[at] == hash))
            continue;
        if (n == MIX_MODELS) {
            memset(models, 0, sizeof shape->models);
            shape->n_models = 0;
            return;
        }
        memmove(models + at + 1, models + at, (n - at) * sizeof *models);
        models[at] = hash;
        shape->n_models++;
    }
}

static bool accepts_model(const struct request_mix_shape *shape, uint32_t hash)
{
    for (uint8_t i = 0; i < shape->n_models; i++)
        if (shape->models[i] == hash)
            return true;
    return shape->n_models == 0;
}

static bool accepts(const struct request_mix_shape *shape,
                    const struct request_mix_kind *kind)
{
    bool clock =
        !shape->clock_mhz || (shape->clock_exact ? kind->clock_mhz == shape->clock_mhz
                                                 : kind->clock_mhz >= shape->clock_mhz);
    bool size = shape->kind != REQUEST_CARDS || kind->total_mib >= shape->mib_per_card;
    bool instance = shape->n_models ? accepts_model(shape, kind->profile) ||
                                          accepts_model(shape, kind->model)
                                    : shape->kind == REQUEST_MEMORY;
    if (kind->profile) /* as request_accepts_instance */
        return clock && size && instance && (shape->cards == 1 || shape->n_models == 1);
    return clock && size && accepts_model(shape, kind->model);
}

static bool is_selective(const struct request_mix_shape *shape)
{
    return shape->n_models || shape->clock_mhz ||
           (shape->kind == REQUEST_CARDS && shape->mib_per_card);
}

static void resolve(const struct request_mix *mix, struct request_mix_shape *shape)
{
    shape->accepts = is_selective(shape) ? 0 : UINT64_MAX;
    for (uint32_t i = 1; i < mix->n_kinds; i++) {
        uint64_t kind = UINT64_C(1) << i;
        shape->accepts =
            (shape->accepts & ~kind) | (accepts(shape, &mix->kinds[i]) ? kind : 0);
    }
}

static bool same_shape(const struct request_mix_shape *a,
                       const struct request_mix_shape *b)
{
    return a->kind == b->kind && a->cards == b->cards &&
           a->mib_per_card == b->mib_per_card && a->cpu_milli == b->cpu_milli &&
           a->clock_mhz == b->clock_mhz && a->clock_exact == b->clock_exact &&
           a->n_models == b->n_models &&
           memcmp(a->models, b->models, sizeof a->models) == 0;
}

static void fade(struct request_mix *mix)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mix->n; i++) {
        mix->shapes[i].weight /= 2;
        if (mix->shapes[i].weight > 0)
            mix->shapes[kept++] = mix->shapes[i];
    }
    mix->n = kept;
    mix->since = 0;
}

static struct request_mix_shape *place_for(struct request_mix *mix,
                                           const struct request_mix_shape *shape)
{
    struct request_mix_shape *lightest = mix->shapes;
    for (uint32_t i = 0; i < mix->n; i++) {
        if (same_shape(&mix->shapes[i], shape))
            return &mix->shapes[i];
        if (mix->shapes[i].weight < lightest->weight)
            lightest = &mix->shapes[i];
    }
    if (mix->n < MIX_SHAPES)
        lightest = &mix->shapes[mix->n++];
    *lightest = *shape;
    resolve(mix, lightest);
    return lightest;
}

void request_mix_add(struct request_mix *mix, const struct request *request,
                     int64_t cpu_milli)
{
    struct request_mix_shape shape = {.kind = request->kind, .cpu_milli = cpu_milli};
    if (shape.kind ==
        REQUEST_DEVICES) /* whole cards, whichever device plugin allocates them */
        shape.kind = REQUEST_CARDS;
    if (request->kind != REQUEST_NONE) {
        shape.cards = request->cards;
        shape.mib_per_card = request->mib_per_card;
        shape.clock_mhz = request->clock_mhz;
        shape.clock_exact = request->clock_mhz && request->clock_exact;
        read_models(&shape, request->models);
    }
    if (mix->since == MIX_HALF_LIFE)
        fade(mix);
    mix->since++;
    place_for(mix, &shape)->weight += POD_WEIGHT;
}

/* Kind 0 has the cards that are of no other kind. */
static struct request_mix_kind *place_for_kind(struct request_mix *mix,
                                               const struct request_mix_kind *kind)
{
    struct request_mix_kind *unused = NULL;
    mix->n_kinds = mix->n_kinds ? mix->n_kinds : 1;
    for (uint32_t i = 1; i < mix->n_kinds; i++) {
        struct request_mix_kind *k = &mix->kinds[i];
        if (k->model == kind->model && k->profile == kind->profile &&
            k->clock_mhz == kind->clock_mhz && k->total_mib == kind->total_mib)
            return k;
        unused = k->cards || unused ? unused : k;
    }
    if (!unused && mix->n_kinds < MIX_KINDS)
        unused = &mix->kinds[mix->n_kinds++];
    if (!unused)
        return mix->kinds;
    *unused = *kind;
    for (uint32_t i = 0; i < mix->n; i++)
        resolve(mix, &mix->shapes[i]);
    return unused;
}

uint8_t request_mix_add_card(struct request_mix *mix, struct span model,
                             struct span profile, int64_t clock_mhz, int64_t total_mib)
{
    const struct request_mix_kind kind = {.clock_mhz = clock_mhz,
                                          .total_mib = total_mib,
                                          .model = model_hash(model),
                                          .profile = model_hash(profile)};
    struct request_mix_kind *at = place_for_kind(mix, &kind);
    at->cards++;
    return (uint8_t)(at - mix->kinds);
}

void request_mix_remove_card(struct request_mix *mix, uint8_t kind)
{
    mix->kinds[kind].cards--;
}

void request_mix_add_free(struct request_mix *mix, uint8_t kind, int64_t mib)
{
    mix->kinds[kind].free_mib += mib;
}
