/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/counters.h"

#include <stdlib.h>

#include "base/mem.h"

enum { CODES = ERR_INTERNAL + 1, LINE = 64 };

/* Statuses that the verbs answer with; the last one stands for all others. */
static const char *const statuses[] = {"200", "400", "421", "503", "other"};

typedef _Atomic uint64_t count;

/* Two verbs never share a cache line. */
struct verb {
    _Alignas(LINE) struct prom_histogram took;
    count statuses[ARRAY_LEN(statuses)];
};

struct counters {
    struct verb verbs[COUNTERS_VERBS];
    _Alignas(LINE) count refused[REASON_CLASSES];
    count filtered[2]; /* without and with a node that fits */
    _Alignas(LINE) count binds[CODES];
    count handed_on;
    count calls[COUNTERS_API_CALLS][CODES];
};

struct counters *counters_new(void)
{
    return xzalloc_line(sizeof(struct counters));
}

void counters_free(struct counters *t)
{
    free(t);
}

static void add(count *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static int64_t get(const count *c)
{
    return (int64_t)atomic_load_explicit(c, memory_order_relaxed);
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

void counters_verb(struct counters *t, enum counters_verb verb, unsigned status,
                   int64_t ns)
{
    if (!t)
        return;
    prom_observe(&t->verbs[verb].took, ns);
    add(&t->verbs[verb].statuses[status_index(status)], 1);
}

void counters_filter(struct counters *t, const uint32_t refused[REASON_CLASSES],
                     bool room)
{
    if (!t)
        return;
    for (int i = 0; i < REASON_CLASSES; i++)
        if (refused[i])
            add(&t->refused[i], refused[i]);
    add(&t->filtered[room], 1);
}

void counters_bind(struct counters *t, enum err_code code)
{
    if (t)
        add(&t->binds[code], 1);
}

void counters_bind_forwarded(struct counters *t)
{
    if (t)
        add(&t->handed_on, 1);
}

void counters_api_call(struct counters *t, enum counters_api_call call,
                       enum err_code code)
{
    if (t)
        add(&t->calls[call][code], 1);
}

/* -- the text -- */

static const char *const verb_names[COUNTERS_VERBS] = {"filter", "prioritize", "preempt",
                                                       "bind"};
static const char *const call_names[COUNTERS_API_CALLS] = {
    "list",      "watch",       "bind",        "get-pod",
    "lease-get", "lease-write", "node-wakeup", "event"};

static struct prom_label label(const char *name, const char *value)
{
    return (struct prom_label){name, span_of(value)};
}

static const char *code_name(int code)
{
    return code == ERR_NONE ? "ok" : err_code_name((enum err_code)code);
}

static void write_verbs(const struct counters *t, struct buf *out)
{
    static const char took[] = "gpushare_verb_duration_seconds";
    static const char requests[] = "gpushare_verb_requests_total";
    prom_family(out, took, PROM_HISTOGRAM,
                "How long a verb took, from the whole body to the whole reply.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        prom_histogram(out, took, &(struct prom_label){"verb", span_of(verb_names[v])}, 1,
                       &t->verbs[v].took);
    prom_family(out, requests, PROM_COUNTER, "Calls of the verbs, by HTTP status.");
    for (int v = 0; v < COUNTERS_VERBS; v++)
        for (size_t s = 0; s < ARRAY_LEN(statuses); s++) {
            struct prom_label labels[] = {label("verb", verb_names[v]),
                                          label("code", statuses[s])};
            prom_sample(out, requests, labels, 2, get(&t->verbs[v].statuses[s]));
        }
}

static void write_filter(const struct counters *t, struct buf *out)
{
    static const char refused[] = "gpushare_filter_rejected_nodes_total";
    static const char pods[] = "gpushare_filter_results_total";
    prom_family(out, refused, PROM_COUNTER, "Nodes that filter refused, by reason.");
    for (int i = 0; i < REASON_CLASSES; i++) {
        struct prom_label l = label("reason", reason_class_name((enum reason_class)i));
        prom_sample(out, refused, &l, 1, get(&t->refused[i]));
    }
    prom_family(out, pods, PROM_COUNTER,
                "Answers of filter, by whether any node has room for the pod.");
    for (int room = 0; room < 2; room++) {
        struct prom_label l = label("fits", room ? "true" : "false");
        prom_sample(out, pods, &l, 1, get(&t->filtered[room]));
    }
}

static void write_binds(const struct counters *t, struct buf *out)
{
    static const char name[] = "gpushare_binds_total";
    prom_family(out, name, PROM_COUNTER, "Binds, by what came of them.");
    for (int code = 0; code < CODES; code++) {
        struct prom_label l = label("result", code_name(code));
        prom_sample(out, name, &l, 1, get(&t->binds[code]));
    }
    struct prom_label l = label("result", "forwarded");
    prom_sample(out, name, &l, 1, get(&t->handed_on));
}

/* What never happened is left out, but for what went well: 88 samples otherwise. */
static void write_calls(const struct counters *t, struct buf *out)
{
    static const char name[] = "gpushare_api_requests_total";
    prom_family(out, name, PROM_COUNTER,
                "Requests to the API server, by how they ended.");
    for (int call = 0; call < COUNTERS_API_CALLS; call++)
        for (int code = 0; code < CODES; code++) {
            int64_t n = get(&t->calls[call][code]);
            struct prom_label labels[] = {label("call", call_names[call]),
                                          label("code", code_name(code))};
            if (n || code == ERR_NONE)
                prom_sample(out, name, labels, 2, n);
        }
}

void counters_write(const struct counters *t, struct buf *out)
{
    if (!t)
        return;
    write_verbs(t, out);
    write_filter(t, out);
    write_binds(t, out);
    write_calls(t, out);
}
