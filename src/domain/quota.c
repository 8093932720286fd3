/* SPDX-License-Identifier: Apache-2.0 */
/* ResourceQuotas of another system's resources, and what the pods of each namespace use. */
#include "domain/quota.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/fields.h"
#include "domain/quantity.h"

struct span quota_resource_name(enum quota_resource k)
{
    return k == QUOTA_MEMORY ? SPAN("limits.nvidia.com/gpumem")
                             : SPAN("limits.nvidia.com/gpucores");
}

struct quota_amounts quota_amounts(const struct request *r, uint32_t cards, int64_t mib)
{
    if (!quota_counts(r))
        return (struct quota_amounts){0};
    uint32_t cores = r->kind == REQUEST_CARDS ? REQUEST_CORE : r->core;
    if (r->kind == REQUEST_CARDS && r->mib_per_card)
        mib = r->mib_per_card * cards;
    return (struct quota_amounts){{mib, (int64_t)cores * cards}};
}

/* -- the object -- */

static void read_hard(struct field_reader *r, const struct field *f, void *at)
{
    struct quota *quota = at;
    struct jread_str key;
    jread_object(r->j, f->where);
    while (jread_member(r->j, &key)) {
        struct span value = {0};
        fields_read_quantity(r->j, f->where, r->a, &value);
        for (int k = 0; k < QUOTA_RESOURCES; k++)
            if (jread_str_eq(key, quota_resource_name((enum quota_resource)k)))
                quota->hard[k] = quantity_ceil(value);
    }
}

static const struct field spec_fields[] = {
    {FIELD("spec.", "hard", quota, meta), .type = FIELD_OTHER, .read = read_hard},
    FIELDS_END,
};
static const struct field quota_fields[] = {
    {FIELD("", "metadata", quota, meta), .type = FIELD_META},
    {FIELD("", "spec", quota, meta), FIELD_IS_OBJECT(spec_fields)},
    FIELDS_END,
};
_Static_assert(offsetof(struct quota, meta) == 0, "so that all is read into it");

void quota_read(struct jread *j, struct arena *a, struct quota *quota)
{
    struct field_reader r = {.j = j, .a = a};
    *quota = (struct quota){.hard = {-1, -1}};
    fields_read(&r, "resourcequota", quota_fields, quota);
    object_meta_check(j, &quota->meta);
}

/* -- the namespaces -- */

void quotas_init(struct quotas *q, uint64_t seed)
{
    map_init(&q->by_name, seed, offsetof(struct quota_namespace, name));
    list_init(&q->namespaces);
}

/* Finds or creates it. */
static struct quota_namespace *namespace_need(struct quotas *q, struct span name)
{
    struct quota_namespace *n = map_get(&q->by_name, name);
    if (n)
        return n;
    n = xcalloc(1, sizeof *n + name.n);
    char *at = (char *)(n + 1);
    n->name = span_put(name, &at);
    list_append(&q->namespaces, &n->link);
    map_set(&q->by_name, n);
    return n;
}

/* Ends one that says nothing. */
static void namespace_settle(struct quotas *q, struct quota_namespace *n)
{
    if (n->limits || n->used[QUOTA_MEMORY] || n->used[QUOTA_CORES])
        return;
    list_remove(&n->link);
    map_remove(&q->by_name, n->name);
    free(n);
}

static void limit_end(struct quota_limit **at)
{
    struct quota_limit *limit = *at;
    *at = limit->next;
    free(limit);
}

void quotas_fini(struct quotas *q)
{
    LIST_EACH(struct quota_namespace, n, &q->namespaces, link)
    {
        while (n->limits)
            limit_end(&n->limits);
        free(n);
    }
    map_fini(&q->by_name);
}

/* Most changes of the object are of its status. */
void quotas_seen(struct quotas *q, const struct quota *quota, uint64_t list)
{
    const struct quota_limit none = {.hard = {-1, -1}};
    struct span name = quota->meta.name;
    struct quota_namespace *n = namespace_need(q, quota->meta.ns);
    struct quota_limit **at = &n->limits, *limit;
    while (*at && !span_eq((*at)->name, name))
        at = &(*at)->next;
    if (!*at) {
        *at = xmalloc(sizeof **at + name.n);
        **at = none;
        char *end = (char *)(*at + 1);
        (*at)->name = span_put(name, &end);
    }
    limit = *at;
    limit->list = list;
    q->freed |= memcmp(limit->hard, quota->hard, sizeof limit->hard) != 0;
    memcpy(limit->hard, quota->hard, sizeof limit->hard);
    if (!memcmp(limit->hard, none.hard, sizeof none.hard))
        limit_end(at);
    namespace_settle(q, n);
}

void quotas_sweep(struct quotas *q, uint64_t list)
{
    q->freed = true;
    LIST_EACH(struct quota_namespace, n, &q->namespaces, link)
    {
        for (struct quota_limit **at = &n->limits; *at;)
            if ((*at)->list == list)
                at = &(*at)->next;
            else
                limit_end(at);
        namespace_settle(q, n);
    }
}

void quotas_use(struct quotas *q, struct span ns, struct quota_amounts amounts, int sign)
{
    struct quota_namespace *n = namespace_need(q, ns);
    for (int k = 0; k < QUOTA_RESOURCES; k++)
        n->used[k] += sign * amounts.of[k];
    q->freed |= n->limits && sign < 0 && amounts.of[QUOTA_MEMORY];
    namespace_settle(q, n);
}

bool quotas_allow(const struct quotas *q, struct span ns, struct quota_amounts asked,
                  struct quota_amounts own, struct buf *why)
{
    const struct quota_namespace *n = map_get(&q->by_name, ns);
    for (const struct quota_limit *l = n ? n->limits : NULL; l; l = l->next)
        for (int k = 0; k < QUOTA_RESOURCES; k++) {
            struct span name = quota_resource_name((enum quota_resource)k);
            int64_t used = n->used[k] - own.of[k];
            if (asked.of[k] <= 0 || l->hard[k] < 0 || used <= l->hard[k] - asked.of[k])
                continue;
            buf_printf(why,
                       "exceeded quota: %.*s, requested: %.*s=%lld, used: %.*s=%lld, "
                       "limited: %.*s=%lld",
                       SPAN_ARG(l->name), SPAN_ARG(name), (long long)asked.of[k],
                       SPAN_ARG(name), (long long)used, SPAN_ARG(name),
                       (long long)l->hard[k]);
            return false;
        }
    return true;
}
