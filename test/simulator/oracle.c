/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/oracle_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The independent judge. After every change it reads the pods of the API server with
 * jansson and its own arithmetic. It knows the true size of every card, and reads a ledger
 * only to compare it at rest (oracle_rest.c).
 */

static const int64_t sizes[NODES][8] = {
    {16276},
    {16276, 16276},
    {12196, 22919, 16276, 8192},
    {24576, 24576, 24576},
};

/* By card: T is a T4, V a V100, P a P4. */
static const char *const kinds[NODES] = {"T", "TT", "VVTP", "VVT"};

int oracle_cards(int node)
{
    int n = 0;
    while (n < 8 && sizes[node][n])
        n++;
    return n;
}

const char *oracle_model(int node, int card)
{
    char kind = kinds[node][card];
    return kind == 'T' ? "Tesla T4" : kind == 'V' ? "Tesla V100" : "Tesla P4";
}

int oracle_clock(int node, int card)
{
    char kind = kinds[node][card];
    return kind == 'T' ? 5001 : kind == 'V' ? 877 : 3003;
}

bool oracle_card_matches(const struct oracle_pod *p, int node, int card)
{
    cleanup_free char *models = p->models ? xstrdup(p->models) : NULL;
    bool any = !models;
    for (char *rest = models, *model; rest && (model = strsep(&rest, ","));) {
        while (*model == ' ')
            model++;
        for (size_t n = strlen(model); n && model[n - 1] == ' '; n--)
            model[n - 1] = '\0';
        any |= strcasecmp(model, oracle_model(node, card)) == 0;
    }
    return any && oracle_clock(node, card) >= p->clock && sizes[node][card] >= p->least;
}

int64_t oracle_card_mib(const struct oracle *o, int node, int card)
{
    return o->shrunk[node][card] ? sizes[node][card] / 2 : sizes[node][card];
}

void oracle_shrink(struct oracle *o, int node, int card, bool shrunk)
{
    o->shrunk[node][card] = shrunk;
}

bool oracle_is_shrunk(const struct oracle *o, int node, int card)
{
    return o->shrunk[node][card];
}

void oracle_set_health(struct oracle *o, int node, int card, bool healthy)
{
    o->unhealthy[node][card] = !healthy;
}

bool oracle_health(const struct oracle *o, int node, int card)
{
    return !o->unhealthy[node][card];
}

int oracle_index(const char *name)
{
    bool known = name && name[0] == 'n' && name[1] >= '0' && name[1] < '0' + NODES;
    return known && !name[2] ? name[1] - '0' : -1;
}

struct oracle *oracle_new(struct world *w)
{
    struct oracle *o = xcalloc(1, sizeof *o);
    struct api_request req = {.method = "GET",
                              .path = "/api/v1/pods",
                              .query =
                                  "watch=1&resourceVersion=0&timeoutSeconds=100000000",
                              .body = {"", 0}};
    struct api_reply reply = {0};
    api_handle(w->api, wall_ms(w), &req, &reply);
    o->watch = steal(&reply.watch);
    api_reply_fini(&reply);
    if (!o->watch)
        abort();
    return o;
}

static void pod_free(struct oracle_pod *p)
{
    ask_fini(p);
    free(p->promise);
    free(p->uid);
    free(p->name);
    free(p->node);
    free(p);
}

void oracle_free(struct oracle *o)
{
    api_watch_free(o->watch);
    for (struct oracle_pod *p = o->pods, *next; p; p = next) {
        next = p->next;
        pod_free(p);
    }
    free(o);
}

static void read_cards(struct oracle_pod *p, json_t *meta)
{
    const char *idx = ask_text(meta, "annotations", "ALIYUN_COM_GPU_MEM_IDX");
    p->n_cards = 0;
    while (idx && *idx && p->n_cards < 8) {
        char *end;
        p->card[p->n_cards++] = (int)strtol(idx, &end, 10);
        idx = *end == ',' ? end + 1 : end;
    }
}

static struct oracle_pod **find(struct oracle *o, const char *uid)
{
    struct oracle_pod **at = &o->pods;
    while (*at && strcmp((*at)->uid, uid) != 0)
        at = &(*at)->next;
    return at;
}

struct oracle_pod *oracle_find(const struct world *w, const char *uid)
{
    return *find(w->oracle, uid);
}

static void remove_pod(struct oracle *o, const char *uid)
{
    struct oracle_pod **at = find(o, uid), *p = *at;
    if (!p)
        return;
    *at = p->next;
    pod_free(p);
}

static struct oracle_pod *pod_of(struct oracle *o, json_t *meta)
{
    const char *uid = json_string_value(json_object_get(meta, "uid"));
    struct oracle_pod **at = find(o, uid);
    if (*at)
        return *at;
    struct oracle_pod *p = xcalloc(1, sizeof *p);
    p->uid = xstrdup(uid);
    p->name = xstrdup(json_string_value(json_object_get(meta, "name")));
    p->next = o->pods;
    o->pods = p;
    return p;
}

/* Another program may have chosen a different number of cards than the pod requests: its
 * memory counts on those. */
int64_t oracle_pod_mib(const struct oracle_pod *p)
{
    if (!p->foreign)
        return p->mib;
    if (p->raw_mem)
        return (p->raw_mem + (p->n_cards ? p->n_cards : 1) - 1) /
               (p->n_cards ? p->n_cards : 1) * 1024;
    if (!p->n_cards)
        return p->mib * p->cards;
    int64_t units = (p->units * p->cards + p->n_cards - 1) / p->n_cards;
    return units == p->units ? p->mib : units * 1024;
}

int oracle_pod_core(const struct oracle_pod *p)
{
    int64_t each = p->n_cards ? p->raw_core / p->n_cards : p->raw_core;
    return each < 100 ? (int)each : 100;
}

bool oracle_is_vague(const struct oracle_pod *p)
{
    return p->node && p->foreign && p->labeled && (p->edited || p->invalid || p->nothing);
}

/* A pod with limits and without a known card counts on every card of its node. */
int64_t oracle_holds(const struct oracle_pod *p, int node, int card)
{
    bool here = p->foreign && p->n_cards == 0 && oracle_limited(p);
    if (oracle_index(p->node) != node || p->over || oracle_is_vague(p))
        return -1;
    for (int i = 0; i < p->n_cards; i++)
        here |= p->card[i] == card;
    if (!here)
        return -1;
    return p->whole ? 0 : oracle_pod_mib(p);
}

static void add(struct oracle_sum *sum, const struct oracle_pod *p, int64_t mib)
{
    sum->mib += mib;
    sum->core += oracle_pod_core(p);
    sum->whole += p->whole;
    sum->shared += !p->whole;
}

static void check_sum(struct world *w, const struct oracle_sum *sum, int64_t mib,
                      int node, int card)
{
    if (sum->mib > mib)
        violated(
            w, "card %d of n%d is overcommitted: it has %lld MiB, %lld MiB are promised",
            card, node, (long long)mib, (long long)sum->mib);
    if (sum->core > 100)
        violated(w, "card %d of n%d: %d percent of its compute are promised", card, node,
                 sum->core);
    if (sum->whole > 1 || (sum->whole && sum->shared))
        violated(w, "card %d of n%d is promised whole to %d pods beside %d others", card,
                 node, sum->whole, sum->shared);
}

/* For every card: the promises of the extender to live pods, against its size. Pods of
 * outsiders do not count here: they cannot be prevented. Nor do promises that a tenant has
 * edited, which no world with the policy has: oracle_promised judges by what the replica
 * can know. */
static void check_cards(struct world *w, int node)
{
    for (int card = 0; card < oracle_cards(node); card++) {
        struct oracle_sum sum = {0};
        for (struct oracle_pod *p = w->oracle->pods; p; p = p->next) {
            int64_t mib = p->foreign || p->tampered ? -1 : oracle_holds(p, node, card);
            if (mib >= 0)
                add(&sum, p, mib);
        }
        check_sum(w, &sum, sizes[node][card], node, card);
    }
}

void oracle_promised(struct world *w, int replica, const struct ledger_pod *pod, int node,
                     int card, int64_t mib)
{
    /* The replica may know an older version of the pod itself. oracle_check_promise checks the
     * Binding when it is applied. */
    bool whole = pod->request->kind == REQUEST_CARDS;
    struct oracle_sum sum = {
        .mib = whole ? 0 : pod->request->mib_per_card, .whole = whole, .shared = !whole};
    for (struct oracle_pod *p = w->oracle->pods; p; p = p->next) {
        bool must_know = !p->foreign && !p->tampered;
        int64_t holds = must_know ? oracle_holds(p, node, card)
                                  : oracle_must_count(w, p, replica, node, card);
        if (holds >= 0 && !span_eq(pod->uid, span_of(p->uid)))
            add(&sum, p, holds);
    }
    /* A pod without a share can be beside outsiders that have too much. */
    sum.core = pod->request->core ? sum.core + pod->request->core : 0;
    check_sum(w, &sum, mib, node, card);
}

int oracle_free_core(const struct oracle *o, int node, int card)
{
    int left = 100;
    for (const struct oracle_pod *p = o->pods; p; p = p->next)
        left -= oracle_holds(p, node, card) >= 0 ? oracle_pod_core(p) : 0;
    return left;
}

struct oracle_sum oracle_known_sum(const struct world *w, int replica, int node, int card)
{
    struct oracle_sum sum = {0};
    for (const struct oracle_pod *p = w->oracle->pods; p; p = p->next) {
        int64_t holds = p->known_by & 1u << replica
                            ? oracle_must_count(w, p, replica, node, card)
                            : -1;
        if (holds >= 0)
            add(&sum, p, holds);
    }
    return sum;
}

int oracle_node(const struct oracle_pod *p)
{
    return oracle_index(p->node);
}

static void see(struct world *w, json_t *object)
{
    json_t *meta = json_object_get(object, "metadata");
    json_t *spec = json_object_get(object, "spec");
    struct oracle_pod *p =
        oracle_find(w, json_string_value(json_object_get(meta, "uid")));
    bool known = p != NULL;
    const char *node = json_string_value(json_object_get(spec, "nodeName"));
    const char *phase = ask_text(object, "status", "phase");
    p = pod_of(w->oracle, meta);
    ask_update(p, known, meta, spec);
    snprintf(p->resource_version, sizeof p->resource_version, "%s",
             json_string_value(json_object_get(meta, "resourceVersion")));
    p->over = phase && (!strcmp(phase, "Succeeded") || !strcmp(phase, "Failed"));
    p->deleting = json_object_get(meta, "deletionTimestamp") != NULL;
    p->priority = json_integer_value(json_object_get(spec, "priority"));
    p->never_preempts = json_object_get(spec, "preemptionPolicy") != NULL;
    p->daemon = json_object_get(meta, "ownerReferences") != NULL;
    if (p->node && (!node || strcmp(p->node, node) != 0))
        violated(w, "pod %s moved from %s to %s", p->uid, p->node,
                 node ? node : "nowhere");
    if (node && !p->node) {
        p->node = xstrdup(node);
        p->foreign = !w->binding || strcmp(w->binding, p->uid) != 0;
        w->stats.bound += !p->foreign;
        w->stats.foreign += p->foreign;
        w->stats.invalid += p->invalid;
        if (!p->devices || oracle_limited(p))
            read_cards(p, meta);
        truth_bound(p, meta);
        if (!p->devices && !p->foreign)
            oracle_check_promise(w, p, meta);
        if (!w->failed)
            check_cards(w, oracle_index(node));
    } else if (p->node) {
        truth_changed(w, p, meta);
    }
}

void oracle_update(struct world *w)
{
    cleanup_buf struct buf line = {0};
    while (w->oracle && api_watch_next(w->oracle->watch, wall_ms(w), &line) == 1) {
        json_t *event = json_loadb(line.p, line.n, 0, NULL);
        const char *type = json_string_value(json_object_get(event, "type"));
        json_t *object = json_object_get(event, "object");
        if (plain_is(json_object_get(object, "metadata")))
            type = NULL;
        if (type && !strcmp(type, "DELETED"))
            remove_pod(w->oracle, ask_text(object, "metadata", "uid"));
        else if (type && (!strcmp(type, "ADDED") || !strcmp(type, "MODIFIED")))
            see(w, object);
        else if (type && strcmp(type, "BOOKMARK") != 0)
            violated(w, "the oracle lost its watch: %s", line.p);
        json_decref(event);
        buf_clear(&line);
    }
}

struct oracle_pod *oracle_first(const struct world *w)
{
    return w->oracle->pods;
}

size_t oracle_pending(const struct world *w)
{
    size_t n = 0;
    for (struct oracle_pod *p = w->oracle->pods; p; p = p->next)
        n += !p->node && !p->over && !p->deleting;
    return n;
}

struct oracle_pod *oracle_pick(struct world *w, bool bound)
{
    size_t n = 0;
    struct oracle_pod *pick = NULL;
    for (struct oracle_pod *p = w->oracle->pods; p; p = p->next)
        if (!p->over && (p->node != NULL) == bound && (bound || !p->deleting) &&
            rng_below(&w->rng, ++n) == 0)
            pick = p;
    return pick;
}

int64_t oracle_free_mib(const struct oracle *o, int node, int card, bool *untouched)
{
    int64_t left = sizes[node][card];
    bool whole = false, nobody = true;
    for (const struct oracle_pod *p = o->pods; p; p = p->next) {
        int64_t mib = oracle_holds(p, node, card);
        if (mib < 0)
            continue;
        left -= mib;
        whole |= p->whole;
        nobody = false;
    }
    if (untouched)
        *untouched = nobody;
    return whole && left > 0 ? 0 : left;
}
