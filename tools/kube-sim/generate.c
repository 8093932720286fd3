/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kube-sim/generate_priv.h"
#include "kube-sim/load_priv.h"

const struct generate generate_defaults = {
    .nodes = 10,
    .cards = 8,
    .pods = 4,
    .mib = 81920,
    .unit = 1024,
    .full = 30,
    .node_bytes = 10240,
    .pod_bytes = 3400,
    .seed = 1,
    .scvs = true,
};

/* -- parameters -- */

#define AT(f) offsetof(struct generate, f)
static const struct parameter {
    const char *name;
    size_t offset;
    int64_t min, max; /* max 1: bool */
} parameters[] = {
    {"nodes", AT(nodes), 0, 100000},
    {"cards", AT(cards), 0, 64},
    {"pods", AT(pods), 0, 1000},
    {"mib", AT(mib), 1, 16 << 20},
    {"unit", AT(unit), 1, 1 << 20},
    {"full", AT(full), 0, 100},
    {"node-bytes", AT(node_bytes), 0, 1 << 20},
    {"pod-bytes", AT(pod_bytes), 0, 1 << 20},
    {"seed", AT(seed), 0, INT64_MAX},
    {"uuid", AT(uuid), 0, 1},
    {"scvs", AT(scvs), 0, 1},
    {"leases", AT(leases), 0, 1},
};

static int set_parameter(struct generate *g, struct span key, struct span value,
                         struct err *err)
{
    int64_t v;
    for (size_t i = 0; i < ARRAY_LEN(parameters); i++) {
        const struct parameter *p = &parameters[i];
        if (!span_eq(key, span_of(p->name)))
            continue;
        if (!span_i64(value, &v) || v < p->min || v > p->max)
            return err_set(err, ERR_INVALID,
                           "%s: \"%.*s\" is not a number from %lld to %lld", p->name,
                           SPAN_ARG(value), (long long)p->min, (long long)p->max);
        void *field = (char *)g + p->offset;
        if (p->max == 1)
            *(bool *)field = v;
        else
            *(int64_t *)field = v;
        return 0;
    }
    return err_set(err, ERR_INVALID, "unknown parameter \"%.*s\"", SPAN_ARG(key));
}

int generate_parse(struct span text, struct generate *g, struct err *err)
{
    while (text.n) {
        struct span value = span_cut(&text, ',');
        struct span key = span_cut(&value, '=');
        if (set_parameter(g, span_trim(key), span_trim(value), err))
            return -1;
    }
    return 0;
}

/* -- objects -- */

struct run {
    const struct generate *g;
    struct api *api;
    int64_t now_ms;
    const char *now;
    json_t *node_padding, *pod_padding; /* of the first object, shared by all */
};

/* Takes object. */
static int put(struct run *r, json_t *given, struct err *err)
{
    cleanup_json json_t *object = given;
    return sim_load_tree(r->api, r->now_ms, object, err);
}

static void pad(json_t *object, int64_t bytes, const char *now, json_t **padding)
{
    if (!*padding)
        *padding = sim_gen_padding(bytes, object, now);
    if (*padding)
        json_object_set(json_object_get(object, "metadata"), "managedFields", *padding);
}

static struct gen_node begin_node(struct run *r, int64_t index)
{
    struct gen_node n = {
        .g = r->g, .index = index, .now = r->now, .now_ns = r->now_ms * 1000000};
    snprintf(n.name, sizeof n.name, "node-%05lld", (long long)index);
    snprintf(n.uid, sizeof n.uid, "00000000-0000-4000-8000-%012lld", (long long)index);
    rng_init(&n.rng, (uint64_t)r->g->seed * 1000003 + (uint64_t)index);
    n.uuids = xcalloc((size_t)r->g->cards, sizeof *n.uuids);
    for (int64_t i = 0; i < r->g->cards; i++) {
        uint64_t a = rng_next(&n.rng), b = rng_next(&n.rng);
        snprintf(n.uuids[i], sizeof *n.uuids, "GPU-%08x-%04x-4%03x-%04x-%012llx",
                 (unsigned)(a >> 32), (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff),
                 (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                 (unsigned long long)(b & 0xffffffffffff));
    }
    return n;
}

/* Spreads the full nodes evenly. */
static bool is_full(const struct generate *g, int64_t index)
{
    return (index + 1) * g->full / 100 != index * g->full / 100;
}

/* Several pods share a card; the first `more` cards have one pod more. */
static struct gen_pod shared_pod(struct gen_node *n, int64_t index, bool full)
{
    const struct generate *g = n->g;
    int64_t on_card = g->pods / g->cards, more = g->pods % g->cards;
    int64_t card = index % g->cards, n_here = on_card + (card < more);
    int64_t total = g->mib / g->unit, share = total / n_here;
    bool last = index + g->cards >= g->pods;
    int64_t units =
        full ? (last ? total - share * (n_here - 1) : share)
             : (share > 1 ? 1 + (int64_t)rng_below(&n->rng, (uint64_t)share - 1) : share);
    return (struct gen_pod){index, card, 1, units};
}

/* More cards than pods: on a full node a pod has several cards. */
static struct gen_pod wide_pod(struct gen_node *n, int64_t index, bool full)
{
    const struct generate *g = n->g;
    int64_t each = g->cards / g->pods, more = g->cards % g->pods;
    int64_t card = index * each + (index < more ? index : more);
    int64_t total = g->mib / g->unit;
    if (full)
        return (struct gen_pod){index, card, each + (index < more), total};
    return (struct gen_pod){
        index, card, 1,
        total > 1 ? 1 + (int64_t)rng_below(&n->rng, (uint64_t)total - 1) : total};
}

static int put_pods(struct run *r, struct gen_node *n, struct err *err)
{
    bool full = is_full(r->g, n->index);
    for (int64_t i = 0; i < r->g->pods && r->g->cards; i++) {
        struct gen_pod p =
            r->g->pods >= r->g->cards ? shared_pod(n, i, full) : wide_pod(n, i, full);
        if (!p.units)
            continue; /* more pods than units */
        json_t *object = sim_gen_pod_object(n, &p);
        pad(object, r->g->pod_bytes, r->now, &r->pod_padding);
        if (put(r, object, err))
            return -1;
    }
    return 0;
}

static int put_node(struct run *r, int64_t index, struct err *err)
{
    struct gen_node n = begin_node(r, index);
    json_t *object = sim_gen_node_object(&n);
    pad(object, r->g->node_bytes, r->now, &r->node_padding);
    int rc = put(r, object, err);
    if (!rc && r->g->scvs)
        rc = put(r, sim_gen_scv_object(&n), err);
    if (!rc && r->g->leases)
        rc = put(r, sim_gen_lease_object(&n), err);
    if (!rc)
        rc = put_pods(r, &n, err);
    free(n.uuids);
    return rc;
}

int generate_run(const struct generate *g, struct api *api, int64_t now_ms,
                 struct err *err)
{
    cleanup_buf struct buf now = {0};
    clock_format_s(&now, now_ms / 1000);
    struct run r = {.g = g, .api = api, .now_ms = now_ms, .now = now.p};
    int rc = 0;
    for (int64_t i = 0; !rc && i < g->nodes; i++)
        rc = put_node(&r, i, err);
    json_decref(r.node_padding);
    json_decref(r.pod_padding);
    return rc;
}
