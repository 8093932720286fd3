/* SPDX-License-Identifier: Apache-2.0 */
/* The request mix: requests with their weights, and what they take of each kind of card. */
#include "domain/request_mix.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

enum { POD_WEIGHT = 1 << 20 }; /* of a new pod: it vanishes after 20 half-lives */

void request_mix_fini(struct request_mix *mix)
{
    free(mix->shapes);
}

struct request request_mix_request(const struct request_mix_shape *shape)
{
    struct request r = shape->request;
    r.models.p = shape->models;
    return r;
}

/* The same text for the same set of models: in lower case, each once, rising. */
static void set_models(struct request_mix_shape *shape, struct span list)
{
    char lower[REQUEST_MAX_MODELS], *end = lower, *at = shape->models;
    struct span names[REQUEST_MAX_MODELS];
    size_t n = 0;
    shape->request.models = (struct span){0};
    if (list.n > sizeof lower) /* counts as any model */
        return;
    list = span_put(list, &end);
    for (char *p = lower; p < end; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p | 0x20) : *p;
    while (list.n) {
        struct span name = span_trim(span_cut(&list, ','));
        size_t i = ARRAY_LOWER_BOUND(x, names, n, span_cmp(*x, name) < 0);
        if (!name.n || (i < n && span_eq(names[i], name)))
            continue;
        memmove(names + i + 1, names + i, (n++ - i) * sizeof *names);
        names[i] = name;
    }
    for (size_t i = 0; i < n; i++) {
        if (i)
            *at++ = ',';
        span_put(names[i], &at);
    }
    shape->request.models.n = (size_t)(at - shape->models);
}

static void resolve(const struct request_mix *mix, struct request_mix_shape *shape,
                    uint8_t id)
{
    const struct card_kind *kind = id ? mix->kinds[id].kind : &card_kind_unknown;
    const struct request r = request_mix_request(shape);
    shape->amounts[id] = kind ? request_amount(&r, kind) : -1;
}

static void fade(struct request_mix *mix)
{
    size_t kept = 0;
    for (size_t i = 0; i < mix->n; i++) {
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
    for (size_t i = 0; i < mix->n; i++) {
        struct request_mix_shape *s = &mix->shapes[i];
        if (memcmp(s, shape, offsetof(struct request_mix_shape, weight)) == 0)
            return s;
        if (s->weight < lightest->weight)
            lightest = s;
    }
    if (mix->n < MIX_SHAPES) {
        MEM_GROW(mix->shapes, mix->cap, mix->n + 1);
        lightest = &mix->shapes[mix->n++];
    }
    *lightest = *shape;
    for (uint8_t id = 0; id < MIX_KINDS; id++)
        resolve(mix, lightest, id);
    return lightest;
}

void request_mix_add(struct request_mix *mix, const struct request *request,
                     int64_t cpu_milli)
{
    struct request_mix_shape shape = {.cpu_milli = cpu_milli};
    if (request->kind != REQUEST_NONE) {
        shape.request = request_without_parts(request);
        shape.request.placement = PLACE_BINPACK;
        set_models(&shape, request->models);
    }
    if (request->kind ==
        REQUEST_DEVICES) /* whole cards, whichever plugin allocates them */
        shape.request.kind = REQUEST_CARDS;
    if (mix->since == MIX_HALF_LIFE)
        fade(mix);
    mix->since++;
    place_for(mix, &shape)->weight += POD_WEIGHT;
}

uint8_t request_mix_add_kind(struct request_mix *mix, const struct card_kind *kind)
{
    uint8_t id = 1;
    while (id < MIX_KINDS && mix->kinds[id].kind)
        id++;
    if (id == MIX_KINDS)
        return 0;
    mix->kinds[id].kind = kind;
    for (size_t i = 0; i < mix->n; i++)
        resolve(mix, &mix->shapes[i], id);
    return id;
}

void request_mix_remove_kind(struct request_mix *mix, uint8_t id)
{
    mix->kinds[id].kind = NULL;
}
