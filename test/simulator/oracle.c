/* SPDX-License-Identifier: Apache-2.0 */
#include "simulator/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The independent judge. After every change it reads the pods of the API server with
 * jansson and its own arithmetic; it shares no code with src/domain: it implements
 * docs/user-guide.md, and Kubernetes for the sums. It knows the true size of every card, and
 * reads a ledger only to compare it at rest (oracle_replica.c).
 */

/* -- nodes and cards -- */

/* Each node of a yard has as many equal cards; yard.c makes some of them unhealthy. */
#define YARD_CARDS                                                                       \
    {                                                                                    \
        16276, 16276, 16276, 16276, 16276, 16276, 16276, 16276                           \
    }

static const int64_t sizes[ALL_NODES][CARDS] = {
    {16276},
    {16276, 16276, 8138, 8138},
    {12196, 22919, 16276, 8192},
    {24576, 24576, 24576},
    YARD_CARDS,
    YARD_CARDS,
    YARD_CARDS,
    YARD_CARDS,
    YARD_CARDS,
    YARD_CARDS,
};

/* By card: T is a T4, V a V100, M an instance of a card in MIG mode. */
static const char *const kinds[ALL_NODES] = {
    "T",        "TTMM",     "VVTM",     "VVT",      "TTTTTTTT",
    "TTTTTTTT", "TTTTTTTT", "TTTTTTTT", "TTTTTTTT", "TTTTTTTT"};

/* The rows of each node, as indexes of the words. */
const char *const oracle_links[] = {"SYS", "NODE", "PHB", "PXB",
                                    "PIX", "NV1",  "NV2", NULL};
static const char *const connections[ALL_NODES] = {NULL, NULL,
                                                   "-601"
                                                   "6-20"
                                                   "02-4"
                                                   "104-",
                                                   "-25"
                                                   "2-0"
                                                   "50-"};

const char *const oracle_enforcers[] = {"driver", "library", "mps"};

/* A writer without the list is of version 1.0, which has all but the driver. */
uint8_t oracle_enforces(uint8_t listed)
{
    return listed & SCV_ISOLATION_KNOWN ? listed
                                        : SCV_ISOLATION_LIBRARY | SCV_ISOLATION_MPS;
}

/* What the word asks for, one of which suffices; -1: not a word. */
static int isolation_bits(const char *word)
{
    return !word || !strcmp(word, "none") ? 0
           : !strcmp(word, "driver")      ? SCV_ISOLATION_DRIVER
           : !strcmp(word, "limit")       ? SCV_ISOLATION_DRIVER | SCV_ISOLATION_LIBRARY
           : !strcmp(word, "mps")         ? SCV_ISOLATION_MPS
           : !strcmp(word, "limit-env") || !strcmp(word, "limit-file")
               ? SCV_ISOLATION_LIBRARY
               : -1;
}

int oracle_cards(int node)
{
    return (int)strlen(kinds[node]);
}

bool oracle_is_instance(int node, int card)
{
    return node == MIG_NODE && card > MIG_CARD;
}

int oracle_id(int node, int card)
{
    return oracle_is_instance(node, card) ? 64 + 8 * MIG_CARD + card - MIG_CARD - 1
                                          : card;
}

int oracle_card(int node, int64_t id)
{
    for (int card = 0; card < oracle_cards(node); card++)
        if (oracle_id(node, card) == id)
            return card;
    return CARDS + (int)(id & 7);
}

const char *oracle_uuid(int node, int card, char uuid[static 32])
{
    snprintf(uuid, 32, "%s-%d-%d", oracle_is_instance(node, card) ? "MIG" : "GPU", node,
             card);
    return uuid;
}

bool oracle_exists(const struct world *w, int node, int card)
{
    bool instances = w->mig == MIG_ON || w->mig == MIG_CARELESS;
    return node != MIG_NODE || card < MIG_CARD || instances == (card > MIG_CARD);
}

bool oracle_available(const struct world *w, int node, int card)
{
    return oracle_exists(w, node, card) && !w->unhealthy[node][card];
}

const char *oracle_model(int node, int card)
{
    char kind = kinds[node][card];
    return kind == 'T' ? "Tesla T4" : kind == 'V' ? "Tesla V100" : "A100 MIG 1g.8gb";
}

const char *oracle_profile(int node, int card)
{
    return kinds[node][card] == 'M' ? "1g.8gb" : "";
}

int oracle_clock(int node, int card)
{
    char kind = kinds[node][card];
    return kind == 'T' ? 5001 : kind == 'V' ? 877 : 3003;
}

void oracle_all_links(int node, struct link_table *t)
{
    const char *rows = connections[node];
    int n = oracle_cards(node);
    *t = (struct link_table){.known = rows};
    for (int i = 0; rows && i < n * n; i++)
        t->row[i / n][i % n] = (int8_t)(rows[i] - '0');
}

int oracle_narrowest(const struct link_table *t, unsigned bits)
{
    int least = INT32_MAX;
    for (int a = 0; a < CARDS; a++)
        for (int b = 0; b < CARDS; b++)
            if (a != b && (bits >> a & 1) && (bits >> b & 1) && t->row[a][b] < least)
                least = t->row[a][b];
    return t->known || least == INT32_MAX ? least : -1;
}

bool oracle_connects(const struct link_table *t, unsigned bits, int n, int least)
{
    for (unsigned set = 1; set < 1u << CARDS; set++)
        if (!(set & ~bits) && __builtin_popcount(set) == n &&
            (!least || oracle_narrowest(t, set) >= least))
            return true;
    return false;
}

bool oracle_card_matches(const struct oracle_pod *p, int node, int card)
{
    struct span rest = span_of(p->ask.models),
                profile = span_of(oracle_profile(node, card));
    bool several = (p->devices ?: p->ask.cards) > 1, match = !rest.n;
    /* An instance is shared by memory, else taken by name; several are of one kind. */
    if (profile.n && several && (!rest.n || strchr(p->ask.models, ',')))
        return false;
    if (profile.n && !rest.n && (p->devices || p->ask.whole))
        return false;
    while (rest.n) {
        struct span model = span_trim(span_cut(&rest, ','));
        match |= span_eq_nocase(model, span_of(oracle_model(node, card))) ||
                 (profile.n && span_eq_nocase(model, profile));
    }
    return match && oracle_clock(node, card) >= p->ask.clock &&
           sizes[node][card] >= p->ask.least;
}

int64_t oracle_card_mib(const struct world *w, int node, int card)
{
    return w->shrunk[node][card] ? sizes[node][card] / 2 : sizes[node][card];
}

int oracle_index(const char *name)
{
    for (int i = 0; name && i < ALL_NODES; i++)
        if (!strcmp(name, node_names[i]))
            return i;
    return -1;
}

/* -- the request of a pod -- */

static int64_t limit(json_t *container, const char *resource)
{
    const char *text = json_string_value(
        json_object_get(sim_jsonx_at(container, "resources.limits"), resource));
    return !text ? 0 : strtoll(text, NULL, 10) * (strchr(text, 'k') ? 1000 : 1);
}

/* App containers and sidecars run concurrently; each init container with the sidecars before
 * it. */
static int64_t total(json_t *pod, const char *resource)
{
    int64_t sidecars = 0, peak = 0, apps = 0;
    size_t i;
    json_t *c;
    json_array_foreach(sim_jsonx_at(pod, "spec.initContainers"), i, c)
    {
        int64_t n = limit(c, resource), once = 0;
        *(json_object_get(c, "restartPolicy") ? &sidecars : &once) += n;
        if (sidecars + once > peak)
            peak = sidecars + once;
    }
    json_array_foreach(sim_jsonx_at(pod, "spec.containers"), i, c) apps +=
        limit(c, resource);
    return apps + sidecars > peak ? apps + sidecars : peak;
}

static const char *text_in(json_t *pod, const char *map, const char *key)
{
    return json_string_value(json_object_get(sim_jsonx_at(pod, map), key));
}

#define LABELS      "metadata.labels"
#define ANNOTATIONS "metadata.annotations"

const char *oracle_note(json_t *pod, int key)
{
    return text_in(pod, ANNOTATIONS, promise_keys[key]);
}

/* A whole number from 1; 0: absent; -1: invalid. */
static int64_t number(const char *text)
{
    char *end;
    long long n = text ? strtoll(text, &end, 10) : 0;
    return !text ? 0 : n < 1 || *end || !*text ? -1 : n;
}

/* Can each container's memory be split evenly over k cards? */
static bool splits(json_t *pod, int64_t k)
{
    bool even = true;
    size_t i;
    json_t *c;
    json_array_foreach(sim_jsonx_at(pod, "spec.initContainers"), i, c) even &=
        limit(c, "aliyun.com/gpu-mem") % k == 0 &&
        (k == 1 || json_object_get(c, "restartPolicy") ||
         !limit(c, "aliyun.com/gpu-mem"));
    json_array_foreach(sim_jsonx_at(pod, "spec.containers"), i, c) even &=
        limit(c, "aliyun.com/gpu-mem") % k == 0 &&
        limit(c, "aliyun.com/gpu-core.percentage") % k == 0;
    return even;
}

/* gpushare/memory: MiB, or a percentage below 0; 0: absent or invalid. */
static int64_t memory_of(const char *text)
{
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    return n < 1                           ? 0
           : !strcmp(end, "Gi")            ? n * 1024
           : !strcmp(end, "Mi")            ? n
           : !strcmp(end, "%") && n <= 100 ? -n
                                           : 0;
}

/* How many slots each container with slots has; -1: not all as many. */
static int64_t slots_of(json_t *pod)
{
    static const char *const lists[] = {"spec.initContainers", "spec.containers"};
    int64_t each = 0;
    size_t i;
    json_t *c;
    for (size_t k = 0; k < ARRAY_LEN(lists); k++)
        json_array_foreach(sim_jsonx_at(pod, lists[k]), i, c)
        {
            int64_t n = limit(c, "aliyun.com/gpu-share");
            each = n && each && n != each ? -1 : n && !each ? n : each;
        }
    return each;
}

/* In HAMi's words, each container has its part of the same cards: MiB, percent of each, or all of it.
 * One with all compute leaves them to no other pod; so does one that says nothing but the number. */
static struct oracle_ask ask_in_words(struct oracle_pod *p, json_t *pod)
{
    struct oracle_ask ask = {.in_words = true};
    int64_t core = 0, percent = 0;
    size_t i;
    json_t *c;
    json_array_foreach(sim_jsonx_at(pod, "spec.containers"), i, c)
    {
        int64_t cards = limit(c, "nvidia.com/gpu"), mib = limit(c, "nvidia.com/gpumem"),
                part = limit(c, "nvidia.com/gpumem-percentage"),
                share = limit(c, "nvidia.com/gpucores");
        json_t *says = sim_jsonx_at(c, "resources.limits");
        if (!cards)
            continue;
        part = mib ? 0 : part ? part : 100;
        share = json_object_get(says, "nvidia.com/gpucores") ? share
                : part == 100                                ? 100
                                                             : 0;
        ask.invalid |= ask.cards && ask.cards != cards;
        ask.cards = (int32_t)cards;
        ask.mib += mib;
        ask.parts[ask.slots++] = (uint8_t)part;
        ask.whole |= share == 100;
        core += share;
        percent += part;
    }
    ask.invalid |= core > 100 || percent > 100 || (percent == 100 && ask.mib);
    p->raw_hami = ask.mib ? ask.mib : 1;
    p->raw_core = ask.whole || ask.invalid ? 0 : core * ask.cards;
    ask.units = ask.mib;
    return ask;
}

/* What it asks for of a card of that size. */
int64_t oracle_ask_mib(const struct oracle_ask *ask, int64_t size)
{
    int64_t mib = ask->percent ? size * ask->percent / 100 : ask->mib;
    for (size_t i = 0; i < ARRAY_LEN(ask->parts); i++)
        mib += size * ask->parts[i] / 100;
    return mib;
}

/* The request by limits or labels. */
static struct oracle_ask read_ask(struct oracle_pod *p, json_t *pod)
{
    struct oracle_ask ask = {0};
    int64_t n = number(text_in(pod, LABELS, "scv/number"));
    int64_t mib = number(text_in(pod, LABELS, "scv/memory"));
    int64_t clock = number(text_in(pod, LABELS, "scv/clock"));
    const char *label = text_in(pod, LABELS, "aliyun.com/gpu-count");
    const char *note = text_in(pod, ANNOTATIONS, "aliyun.com/gpu-count");
    const char *models = text_in(pod, ANNOTATIONS, "nvidia-gpu-scheduler/gpu.model");
    const char *place = text_in(pod, ANNOTATIONS, "gpushare/placement");
    const char *link = text_in(pod, ANNOTATIONS, "gpushare/min-link");
    const char *topology = text_in(pod, ANNOTATIONS, "gpushare/topology");
    int isolation = isolation_bits(text_in(pod, ANNOTATIONS, "gpushare/isolation"));
    const char *gang = text_in(pod, LABELS, "scheduling.x-k8s.io/pod-group");
    const char *minimum = text_in(pod, ANNOTATIONS, "gpushare/gang-minimum");
    bool bound = sim_jsonx_at(pod, "spec.nodeName");
    bool in_words = total(pod, "nvidia.com/gpumem") ||
                    total(pod, "nvidia.com/gpumem-percentage") ||
                    total(pod, "nvidia.com/gpucores");
    int least = link ? !strcmp(link, "NV") ? ORACLE_NV : ORACLE_NV - 1 : 0;
    while (link && least && least < ORACLE_NV && strcmp(link, oracle_links[least]) != 0)
        least--;
    int64_t k = number(label ? label : note);
    if (label && note && strcmp(label, note) != 0)
        k = -1;
    k = k ? k : 1;
    p->raw_mem = total(pod, "aliyun.com/gpu-mem");
    p->raw_cards = total(pod, "aliyun.com/gpu-count");
    p->raw_core = total(pod, "aliyun.com/gpu-core.percentage");
    p->raw_slots = total(pod, "aliyun.com/gpu-share");
    p->devices = (int)total(pod, "nvidia.com/gpu");
    p->labeled = !p->raw_mem && !p->raw_cards && !p->devices && !p->raw_slots;
    const char *memory = text_in(pod, ANNOTATIONS, "gpushare/memory");
    int64_t part = memory_of(memory), each = slots_of(pod);
    int64_t at_once = each > 0 ? p->raw_slots / each : 1; /* containers */
    snprintf(ask.models, sizeof ask.models, "%s", models ? models : "");
    ask.clock = clock > 0 ? (int32_t)clock : 0;
    ask.nothing = p->labeled && !n && !mib && !ask.clock;
    /* Labels beside limits must not request more, and every value must be well-formed. */
    int64_t cards = p->raw_cards   ? p->raw_cards
                    : p->devices   ? p->devices
                    : p->raw_slots ? each
                                   : k;
    ask.invalid =
        !ask.nothing &&
        ((p->raw_mem > 0) + (p->raw_cards > 0) + (p->devices > 0) + (p->raw_slots > 0) >
             1 ||
         (memory && !p->raw_slots && !bound) ||
         (p->raw_slots &&
          (each < 1 || !part || (part > 0 && part < at_once) || mib || k < 0 ||
           ((label || note) && k != each) || p->raw_core > 100 * each)) ||
         (each > 0 && !splits(pod, each)) || n < 0 || mib < 0 || clock < 0 ||
         (models && !models[strspn(models, " ,")]) ||
         (link && (!least || (p->devices > 1 && !in_words && !bound))) ||
         (topology && strcmp(topology, "none") && strcmp(topology, "gang")) ||
         (!bound && (isolation < 0 || number(minimum) < 0 ||
                     (!gang && (topology && !strcmp(topology, "gang"))))) ||
         (!p->devices && place && strcmp(place, "binpack") && strcmp(place, "spread")) ||
         (p->raw_core && !p->raw_slots &&
          (!p->raw_mem || (k > 0 && p->raw_core > 100 * k))) ||
         (p->raw_mem && (k < 0 || !splits(pod, k) || mib > p->raw_mem / k * 1024)) ||
         (!p->labeled && n && n != cards));
    k = ask.invalid ? 1 : k;
    ask.whole = p->raw_cards > 0;
    ask.cards = p->raw_cards ? (int32_t)p->raw_cards : p->raw_mem ? (int32_t)k : 0;
    ask.mib = p->raw_mem / k * 1024;
    if (p->raw_slots && !ask.invalid) {
        ask.cards = (int32_t)each;
        ask.slots = (int32_t)at_once;
        ask.mib = part > 0 ? part : 0;
        ask.percent = part < 0 ? (int32_t)-part : 0;
    }
    if (p->labeled && !ask.invalid && !ask.nothing) {
        ask.cards = n ? (int32_t)n : 1;
        ask.mib = mib;
        ask.whole = ask.mib == 0;
    }
    ask.min_link = ask.cards > 1 ? (uint8_t)least : 0;
    ask.least = !p->labeled && !p->raw_mem ? mib : 0;
    if (isolation > 0 && ask.cards && !ask.whole) /* memory, of whatever form */
        ask.isolation = (uint8_t)isolation;
    ask.units = ask.slots ? ask.mib : (ask.mib + 1023) / 1024;
    if (in_words) { /* it gets parts of cards, and none to hold */
        struct oracle_ask words = ask_in_words(p, pod);
        p->devices = 0;
        words.invalid |= ask.invalid || /* labels and annotations */
                         (place && strcmp(place, "binpack") && strcmp(place, "spread"));
        words.min_link = words.cards > 1 ? (uint8_t)least : 0;
        words.isolation = isolation > 0 && !words.whole ? (uint8_t)isolation : 0;
        words.clock = ask.clock;
        memcpy(words.models, ask.models, sizeof words.models);
        return words;
    }
    return ask;
}

static void update_ask(struct oracle_pod *p, bool known, json_t *pod)
{
    struct oracle_ask ask = read_ask(p, pod);
    bool same = !known || !memcmp(&ask, &p->ask, sizeof ask);
    p->edited |= !same;
    p->version += !same || !known;
    if (p->node && !p->foreign)
        return;
    if (!same) {
        MEM_GROW(p->older, p->older_cap, p->n_older + 1);
        p->older[p->n_older++] = p->ask;
    }
    p->ask = ask;
}

/* -- pods -- */

void oracle_start(struct world *w)
{
    struct api_request req = {.method = "GET",
                              .path = "/api/v1/pods",
                              .query =
                                  "watch=1&resourceVersion=0&timeoutSeconds=100000000",
                              .body = {"", 0}};
    struct api_reply reply = {0};
    api_handle(w->api, wall_ms(w), &req, &reply);
    w->pod_watch = reply.watch;
    if (!w->pod_watch)
        abort();
}

static void pod_free(struct oracle_pod *p)
{
    free(p->older);
    free(p->promise);
    free(p->uid);
    free(p->name);
    free(p->node);
    free(p);
}

void oracle_free_pods(struct oracle_pod *pods)
{
    for (struct oracle_pod *p = pods, *next; p; p = next) {
        next = p->next;
        pod_free(p);
    }
}

void oracle_free(struct world *w)
{
    api_watch_free(w->pod_watch);
    oracle_free_pods(w->pods);
}

static uint64_t ended_hash(int node, const char *name)
{
    return hash_bytes((uint64_t)node, name, strlen(name));
}

bool oracle_has_ended(const struct world *w, int node, const char *name)
{
    uint64_t hash = ended_hash(node, name);
    for (size_t i = 0; i < w->n_ended; i++)
        if (w->ended[i] == hash)
            return true;
    return false;
}

struct oracle_pod *oracle_find(const struct world *w, const char *uid)
{
    EACH_POD(w, p)
    if (!strcmp(p->uid, uid))
        return p;
    return NULL;
}

struct oracle_pod *oracle_copy_pods(const struct world *w)
{
    struct oracle_pod *copies = NULL, **end = &copies;
    EACH_POD(w, p)
    {
        struct oracle_pod *copy = *end = xcalloc(1, sizeof *copy);
        *copy = *p;
        copy->uid = xstrdup(p->uid);
        copy->name = xstrdup(p->name);
        copy->node = p->node ? xstrdup(p->node) : NULL;
        copy->promise = p->promise ? xstrdup(p->promise) : NULL;
        copy->older = xcalloc(p->n_older + 1, sizeof *copy->older);
        copy->older_cap = p->n_older;
        if (p->n_older)
            memcpy(copy->older, p->older, p->n_older * sizeof *copy->older);
        copy->next = NULL;
        end = &copy->next;
    }
    return copies;
}

/* What runs, and what replicas know, is as before for a pod that is bound as before. */
void oracle_restored(struct world *w, struct oracle_pod *pods)
{
    for (struct oracle_pod *p = pods; p; p = p->next) {
        const struct oracle_pod *now = oracle_find(w, p->uid);
        bool runs = now && now->node && p->node && !now->over;
        p->started = runs && now->started;
        p->held = runs ? now->held : 0;
        p->given = runs ? now->given : 0;
        for (int card = 0; card < CARDS; card++)
            p->given_mib[card] = runs ? now->given_mib[card] : 0;
        for (int r = 0; r < REPLICAS; r++) {
            p->of[r] = runs ? now->of[r] : (struct oracle_view){0};
            p->of[r].delivered = -1;
        }
    }
    oracle_free(w);
    w->pods = pods;
}

struct oracle_notes oracle_notes(json_t *pod, int node)
{
    struct oracle_notes notes = {.exact = true};
    const char *idx = oracle_note(pod, KEY_IDX);
    const char *text = oracle_note(pod, KEY_ALLOCATION), *container, *card;
    unsigned seen = 0;
    notes.exact = idx && *idx && strspn(idx, "0123456789,") == strlen(idx);
    while (idx && *idx && notes.n < CARDS) {
        char *end;
        int i = notes.card[notes.n++] = oracle_card(node, strtol(idx, &end, 10));
        notes.exact =
            notes.exact && end == idx + 1 && i < oracle_cards(node) && !(seen & 1u << i);
        seen |= 1u << (i & 31);
        idx = *end == ',' ? end + 1 : end;
    }
    json_t *all = text ? json_loads(text, 0, NULL) : NULL, *of, *amount;
    notes.allocated = text;
    notes.valid = !text || json_is_object(all);
    json_object_foreach(all, container, of) json_object_foreach(of, card, amount)
    {
        int i = oracle_card(node, atoi(card));
        notes.valid = notes.valid && json_is_integer(amount);
        notes.bits |= 1u << i;
        notes.units[i % CARDS] += json_integer_value(amount);
    }
    json_decref(all);
    return notes;
}

/* Another program may have chosen a different number of cards than the pod requests: its
 * memory counts on those. */
int64_t oracle_pod_mib(const struct oracle_pod *p)
{
    int64_t n = p->n_cards ? p->n_cards : 1;
    if (!p->foreign)
        return p->ask.mib;
    if (p->raw_hami)
        return p->raw_hami;
    if (p->raw_mem)
        return (p->raw_mem + n - 1) / n * 1024;
    if (!p->n_cards)
        return p->ask.mib * p->ask.cards;
    /* Annotations count for at most what the labels ask for, which are in MiB. */
    int64_t units = (p->ask.units * p->ask.cards + n - 1) / n,
            all = p->ask.mib * p->ask.cards;
    return units == p->ask.units ? p->ask.mib : units * 1024 < all ? units * 1024 : all;
}

bool oracle_limited(const struct oracle_pod *p)
{
    return p->raw_mem || p->raw_cards || p->raw_slots || p->raw_hami;
}

int64_t oracle_part(const struct request *r, int64_t size)
{
    int64_t mib = 0;
    for (size_t i = 0; r->dialect && i < r->n_parts; i++)
        mib +=
            r->parts[i].percent ? size * r->parts[i].percent / 100 : r->parts[i].amount;
    return r->dialect ? mib : r->percent ? size * r->percent / 100 : r->mib_per_card;
}

bool oracle_is_vague(const struct oracle_pod *p)
{
    return p->node && p->foreign && p->labeled &&
           (p->edited || p->ask.invalid || p->ask.nothing);
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
    return p->ask.whole ? 0 : oracle_pod_mib(p);
}

/* -- sums -- */

/* Each of the pod's cards has at least its part of the compute. */
void oracle_add(struct oracle_sum *sum, const struct oracle_pod *p, int64_t mib)
{
    int64_t each = p->n_cards ? p->raw_core / p->n_cards : p->raw_core;
    if (mib < 0)
        return;
    sum->mib += mib;
    sum->core += each < 100 ? (int)each : 100;
    sum->whole += p->ask.whole;
    sum->shared += !p->ask.whole;
}

struct oracle_sum oracle_sum(const struct world *w, int node, int card)
{
    struct oracle_sum sum = {0};
    EACH_POD(w, p)
    oracle_add(&sum, p, oracle_holds(p, node, card));
    return sum;
}

bool oracle_fits(const struct world *w, const struct oracle_pod *p, int node, int card)
{
    struct oracle_sum sum = oracle_sum(w, node, card);
    EACH_POD(w, other) /* what HAMi gave is unknown, so it can be all of any card */
    if (other->raw_hami && !other->n_cards && !other->over &&
        oracle_index(other->node) == node)
        return false;
    if (p->ask.whole)
        return !sum.whole && !sum.shared;
    int64_t size = sizes[node][card];
    return oracle_ask_mib(&p->ask, size) <=
           (sum.whole && sum.mib < size ? 0 : size - sum.mib);
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
        EACH_POD(w, p)
        if (!p->foreign && !p->tampered)
            oracle_add(&sum, p, oracle_holds(p, node, card));
        check_sum(w, &sum, sizes[node][card], node, card);
    }
}

void oracle_promised(struct world *w, const struct replica *r,
                     const struct ledger_pod *pod, int node, int card, int64_t mib)
{
    /* The replica may know an older version of the pod itself. check_promise checks the
     * Binding when it is applied. */
    bool whole = pod->request->kind == REQUEST_CARDS;
    struct oracle_sum sum = {.mib = whole ? 0 : oracle_part(pod->request, mib),
                             .whole = whole,
                             .shared = !whole};
    EACH_POD(w, p)
    if (strcmp(p->uid, pod->uid.p) != 0)
        oracle_add(&sum, p,
                   p->foreign || p->tampered ? oracle_must_count(w, p, r, node, card)
                                             : oracle_holds(p, node, card));
    /* A pod without a share can be beside outsiders that have too much. */
    sum.core =
        pod->request->compute_percent ? sum.core + (int)pod->request->compute_percent : 0;
    check_sum(w, &sum, mib, node, card);
}

/* -- cards that NVIDIA's device plugin allocates to pods of nvidia.com/gpu -- */

static unsigned given(const struct world *w, int node)
{
    unsigned bits = 0;
    EACH_POD(w, p)
    if (oracle_index(p->node) == node && !p->over)
        bits |= p->held;
    return bits;
}

void oracle_update_pod_list(struct world *w, int node, bool published)
{
    w->listed[node] = published ? given(w, node) : 0;
    EACH_POD(w, p)
    if (oracle_index(p->node) == node)
        p->shown = published && p->held;
}

bool oracle_allocate(struct world *w, struct oracle_pod *p)
{
    int node = oracle_index(p->node), left = p->devices;
    unsigned taken = given(w, node), bits = 0;
    for (int card = 0; card < oracle_cards(node) && left; card++)
        if (!(taken & 1u << card) && oracle_exists(w, node, card)) {
            bits |= 1u << card;
            left--;
        }
    p->held = left ? 0 : bits;
    return left == 0;
}

int oracle_devices_left(const struct world *w, const struct oracle_pod *asking, int node,
                        const struct replica *r)
{
    unsigned busy = r ? 0 : w->listed[node];
    int n = 0;
    EACH_POD(w, p)
    {
        if (p == asking || p->over || oracle_index(p->node) != node ||
            (r && !p->of[r->id].known))
            continue;
        bool shown = r ? p->held != 0 : p->shown;
        busy |= shown ? p->held : 0;
        n -= shown ? 0 : p->devices; /* claimed */
        for (int card = 0; card < oracle_cards(node); card++)
            if ((r ? oracle_must_count(w, p, r, node, card)
                   : oracle_holds(p, node, card)) >= 0)
                busy |= 1u << card;
    }
    for (int card = 0; card < oracle_cards(node); card++)
        n += !(busy & 1u << card) && oracle_card_matches(asking, node, card) &&
             (r || oracle_available(w, node, card));
    return n;
}

void oracle_sent(struct world *w, const struct replica *r, const char *uid,
                 const char *node)
{
    const struct oracle_pod *p = oracle_find(w, uid);
    /* The replica may know an older version of an edited pod. */
    if (p && !p->edited && !p->ask.invalid &&
        (p->ask.models[0] || p->ask.clock || p->ask.least) &&
        oracle_devices_left(w, p, oracle_index(node), r) < p->devices)
        violated(w, "pod %s is sent to %s, which has too few matching cards", uid, node);
}

/* -- changes -- */

/* Do the annotations of the Binding match this version of the request? */
static bool is_answer(struct oracle_pod *p, json_t *pod)
{
    int node = oracle_index(p->node);
    struct oracle_ask settled = p->ask, *ask = &settled;
    const char *units = oracle_note(pod, KEY_POD), *exact = oracle_note(pod, KEY_MEMORY);
    /* So many MiB of each card, which had one size when it was bound. */
    bool settles = ask->percent || (oracle_ask_mib(ask, 100) > ask->mib && !ask->whole);
    if (settles)
        ask->mib = ask->units = exact ? strtoll(exact, NULL, 10) : -1;
    cleanup_free char *record = ask->whole
                                    ? xasprintf("whole %s", p->uid)
                                    : xasprintf("%lld %s", (long long)ask->mib, p->uid);
    bool good = !ask->invalid && !ask->nothing && p->n_cards == ask->cards && units;
    good = good && (ask->whole || strtoll(units, NULL, 10) == ask->units * ask->cards);
    if ((p->labeled && exact) || ask->slots)
        good = good && exact && !strcmp(exact, record);
    for (int i = 0; settles && good && i < p->n_cards; i++) {
        int64_t size = sizes[node][p->card[i] % CARDS];
        good = ask->mib == oracle_ask_mib(&p->ask, size) ||
               ask->mib == oracle_ask_mib(&p->ask, size / 2);
    }
    good = good && (!ask->in_words || node == HAMI_NODE);
    good = good && (!ask->min_link || p->narrowest >= ask->min_link) &&
           (!ask->isolation || p->enforced & ask->isolation);
    for (int i = 0; good && i < p->n_cards; i++)
        good = p->card[i] >= 0 && p->card[i] < oracle_cards(node) &&
               oracle_card_matches(p, node, p->card[i]);
    if (good)
        p->ask = settled;
    return good;
}

/* The annotations of a pod that the extender has just bound. It may have been edited while
 * its Binding was in flight: any version since the bind request may match, and becomes the
 * current one. */
static void check_promise(struct world *w, struct oracle_pod *p, json_t *pod)
{
    struct oracle_notes notes = oracle_notes(pod, oracle_index(p->node));
    unsigned bits = 0;
    bool good = is_answer(p, pod);
    for (size_t i = p->n_older; i && !good; i--) {
        p->ask = p->older[i - 1];
        good = is_answer(p, pod);
    }
    if (!good)
        violated(w,
                 "pod %s is bound to %s with %d cards, which matches no version of its "
                 "request (now: %d cards, %lld MiB on each, %s, %d MHz, isolation %x%s)",
                 p->uid, p->node, p->n_cards, p->ask.cards, (long long)p->ask.mib,
                 p->ask.models, p->ask.clock, p->ask.isolation,
                 p->ask.invalid ? ", invalid" : "");
    w->stats.isolated += p->ask.isolation != 0;
    for (int i = 0; i < p->n_cards; i++)
        bits |= 1u << (p->card[i] & 31);
    if (!notes.allocated || !notes.valid || notes.bits & ~bits)
        violated(w, "pod %s has an invalid allocation, or one of other cards", p->uid);
    for (int i = 0; i < p->n_cards && p->ask.slots && !p->ask.whole; i++)
        if (notes.units[p->card[i] % CARDS] > p->ask.mib)
            violated(w, "pod %s: its containers have more than the pod", p->uid);
    w->stats.slots += p->raw_slots != 0;
    w->stats.percent += p->ask.percent != 0;
    w->stats.in_words += p->ask.in_words;
    w->stats.in_parts += p->ask.in_words && p->ask.mib != p->raw_hami && !p->ask.whole;
}

/* "UUID,NVIDIA,MIB,0:UUID,...:;" of one container. What is not of this form names no card. */
static void read_hami(struct oracle_pod *p, json_t *pod)
{
    const char *text = text_in(pod, ANNOTATIONS, "hami.io/vgpu-devices-allocated");
    const char *node = text_in(pod, ANNOTATIONS, "hami.io/vgpu-node");
    int at = oracle_index(p->node), card, n = 0;
    char uuid[32];
    p->n_cards = 0;
    while (text && node && !strcmp(node, p->node) && strncmp(text, ";", 1) != 0) {
        for (card = 0; card < oracle_cards(at); card++) {
            cleanup_free char *entry = xasprintf(
                "%s,NVIDIA,%lld,0:", oracle_uuid(at, card, uuid), (long long)p->raw_hami);
            if (strncmp(text, entry, strlen(entry)) == 0) {
                text += strlen(entry);
                p->card[n++] = card;
                break;
            }
        }
        if (card == oracle_cards(at) || n > p->ask.cards)
            return;
    }
    p->n_cards = n == p->ask.cards ? n : 0;
}

static void see(struct world *w, json_t *pod)
{
    const char *uid = sim_jsonx_str(pod, "metadata.uid");
    const char *node = json_string_value(sim_jsonx_at(pod, "spec.nodeName"));
    const char *phase = sim_jsonx_str(pod, "status.phase");
    struct oracle_pod *p = oracle_find(w, uid);
    bool known = p;
    if (!known) {
        p = xcalloc(1, sizeof *p);
        p->uid = xstrdup(uid);
        p->name = xstrdup(sim_jsonx_str(pod, "metadata.name"));
        p->next = w->pods;
        w->pods = p;
    }
    update_ask(p, known, pod);
    snprintf(p->resource_version, sizeof p->resource_version, "%s",
             sim_jsonx_str(pod, "metadata.resourceVersion"));
    bool was_over = p->over;
    p->over = !strcmp(phase, "Succeeded") || !strcmp(phase, "Failed");
    if (p->over && !was_over && p->node) {
        MEM_GROW(w->ended, w->ended_cap, w->n_ended + 1);
        w->ended[w->n_ended++] = ended_hash(oracle_index(p->node), p->name);
    }
    p->deleting = sim_jsonx_at(pod, "metadata.deletionTimestamp");
    p->priority = sim_jsonx_int(pod, "spec.priority", 0);
    p->never_preempts = sim_jsonx_at(pod, "spec.preemptionPolicy");
    p->daemon = sim_jsonx_at(pod, "metadata.ownerReferences");
    p->terms = terms_read(pod);
    if (p->node && (!node || strcmp(p->node, node) != 0))
        violated(w, "pod %s moved from %s to %s", p->uid, p->node,
                 node ? node : "nowhere");
    if (node && !p->node) {
        p->node = xstrdup(node);
        p->foreign = !w->binding || strcmp(w->binding, p->uid) != 0;
        w->stats.bound += !p->foreign;
        w->stats.foreign += p->foreign;
        w->stats.invalid += p->ask.invalid;
        if (!p->devices || oracle_limited(p)) {
            struct oracle_notes notes = oracle_notes(pod, oracle_index(node));
            p->n_cards = notes.n;
            memcpy(p->card, notes.card, sizeof p->card);
        }
        if (p->raw_hami && p->foreign)
            read_hami(p, pod);
        w->stats.hami += p->raw_hami && p->foreign;
        w->stats.damaged += p->raw_hami && p->foreign && !p->n_cards;
        truth_bound(p, pod);
        if (!p->devices && !p->foreign)
            check_promise(w, p, pod);
        if (!w->failed)
            check_cards(w, oracle_index(node));
    } else if (p->node) {
        truth_changed(w, p, pod);
    }
}

static void forget(struct world *w, const char *uid)
{
    for (struct oracle_pod **at = &w->pods, *p; (p = *at);) {
        if (strcmp(p->uid, uid) != 0) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        pod_free(p);
    }
}

void oracle_update(struct world *w)
{
    cleanup_buf struct buf line = {0};
    while (w->pod_watch && api_watch_next(w->pod_watch, wall_ms(w), &line) == 1) {
        cleanup_json_value json_t *event = json_loadb(line.p, line.n, 0, NULL);
        const char *type = sim_jsonx_str(event, "type");
        json_t *pod = json_object_get(event, "object");
        w->woken_ms = w->now_ms;
        buf_clear(&line);
        if (plain_is(pod))
            continue;
        if (!strcmp(type, "DELETED"))
            forget(w, sim_jsonx_str(pod, "metadata.uid"));
        else if (!strcmp(type, "ADDED") || !strcmp(type, "MODIFIED"))
            see(w, pod);
        else if (strcmp(type, "BOOKMARK") != 0)
            violated(w, "the oracle lost its watch: %s", type);
        const char *phase = sim_jsonx_str(pod, "status.phase");
        if (w->yard && (!strcmp(type, "DELETED") || *phase == 'S' || *phase == 'F'))
            queue_freed(w); /* it takes no port any more */
    }
}

bool oracle_pending(const struct oracle_pod *p)
{
    return !p->node && !p->over && !p->deleting;
}

struct oracle_pod *oracle_pick(struct world *w, bool bound)
{
    uint64_t n = 0;
    struct oracle_pod *pick = NULL;
    EACH_POD(w, p)
    if ((bound ? p->node && !p->over : oracle_pending(p)) && any(w, ++n) == 0)
        pick = p;
    return pick;
}
