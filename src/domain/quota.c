/* SPDX-License-Identifier: Apache-2.0 */
/* ResourceQuotas of another system's resources, and what the pods of each namespace use. */
#include "domain/quota.h"

#include <stdlib.h>

#include "base/mem.h"
#include "domain/fields.h"
#include "domain/quantity.h"

#define PREFIX "limits."

static const enum dialect_limit limits[QUOTA_RESOURCES] = {
    [QUOTA_MEMORY] = DIALECT_MEMORY, [QUOTA_CORES] = DIALECT_CORES};

struct quota_amounts quota_amounts(const struct request *r, uint32_t cards, int64_t mib)
{
    if (!quota_counts(r))
        return (struct quota_amounts){0};
    uint32_t cores = r->kind == REQUEST_CARDS ? REQUEST_CORE : r->compute_percent;
    return (struct quota_amounts){{mib, (int64_t)cores * cards}};
}

/* -- the object -- */

static const struct field spec_fields[] = {
    {FIELD("spec.", "hard", quota, hard), .type = FIELD_RAW},
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

static void read_amounts(const struct quotas *q, struct span text,
                         int64_t hard[QUOTA_RESOURCES])
{
    cleanup_arena struct arena a = {0};
    struct jread j;
    struct jread_str key;
    jread_init(&j, text.p, text.n);
    jread_object(&j, "hard");
    while (jread_member(&j, &key)) {
        struct span name = jread_span(key, &a), value = {0};
        bool limit = span_starts(name, SPAN(PREFIX));
        fields_read_quantity(&j, "hard", &a, &value);
        for (int k = 0; k < QUOTA_RESOURCES && limit; k++) {
            const struct dialect_rule *rule = &q->dialect->limits[limits[k]];
            if (span_eq((struct span){name.p + strlen(PREFIX), name.n - strlen(PREFIX)},
                        rule->key))
                hard[k] =
                    quantity_at_most(quantity_ceil(value), INT64_MAX / rule->factor) *
                    rule->factor;
        }
    }
    if (jread_finish(&j, NULL))
        hard[QUOTA_MEMORY] = hard[QUOTA_CORES] = 0;
}

/* Most changes of the object are of its status. */
void quotas_seen(struct quotas *q, const struct quota *quota, uint64_t list)
{
    int64_t hard[] = {-1, -1};
    struct span name = quota->meta.name;
    if (quota->hard.p)
        read_amounts(q, quota->hard, hard);
    bool none = hard[QUOTA_MEMORY] < 0 && hard[QUOTA_CORES] < 0;
    struct quota_namespace *n = namespace_need(q, quota->meta.ns);
    struct quota_limit **at = &n->limits;
    while (*at && !span_eq((*at)->name, name))
        at = &(*at)->next;
    bool changed = !*at && !none;
    if (changed) {
        *at = xcalloc(1, sizeof **at + name.n);
        char *end = (char *)(*at + 1);
        (*at)->name = span_put(name, &end);
    }
    if (*at) {
        changed |= memcmp((*at)->hard, hard, sizeof hard) != 0;
        q->freed |= changed;
        q->generation += changed;
        memcpy((*at)->hard, hard, sizeof hard);
        (*at)->list = list;
    }
    if (*at && none)
        limit_end(at);
    namespace_settle(q, n);
}

void quotas_sweep(struct quotas *q, uint64_t list)
{
    q->freed = true;
    q->generation++;
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

int64_t quotas_write(struct buf *out, const struct quotas *q, enum quota_resource k,
                     int64_t amount)
{
    const struct dialect_rule *rule = &q->dialect->limits[limits[k]];
    buf_printf(out, PREFIX "%.*s", SPAN_ARG(rule->key));
    return (amount + rule->factor - 1) / rule->factor;
}

bool quotas_allow(const struct quotas *q, struct span ns, struct quota_amounts asked,
                  struct quota_amounts own, struct buf *why)
{
    static const char *const words[] = {"requested", "used", "limited"};
    const struct quota_namespace *n = map_get(&q->by_name, ns);
    for (const struct quota_limit *l = n ? n->limits : NULL; l; l = l->next)
        for (int k = 0; k < QUOTA_RESOURCES; k++) {
            const int64_t of[] = {asked.of[k], n->used[k] - own.of[k], l->hard[k]};
            if (of[0] <= 0 || of[2] < 0 || of[1] <= of[2] - of[0])
                continue;
            if (!why)
                return false;
            buf_printf(why, "exceeded quota: %.*s", SPAN_ARG(l->name));
            for (size_t i = 0; i < ARRAY_LEN(words); i++) {
                buf_printf(why, ", %s: ", words[i]);
                int64_t amount = quotas_write(why, q, (enum quota_resource)k, of[i]);
                buf_printf(why, "=%lld", (long long)amount);
            }
            return false;
        }
    return true;
}
