/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A randomized model of a node, run with many seeds: an API server with delayed events; a
 * kubelet that admits one pod at a time, reuses the ids of init containers, completes
 * preferences with arbitrary ids, forgets ids in flight, rejects pods for other reasons,
 * has pods that were bound past the extender, and restarts with or without its checkpoint; plugins that die at any moment, with or
 * without their state file.
 *
 * Invariants: a container gets ids of its promised card only; no id, and no whole card,
 * is held by two containers at a time; an allocation is saved before it is answered; without
 * faults no request is rejected but of a pod without a promise, before the timeout.
 */

#include "base/rng.h"
#include "node/allocation.h"
#include "node/rig.h"

enum {
    CARDS_N = 3,
    UNITS = 12, /* of the largest card */
    SHARES = 7, /* slots of a card */
    PER_CARD = UNITS + 1 + SHARES,
    SLOTS = 12, /* pods at a time */
    PARTS = 4,  /* containers of a pod */
    IDS = CARDS_N * PER_CARD,
    CALLS = 16, /* of podresources */
    QUEUE = 512,
    WAIT_MS = 5000,
    SEEDS = LIB_SLOWER > 1 ? 40 : 400,
};

static const int64_t gib[CARDS_N] = {6, 9, 12};

/* Ids as bits. An id is a card's unit, or (unit UNITS) the whole card, or (from there on) a slot. */
typedef uint64_t ids_set;
#define ID(card, unit) ((ids_set)1 << ((card)*PER_CARD + (unit)))
#define OF_CARD(card)  (ID(card, PER_CARD) - ID(card, 0))
#define OF_SLOTS(card) (ID(card, PER_CARD) - ID(card, UNITS + 1))
#define WHOLE_CARDS    (ID(0, UNITS) | ID(1, UNITS) | ID(2, UNITS))
#define ALL_SLOTS      (OF_SLOTS(0) | OF_SLOTS(1) | OF_SLOTS(2))

struct part {
    const char *name;
    enum container_role role;
    int amount;
    /* the kubelet's side */
    bool has;
    ids_set ids;
};

enum stage { FREE, WAITING, ADMITTING, RUNNING, REJECTED, ENDED };

struct wpod {
    int number;
    char name[16], uid[24];
    int card; /* the promised one; -1: bound past the extender */
    enum ids_resource res;
    int gib; /* of slots: of the whole pod */
    struct part parts[PARTS];
    int n;
    enum stage stage;
    bool in_api, api_terminal; /* state in the API server */
    bool in_kubelet, terminal;
    int at; /* index of the container being admitted */
    ids_set reusable, picked, must;
    const char *phase;
};

struct fifo {
    struct {
        int slot;
        bool deleted;
        struct wpod pod; /* of that time */
    } items[QUEUE];
    size_t from, to;
};

/* A call of podresources. */
struct call {
    bool used, ready;
    uint64_t query;
    bool get;
    char name[16];
    struct wpod pods[SLOTS]; /* ready: of the time of the answer */
};

static struct rng rng;
static struct wpod pods[SLOTS];
static int numbers;
static struct fifo to_plugin, to_kubelet;
static ids_set in_use;
static bool forgot; /* ids in flight: the next container can be offered them */
static bool has_get, faults;
static int admitting; /* slot, -1: none */
static enum { IDLE, PREFERRING, ALLOCATING } request;
static uint64_t token;
static int64_t asked_ms;
static struct call calls[CALLS];
static struct buf file; /* the state file */
static int allocated, rejected, restarts;
static struct span texts[IDS]; /* of the ids in the kubelet's notation */

static int below(int n)
{
    return (int)rng_below(&rng, (uint64_t)n);
}

static bool chance(int percent)
{
    return below(100) < percent;
}

#define holds(cond, text, ...)                                                           \
    ck_assert_msg(cond, "seed %d, step %d: " text, rig.seed, rig.step, __VA_ARGS__)

static ids_set of_resource(enum ids_resource res)
{
    return res == IDS_COUNT   ? WHOLE_CARDS
           : res == IDS_SHARE ? ALL_SLOTS
                              : ~WHOLE_CARDS & ~ALL_SLOTS;
}

static size_t texts_of(ids_set set, struct span *out)
{
    size_t n = 0;
    for (int i = 0; i < IDS; i++)
        if (set & (ids_set)1 << i)
            out[n++] = texts[i];
    return n;
}

static ids_set bit_of(struct span text)
{
    int i = 0;
    while (!span_eq(text, texts[i]))
        ck_assert_int_lt(++i, IDS);
    return (ids_set)1 << i;
}

static int count(ids_set set)
{
    return __builtin_popcountll(set);
}

/* The API server and the extender */

static void add_amounts(const struct wpod *p, int *running, int *init)
{
    for (int k = 0; k < p->n; k++)
        *(p->parts[k].role == CONTAINER_INIT ? init : running) += p->parts[k].amount;
    if (p->res == IDS_SHARE) {
        *running = p->gib;
        *init = 0;
    }
}

/* The ledger: GiB of the card promised to the live pods. */
static int promised(int card, bool *whole, int *slots)
{
    int units = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct wpod *p = &pods[i];
        int running = 0, init = 0;
        if (p->stage == FREE || !p->in_api || p->api_terminal || p->card != card)
            continue;
        add_amounts(p, &running, &init);
        *whole |= p->res == IDS_COUNT;
        *slots += p->res == IDS_SHARE ? p->n : 0;
        units += running > init ? running : init;
    }
    return units;
}

static void send(struct fifo *f, int slot, bool deleted)
{
    ck_assert_uint_lt(f->to, QUEUE + f->from);
    size_t i = f->to++ % QUEUE;
    f->items[i].slot = slot;
    f->items[i].deleted = deleted;
    f->items[i].pod = pods[slot];
}

static bool name_in_use(const char *name)
{
    for (int i = 0; i < SLOTS; i++)
        if (pods[i].stage != FREE && pods[i].in_api && strcmp(pods[i].name, name) == 0)
            return true;
    return false;
}

static void part(struct wpod *p, const char *name, enum container_role role, int amount)
{
    p->parts[p->n++] = (struct part){.name = name, .role = role, .amount = amount};
}

static void shape(struct wpod *p)
{
    int kind = below(12), amount = 1 + below(3);
    p->gib = amount;
    p->res = kind >= 10 ? IDS_SHARE : kind >= 8 ? IDS_COUNT : IDS_MEM;
    if (kind >= 8)
        amount = 1;
    if (kind == 5 || kind == 6 || kind == 9 || kind == 11)
        part(p, "i", CONTAINER_INIT, amount);
    if (kind == 6 || kind == 7)
        part(p, "s", CONTAINER_SIDECAR, 1);
    part(p, "a", CONTAINER_APP, amount);
    if (kind >= 4 && kind < 8)
        part(p, "b", CONTAINER_APP, 1 + below(2));
    if (p->res == IDS_SHARE && chance(50))
        part(p, "b", CONTAINER_APP, 1);
}

/* The extender binds a new pod if a card has enough free units. */
static bool place(struct wpod *p)
{
    int from = below(CARDS_N), running = 0, init = 0;
    add_amounts(p, &running, &init);
    /* An upper bound of what Kubernetes counts for pods with sidecars. */
    int need = running + init;
    for (int i = 0; i < CARDS_N; i++) {
        bool whole = false;
        int slots = p->n;
        p->card = (from + i) % CARDS_N;
        int used = promised(p->card, &whole, &slots);
        if (!whole && (p->res != IDS_SHARE || slots <= SHARES) &&
            (p->res == IDS_COUNT ? used == 0 : used + need <= gib[p->card]))
            return true;
    }
    return false;
}

static void bind_pod(void)
{
    int slot = 0;
    while (slot < SLOTS && pods[slot].stage != FREE)
        slot++;
    if (slot == SLOTS)
        return;
    struct wpod *p = &pods[slot];
    *p = (struct wpod){.number = ++numbers, .phase = "Pending"};
    /* Names are reused, as by a StatefulSet. Not with a kubelet before 1.34: it shows
     * terminal pods, which cannot be distinguished from a recreated pod of that name. */
    snprintf(p->name, sizeof p->name, "p%d", has_get ? below(20) : p->number);
    snprintf(p->uid, sizeof p->uid, "uid-%d", p->number);
    if (name_in_use(p->name))
        return;
    shape(p);
    if (chance(10))
        p->card = -1;
    else if (!place(p))
        return;
    p->stage = WAITING;
    p->in_api = true;
    send(&to_plugin, slot, false);
    send(&to_kubelet, slot, false);
}

/* The kubelet */

static bool is_active(const struct wpod *p)
{
    return p->stage != FREE && p->in_kubelet && !p->terminal;
}

static void rebuild_in_use(void)
{
    in_use = 0;
    for (int i = 0; i < SLOTS; i++)
        for (int k = 0; k < pods[i].n && is_active(&pods[i]); k++)
            in_use |= pods[i].parts[k].has ? pods[i].parts[k].ids : 0;
}

static void end_with(struct wpod *p, enum stage stage, const char *phase)
{
    p->stage = stage;
    p->terminal = true;
    p->phase = phase;
}

static void reject(void)
{
    end_with(&pods[admitting], REJECTED, "Failed");
    admitting = -1;
    request = IDLE;
}

/* Adds n random ids of `from` to `to`. False: there are too few. */
static bool random_ids(ids_set from, int n, ids_set *to)
{
    for (; n > 0; n--) {
        ids_set left = from & ~*to;
        if (!left)
            return false;
        for (int pick = below(count(left)); pick > 0; pick--)
            left &= left - 1;
        *to |= left & -left;
    }
    return true;
}

static ids_set available_ids(enum ids_resource res)
{
    ids_set all = 0;
    for (int c = 0; c < CARDS_N; c++)
        all |= ID(c, UNITS) | (ID(c, gib[c]) - ID(c, 0)) | OF_SLOTS(c);
    return all & ~in_use & of_resource(res);
}

static void ask(enum alloc_request_type type, const struct wpod *p, ids_set set)
{
    struct span ids[IDS], must[IDS];
    asked_ms = rig.now.mono_ms;
    FEED(.type = ALLOC_IN_REQUEST, .request = {.type = type,
                                               .resource = p->res,
                                               .token = ++token,
                                               .ids = ids,
                                               .n_ids = texts_of(set, ids),
                                               .must = must,
                                               .n_must = texts_of(p->must, must),
                                               .size = p->parts[p->at].amount});
}

static void request_allocate(const struct wpod *p)
{
    in_use |= p->picked;
    request = ALLOCATING;
    ask(ALLOC_REQUEST_ALLOCATE, p, p->picked);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Admits the next container; after the last one the pod runs. */
static void admit_next(void)
{
    struct wpod *p = &pods[admitting];
    while (p->at < p->n && p->parts[p->at].has) {
        const struct part *c = &p->parts[p->at++];
        p->reusable &= ~c->ids;
        p->reusable |= c->role == CONTAINER_INIT ? c->ids : 0;
    }
    if (p->at == p->n) {
        p->stage = RUNNING;
        p->phase = "Running";
        if (p->in_api)
            send(&to_plugin, admitting, false);
        admitting = -1;
        request = IDLE;
        return;
    }
    int amount = p->parts[p->at].amount;
    if (!forgot)
        rebuild_in_use();
    forgot = false;
    p->must = 0;
    random_ids(p->reusable, least(amount, count(p->reusable)), &p->must);
    p->picked = p->must;
    ids_set all = available_ids(p->res);
    if (count(p->must) == amount)
        request_allocate(p);
    else if (count(all) < amount - count(p->must))
        reject();
    else {
        request = PREFERRING;
        ask(ALLOC_REQUEST_PREFERRED, p, all | p->must);
    }
}

static void on_preferred(const struct alloc_output *o)
{
    struct wpod *p = &pods[admitting];
    int amount = p->parts[p->at].amount;
    ids_set all = available_ids(p->res), want = 0;
    for (size_t i = 0; i < o->n_ids; i++)
        want |= bit_of(o->ids[i]);
    if (faults && chance(10)) /* it prefers others, possibly of the same card */
        want = p->card >= 0 && chance(70) ? OF_CARD(p->card) : 0;
    want &= all & ~p->must; /* first these, then any */
    random_ids(want, least(amount - count(p->must), count(want)), &p->picked);
    if (random_ids(all, amount - count(p->picked), &p->picked))
        request_allocate(p);
    else
        reject();
}

/* The invariants */
static void check_allocation(const struct wpod *p, const struct part *c)
{
    holds(p->card >= 0 && !(p->picked & ~OF_CARD(p->card)),
          "pod %d has ids of another card than %d", p->number, p->card);
    for (const struct wpod *o = pods; o < pods + SLOTS; o++)
        for (const struct part *d = o->parts; d < o->parts + o->n && is_active(o); d++) {
            if (!d->has || d == c || (o == p && d->role == CONTAINER_INIT))
                continue;
            holds(!(p->picked & d->ids), "pods %d and %d have the same id of card %d",
                  p->number, o->number, p->card);
            holds((p->res != IDS_COUNT && o->res != IDS_COUNT) || o->card != p->card,
                  "pod %d has a whole card %d beside pod %d", p->number, p->card,
                  o->number);
        }
}

static void on_allocated(const struct alloc_output *o)
{
    struct wpod *p = &pods[admitting];
    struct part *c = &p->parts[p->at];
    const char *visible = o->response->dp.envs[0].value.p;
    check_allocation(p, c);
    holds(atoi(visible + 4) == p->card && strlen(visible) == 5, "pod %d gets %s, not %d",
          p->number, visible, p->card);
    for (size_t i = 0; i < o->response->dp.n_envs && p->res == IDS_SHARE; i++)
        holds(!span_eq(o->response->dp.envs[i].key, SPAN(KEY_MEM_CONTAINER)) ||
                  atoi(o->response->dp.envs[i].value.p) ==
                      p->gib * 1024 / (p->n - (p->parts[0].role == CONTAINER_INIT)),
              "pod %d has %s MiB, and %d GiB in all", p->number,
              o->response->dp.envs[i].value.p, p->gib);
    c->has = true;
    c->ids = p->picked;
    allocated++;
    admit_next();
}

static void query(const struct alloc_output *o)
{
    struct call *c = calls;
    while (c->used)
        ck_assert(++c < calls + CALLS);
    *c = (struct call){.used = true, .query = o->query, .get = o->name != NULL};
    if (c->get)
        snprintf(c->name, sizeof c->name, "%s", o->name);
}

/* Answers the call with the pods of its time, or with the error. */
static void answer_call(struct call *c, const struct err *err)
{
    static const struct err no_get = {.code = ERR_UNAVAILABLE, .msg = "no Get"};
    struct span ids[SLOTS][PARTS][IDS];
    struct podres_devices devices[SLOTS][PARTS];
    struct podres_container containers[SLOTS][PARTS];
    struct podres_pod shown[SLOTS];
    struct alloc_kubelet_view view = {.query = c->query, .pods = shown, .err = err};
    view.unsupported = !err && c->get && !has_get;
    if (view.unsupported)
        view.err = &no_get;
    for (int i = 0; i < SLOTS && !view.err; i++) {
        const struct wpod *p = &c->pods[i];
        /* The kubelet has Get since it hides terminal pods: 1.34. */
        if (p->stage == FREE || !p->in_kubelet ||
            (c->get ? strcmp(p->name, c->name) != 0 : p->terminal && has_get))
            continue;
        size_t n = 0;
        for (int k = 0; k < p->n; k++) {
            const struct part *from = &p->parts[k];
            if (from->role == CONTAINER_INIT)
                continue;
            devices[i][n] =
                (struct podres_devices){.resource = span_of(ids_resource_name(p->res)),
                                        .ids = ids[i][n],
                                        .n_ids = texts_of(from->ids, ids[i][n])};
            containers[i][n] =
                (struct podres_container){.name = span_of(from->name),
                                          .devices = &devices[i][n],
                                          .n_devices = from->has && is_active(p)};
            n++;
        }
        shown[view.n_pods++] =
            (struct podres_pod){span_of(p->name), SPAN("default"), containers[i], n};
    }
    c->used = c->ready = false;
    FEED(.type = ALLOC_IN_PODRESOURCES, .view = view);
}

/* Answers to requests of a kubelet that has died are dropped. */
static bool is_awaited(const struct alloc_output *o)
{
    return o->token == token && admitting >= 0 && request != IDLE;
}

static void carry_out(const struct alloc_output *o)
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
        rejected++;
        holds(faults || (is_awaited(o) && pods[admitting].card < 0 &&
                         o->rejection == REJECTED_NO_PROMISE &&
                         rig.now.mono_ms < asked_ms + WAIT_MS),
              "rejected without a fault: %s: %s", rejection_name(o->rejection), o->text);
        if (is_awaited(o))
            reject();
        break;
    case ALLOC_SAVE:
        buf_clear(&file);
        allocation_set_write(&file, &state()->allocations, SPAN("n1"));
        break;
    default:
        break;
    }
}

/* What can happen */

static void deliver_to_plugin(void)
{
    static const char *const roles[] = {
        [CONTAINER_INIT] = "init:", [CONTAINER_SIDECAR] = "side:", [CONTAINER_APP] = ""};
    cleanup_buf struct buf words = {0};
    if (to_plugin.from == to_plugin.to)
        return;
    size_t at = to_plugin.from++ % QUEUE;
    const struct wpod *p = &to_plugin.items[at].pod;
    struct span uid = span_of(p->uid);
    if (to_plugin.items[at].deleted) {
        FEED(.type = ALLOC_IN_POD_DELETED, .uid = uid);
        return;
    }
    buf_printf(&words, "%s", p->phase);
    if (p->card >= 0)
        buf_printf(&words, " on=%d", p->card);
    if (p->card >= 0 && p->res == IDS_SHARE)
        buf_printf(&words, " record=%d+%s", p->gib * 1024, p->uid);
    if (p->res == IDS_SHARE)
        buf_adds(&words, " memory=50%"); /* the record counts */
    for (int k = 0; k < p->n; k++)
        buf_printf(&words, " %s:%s%s%d", p->parts[k].name, roles[p->parts[k].role],
                   resource_words[p->res], p->parts[k].amount);
    arena_reset(&rig.arena);
    api(span_of(p->name), uid, buf_span(&words));
}

static void free_slot(struct wpod *p)
{
    if (!p->in_api && !p->in_kubelet)
        p->stage = FREE;
}

static void deliver_to_kubelet(void)
{
    if (to_kubelet.from == to_kubelet.to || admitting >= 0)
        return;
    size_t at = to_kubelet.from++ % QUEUE;
    int slot = to_kubelet.items[at].slot;
    struct wpod *p = &pods[slot];
    if (p->number != to_kubelet.items[at].pod.number || p->stage == FREE)
        return;
    if (to_kubelet.items[at].deleted) {
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
    admitting = slot;
    if (faults && chance(10)) /* for another reason, such as CPU */
        reject();
    else
        admit_next();
}

/* The kubelet reports a terminal phase with a delay. */
static void report(int slot)
{
    struct wpod *p = &pods[slot];
    if ((p->stage == REJECTED || p->stage == ENDED) && p->in_api && !p->api_terminal) {
        p->api_terminal = true;
        send(&to_plugin, slot, false);
    }
}

static void end_pod(int slot)
{
    if (pods[slot].stage == RUNNING)
        end_with(&pods[slot], ENDED, "Succeeded");
}

/* Deletes a terminal pod, or force-deletes a running one. */
static void delete_pod(int slot)
{
    struct wpod *p = &pods[slot];
    bool force = faults && chance(20) && p->stage == RUNNING;
    if (!p->in_api || !(force || p->api_terminal || (p->stage == WAITING && chance(20))))
        return;
    p->in_api = false;
    send(&to_plugin, slot, true);
    send(&to_kubelet, slot, true);
    free_slot(p);
}

static void answer(void)
{
    int i = below(CALLS), n = 0;
    while (!calls[i].used && n++ < CALLS)
        i = (i + 1) % CALLS;
    struct call *c = &calls[i];
    if (c->ready)
        answer_call(c, NULL);
    else if (c->used) {
        c->ready = true;
        memcpy(c->pods, pods, sizeof pods);
    }
}

static void pass(int ms)
{
    rig.now.mono_ms += ms;
    rig.now.wall_ns += ms * 1000000LL;
    FEED(.type = ALLOC_IN_TICK);
}

/* Without the state file only podresources is left: allocations of plain init containers
 * are lost. */
static void start_plugin(bool lost)
{
    struct allocation_set set = {0};
    struct err err = {0};
    memset(calls, 0, sizeof calls);
    start_alloc((struct alloc_settings){
        .wait_ms = WAIT_MS, .reconcile_interval_ms = 20000, .cards.slots = SHARES});
    sample(SPAN("GPU-0 GPU-1 GPU-2"), gib, NULL);
    if (file.n && !lost)
        ck_assert_done(allocation_set_read(&set, buf_span(&file), SPAN("n1"), &err), err);
    FEED(.type = ALLOC_IN_RESTORE, .set = &set);
    /* A list has the current state. */
    to_plugin.from = to_plugin.to;
    FEED(.type = ALLOC_IN_LIST_STARTED);
    for (int i = 0; i < SLOTS; i++)
        if (pods[i].stage != FREE && pods[i].in_api)
            send(&to_plugin, i, false);
    while (to_plugin.from != to_plugin.to)
        deliver_to_plugin();
    FEED(.type = ALLOC_IN_LIST_ENDED);
    FEED(.type = ALLOC_IN_NODE);
}

static void restart_plugin(void)
{
    bool lost = chance(30);
    if (admitting >= 0)
        reject(); /* the call fails */
    restarts++;
    start_plugin(lost);
}

/* The calls from and to the kubelet break. All pods are admitted again in order of creation;
 * those with ids keep them. */
static void restart_kubelet(void)
{
    static const struct err err = {.code = ERR_UNAVAILABLE,
                                   .msg = "the connection broke"};
    bool lost = chance(30);
    if (admitting >= 0) {
        pods[admitting].stage = WAITING;
        pods[admitting].in_kubelet = false;
        admitting = -1;
        request = IDLE;
    }
    for (size_t i = 0; i < CALLS; i++)
        if (calls[i].used)
            answer_call(&calls[i], &err);
    FEED(.type = ALLOC_IN_CANCEL, .request.token = token);
    to_kubelet.from = to_kubelet.to;
    for (int n = 1; n <= numbers; n++)
        for (int i = 0; i < SLOTS; i++) {
            struct wpod *p = &pods[i];
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
                send(&to_kubelet, i, false);
            } else {
                p->in_kubelet = true; /* terminal */
            }
        }
    rebuild_in_use();
    restarts++;
    FEED(.type = ALLOC_IN_KUBELET_STARTED);
}

/* Another client of podresources calls List. */
static void forget_ids_in_flight(void)
{
    if (request != ALLOCATING)
        return;
    rebuild_in_use();
    forgot = true;
}

static void event(void)
{
    int slot = below(SLOTS), what = below(1000);
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
        pass(below(faults ? 400 : 40));
    else if (what < 980 && faults)
        forget_ids_in_flight();
    else if (what < 985 && faults)
        restart_plugin();
    else if (what < 988 && faults)
        restart_kubelet();
}

static void run(int seed)
{
    rng_init(&rng, (uint64_t)seed);
    rig.seed = seed;
    rig.now = (struct step_time){1000000, 1700000000000000000};
    memset(pods, 0, sizeof pods);
    numbers = 0;
    to_plugin.from = to_plugin.to = to_kubelet.from = to_kubelet.to = 0;
    in_use = token = 0;
    forgot = false;
    admitting = -1;
    request = IDLE;
    buf_clear(&file);
    has_get = chance(60);
    start_plugin(true);
    for (rig.step = 0; rig.step < 3000; rig.step++)
        event();
}

static void run_seeds(bool with_faults)
{
    struct arena ids = {0};
    rig.carry_out = carry_out;
    faults = with_faults;
    allocated = rejected = restarts = 0;
    for (int i = 0; i < IDS; i++) {
        char uuid[] = {'G', 'P', 'U', '-', (char)('0' + i / PER_CARD), '\0'};
        int unit = i % PER_CARD;
        texts[i] = unit <= UNITS
                       ? id_of(&ids, unit == UNITS ? IDS_COUNT : IDS_MEM, span_of(uuid),
                               unit == UNITS ? -1 : unit)
                       : id_of(&ids, IDS_SHARE, span_of(uuid), unit - UNITS - 1);
    }
    for (int seed = 1; seed <= SEEDS; seed++)
        run(seed);
    printf("%d seeds: %d allocations, %d rejected, %d restarts\n", SEEDS, allocated,
           rejected, restarts);
    ck_assert_int_gt(allocated, SEEDS * 30);
    ck_assert(faults ? rejected > 0 && restarts > 0 : rejected > 0);
    end_alloc();
    arena_fini(&ids);
    buf_fini(&file);
}

TEST(no_container_gets_another_card_under_faults)
{
    run_seeds(true);
}

TEST(no_request_is_rejected_without_faults)
{
    run_seeds(false);
}

UNIT_MAIN(300)
