/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Objects for tests: JSON as from the API server, parsed by the readers under test.
 */

#include <stdarg.h>

#include "domain/keys.h"
#include "domain/lease.h"
#include "domain/ledger.h"
#include "domain/node.h"
#include "domain/pod.h"
#include "domain/scv.h"
#include "lib/unit.h"

/* Of gangs, of all classes of pending pods. */
static inline size_t pending_members(const struct ledger *l)
{
    const struct requests *all = ledger_requests(l);
    size_t n = 0;
    for (size_t i = 0; i < all->n_classes; i++)
        n += all->classes[i].members;
    return n;
}

/* JSON with ' for ", for readable C strings; in the arena. */
static inline struct span quoted(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static inline struct span quoted(struct arena *a, const char *fmt, ...)
{
    cleanup_buf struct buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < b.n; i++)
        if (b.p[i] == '\'')
            b.p[i] = '"';
    return arena_copy(a, buf_span(&b));
}

#define READ_OBJECT(name, type, reader)                                                  \
    static inline struct type object_##name(struct arena *a, struct span json)           \
    {                                                                                    \
        struct type object;                                                              \
        struct jread j;                                                                  \
        struct err err = {0};                                                            \
        jread_init(&j, json.p, json.n);                                                  \
        reader(&j, a, &object);                                                          \
        ck_assert_msg(jread_finish(&j, &err) == 0, "%s in %.*s", err.msg,                \
                      SPAN_ARG(json));                                                   \
        return object;                                                                   \
    }
READ_OBJECT(pod, pod, pod_read)
READ_OBJECT(node, node, node_read)
READ_OBJECT(scv, scv, scv_read)
READ_OBJECT(scv_all, scv, scv_read_all)
READ_OBJECT(lease, lease, lease_read)
READ_OBJECT(unhealthy_cards, unhealthy_cards, node_unhealthy_read)
#undef READ_OBJECT

/* The error of the reader for an invalid object. */
#define object_fault(type, reader, a, text, error)                                       \
    do {                                                                                 \
        struct type object_;                                                             \
        struct jread j_;                                                                 \
        struct span text_ = (text);                                                      \
        jread_init(&j_, text_.p, text_.n);                                               \
        reader(&j_, (a), &object_);                                                      \
        ck_assert_int_eq(jread_finish(&j_, (error)), -1);                                \
    } while (0)

/* An Scv of n cards of `mib`, all healthy and free, with UUIDs "<node>-u<i>". */
static inline struct scv object_scv_even(struct arena *a, const char *node, int n,
                                         long mib)
{
    cleanup_buf struct buf cards = {0};
    for (int i = 0; i < n; i++)
        buf_printf(&cards,
                   "%s{'id':%d,'health':'Healthy','model':'Tesla T4','totalMemory':%ld,"
                   "'freeMemory':%ld,'uuid':'%s-u%d'}",
                   i ? "," : "", i, mib, mib, node, i);
    return object_scv(a, quoted(a,
                                "{'metadata':{'name':'%s'},'status':{'cardList':[%s],"
                                "'updateTime':'2026-11-21T09:00:00Z'}}",
                                node, cards.p ? cards.p : ""));
}

/* A pending pod with one container with a limit of `units` gpu-mem. */
static inline struct pod object_pod_mem(struct arena *a, const char *uid, int units)
{
    return object_pod(a, quoted(a,
                                "{'metadata':{'namespace':'default','name':'pod-%s',"
                                "'uid':'%s'},'spec':{'containers':[{'resources':{"
                                "'limits':{'" KEY_GPU_MEM "':'%d'}}}]}}",
                                uid, uid, units));
}

static inline struct request object_request(struct arena *a, const struct pod *pod,
                                            int64_t unit_mib)
{
    struct request request;
    struct err err = {0};
    const struct request_rules rules = {.unit_mib = unit_mib};
    ck_assert_done(request_of(pod, &rules, a, &request, &err), err);
    return request;
}
