/* SPDX-License-Identifier: Apache-2.0 */
/* ResourceQuotas of another system's resources, and what the pods of each namespace use. */
#include "domain/quota.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/mutant.h"
#include "domain/fields.h"
#include "domain/quantity.h"

#define PREFIX "limits."

static const enum dialect_limit rules[QUOTA_RESOURCES] = {
    [QUOTA_MEMORY] = DIALECT_MEMORY,
    [QUOTA_CORES] = DIALECT_CORES,
};

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
        struct quota_hard hard = {quota->hard, jread_span(key, r->a), {0}};
        fields_read_quantity(r->j, f->where, r->a, &hard.value);
        if (!span_starts(hard.key, SPAN(PREFIX)))
            continue;
        quota->hard = arena_alloc(r->a, sizeof hard);
        *quota->hard = hard;
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
    *quota = (struct quota){0};
    fields_read(&r, "resourcequota", quota_fields, quota);
    object_meta_check(j, &quota->meta);
}

/* -- the namespaces -- */

void quotas_init(struct quotas *q, const struct dialect *dialect, uint64_t seed)
{
    q->dialect = dialect;
    map_init(&q->by_name, seed, offsetof(struct quota_namespace, name));
    list_init(&q->namespaces);
    list_init(&q->changed);
}

static void limit_end(struct quota_limit **at)
{
    struct quota_limit *limit = *at;
    *at = limit->next;
    free(limit);
}

static void namespace_end(struct quotas *q, struct quota_namespace *n)
{
    while (n->limits)
        limit_end(&n->limits);
    list_remove(&n->link);
    list_remove(&n->of_changed);
    map_remove(&q->by_name, n->name);
    free(n);
}

void quotas_fini(struct quotas *q)
{
    LIST_EACH(struct quota_namespace, n, &q->namespaces, link)
    namespace_end(q, n);
    map_fini(&q->by_name);
}

/* Finds or creates it. quotas_next_freed looks at it next, and ends one that says nothing. */
static struct quota_namespace *change(struct quotas *q, struct span name)
{
    struct quota_namespace *n = map_get(&q->by_name, name);
    if (!n) {
        n = xcalloc(1, sizeof *n + name.n);
        char *at = (char *)(n + 1);
        n->name = span_put(name, &at);
        list_append(&q->namespaces, &n->link);
        list_init(&n->of_changed);
        map_set(&q->by_name, n);
    }
    list_remove(&n->of_changed);
    list_append(&q->changed, &n->of_changed);
    return n;
}

static void read_limit(const struct quotas *q, const struct quota *quota,
                       int64_t hard[QUOTA_RESOURCES])
{
    for (int k = 0; k < QUOTA_RESOURCES; k++) {
        const struct dialect_rule *rule = &q->dialect->limits[rules[k]];
        hard[k] = quota->damaged ? 0 : -1;
        for (const struct quota_hard *h = quota->hard; h && !quota->damaged;
             h = h->next) {
            struct span key = {h->key.p + strlen(PREFIX), h->key.n - strlen(PREFIX)};
            if (span_eq(key, rule->key))
                hard[k] =
                    quantity_at_most(quantity_ceil(h->value), INT64_MAX / rule->factor) *
                    rule->factor;
        }
    }
}

static struct quota_limit **limit_of(struct quota_namespace *n, struct span name)
{
    struct quota_limit **at = &n->limits;
    while (*at && !span_eq((*at)->name, name))
        at = &(*at)->next;
    return at;
}

/* Most changes of the object are of its status. */
void quotas_seen(struct quotas *q, const struct quota *quota, uint64_t list)
{
    struct quota_namespace *n = change(q, quota->meta.ns);
    struct quota_limit **at = limit_of(n, quota->meta.name), *limit = *at;
    int64_t hard[QUOTA_RESOURCES], any = -1;
    read_limit(q, quota, hard);
    for (int k = 0; k < QUOTA_RESOURCES; k++)
        any = hard[k] > any ? hard[k] : any;
    if (limit && any < 0)
        quotas_deleted(q, quota->meta.ns, quota->meta.name);
    if (any < 0)
        return;
    if (!limit) {
        *at = limit = xcalloc(1, sizeof *limit + quota->meta.name.n);
        char *end = (char *)(limit + 1);
        limit->name = span_put(quota->meta.name, &end);
    }
    n->raised |= memcmp(limit->hard, hard, sizeof hard) != 0;
    limit->list = list;
    memcpy(limit->hard, hard, sizeof hard);
}

void quotas_deleted(struct quotas *q, struct span ns, struct span name)
{
    struct quota_namespace *n = change(q, ns);
    struct quota_limit **at = limit_of(n, name);
    n->raised |= *at != NULL;
    if (*at)
        limit_end(at);
}

void quotas_sweep(struct quotas *q, uint64_t list)
{
    LIST_EACH(struct quota_namespace, n, &q->namespaces, link)
    for (struct quota_limit **at = &n->limits; *at;) {
        if ((*at)->list == list) {
            at = &(*at)->next;
            continue;
        }
        change(q, n->name)->raised = true;
        limit_end(at);
    }
}

void quotas_use(struct quotas *q, struct span ns, struct quota_amounts amounts, int sign)
{
    if (!amounts.of[QUOTA_MEMORY] && !amounts.of[QUOTA_CORES])
        return;
    struct quota_namespace *n = change(q, ns);
    for (int k = 0; k < QUOTA_RESOURCES; k++)
        n->used[k] += sign * amounts.of[k];
}

bool quotas_next_freed(struct quotas *q, struct span *ns)
{
    struct quota_namespace *n;
    while ((n = LIST_FIRST(&q->changed, struct quota_namespace, of_changed))) {
        bool freed = n->raised, empty = !n->limits;
        for (int k = 0; k < QUOTA_RESOURCES; k++) {
            freed |= n->limits && n->used[k] < n->seen[k];
            empty &= !n->used[k];
            n->seen[k] = n->used[k];
        }
        n->raised = false;
        *ns = n->name;
        list_remove(&n->of_changed);
        if (freed && empty) /* the next call ends it */
            list_append(&q->changed, &n->of_changed);
        else if (empty)
            namespace_end(q, n);
        if (freed)
            return true;
    }
    return false;
}

/* -- the check -- */

int64_t quotas_write(struct buf *out, const struct quotas *q, enum quota_resource k,
                     int64_t amount)
{
    const struct dialect_rule *rule = &q->dialect->limits[rules[k]];
    buf_printf(out, PREFIX "%.*s", SPAN_ARG(rule->key));
    return (amount + rule->factor - 1) / rule->factor;
}

bool quotas_allow(const struct quotas *q, struct span ns, struct quota_amounts asked,
                  struct quota_amounts own, struct buf *why)
{
    const struct quota_namespace *n = map_get(&q->by_name, ns);
    for (const struct quota_limit *l = n ? n->limits : NULL; l; l = l->next) {
        const char *words[] = {", requested: ", ", used: ", ", limited: "};
        bool any = false, over[QUOTA_RESOURCES];
        for (int k = 0; k < QUOTA_RESOURCES; k++)
            any |= over[k] = asked.of[k] > 0 && l->hard[k] >= 0 &&
                             n->used[k] - own.of[k] > l->hard[k] - asked.of[k];
        if (any)
            buf_printf(why, "exceeded quota: %.*s", SPAN_ARG(l->name));
        for (int w = 0; any && w < (int)ARRAY_LEN(words); w++)
            for (int k = 0; k < QUOTA_RESOURCES; k++) {
                if (!over[k])
                    continue;
                buf_adds(why, words[w]);
                int64_t amount = quotas_write(why, q, (enum quota_resource)k,
                                              w == 0   ? asked.of[k]
                                              : w == 1 ? n->used[k] - own.of[k]
                                                       : l->hard[k]);
                buf_printf(why, "=%lld", (long long)amount);
                words[w] = ",";
            }
        if (any)
            return false;
    }
    return true;
}
