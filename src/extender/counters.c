/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/counters.h"

#include <stdlib.h>

#include "base/mem.h"

enum { CODES = ERR_INTERNAL + 1, LINE = 64 };

/* The statuses of the verbs; the last one stands for all others. */
static const char *const statuses[] = {"200", "400", "421", "503", "other"};

typedef _Atomic uint64_t count;

/* Aligned so that two verbs never share a cache line. */
struct verb {
    _Alignas(LINE) struct prom_histogram took;
    count statuses[ARRAY_LEN(statuses)];
};

struct counters {
    struct verb verbs[COUNTERS_VERBS];
    _Alignas(LINE) count rejected[REASON_CLASSES];
    count filters[2]; /* without and with a node that fits */
    _Alignas(LINE) count binds[CODES];
    count forwarded;
    count calls[COUNTERS_API_CALLS][CODES];
};

struct counters *counters_new(void)
{
    return xzalloc_cacheline(sizeof(struct counters));
}

void counters_free(struct counters *c)
{
    free(c);
}

static void add(count *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static int64_t get(const count *counter)
{
    return (int64_t)atomic_load_explicit(counter, memory_order_relaxed);
}

static size_t status_index(unsigned status)
{
    switch (status) {
    case 200:
        return 0;
    case 400:
        return 1;
    case 421:
        return 2;
    case 503:
        return 3;
    default:
        return 4;
    }
}

void counters_verb(struct counters *c, enum counters_verb verb, unsigned status,
                   int64_t ns)
{
    if (!c)
        return;
    prom_observe(&c->verbs[verb].took, ns);
    add(&c->verbs[verb].statuses[status_index(status)], 1);
}

void counters_filter(struct counters *c, const uint32_t rejected[REASON_CLASSES],
                     bool fits)
{
    if (!c)
        return;
    for (int i = 0; i < REASON_CLASSES; i++)
        if (rejected[i])
            add(&c->rejected[i], rejected[i]);
    add(&c->filters[fits], 1);
}

void counters_bind(struct counters *c, enum err_code code)
{
    if (c)
        add(&c->binds[code], 1);
}

void counters_bind_forwarded(struct counters *c)
{
    if (c)
        add(&c->forwarded, 1);
}

void counters_api_call(struct counters *c, enum counters_api_call call,
                       enum err_code code)
{
    if (c)
        add(&c->calls[call][code], 1);
}

/* -- output -- */

static const char *const verb_names[COUNTERS_VERBS] = {"filter", "prioritize", "preempt",
                                                       "bind"};
static const char *const call_names[COUNTERS_API_CALLS] = {
    "list",        "watch",    "bind",  "get-pod", "lease-get", "lease-write",
    "node-wakeup", "nominate", "evict", "event",   "secret"};

static struct prom_label label(const char *name, const char *value)
{
    return (struct prom_label){name, span_of(value)};
}

static const char *code_name(int code)
{
    return code == ERR_NONE ? "ok" : err_code_name((enum err_code)code);
}

static void write_verbs(const struct counters *c, struct buf *out)
{
    static const char took[] = "gpushare_verb_duration_seconds";
    static const char requests[] = "gpushare_verb_requests_total";
    prom_family(out, took, PROM_HISTOGRAM,
                "Time from the complete body to the complete reply of a verb.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        prom_histogram(out, took, &(struct prom_label){"verb", span_of(verb_names[v])}, 1,
                       &c->verbs[v].took);
    prom_family(out, requests, PROM_COUNTER, "Calls of verbs, by HTTP status.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        for (size_t s = 0; s < ARRAY_LEN(statuses); s++) {
            struct prom_label labels[] = {label("verb", verb_names[v]),
                                          label("code", statuses[s])};
            prom_sample(out, requests, labels, 2, get(&c->verbs[v].statuses[s]));
        }
}

static void write_filter(const struct counters *c, struct buf *out)
{
    static const char rejected[] = "gpushare_filter_rejected_nodes_total";
    static const char results[] = "gpushare_filter_results_total";
    prom_family(out, rejected, PROM_COUNTER, "Nodes that filter rejected, by reason.");
    for (int i = 0; i < REASON_CLASSES; i++) {
        struct prom_label l = label("reason", reason_class_name((enum reason_class)i));
        prom_sample(out, rejected, &l, 1, get(&c->rejected[i]));
    }
    prom_family(out, results, PROM_COUNTER, "Calls of filter, by whether any node fits.");
    for (int fits = 0; fits < 2; fits++) {
        struct prom_label l = label("fits", fits ? "true" : "false");
        prom_sample(out, results, &l, 1, get(&c->filters[fits]));
    }
}

static void write_binds(const struct counters *c, struct buf *out)
{
    static const char name[] = "gpushare_binds_total";
    prom_family(out, name, PROM_COUNTER, "Binds, by result.");
    for (int code = 0; code < CODES; code++) {
        struct prom_label l = label("result", code_name(code));
        prom_sample(out, name, &l, 1, get(&c->binds[code]));
    }
    struct prom_label l = label("result", "forwarded");
    prom_sample(out, name, &l, 1, get(&c->forwarded));
}

/* Results that never occurred are left out, except ok: there would be 88 samples. */
static void write_calls(const struct counters *c, struct buf *out)
{
    static const char name[] = "gpushare_api_requests_total";
    prom_family(out, name, PROM_COUNTER, "Requests to the API server, by result.");
    for (int call = 0; call < COUNTERS_API_CALLS; call++)
        for (int code = 0; code < CODES; code++) {
            int64_t n = get(&c->calls[call][code]);
            struct prom_label labels[] = {label("call", call_names[call]),
                                          label("code", code_name(code))};
            if (n || code == ERR_NONE)
                prom_sample(out, name, labels, 2, n);
        }
}

void counters_write(const struct counters *c, struct buf *out)
{
    if (!c)
        return;
    write_verbs(c, out);
    write_filter(c, out);
    write_binds(c, out);
    write_calls(c, out);
}
