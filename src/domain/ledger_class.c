/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"

static struct ledger_class *find(const struct ledger *l, const struct request *r)
{
    for (size_t i = 0; i < l->n_classes; i++)
        if (request_equal(&l->classes[i].request, r))
            return &l->classes[i];
    return NULL;
}

static struct ledger_class *class_new(struct ledger *l, const struct request *r)
{
    MEM_GROW(l->classes, l->classes_cap, l->n_classes + 1);
    struct ledger_class *c = &l->classes[l->n_classes++];
    *c = (struct ledger_class){.id = ++l->last_class, .request = *r};
    c->request.parts = NULL;
    c->request.n_parts = 0;
    struct span models = r->models;
    c->request.models = (struct span){0};
    if (models.n)
        c->request.models = (struct span){xmemdup0(models.p, models.n), models.n};
    return c;
}

static void class_fini(struct ledger_class *c)
{
    free((char *)c->request.models.p);
}

void ledger_class_add(struct ledger *l, const struct ledger_pod *pod)
{
    const struct request *r = pod->request;
    if (r->kind == REQUEST_NONE)
        return;
    struct ledger_class *c = find(l, r);
    if (!c)
        c = class_new(l, r);
    c->pods++;
    c->members += pod->member != NULL;
}

void ledger_class_remove(struct ledger *l, const struct ledger_pod *pod)
{
    if (pod->request->kind == REQUEST_NONE)
        return;
    struct ledger_class *c = find(l, pod->request);
    c->members -= pod->member != NULL;
    if (--c->pods > 0)
        return;
    class_fini(c);
    *c = l->classes[--l->n_classes];
}

void ledger_class_joined(struct ledger *l, const struct ledger_pod *pod)
{
    if (pod->request->kind != REQUEST_NONE)
        find(l, pod->request)->members++;
}

void ledger_class_left(struct ledger *l, const struct ledger_pod *pod)
{
    if (pod->request->kind != REQUEST_NONE)
        find(l, pod->request)->members--;
}

const struct ledger_class *ledger_classes(const struct ledger *l, size_t *n)
{
    *n = l->n_classes;
    return l->classes;
}

void ledger_classes_free(struct ledger *l)
{
    for (size_t i = 0; i < l->n_classes; i++)
        class_fini(&l->classes[i]);
    free(l->classes);
}
