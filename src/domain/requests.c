/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/requests.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/mem.h"

/* -- requests -- */

/* In one block with its parts and the key, which has the texts. */
struct shared_request {
    struct span key; /* first, as requests.shared expects it */
    struct request request;
    struct resources resources;
    size_t users;
    struct request_part parts[];
};

static struct shared_request *shared_of(const struct request *request)
{
    return (struct shared_request *)((char *)request -
                                     offsetof(struct shared_request, request));
}

enum { KEY_PART_NUMBERS = 4 };

/* The same bytes for equal requests only: the structs without their pointers, then the texts. A new
 * text of a request belongs here, below, and into request_equal. */
static void write_key(struct buf *key, const struct request *r,
                      const struct resources *resources)
{
    struct request flat = *r;
    flat.models.p = flat.rules.p = flat.words.p = NULL;
    flat.parts = NULL;
    buf_add(key, &flat, sizeof flat);
    buf_add(key, resources, sizeof *resources);
    buf_add_span(key, r->models);
    buf_add_span(key, r->rules);
    buf_add_span(key, r->words);
    ARRAY_EACH_ITEM(const struct request_part, part, r->parts, r->n_parts)
    {
        const int64_t of_part[KEY_PART_NUMBERS] = {
            part->index,
            part->alone << 17 | part->by_default << 16 | part->role << 8 | part->percent,
            part->amount, (int64_t)part->name.n};
        buf_add(key, of_part, sizeof of_part);
        buf_add_span(key, part->name);
    }
}

static struct shared_request *
shared_new(const struct request *r, const struct resources *resources, struct span key)
{
    size_t parts = r->n_parts * sizeof *r->parts;
    struct shared_request *s = xmalloc(sizeof *s + parts + key.n);
    const char *at = memcpy((char *)s->parts + parts, key.p, key.n);
    *s = (struct shared_request){
        .request = *r, .resources = *resources, .key = {at, key.n}};
    s->request.parts = s->parts;
    s->request.models.p = at += sizeof *r + sizeof *resources;
    s->request.rules.p = at += r->models.n;
    s->request.words.p = at += r->rules.n;
    at += r->words.n;
    for (size_t i = 0; i < r->n_parts; i++) {
        s->parts[i] = r->parts[i];
        s->parts[i].name.p = at += KEY_PART_NUMBERS * sizeof(int64_t);
        at += r->parts[i].name.n;
    }
    return s;
}

const struct request *requests_take(struct requests *all, const struct request *request,
                                    const struct resources *resources)
{
    cleanup_buf struct buf key = {0};
    struct request r = *request;
    if (r.hami) /* of equal ones it is the same one, so that the pointer identifies it */
        r.hami = requests_take(all, r.hami, resources);
    write_key(&key, &r, resources);
    struct shared_request *s = map_get(&all->shared, buf_span(&key));
    if (!s) {
        s = shared_new(&r, resources, buf_span(&key));
        map_set(&all->shared, s);
    } else if (r.hami) {
        requests_release(all, r.hami);
    }
    s->users++;
    return &s->request;
}

const struct resources *requests_resources(const struct request *taken)
{
    return &shared_of(taken)->resources;
}

void requests_release(struct requests *all, const struct request *taken)
{
    struct shared_request *s = shared_of(taken);
    if (--s->users > 0)
        return;
    if (taken->hami)
        requests_release(all, taken->hami);
    map_remove(&all->shared, s->key);
    free(s);
}

/* As one without parts. */
static const struct request *take_whole(struct requests *all, const struct request *r,
                                        int64_t cpu_milli)
{
    const struct request whole = request_without_parts(r);
    return requests_take(all, &whole, &(struct resources){.cpu_milli = cpu_milli});
}

/* -- classes -- */

uint32_t requests_pend(struct requests *all, const struct request *r, int32_t priority,
                       int pods, int members)
{
    size_t i = 0, unused = all->n_classes;
    if (r->kind == REQUEST_NONE)
        return UINT32_MAX;
    for (struct request_class *c = all->classes; i < all->n_classes; i++, c++)
        if (!c->pods)
            unused = unused < i ? unused : i; /* the lowest one */
        else if (c->priority == priority && request_equal(c->request, r))
            break;
    if (i == all->n_classes) {
        i = unused;
        MEM_GROW(all->classes, all->classes_cap, i + 1);
        all->n_classes += i == all->n_classes;
        all->classes[i] = (struct request_class){++all->last_class,     priority, {0},
                                                 take_whole(all, r, 0), 0,        0};
    }
    struct request_class *c = &all->classes[i];
    c->pods += (size_t)pods;
    c->members += (size_t)members;
    if (!c->pods)
        requests_release(all, c->request);
    while (all->n_classes && !all->classes[all->n_classes - 1].pods)
        all->n_classes--;
    return (uint32_t)i;
}

/* -- the mix -- */

enum { POD_WEIGHT = 1 << 20 }; /* of a new pod: it vanishes after 20 half-lives */

static void resolve(const struct requests *all, struct request_shape *shape, uint8_t id)
{
    const struct card_kind *kind = id ? all->kinds[id].kind : &card_kind_unknown;
    shape->amounts[id] = kind ? request_amount(shape->request, kind) : -1;
}

static void fade(struct requests *all)
{
    size_t kept = 0;
    for (size_t i = 0; i < all->n_shapes; i++) {
        all->shapes[i].weight /= 2;
        if (all->shapes[i].weight > 0)
            all->shapes[kept++] = all->shapes[i];
        else
            requests_release(all, all->shapes[i].request);
    }
    all->n_shapes = kept;
    all->since = 0;
}

/* The shape of the request, which is taken for it. */
static struct request_shape *shape_of(struct requests *all, const struct request *taken)
{
    struct request_shape *lightest = all->shapes;
    for (size_t i = 0; i < all->n_shapes; i++) {
        struct request_shape *s = &all->shapes[i];
        if (s->request == taken) {
            requests_release(all, taken);
            return s;
        }
        if (s->weight < lightest->weight)
            lightest = s;
    }
    if (all->n_shapes < MIX_SHAPES) {
        MEM_GROW(all->shapes, all->shapes_cap, all->n_shapes + 1);
        lightest = &all->shapes[all->n_shapes++];
    } else {
        requests_release(all, lightest->request);
    }
    *lightest = (struct request_shape){.request = taken,
                                       .cpu_milli = requests_resources(taken)->cpu_milli};
    for (uint8_t id = 0; id < MIX_KINDS; id++)
        resolve(all, lightest, id);
    return lightest;
}

/* The same text for the same set of models: in lower case, each once, rising. */
static struct span sort_models(struct span list, char sorted[REQUEST_MAX_MODELS])
{
    char lower[REQUEST_MAX_MODELS], *end = lower, *at = sorted;
    struct span names[REQUEST_MAX_MODELS];
    size_t n = 0;
    if (list.n > sizeof lower) /* counts as any model */
        return (struct span){0};
    list = span_put(list, &end);
    for (char *p = lower; p < end; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p | 0x20) : *p;
    while (list.n)
        names[n++] = span_trim(span_cut(&list, ','));
    qsort(names, n, sizeof *names, span_compare);
    for (size_t i = 0; i < n; i++) {
        if (!names[i].n || (i && span_eq(names[i], names[i - 1])))
            continue;
        if (at > sorted)
            *at++ = ',';
        span_put(names[i], &at);
    }
    return (struct span){sorted, (size_t)(at - sorted)};
}

void requests_weigh(struct requests *all, const struct request *request,
                    int64_t cpu_milli)
{
    char models[REQUEST_MAX_MODELS];
    struct request like = *request;
    like.placement = PLACE_BINPACK;
    like.models = sort_models(request->models, models);
    if (like.kind == REQUEST_DEVICES) /* whole cards, whichever plugin allocates them */
        like.kind = REQUEST_CARDS;
    if (all->since == MIX_HALF_LIFE)
        fade(all);
    all->since++;
    shape_of(all, take_whole(all, &like, cpu_milli))->weight += POD_WEIGHT;
}

/* -- kinds of cards -- */

/* In one block with its key, which has the texts. */
struct shared_kind {
    struct span key; /* first, as requests.kinds_by_key expects it */
    struct card_kind kind;
    size_t users;
};

/* An id for the kind; 0: all are in use. */
static uint8_t number_kind(struct requests *all, const struct card_kind *kind)
{
    uint8_t id = 1;
    while (id < MIX_KINDS && all->kinds[id].kind)
        id++;
    if (id == MIX_KINDS)
        return 0;
    all->kinds[id].kind = kind;
    for (size_t i = 0; i < all->n_shapes; i++)
        resolve(all, &all->shapes[i], id);
    return id;
}

const struct card_kind *requests_take_kind(struct requests *all,
                                           const struct card_kind *like)
{
    cleanup_buf struct buf key = {0};
    const size_t lengths[] = {like->model.n, like->profile.n};
    buf_add_span(&key, like->model);
    buf_add_span(&key, like->profile);
    buf_add(&key, lengths, sizeof lengths);
    buf_add(&key, &like->spec, sizeof like->spec);
    buf_add(&key, &like->total_mib, sizeof like->total_mib);
    buf_add(&key, &like->kept_mib, sizeof like->kept_mib);
    struct shared_kind *s = map_get(&all->kinds_by_key, buf_span(&key));
    if (!s) {
        s = xmalloc(sizeof *s + key.n);
        const char *at = memcpy(s + 1, key.p, key.n);
        *s = (struct shared_kind){.kind = *like, .key = {at, key.n}};
        s->kind.model.p = at;
        s->kind.profile.p = at + like->model.n;
        s->kind.id = number_kind(all, &s->kind);
        map_set(&all->kinds_by_key, s);
    }
    s->users++;
    return &s->kind;
}

void requests_release_kind(struct requests *all, const struct card_kind *taken)
{
    struct shared_kind *s =
        (struct shared_kind *)((char *)taken - offsetof(struct shared_kind, kind));
    if (--s->users > 0)
        return;
    if (taken->id)
        all->kinds[taken->id].kind = NULL;
    map_remove(&all->kinds_by_key, s->key);
    free(s);
}

void requests_init(struct requests *all, uint64_t seed)
{
    *all = (struct requests){0};
    map_init(&all->shared, seed, offsetof(struct shared_request, key));
    map_init(&all->kinds_by_key, seed, offsetof(struct shared_kind, key));
}

void requests_fini(struct requests *all)
{
    for (size_t i = 0; i < all->n_shapes; i++)
        requests_release(all, all->shapes[i].request);
    for (size_t i = 0; i < all->n_classes; i++)
        if (all->classes[i].pods)
            requests_release(all, all->classes[i].request);
    assert(all->shared.n == 0 && all->kinds_by_key.n == 0);
    free(all->classes);
    free(all->shapes);
    map_fini(&all->shared);
    map_fini(&all->kinds_by_key);
}
