/* SPDX-License-Identifier: Apache-2.0 */
#include "view/scope.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"

struct view_scope {
    atomic_uint refs;
    struct arena arena;
    size_t n;
    struct span names[]; /* sorted */
};

static int by_name(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

struct view_scope *view_scope_new(const struct span *namespaces, size_t n)
{
    struct view_scope *s = xcalloc(1, sizeof *s + n * sizeof *s->names);
    atomic_init(&s->refs, 1);
    s->n = n;
    for (size_t i = 0; i < n; i++)
        s->names[i] = arena_copy(&s->arena, namespaces[i]);
    if (n)
        qsort(s->names, n, sizeof *s->names, by_name);
    return s;
}

struct view_scope *view_scope_ref(struct view_scope *s)
{
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

void view_scope_free(struct view_scope *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    arena_fini(&s->arena);
    free(s);
}

bool view_scope_shows(const struct view_scope *s, struct span ns)
{
    if (!s)
        return true;
    return s->n && bsearch(&ns, s->names, s->n, sizeof *s->names, by_name);
}

bool view_scope_equal(const struct view_scope *a, const struct view_scope *b)
{
    if (!a || !b || a == b)
        return a == b;
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!span_eq(a->names[i], b->names[i]))
            return false;
    return true;
}
