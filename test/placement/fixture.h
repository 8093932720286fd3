/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "domain/dialect.h"
#include "domain/objects.h"
#include "placement/reason.h"

/* What the tests of this folder share: a ledger, nodes, pods, requests and selections. */

static struct arena arena;
static struct ledger *ledger;

static inline void begin(void)
{
    const struct ledger_settings s = {
        .unit_mib = 1, .external_tolerance_mib = 1024, .dialect = &dialect_hami};
    ledger = ledger_new(&s, 1);
}

static inline void end(void)
{
    ledger_free(ledger);
    arena_fini(&arena);
}

/* For a test with many rounds. */
static inline void restart(void)
{
    end();
    begin();
}

static inline struct request memory(int64_t mib, uint32_t cards)
{
    return (struct request){.kind = REQUEST_MEMORY,
                            .cards = cards,
                            .units = mib * cards,
                            .mib_per_card = mib};
}

static inline struct request whole(uint32_t cards)
{
    return (struct request){.kind = REQUEST_CARDS, .cards = cards};
}

static inline struct request devices(uint32_t n)
{
    return (struct request){.kind = REQUEST_DEVICES, .cards = n};
}

static inline struct request of_model(struct request r, const char *models)
{
    r.models = span_of(models);
    return r;
}

static inline const struct ledger_node *node_of(const char *name)
{
    return ledger_node_find(ledger, span_of(name));
}

/* A node of n free cards of `mib`, as object_scv_even has it. */
static inline const struct ledger_node *even_node(const char *name, int n, int64_t mib)
{
    const struct scv scv = object_scv_even(&arena, name, n, mib);
    ledger_scv_seen(ledger, &scv, 0);
    return node_of(name);
}

/* A bound pod, on as many cards from `first` on as it requests; -1: on no known card. */
static inline struct ledger_pod *bound_pod(const char *node, const char *uid,
                                           struct request r, int first)
{
    const struct pod pod = object_pod_mem(&arena, uid, 1);
    struct ledger_share shares[8];
    for (uint32_t i = 0; i < r.cards && i < ARRAY_LEN(shares); i++)
        shares[i] =
            (struct ledger_share){.card = first + (int32_t)i, .mib = r.mib_per_card};
    struct ledger_pod *p = ledger_pod_add(ledger, &pod, &r, NULL);
    ledger_pod_place(ledger, p, span_of(node), shares, first < 0 ? 0 : r.cards);
    p->final = true;
    return p;
}

/* A node with cards of `mib`, of which so much is free; -1 ends the list. */
static inline const struct ledger_node *node_with_free_of(const char *name, int mib,
                                                          const int *free_mib)
{
    int n = 0;
    while (free_mib[n] >= 0)
        n++;
    even_node(name, n, mib);
    for (int i = 0; i < n; i++)
        if (free_mib[i] < mib)
            bound_pod(name, quoted(&arena, "%s-%d", name, i).p,
                      memory(mib - free_mib[i], 1), i);
    return node_of(name);
}

/* A pending pod that is nominated to the node. */
static inline struct ledger_pod *nominated_pod(const char *node, const char *uid,
                                               struct request r, int priority)
{
    struct pod pod = object_pod_mem(&arena, uid, 1);
    pod.priority = priority;
    pod.nominated_node = span_of(node);
    return ledger_pod_add(ledger, &pod, &r, NULL);
}

static inline void expect_fit(const struct ledger_node *node, struct request r,
                              enum fit fit)
{
    ck_assert_int_eq(select_fit(node, &r), fit);
}

/* The node does not take the request, with this reason. */
static inline void expect_reason(const struct ledger_node *node, struct request r,
                                 enum fit fit, const char *why)
{
    cleanup_buf struct buf b = {0};
    expect_fit(node, r, fit);
    reason_add(&b, node, &r, fit);
    ck_assert_str_eq(b.p, why);
}

/* The set of one or two cards. */
#define CARD(i)     (UINT64_C(1) << (i))
#define CARDS(i, k) (CARD(i) | CARD(k))

/* The cards that the request gets on the node as it is; 0: none. */
static inline uint64_t chosen_cards(const struct ledger_node *node,
                                    const struct request *request)
{
    struct select_view view;
    uint64_t chosen;
    select_view(&view, node, NULL, SELECT_AS_IS);
    select_cards(&view, request, SELECT_ALL_CARDS, &chosen);
    return chosen;
}

/* The cards that the pod would be bound to; 0: none. */
static inline uint64_t bind_cards(const struct ledger_node *node,
                                  const struct request *request, int64_t priority,
                                  struct span uid)
{
    uint64_t chosen;
    select_bind(node, &(struct select_pod){request, priority, uid, NULL}, &chosen);
    return chosen;
}

static inline void expect_choice(const struct ledger_node *node,
                                 const struct request *request, uint64_t cards)
{
    ck_assert_uint_eq(chosen_cards(node, request), cards);
}

static inline void expect_bind(const struct ledger_node *node,
                               const struct request *request, int64_t priority,
                               const char *uid, uint64_t cards)
{
    ck_assert_uint_eq(bind_cards(node, request, priority, span_of(uid)), cards);
}

/* Whether the pod fits, as filter asks. */
static inline void expect_fit_of_pod(const struct ledger_node *node,
                                     const struct request *request, int64_t priority,
                                     const char *uid, enum fit fit)
{
    const struct select_pod pod = {request, priority, span_of(uid), NULL};
    ck_assert_int_eq(select_fit_pod(node, &pod), fit);
}
