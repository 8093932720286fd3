/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/request_pool_priv.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/mem.h"

enum { CAP_MIN = 16 };

/* In one block with its parts and texts. */
struct shared_request {
    struct request request; /* first: a user has a pointer to it */
    struct resources resources;
    uint64_t hash;
    size_t users;
    struct shared_request *next; /* in the bucket */
    struct request_part parts[];
};

void request_pool_init(struct request_pool *p, uint64_t seed)
{
    *p = (struct request_pool){.seed = seed};
}

void request_pool_fini(struct request_pool *p)
{
    assert(p->n == 0);
    free(p->buckets);
    *p = (struct request_pool){0};
}

static uint64_t hash_of(const struct request_pool *p, const struct request *r,
                        const struct resources *resources)
{
    const int64_t numbers[] = {r->kind,          r->placement,    r->cards,
                               r->units,         r->mib_per_card, r->clock_mhz,
                               r->core,          r->n_parts,      resources->cpu_milli,
                               resources->memory};
    uint64_t hash = hash_bytes(p->seed, numbers, sizeof numbers);
    hash = hash_bytes(hash, r->models.p, r->models.n);
    for (uint32_t i = 0; i < r->n_parts; i++) {
        const struct request_part *part = &r->parts[i];
        hash = hash_bytes(hash ^ (uint64_t)part->amount, part->name.p, part->name.n);
    }
    return hash;
}

static bool same(const struct request *a, const struct request *b)
{
    if (!request_equal(a, b) || a->devices != b->devices || a->by_label != b->by_label ||
        a->recorded != b->recorded || a->n_parts != b->n_parts)
        return false;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct request_part *x = &a->parts[i], *y = &b->parts[i];
        if (x->index != y->index || x->amount != y->amount || !span_eq(x->name, y->name))
            return false;
    }
    return true;
}

static struct shared_request *shared_new(const struct request *r,
                                         const struct resources *resources, uint64_t hash)
{
    size_t bytes = r->models.n + r->n_parts * sizeof *r->parts;
    for (uint32_t i = 0; i < r->n_parts; i++)
        bytes += r->parts[i].name.n;
    struct shared_request *s = xmalloc(sizeof *s + bytes);
    char *at = (char *)&s->parts[r->n_parts];
    *s = (struct shared_request){.request = *r, .resources = *resources, .hash = hash};
    s->request.parts = s->parts;
    s->request.models = span_put(r->models, &at);
    for (uint32_t i = 0; i < r->n_parts; i++) {
        s->parts[i] = r->parts[i];
        s->parts[i].name = span_put(r->parts[i].name, &at);
    }
    return s;
}

static void resize(struct request_pool *p, size_t cap)
{
    struct shared_request **buckets = xcalloc(cap, sizeof *buckets);
    for (size_t i = 0; i < p->cap; i++) {
        for (struct shared_request *s = p->buckets[i], *next; s; s = next) {
            struct shared_request **bucket = &buckets[s->hash & (cap - 1)];
            next = s->next;
            s->next = *bucket;
            *bucket = s;
        }
    }
    free(p->buckets);
    p->buckets = buckets;
    p->cap = cap;
}

const struct request *request_pool_take(struct request_pool *p, const struct request *r,
                                        const struct resources *resources)
{
    uint64_t hash = hash_of(p, r, resources);
    struct shared_request *s = p->cap ? p->buckets[hash & (p->cap - 1)] : NULL;
    while (s && (s->hash != hash || !same(&s->request, r) ||
                 !resources_equal(&s->resources, resources)))
        s = s->next;
    if (!s) {
        if (p->n == p->cap)
            resize(p, p->cap ? p->cap * 2 : CAP_MIN);
        struct shared_request **bucket = &p->buckets[hash & (p->cap - 1)];
        s = shared_new(r, resources, hash);
        s->next = *bucket;
        *bucket = s;
        p->n++;
    }
    s->users++;
    return &s->request;
}

const struct resources *request_pool_resources(const struct request *request)
{
    return &((const struct shared_request *)request)->resources;
}

void request_pool_release(struct request_pool *p, const struct request *request)
{
    struct shared_request *s = (struct shared_request *)request;
    if (--s->users > 0)
        return;
    struct shared_request **link = &p->buckets[s->hash & (p->cap - 1)];
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    free(s);
    p->n--;
    if (p->cap > CAP_MIN && p->n < p->cap / 8)
        resize(p, p->cap / 2);
}
