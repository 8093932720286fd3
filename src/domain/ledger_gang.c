/* SPDX-License-Identifier: Apache-2.0 */
#include "domain/ledger_priv.h"

#include <stdlib.h>

#include "base/mem.h"

/* New, with its key in the same block. */
static struct ledger_gang *gang_new(struct span key, struct span ns, size_t name_n)
{
    struct ledger_gang *g = xcalloc(1, sizeof *g + key.n);
    memcpy(g + 1, key.p, key.n);
    g->key = (struct span){(char *)(g + 1), key.n};
    g->ns = (struct span){g->key.p + 2, ns.n}; /* gang_key: kind/namespace/name/... */
    g->name = (struct span){g->ns.p + ns.n + 1, name_n};
    return g;
}

void ledger_gang_leave(struct ledger *l, struct ledger_pod *p)
{
    struct ledger_member *m = p->member;
    if (!m)
        return;
    struct ledger_gang *g = m->gang;
    if (!p->node) {
        l->n_pending_members--;
        ledger_class_left(l, p);
    }
    *(m->prev ? &m->prev->next : &g->members) = m->next;
    if (m->next)
        m->next->prev = m->prev;
    if (--g->n_members == 0) {
        map_remove(&l->gangs, g->key);
        free(g);
    }
    p->member = NULL;
    free(m);
}

static void join(struct ledger *l, struct ledger_pod *p, struct span key, size_t name_n)
{
    struct ledger_gang *g = map_get(&l->gangs, key);
    if (!g) {
        g = gang_new(key, p->ns, name_n);
        map_set(&l->gangs, g);
    }
    struct ledger_member *m = xcalloc(1, sizeof *m);
    m->gang = g;
    m->pod = p;
    m->next = g->members;
    if (m->next)
        m->next->prev = m;
    g->members = m;
    g->n_members++;
    p->member = m;
    if (!p->node) {
        l->n_pending_members++;
        ledger_class_joined(l, p);
    }
}

void ledger_gang_update(struct ledger *l, struct ledger_pod *p, const struct pod *pod)
{
    cleanup_buf struct buf key = {0};
    struct gang gang;
    if (!gang_of(pod, &gang)) {
        ledger_gang_leave(l, p);
        return;
    }
    gang_key(&key, p->ns, &gang);
    if (!p->member || !span_eq(p->member->gang->key, buf_span(&key))) {
        ledger_gang_leave(l, p);
        join(l, p, buf_span(&key), gang.name.n);
    }
    p->member->minimum = gang.minimum;
}

const struct ledger_gang *ledger_gang_find(const struct ledger *l, struct span ns,
                                           const struct gang *gang)
{
    cleanup_buf struct buf key = {0};
    gang_key(&key, ns, gang);
    return map_get(&l->gangs, buf_span(&key));
}
