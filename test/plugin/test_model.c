/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A randomized model of a node, run with many seeds: an API server with delayed events; a
 * kubelet that admits one pod at a time, reuses the ids of init containers, completes
 * preferences with arbitrary ids, forgets ids in flight, rejects pods for other reasons,
 * and restarts with or without its checkpoint; plugins that die at any moment, with or
 * without their state file.
 *
 * Invariants: a container gets ids of its promised cards only; no id, and no whole card,
 * is held by two containers at a time; an allocation is saved before it is answered; without
 * faults no request is rejected.
 */

#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "domain/objects.h"
#include "node/allocation.h"
#include "plugin/alloc.h"

enum {
    CARDS_N = 3,
    UNITS = 12, /* of the largest card */
    SLOTS = 12, /* pods at a time */
    PARTS = 4,  /* containers of a pod */
    QUEUE = 512,
};

static const int64_t gib[CARDS_N] = {6, 9, 12};

/* Ids as bits. An id is a card's unit, or (unit UNITS) the whole card. */
typedef uint64_t ids_set;
#define ID(card, unit) ((ids_set)1 << ((card) * (UNITS + 1) + (unit)))
#define OF_CARD(card)  (ID(card, UNITS + 1) - ID(card, 0))
#define WHOLE_CARDS    (ID(0, UNITS) | ID(1, UNITS) | ID(2, UNITS))

struct part {
    char name[4];
    enum container_role role;
    enum ids_resource res;
    int amount;
    int share[CARDS_N]; /* promised units of each card */
    /* the kubelet's side */
    bool has;
    ids_set ids;
};

enum stage { FREE, WAITING, ADMITTING, RUNNING, REJECTED, ENDED };

struct wpod {
    int number;
    char name[16], uid[24];
    struct part parts[PARTS];
    int n;
    bool cards; /* gpu-count */
    enum stage stage;
    bool in_api, api_terminal; /* state in the API server */
    bool in_kubelet, terminal;
    int at; /* index of the container being admitted */
    bool reused_all;
    ids_set reusable, picked, must;
    const char *phase;
};

struct pod_event {
    int slot, number;
    bool deleted;
    char json[3000];
};

struct fifo {
    struct pod_event items[QUEUE];
    size_t from, to;
};

struct view_copy {
    bool used;
    uint64_t query;
    bool get, ready;
    char name[16];
    struct alloc_kubelet_view view;
    struct arena arena;
    struct err err;
};

struct world {
    struct rng rng;
    struct alloc *a;
    struct step_outputs out;
    struct step_time now;
    struct arena arena;
    struct wpod pods[SLOTS];
    int numbers;
    struct fifo to_plugin, to_kubelet;
    ids_set in_use;
    bool trap;
    bool list_hides_terminal, has_get, faults;
    int admitting; /* slot, -1: none */
    enum { IDLE, PREFERRING, ALLOCATING } call;
    uint64_t token;
    struct view_copy answers[16];
    struct buf state; /* the state file */
    bool listing;
    int allocated, rejected, restarts;
    char why[512];
    uint64_t seed;
    int step;
};

static struct world *w;

static bool chance(unsigned percent)
{
    return rng_below(&w->rng, 100) < percent;
}

#define holds(cond, ...)                                                                 \
    do {                                                                                 \
        if (!(cond)) {                                                                   \
            fprintf(stderr, "seed %llu, step %d: ", (unsigned long long)w->seed,         \
                    w->step);                                                            \
            fprintf(stderr, __VA_ARGS__);                                                \
            fprintf(stderr, "\n");                                                       \
            ck_abort_msg("see above");                                                   \
        }                                                                                \
    } while (0)

/* An id in the kubelet's notation. */
static struct span id_text(struct arena *arena, enum ids_resource res, int card, int unit)
{
    cleanup_buf struct buf b = {0};
    char uuid[8];
    snprintf(uuid, sizeof uuid, "GPU-%d", card);
    struct ids_id id = {ids_tag_of(span_of(uuid)), res == IDS_COUNT ? -1 : unit};
    ids_write(&b, &id);
    return arena_copy(arena, buf_span(&b));
}

static ids_set id_of(struct span text)
{
    struct ids_id id;
    ids_set set = 0;
    ck_assert(ids_read(text.n > IDS_TAG ? IDS_MEM : IDS_COUNT, text, &id));
    for (int c = 0; c < CARDS_N; c++) {
        char uuid[8];
        snprintf(uuid, sizeof uuid, "GPU-%d", c);
        struct ids_tag tag = ids_tag_of(span_of(uuid));
        if (memcmp(tag.text, id.tag.text, IDS_TAG) == 0)
            set = ID(c, id.unit < 0 ? UNITS : (int)id.unit);
    }
    return set;
}

static ids_set of_resource(enum ids_resource res)
{
    return res == IDS_COUNT ? WHOLE_CARDS : ~WHOLE_CARDS;
}

static size_t texts_of(ids_set set, enum ids_resource res, struct arena *arena,
                       struct span *out)
{
    size_t n = 0;
    for (int c = 0; c < CARDS_N; c++)
        for (int u = 0; u <= UNITS; u++)
            if (set & of_resource(res) & ID(c, u))
                out[n++] = id_text(arena, res, c, u);
    return n;
}

static int count(ids_set set)
{
    return __builtin_popcountll(set);
}

/* The ledger: units of the card promised to the live pods. */
static int promised(int card, bool *whole)
{
    int units = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct wpod *p = &w->pods[i];
        int running = 0, init = 0;
        if (p->stage == FREE || !p->in_api || p->api_terminal)
            continue;
        for (int k = 0; k < p->n; k++) {
            int share = p->parts[k].share[card];
            if (p->parts[k].role == CONTAINER_INIT)
                init = share > init ? share : init;
            else
                running += share;
        }
        int most = running > init ? running : init;
        *whole |= p->cards && most > 0;
        units += most;
    }
    return units;
}

static void write_json(const struct wpod *p, struct buf *out)
{
    cleanup_buf struct buf inits = {0}, apps = {0}, idx = {0}, alloc = {0};
    bool any[CARDS_N] = {false};
    int app = 0, n_apps = 0;
    for (int k = 0; k < p->n; k++)
        n_apps += p->parts[k].role == CONTAINER_APP;
    int sidecar = n_apps;
    buf_adds(&inits, "");
    for (int k = 0; k < p->n; k++) {
        const struct part *c = &p->parts[k];
        struct buf *to = c->role == CONTAINER_APP ? &apps : &inits;
        buf_printf(to, "%s{'name':'%s'%s,'resources':{'limits':{'%s':'%d'}}}",
                   to->n ? "," : "", c->name,
                   c->role == CONTAINER_SIDECAR ? ",'restartPolicy':'Always'" : "",
                   ids_resource_name(c->res), c->amount);
        for (int card = 0; card < CARDS_N; card++)
            any[card] |= c->share[card] > 0;
        if (c->role == CONTAINER_INIT)
            continue;
        buf_printf(&alloc, "%s\\'%d\\':{", alloc.n ? "," : "",
                   c->role == CONTAINER_APP ? app++ : sidecar++);
        bool first = true;
        for (int card = 0; card < CARDS_N; card++)
            if (c->share[card]) {
                buf_printf(&alloc, "%s\\'%d\\':%d", first ? "" : ",", card,
                           p->cards ? (int)gib[card] : c->share[card]);
                first = false;
            }
        buf_addc(&alloc, '}');
    }
    cleanup_buf struct buf uuids = {0};
    int cards = 0;
    for (int card = 0; card < CARDS_N; card++)
        if (any[card]) {
            buf_printf(&idx, "%s%d", idx.n ? "," : "", card);
            buf_printf(&uuids, "%sGPU-%d", uuids.n ? "," : "", card);
            cards++;
        }
    buf_printf(
        out,
        "{'metadata':{'name':'%s','namespace':'default','uid':'%s','annotations':{"
        "%s'" KEY_MEM_IDX "':'%s','" KEY_CARD_UUID "':'%s','" KEY_ALLOCATION
        "':'{%s}'}},'spec':{'nodeName':'n1','initContainers':[%s],'containers':[%s]},"
        "'status':{'phase':'%s'}}",
        p->name, p->uid, !p->cards && cards > 1 ? "'" KEY_GPU_COUNT "':'2'," : "", idx.p,
        uuids.p, alloc.p, inits.p, apps.p, p->phase);
}

static void send(struct fifo *f, int slot, bool deleted)
{
    ck_assert_uint_lt(f->to, QUEUE + f->from);
    struct pod_event *n = &f->items[f->to++ % QUEUE];
    n->slot = slot;
    n->number = w->pods[slot].number;
    n->deleted = deleted;
    cleanup_buf struct buf json = {0};
    write_json(&w->pods[slot], &json);
    ck_assert_uint_lt(json.n, sizeof n->json);
    memcpy(n->json, json.p, json.n + 1);
}

static void send_to_plugin(int slot, bool deleted)
{
    send(&w->to_plugin, slot, deleted);
}

/* The extender binds a new pod if a card has enough free units. */
static bool name_in_use(const char *name)
{
    for (int i = 0; i < SLOTS; i++)
        if (w->pods[i].stage != FREE && w->pods[i].in_api &&
            strcmp(w->pods[i].name, name) == 0)
            return true;
    return false;
}

static void part(struct wpod *p, const char *name, enum container_role role, int amount)
{
    struct part *c = &p->parts[p->n++];
    *c = (struct part){.role = role, .amount = amount};
    snprintf(c->name, sizeof c->name, "%s", name);
    c->res = p->cards ? IDS_COUNT : IDS_MEM;
}

static void shape(struct wpod *p)
{
    unsigned kind = (unsigned)rng_below(&w->rng, 10);
    int amount = 1 + (int)rng_below(&w->rng, 3);
    p->cards = kind >= 8;
    if (p->cards) {
        if (kind == 9)
            part(p, "i", CONTAINER_INIT, 1);
        part(p, "a", CONTAINER_APP, 1);
        return;
    }
    if (kind == 5 || kind == 6)
        part(p, "i", CONTAINER_INIT, amount);
    if (kind == 6 || kind == 7)
        part(p, "s", CONTAINER_SIDECAR, 1);
    part(p, "a", CONTAINER_APP, amount);
    if (kind >= 4)
        part(p, "b", CONTAINER_APP, 1 + (int)rng_below(&w->rng, 2));
}

static bool place(struct wpod *p)
{
    int from = (int)rng_below(&w->rng, CARDS_N), running = 0, init = 0;
    for (int k = 0; k < p->n; k++) {
        if (p->parts[k].role == CONTAINER_INIT)
            init = p->parts[k].amount;
        else
            running += p->parts[k].amount;
    }
    /* An upper bound of what Kubernetes counts for pods with sidecars. */
    int need = running + init;
    for (int i = 0; i < CARDS_N; i++) {
        int card = (from + i) % CARDS_N;
        bool whole = false;
        int used = promised(card, &whole);
        if (whole || (p->cards ? used > 0 : used + need > gib[card]))
            continue;
        for (int k = 0; k < p->n; k++)
            p->parts[k].share[card] = p->parts[k].amount;
        return true;
    }
    return false;
}

static void bind_pod(void)
{
    int slot = 0;
    while (slot < SLOTS && w->pods[slot].stage != FREE)
        slot++;
    if (slot == SLOTS)
        return;
    struct wpod *p = &w->pods[slot];
    *p = (struct wpod){.number = ++w->numbers, .phase = "Pending"};
    /* Names are reused, as by a StatefulSet. Not with a kubelet before 1.34: it shows
     * terminal pods, which cannot be distinguished from a recreated pod of that name. */
    bool again = w->has_get;
    snprintf(p->name, sizeof p->name, "p%d",
             again ? (int)rng_below(&w->rng, 20) : p->number);
    snprintf(p->uid, sizeof p->uid, "uid-%d", p->number);
    if (name_in_use(p->name))
        return;
    shape(p);
    if (!place(p))
        return;
    p->stage = WAITING;
    p->in_api = true;
    send_to_plugin(slot, false);
    send(&w->to_kubelet, slot, false);
}

/* The kubelet */

static bool is_active(const struct wpod *p)
{
    return p->in_kubelet && !p->terminal;
}

static void rebuild_in_use(void)
{
    w->in_use = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct wpod *p = &w->pods[i];
        for (int k = 0; k < p->n && p->stage != FREE && is_active(p); k++)
            w->in_use |= p->parts[k].has ? p->parts[k].ids : 0;
    }
}

static void reject(int slot)
{
    struct wpod *p = &w->pods[slot];
    p->stage = REJECTED;
    p->terminal = true;
    p->phase = "Failed";
    w->admitting = -1;
    w->call = IDLE;
}

static void take(void);

static void feed(struct alloc_input in)
{
    alloc_step(w->a, w->now, &in, &w->out);
    take();
}
#define STEP(...) feed((struct alloc_input){__VA_ARGS__})

/* Adds n random ids of `from` to `to`. False: there are too few. */
static bool random_ids(ids_set from, enum ids_resource res, int n, ids_set *to)
{
    for (; n > 0; n--) {
        ids_set left = from & ~*to & of_resource(res);
        if (!left)
            return false;
        for (int pick = (int)rng_below(&w->rng, (uint64_t)count(left)); pick > 0; pick--)
            left &= left - 1;
        *to |= left & -left;
    }
    return true;
}

static ids_set available_ids(enum ids_resource res)
{
    ids_set all = 0;
    for (int c = 0; c < CARDS_N; c++)
        all |= res == IDS_COUNT ? ID(c, UNITS) : ID(c, gib[c]) - ID(c, 0);
    return all & ~w->in_use;
}

static void request_allocate(struct wpod *p)
{
    struct part *c = &p->parts[p->at];
    cleanup_arena struct arena arena = {0};
    struct span ids[CARDS_N * (UNITS + 1)];
    struct alloc_request req = {.type = ALLOC_REQUEST_ALLOCATE,
                                .resource = c->res,
                                .token = ++w->token,
                                .ids = ids,
                                .n_ids = texts_of(p->picked, c->res, &arena, ids)};
    w->in_use |= p->picked;
    w->call = ALLOCATING;
    STEP(.type = ALLOC_IN_REQUEST, .request = req);
}

static void request_preferred(struct wpod *p)
{
    struct part *c = &p->parts[p->at];
    cleanup_arena struct arena arena = {0};
    struct span ids[CARDS_N * (UNITS + 1)], must[CARDS_N * (UNITS + 1)];
    ids_set all = available_ids(c->res) | p->must;
    struct alloc_request req = {.type = ALLOC_REQUEST_PREFERRED,
                                .resource = c->res,
                                .token = ++w->token,
                                .ids = ids,
                                .n_ids = texts_of(all, c->res, &arena, ids),
                                .must = must,
                                .n_must = texts_of(p->must, c->res, &arena, must),
                                .size = c->amount};
    w->call = PREFERRING;
    STEP(.type = ALLOC_IN_REQUEST, .request = req);
}

/* Admits the next container; after the last one the pod runs. */
static void admit_next(int slot)
{
    struct wpod *p = &w->pods[slot];
    while (p->at < p->n && p->parts[p->at].has) {
        struct part *c = &p->parts[p->at++];
        p->reusable &= ~c->ids;
        p->reusable |= c->role == CONTAINER_INIT ? c->ids : 0;
    }
    if (p->at == p->n) {
        p->stage = RUNNING;
        p->phase = "Running";
        w->admitting = -1;
        w->call = IDLE;
        if (p->in_api)
            send_to_plugin(slot, false);
        return;
    }
    struct part *c = &p->parts[p->at];
    if (!w->trap)
        rebuild_in_use();
    w->trap = false;
    p->must = 0;
    random_ids(p->reusable, c->res,
               c->amount < count(p->reusable) ? c->amount : count(p->reusable), &p->must);
    p->picked = p->must;
    ids_set all = available_ids(c->res);
    if (count(p->must) == c->amount)
        request_allocate(p);
    else if (count(all) < c->amount - count(p->must))
        reject(slot);
    else
        request_preferred(p);
}

static void on_preferred(const struct alloc_output *o)
{
    struct wpod *p = &w->pods[w->admitting];
    struct part *c = &p->parts[p->at];
    ids_set all = available_ids(c->res), want = 0;
    int n = c->amount - count(p->must);
    for (size_t i = 0; i < o->n_ids; i++)
        want |= id_of(o->ids[i]);
    want &= all & ~p->must;
    /* Preferred ids first, then any. */
    if (!w->faults || !chance(5))
        random_ids(want, c->res, n < count(want) ? n : count(want), &p->picked);
    if (!random_ids(all, c->res, c->amount - count(p->picked), &p->picked))
        reject(w->admitting);
    else
        request_allocate(p);
}

/* The invariants */
static void check_allocation(const struct wpod *p, const struct part *c)
{
    for (int card = 0; card < CARDS_N; card++) {
        int n = count(p->picked & OF_CARD(card));
        holds(p->cards ? n <= c->share[card] : n == c->share[card],
              "pod %d, container %s has %d of card %d and is promised %d", p->number,
              c->name, n, card, c->share[card]);
        for (int i = 0; i < SLOTS && n; i++) {
            const struct wpod *o = &w->pods[i];
            for (int k = 0; k < o->n && o->stage != FREE && is_active(o); k++) {
                const struct part *d = &o->parts[k];
                if (!d->has || d == c || (o == p && d->role == CONTAINER_INIT))
                    continue;
                holds(!(p->picked & d->ids & OF_CARD(card)),
                      "pod %d, container %s has an id of card %d, which pod %d, "
                      "container %s has",
                      p->number, c->name, card, o->number, d->name);
                holds(!(d->ids & OF_CARD(card)) ||
                          (d->res == IDS_MEM && c->res == IDS_MEM),
                      "pod %d has a whole card %d beside pod %d", p->number, card,
                      o->number);
            }
        }
    }
}

static void on_allocated(const struct alloc_output *o)
{
    int slot = w->admitting;
    struct wpod *p = &w->pods[slot];
    struct part *c = &p->parts[p->at];
    char want[64] = "";
    check_allocation(p, c);
    for (int card = 0; card < CARDS_N; card++)
        if (c->share[card])
            snprintf(want + strlen(want), sizeof want - strlen(want), "%sGPU-%d",
                     want[0] ? "," : "", card);
    holds(strcmp(o->response->dp.envs[0].value.p, want) == 0, "pod %d gets %s, not %s",
          p->number, o->response->dp.envs[0].value.p, want);
    c->has = true;
    c->ids = p->picked;
    w->allocated++;
    admit_next(slot);
}

static void query(const struct alloc_output *o)
{
    for (size_t i = 0; i < ARRAY_LEN(w->answers); i++) {
        struct view_copy *s = &w->answers[i];
        if (s->used)
            continue;
        *s = (struct view_copy){.used = true, .query = o->query};
        s->get = o->name != NULL;
        if (s->get)
            snprintf(s->name, sizeof s->name, "%s", o->name);
        return;
    }
    ck_abort_msg("too many queries");
}

static void show(struct view_copy *s)
{
    struct podres_pod *pods = arena_zalloc(&s->arena, SLOTS * sizeof *pods);
    size_t n = 0;
    for (int i = 0; i < SLOTS; i++) {
        struct wpod *p = &w->pods[i];
        if (p->stage == FREE || !p->in_kubelet ||
            (s->get ? strcmp(p->name, s->name) != 0
                    : p->terminal && w->list_hides_terminal))
            continue;
        struct podres_container *cs = arena_zalloc(&s->arena, PARTS * sizeof *cs);
        size_t k = 0;
        for (int c = 0; c < p->n; c++) {
            struct part *from = &p->parts[c];
            if (from->role == CONTAINER_INIT)
                continue;
            cs[k].name = arena_copy(&s->arena, span_of(from->name));
            if (from->has && is_active(p)) {
                struct span *ids = arena_zalloc(&s->arena, 64 * sizeof *ids);
                struct podres_devices *devices = arena_zalloc(&s->arena, sizeof *devices);
                *devices = (struct podres_devices){
                    .resource = span_of(ids_resource_name(from->res)),
                    .ids = ids,
                    .n_ids = texts_of(from->ids, from->res, &s->arena, ids)};
                cs[k].devices = devices;
                cs[k].n_devices = 1;
            }
            k++;
        }
        pods[n++] = (struct podres_pod){arena_copy(&s->arena, span_of(p->name)),
                                        SPAN("default"), cs, k};
    }
    s->view = (struct alloc_kubelet_view){.query = s->query, .pods = pods, .n_pods = n};
    if (s->get && !w->has_get) {
        err_set(&s->err, ERR_UNAVAILABLE, "no Get");
        s->view.err = &s->err;
        s->view.unsupported = true;
        s->view.n_pods = 0;
    }
    s->ready = true;
}

static void save(void)
{
    buf_clear(&w->state);
    allocation_set_write(&w->state, &alloc_state(w->a)->allocations, SPAN("n1"));
}

/* Answers to calls of a kubelet that has died are dropped. */
static bool is_awaited(const struct alloc_output *o)
{
    return o->token == w->token && w->admitting >= 0 && w->call != IDLE;
}

static void output(const struct alloc_output *o)
{
    switch (o->type) {
    case ALLOC_QUERY:
        query(o);
        break;
    case ALLOC_PREFERRED:
        if (is_awaited(o))
            on_preferred(o);
        break;
    case ALLOC_ALLOCATED:
        if (is_awaited(o))
            on_allocated(o);
        break;
    case ALLOC_REJECTED:
        w->rejected++;
        snprintf(w->why, sizeof w->why, "%s: %s", alloc_rejection_name(o->rejection),
                 o->text);
        holds(w->faults, "rejected without a fault: %s", w->why);
        if (is_awaited(o))
            reject(w->admitting);
        break;
    case ALLOC_SAVE:
        save();
        break;
    default:
        break;
    }
}

static void take(void)
{
    while (w->out.n + w->out.n_lines) {
        struct step_outputs out = w->out;
        w->out = (struct step_outputs){0};
        const struct alloc_output *items = out.items;
        bool saved = false;
        for (size_t i = 0; i < out.n; i++) {
            saved |= items[i].type == ALLOC_SAVE;
            holds(saved || items[i].type != ALLOC_ALLOCATED, "answered before saved");
            output(&items[i]);
        }
        step_outputs_fini(&out);
    }
}

/* What can happen */

static void deliver_to_plugin(void)
{
    struct fifo *f = &w->to_plugin;
    if (f->from == f->to)
        return;
    struct pod_event *n = &f->items[f->from++ % QUEUE];
    arena_reset(&w->arena);
    struct pod pod = object_pod(&w->arena, quoted(&w->arena, "%s", n->json));
    if (n->deleted)
        STEP(.type = ALLOC_IN_POD_DELETED, .uid = pod.meta.uid);
    else
        STEP(.type = ALLOC_IN_POD, .pod = pod_allocation_new(&pod, 1024));
}

static void free_slot(struct wpod *p)
{
    if (!p->in_api && !p->in_kubelet)
        p->stage = FREE;
}

static void deliver_to_kubelet(void)
{
    struct fifo *f = &w->to_kubelet;
    if (f->from == f->to || w->admitting >= 0)
        return;
    struct pod_event *n = &f->items[f->from++ % QUEUE];
    struct wpod *p = &w->pods[n->slot];
    if (p->number != n->number || p->stage == FREE)
        return;
    if (n->deleted) {
        p->in_kubelet = false;
        free_slot(p);
        return;
    }
    if (p->stage != WAITING || !p->in_api)
        return;
    p->in_kubelet = true;
    p->stage = ADMITTING;
    p->at = 0;
    p->reusable = 0;
    if (w->faults && chance(10)) { /* rejected for another reason, such as CPU */
        p->stage = REJECTED;
        p->terminal = true;
        p->phase = "Failed";
        return;
    }
    w->admitting = n->slot;
    admit_next(n->slot);
}

/* The kubelet reports a terminal phase with a delay. */
static void report(int slot)
{
    struct wpod *p = &w->pods[slot];
    if ((p->stage == REJECTED || p->stage == ENDED) && p->in_api && !p->api_terminal) {
        p->api_terminal = true;
        send_to_plugin(slot, false);
    }
}

static void end_pod(int slot)
{
    struct wpod *p = &w->pods[slot];
    if (p->stage != RUNNING)
        return;
    p->stage = ENDED;
    p->terminal = true;
    p->phase = "Succeeded";
}

/* Deletes a terminal pod, or force-deletes a running one. */
static void delete_pod(int slot)
{
    struct wpod *p = &w->pods[slot];
    bool force = w->faults && chance(20) && p->stage == RUNNING;
    if (!p->in_api || !(force || p->api_terminal || (p->stage == WAITING && chance(20))))
        return;
    p->in_api = false;
    send_to_plugin(slot, true);
    send(&w->to_kubelet, slot, true);
    free_slot(p);
}

static void answer(void)
{
    size_t i = rng_below(&w->rng, ARRAY_LEN(w->answers)), n = 0;
    while (!w->answers[i].used && n++ < ARRAY_LEN(w->answers))
        i = (i + 1) % ARRAY_LEN(w->answers);
    struct view_copy *s = &w->answers[i];
    if (!s->used)
        return;
    if (!s->ready) {
        show(s);
        return;
    }
    struct view_copy copy = *s;
    *s = (struct view_copy){0};
    if (copy.view.err)
        copy.view.err = &copy.err;
    STEP(.type = ALLOC_IN_PODRESOURCES, .view = copy.view);
    arena_fini(&copy.arena);
}

static void pass(int64_t ms)
{
    w->now.mono_ms += ms;
    w->now.wall_ns += ms * 1000000;
    STEP(.type = ALLOC_IN_TICK);
}

static void start_plugin(bool lost)
{
    struct alloc_settings settings = {
        .node = "n1", .unit_mib = 1024, .wait_ms = 5000, .reconcile_interval_ms = 20000};
    struct card_seen seen[CARDS_N] = {0};
    struct allocation_set set = {0};
    struct err err = {0};
    w->a = alloc_new(&settings);
    for (int i = 0; i < CARDS_N; i++) {
        snprintf(seen[i].uuid, sizeof seen[i].uuid, "GPU-%d", i);
        seen[i].index = i;
        seen[i].mib = gib[i] * 1024;
    }
    STEP(.type = ALLOC_IN_CARDS, .seen = seen, .n = CARDS_N);
    if (w->state.n && !lost)
        ck_assert_done(allocation_set_read(&set, buf_span(&w->state), SPAN("n1"), &err),
                       err);
    STEP(.type = ALLOC_IN_RESTORE, .set = &set);
    /* A list has the current state. */
    w->to_plugin.from = w->to_plugin.to;
    STEP(.type = ALLOC_IN_LIST_STARTED);
    for (int i = 0; i < SLOTS; i++)
        if (w->pods[i].stage != FREE && w->pods[i].in_api)
            send_to_plugin(i, false);
    while (w->to_plugin.from != w->to_plugin.to)
        deliver_to_plugin();
    STEP(.type = ALLOC_IN_LIST_ENDED);
    STEP(.type = ALLOC_IN_NODE);
}

static void drop_answers(void)
{
    for (size_t i = 0; i < ARRAY_LEN(w->answers); i++) {
        arena_fini(&w->answers[i].arena);
        w->answers[i] = (struct view_copy){0};
    }
}

static void restart_plugin(void)
{
    bool lost = chance(30);
    /* Without the state file only podresources is left: allocations of plain init
     * containers are lost. */
    alloc_free(w->a);
    step_outputs_fini(&w->out);
    drop_answers();
    if (w->admitting >= 0)
        reject(w->admitting); /* the call fails */
    w->restarts++;
    start_plugin(lost);
}

/* Fails the calls from and to a kubelet that has died. */
static void break_calls(void)
{
    struct err err;
    err_set(&err, ERR_UNAVAILABLE, "the connection broke");
    for (size_t i = 0; i < ARRAY_LEN(w->answers); i++) {
        struct view_copy *s = &w->answers[i];
        struct alloc_kubelet_view view = {.query = s->query, .err = &err};
        if (!s->used)
            continue;
        arena_fini(&s->arena);
        *s = (struct view_copy){0};
        STEP(.type = ALLOC_IN_PODRESOURCES, .view = view);
    }
    STEP(.type = ALLOC_IN_CANCEL, .request.token = w->token);
}

static void restart_kubelet(void)
{
    bool lost = chance(30);
    if (w->admitting >= 0) {
        w->pods[w->admitting].stage = WAITING;
        w->pods[w->admitting].in_kubelet = false;
        w->admitting = -1;
        w->call = IDLE;
    }
    break_calls();
    /* All pods are admitted again in order of creation; those with ids keep them. */
    w->to_kubelet.from = w->to_kubelet.to;
    for (int n = 1; n <= w->numbers; n++)
        for (int i = 0; i < SLOTS; i++) {
            struct wpod *p = &w->pods[i];
            if (p->stage == FREE || p->number != n)
                continue;
            p->in_kubelet = false;
            if (!p->in_api) {
                p->stage = FREE;
                continue;
            }
            if (p->stage == RUNNING || p->stage == WAITING) {
                p->stage = WAITING;
                for (int k = 0; k < p->n && lost; k++)
                    p->parts[k].has = false;
                send(&w->to_kubelet, i, false);
            } else {
                p->in_kubelet = true; /* terminal */
            }
        }
    rebuild_in_use();
    w->restarts++;
    STEP(.type = ALLOC_IN_KUBELET_STARTED);
}

static void event(void)
{
    int slot = (int)rng_below(&w->rng, SLOTS);
    unsigned what = (unsigned)rng_below(&w->rng, 1000);
    if (what < 120)
        bind_pod();
    else if (what < 300)
        deliver_to_plugin();
    else if (what < 450)
        deliver_to_kubelet();
    else if (what < 550)
        report(slot);
    else if (what < 600)
        end_pod(slot);
    else if (what < 700)
        delete_pod(slot);
    else if (what < 850)
        answer();
    else if (what < 960)
        pass((int64_t)rng_below(&w->rng, w->faults ? 400 : 40));
    else if (what < 980 && w->faults)
        w->trap = w->call == ALLOCATING;
    else if (what < 985 && w->faults)
        restart_plugin();
    else if (what < 988 && w->faults)
        restart_kubelet();
}

static void run(uint64_t seed, bool faults, int steps)
{
    w = xcalloc(1, sizeof *w);
    w->seed = seed;
    w->faults = faults;
    rng_init(&w->rng, seed);
    w->now = (struct step_time){1000000, 1700000000000000000};
    w->admitting = -1;
    w->has_get = chance(60);
    w->list_hides_terminal = w->has_get; /* both since 1.34 */
    start_plugin(true);
    for (w->step = 0; w->step < steps; w->step++)
        event();
    alloc_free(w->a);
    step_outputs_fini(&w->out);
    drop_answers();
    arena_fini(&w->arena);
    buf_fini(&w->state);
}

static void run_seeds(bool faults, int seeds, int steps)
{
    int allocated_n = 0, rejected_n = 0, restarts = 0;
    for (int seed = 1; seed <= seeds; seed++) {
        run((uint64_t)seed, faults, steps);
        allocated_n += w->allocated;
        rejected_n += w->rejected;
        restarts += w->restarts;
        free(w);
    }
    printf("%d seeds of %d steps: %d allocations, %d rejected, %d restarts\n", seeds,
           steps, allocated_n, rejected_n, restarts);
    ck_assert_int_gt(allocated_n, seeds * steps / 100);
    if (faults)
        ck_assert(rejected_n > 0 && restarts > 0);
    else
        ck_assert_int_eq(rejected_n, 0);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 40 };
#else
enum { SEEDS = 400 };
#endif

START_TEST(no_container_gets_another_card_under_faults)
{
    run_seeds(true, SEEDS, 3000);
}
END_TEST

START_TEST(no_request_is_rejected_without_faults)
{
    run_seeds(false, SEEDS, 3000);
}
END_TEST

UNIT_MAIN_SECONDS("plugin model", 300, no_container_gets_another_card_under_faults,
                  no_request_is_rejected_without_faults)
