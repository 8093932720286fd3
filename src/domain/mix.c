/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/mix.h"

enum { POD_WEIGHT = 1 << 20 }; /* of a new pod: it vanishes after 20 half-lives */

static bool same_shape(const struct mix_shape *a, const struct mix_shape *b)
{
    return a->kind == b->kind && a->cards == b->cards &&
           a->mib_per_card == b->mib_per_card && a->cpu_milli == b->cpu_milli;
}

static void fade(struct mix *mix)
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

static struct mix_shape *place_for(struct mix *mix, const struct mix_shape *shape)
{
    struct mix_shape *lightest = mix->shapes;
    for (uint32_t i = 0; i < mix->n; i++) {
        if (same_shape(&mix->shapes[i], shape))
            return &mix->shapes[i];
        if (mix->shapes[i].weight < lightest->weight)
            lightest = &mix->shapes[i];
    }
    if (mix->n < MIX_SHAPES)
        lightest = &mix->shapes[mix->n++];
    *lightest = *shape;
    return lightest;
}

void mix_add(struct mix *mix, const struct request *request, int64_t cpu_milli)
{
    struct mix_shape shape = {.kind = request->kind, .cpu_milli = cpu_milli};
    if (shape.kind ==
        REQUEST_DEVICES) /* whole cards, whichever device plugin allocates them */
        shape.kind = REQUEST_CARDS;
    if (request->kind != REQUEST_NONE)
        shape.cards = request->cards;
    if (request->kind == REQUEST_MEMORY)
        shape.mib_per_card = request->mib_per_card;
    if (mix->since == MIX_HALF_LIFE)
        fade(mix);
    mix->since++;
    place_for(mix, &shape)->weight += POD_WEIGHT;
}
