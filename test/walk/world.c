/* SPDX-License-Identifier: Apache-2.0 */
#include "walk/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "walk/heap.h"

/*
 * The API server, the network and the processes. The assumptions about the network are
 * those of docs/architecture.md, "What a Binding can take": a Binding leaves before
 * send_by.mono_ms, arrives within CORE_DELIVERY_MS and is applied within CORE_SERVER_MS,
 * or never. A Binding that was sent survives its process.
 */

enum {
    CARD_UNITS = 8,
    POD_UNITS = 5, /* of a card that takes only one such pod */
    POD_CORE = 60, /* percent of its compute */
    /* Time limits of the calls, as in apisync/apisync.c. */
    BIND_GIVE_UP_MS = 1000 + CORE_BIND_LIMIT_MS + 500,
    GET_GIVE_UP_MS = 5000,
    LIST_GIVE_UP_MS = 5000,
    NO_LIMIT_MS =
        10 * 1000, /* when a Binding without send_by.mono_ms leaves at the latest */
    SETTLE_MS = 60 * 1000,
    FIRST_VERSION = 100,
    TEXT = 2048,
};
#define WALL_BASE_MS 1700000000000
#define CARD(i, kind, more)                                                              \
    "{'id':" #i ",'health':'Healthy','model':'A100','uuid':'" kind "-" #i                \
    "','totalMemory':8,'freeMemory':8," more "}" /* CARD_UNITS */

const char *const uids[WALK_PODS] = {"A", "B"};

static void step(struct world *w, int proc, struct core_input in);
#define STEP(w, proc, ...) step(w, proc, (struct core_input){__VA_ARGS__})

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void violated(struct world *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void violated(struct world *w, const char *fmt, ...)
{
    if (w->violation[0])
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(w->violation, sizeof w->violation, fmt, ap);
    va_end(ap);
}

static struct step_time now_of(const struct world *w)
{
    return (struct step_time){w->now_ms, (WALL_BASE_MS + w->now_ms) * 1000000};
}

static int cards_of(const struct world *w)
{
    return w->linked ? 2 : 1;
}

/* Objects: JSON of an API server, parsed by the readers of the program */

static struct jread reader(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static struct jread reader(struct arena *a, const char *fmt, ...)
{
    char text[TEXT];
    struct jread j;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *c = text; *c; c++)
        if (*c == '\'')
            *c = '"';
    struct span copy = arena_copy(a, span_of(text));
    jread_init(&j, copy.p, copy.n);
    return j;
}

/* The Binding's annotations are merged into the pod's own. */
static struct pod pod_object(struct arena *a, const struct world *w, int i, bool bound)
{
    struct pod pod;
    char core[TEXT] = "";
    if (!w->linked)
        snprintf(core, sizeof core, ",'" KEY_GPU_CORE "':'%d'", POD_CORE);
    struct jread j = reader(
        a,
        "{'metadata':{'namespace':'default','name':'pod-%s','uid':'%s','annotations':"
        "{%s%s%s},'spec':{%s'containers':[{'resources':{'limits':{'" KEY_GPU_MEM
        "':'%d'%s}}}]}}",
        uids[i], uids[i],
        w->linked ? "'" KEY_GPU_COUNT "':'2','" KEY_MIN_LINK "':'NV'" : "",
        w->linked && bound ? "," : "", bound ? w->pods[i].annotations + 1 : "}",
        bound ? "'nodeName':'n0'," : "", POD_UNITS * cards_of(w), core);
    pod_read(&j, a, &pod);
    must(!jread_finish(&j, NULL));
    return pod;
}

static struct node node_object(struct arena *a, const struct world *w)
{
    struct node node;
    int n = cards_of(w), units = CARD_UNITS * n;
    struct jread j =
        reader(a,
               "{'metadata':{'name':'n0'},'status':{'capacity':{'" KEY_GPU_MEM
               "':'%d','" KEY_GPU_COUNT "':'%d','" KEY_GPU_CORE "':'100'},"
               "'allocatable':{'" KEY_GPU_MEM "':'%d','" KEY_GPU_COUNT "':'%d'}}}",
               units, n, units, n);
    node_read(&j, a, &node);
    must(!jread_finish(&j, NULL));
    return node;
}

/* The process sees the cards in this state. */
static void show_cards(struct world *w, int proc, enum cards cards)
{
    static const char *const lists[CARDS] = {
        [CARDS_CONNECTED] =
            CARD(0, "GPU", "'links':'X NV2'") "," CARD(1, "GPU", "'links':'NV2 X'"),
        [CARDS_APART] =
            CARD(0, "GPU", "'links':'X SYS'") "," CARD(1, "GPU", "'links':'SYS X'"),
        [CARDS_SPLIT] =
            CARD(0, "MIG", "'migProfile':'1g.5gb','parentUUID':'GPU-0'") "," CARD(
                1, "GPU", "'links':''"),
    };
    cleanup_arena struct arena a = {0};
    struct scv scv;
    struct jread j =
        reader(&a, "{'metadata':{'name':'n0'},'status':{'cardList':[%s]}}", lists[cards]);
    scv_read(&j, &a, &scv);
    must(!jread_finish(&j, NULL));
    w->procs[proc].cards = cards;
    STEP(w, proc, .type = CORE_OBJECT, .kind = CORE_SCVS, .run = w->procs[proc].scv_run,
         .scv = &scv);
}

static struct span number(char text[TEXT], int64_t n)
{
    snprintf(text, TEXT, "%lld", (long long)n);
    return span_of(text);
}

/* The server */

static void add_event(struct world *w, int pod, int what)
{
    must(w->n_events < WALK_EVENTS);
    w->events[w->n_events].pod = pod;
    w->events[w->n_events++].what = what;
}

static void create(struct world *w, int pod)
{
    w->pods[pod].created = w->pods[pod].exists = true;
    add_event(w, pod, EVENT_ADDED);
}

/* The independent sum over live bound pods; each of them must name the card. */
static void check_card(struct world *w)
{
    int used = 0;
    for (int i = 0; i < WALK_PODS; i++) {
        const struct walk_pod *p = &w->pods[i];
        if (!p->exists || !p->bound)
            continue;
        used += POD_UNITS;
        if (!p->annotations ||
            !strstr(p->annotations,
                    w->linked ? KEY_ALLOCATION : "\"" KEY_MEM_IDX "\":\"0\""))
            violated(w, "pod %s is bound without a card", uids[i]);
    }
    if (used > CARD_UNITS)
        violated(w, "the card is overcommitted: %d units, %d promised", CARD_UNITS, used);
}

static enum err_code apply_bind(struct world *w, struct message *m)
{
    struct walk_pod *p = &w->pods[m->pod];
    if (!p->exists)
        return ERR_NOT_FOUND;
    if (p->bound)
        return ERR_CONFLICT;
    p->bound = p->was_bound = true;
    p->annotations = steal(&m->annotations);
    add_event(w, m->pod, EVENT_BOUND);
    if (m->denied)
        violated(w, "pod %s is bound after the reply that it is not", uids[m->pod]);
    check_card(w);
    return ERR_NONE;
}

static enum err_code apply_lease(struct world *w, const struct message *m)
{
    if (w->lease.absent && !m->create)
        return ERR_NOT_FOUND;
    if (!w->lease.absent && (m->create || m->wants.version != w->lease.version))
        return ERR_CONFLICT; /* it exists; or it has changed */
    int64_t version = w->lease.version + 1, object = w->lease.object + m->create;
    w->lease = m->wants;
    w->lease.version = version;
    w->lease.object = object;
    return ERR_NONE;
}

/* The request arrives at the server and takes effect at once. */
static void arrive(struct world *w, struct message *m)
{
    struct answer *a = &m->answer;
    m->way = WAY_BACK;
    if (m->type == MSG_BIND)
        a->code = apply_bind(w, m);
    else if (m->type == MSG_LEASE_WRITE)
        a->code = apply_lease(w, m);
    else if (m->type == MSG_LEASE_GET)
        a->code = w->lease.absent ? ERR_NOT_FOUND : ERR_NONE;
    else if (m->type == MSG_GET)
        a->code = w->pods[m->pod].exists ? ERR_NONE : ERR_NOT_FOUND;
    memcpy(a->pods, w->pods, sizeof a->pods);
    a->events = w->n_events;
    a->lease = w->lease;
}

/* Messages */

static void drop(struct message *m)
{
    free(m->annotations);
    *m = (struct message){0};
}

/* Messages without a waiting caller and without further effect. */
static void drop_dead(struct world *w)
{
    EACH_MESSAGE(m, w)
    if (!m->waiting &&
        (m->way != WAY_OUT || (m->type != MSG_BIND && m->type != MSG_LEASE_WRITE)))
        drop(m);
}

static struct message *post(struct world *w, enum message_type type, int proc,
                            uint64_t call, int64_t limit_ms)
{
    struct message *m = w->messages;
    while (m->type)
        must(++m < w->messages + WALK_MESSAGES);
    *m = (struct message){.type = type,
                          .waiting = true,
                          .proc = proc,
                          .life = w->procs[proc].lives,
                          .call = call,
                          .arrive_by_ms = w->now_ms + limit_ms,
                          .give_up_ms = w->now_ms + limit_ms};
    return m;
}

static void answer_list(struct world *w, int proc, uint64_t run, const struct answer *a)
{
    cleanup_arena struct arena arena = {0};
    char version[TEXT];
    for (int i = 0; i < WALK_PODS; i++) {
        if (!a->pods[i].exists)
            continue;
        struct pod pod = pod_object(&arena, w, i, a->pods[i].bound);
        STEP(w, proc, .type = CORE_OBJECT, .kind = CORE_PODS, .run = run, .pod = &pod);
    }
    STEP(w, proc, .type = CORE_LIST_ENDED, .kind = CORE_PODS, .run = run,
         .version = number(version, FIRST_VERSION + a->events));
}

/* The caller gets the answer, or the failure. */
static void tell(struct world *w, struct message *m, enum err_code lost, bool not_sent)
{
    cleanup_arena struct arena arena = {0};
    const struct message was = *m;
    const struct answer *a = &was.answer;
    struct err err = {.code = lost ? lost : a->code};
    struct core_input in = {.type = CORE_ANSWER,
                            .call = was.call,
                            .not_sent = not_sent,
                            .err = err.code ? &err : NULL,
                            .retry_after_ms = -1};
    struct pod pod;
    struct lease lease;
    char version[TEXT], uid[TEXT];
    snprintf(err.msg, sizeof err.msg, "%s", err_code_name(err.code));
    m->waiting = false;
    drop_dead(w);
    if (was.type == MSG_LIST && !err.code) {
        answer_list(w, was.proc, was.call, a);
        return;
    }
    if (was.type == MSG_LIST) {
        in.type = CORE_LIST_FAILED;
        in.kind = CORE_PODS;
        in.run = in.call;
    } else if (was.type == MSG_GET && !err.code) {
        pod = pod_object(&arena, w, was.pod, a->pods[was.pod].bound);
        in.pod = &pod;
    } else if (is_lease(&was) && !err.code) {
        lease = (struct lease){.meta.version = number(version, a->lease.version),
                               .meta.uid = number(uid, a->lease.object),
                               .holder = span_of(a->lease.holder),
                               .duration_s = a->lease.duration_s,
                               .transitions = a->lease.transitions,
                               .renew_time = span_of(a->lease.renew),
                               .acquire_time = span_of(a->lease.acquire)};
        in.lease = &lease;
    }
    step(w, was.proc, in);
}

/* The request is applied and answered at once. */
static void pass(struct world *w, struct message *m)
{
    m->deciding = false;
    arrive(w, m);
    tell(w, m, ERR_NONE, false);
}

/* Outputs of a core */

static void keep(char *to, size_t n, struct span s)
{
    must(s.n < n);
    memcpy(to, s.p ? s.p : "", s.n);
    to[s.n] = '\0';
}

static void read_wanted(struct walk_lease *to, const char *body)
{
    cleanup_arena struct arena a = {0};
    struct lease lease;
    struct jread j = reader(&a, "%s", body);
    lease_read(&j, &a, &lease);
    must(!jread_finish(&j, NULL));
    must(!lease.meta.version.n || span_i64(lease.meta.version, &to->version));
    keep(to->holder, sizeof to->holder, lease.holder);
    keep(to->renew, sizeof to->renew, lease.renew_time);
    keep(to->acquire, sizeof to->acquire, lease.acquire_time);
    to->duration_s = lease.duration_s;
    to->transitions = lease.transitions;
}

static void lease_call(struct world *w, int proc, const struct core_output *o)
{
    bool write = o->type == CORE_CALL_LEASE_WRITE;
    struct message *m =
        post(w, write ? MSG_LEASE_WRITE : MSG_LEASE_GET, proc, o->call, o->limit_ms);
    m->create = o->create;
    if (write)
        read_wanted(&m->wants, o->body);
    if (w->procs[proc].lease_cut && !w->calm)
        m->way = WAY_LOST;
    else if (w->left.n[DO_LEASE_HOLD] || w->left.n[DO_LEASE_CUT])
        m->deciding = true;
    else
        pass(w, m);
}

static void bind_call(struct world *w, int proc, const struct core_output *o)
{
    struct message *m = post(w, MSG_BIND, proc, o->call, 0);
    m->pod = o->uid[0] - 'A';
    if (w->procs[proc].cards != CARDS_CONNECTED)
        violated(w, "pod %s gets cards that are not connected", uids[m->pod]);
    m->send_by_ms = o->send_by.mono_ms ? o->send_by.mono_ms : w->now_ms + NO_LIMIT_MS;
    m->arrive_by_ms = m->send_by_ms + CORE_BIND_LIMIT_MS;
    m->give_up_ms = m->send_by_ms + BIND_GIVE_UP_MS;
    heap_on(true);
    m->annotations = o->annotations ? xstrdup(o->annotations) : NULL;
    heap_on(false);
}

static void reply(struct world *w, const struct core_output *o)
{
    struct ask *ask = &w->asks[o->token];
    struct walk_pod *p = &w->pods[ask->pod];
    if (!ask->waits)
        violated(w, "a bind of pod %s got two replies", uids[ask->pod]);
    ask->waits = false;
    if (o->code == ERR_NONE) {
        if (!p->was_bound)
            violated(w, "the reply says that pod %s is bound; it is not", uids[ask->pod]);
        return;
    }
    /* Here every error means: not bound, now and later. */
    EACH_MESSAGE(m, w)
    if (m->type == MSG_BIND && m->pod == ask->pod && m->proc == ask->proc &&
        m->life == w->procs[ask->proc].lives)
        m->denied = true;
}

/* A list or watch of any kind but pods: one Node, its Scv, or nothing. */
static void other_kind(struct world *w, int proc, const struct core_output *o)
{
    cleanup_arena struct arena a = {0};
    if (o->kind == CORE_SCVS)
        w->procs[proc].scv_run = o->run;
    if (o->type == CORE_WATCH)
        return;
    if (o->kind == CORE_SCVS && w->linked)
        show_cards(w, proc, w->procs[proc].cards);
    if (o->kind == CORE_NODES) {
        struct node node = node_object(&a, w);
        STEP(w, proc, .type = CORE_OBJECT, .kind = o->kind, .run = o->run, .node = &node);
    }
    STEP(w, proc, .type = CORE_LIST_ENDED, .kind = o->kind, .run = o->run,
         .version = SPAN("1"));
}

static void say(const struct world *w, int proc, const struct core_output *o)
{
    static const char *const words[] = {[CORE_LIST] = "lists",
                                        [CORE_WATCH] = "watches",
                                        [CORE_CALL_BIND] = "sends a Binding",
                                        [CORE_CALL_GET_POD] = "sends a GET",
                                        [CORE_CALL_LEASE_GET] = "reads the Lease",
                                        [CORE_CALL_LEASE_WRITE] = "writes the Lease",
                                        [CORE_CALL_WAKEUP] = "wakes up kube-scheduler",
                                        [CORE_REPLY] = "replies to the bind",
                                        [CORE_RESERVED] = "reserves"};
    if (!w->verbose || (o->kind && o->kind != CORE_PODS))
        return;
    const char *uid = o->uid                  ? o->uid
                      : o->type == CORE_REPLY ? uids[w->asks[o->token].pod]
                                              : "";
    printf("                %s %s %s%s%s\n", w->procs[proc].identity, words[o->type], uid,
           o->type == CORE_REPLY ? o->code ? ": " : ": success" : "",
           o->text ? o->text : "");
}

static void carry_out(struct world *w, int proc, const struct core_output *o)
{
    struct proc *p = &w->procs[proc];
    struct message *m;
    say(w, proc, o);
    switch (o->type) {
    case CORE_LIST:
    case CORE_WATCH:
        if (o->kind != CORE_PODS) {
            other_kind(w, proc, o);
        } else if (o->type == CORE_LIST) {
            EACH_MESSAGE(old, w) /* one at a time */
            if (old->type == MSG_LIST && old->proc == proc)
                drop(old);
            post(w, MSG_LIST, proc, o->run, LIST_GIVE_UP_MS);
            p->list_run = o->run;
            p->watching = false;
        } else {
            p->watching = true;
            p->watch_run = o->run;
            p->next_event = atoi(o->version) - FIRST_VERSION;
        }
        break;
    case CORE_CALL_BIND:
        bind_call(w, proc, o);
        break;
    case CORE_CALL_GET_POD:
        m = post(w, MSG_GET, proc, o->call, GET_GIVE_UP_MS);
        m->pod = o->uid[0] - 'A';
        break;
    case CORE_CALL_LEASE_GET:
    case CORE_CALL_LEASE_WRITE:
        lease_call(w, proc, o);
        break;
    case CORE_CALL_WAKEUP:
        STEP(w, proc, .type = CORE_ANSWER, .call = o->call);
        break;
    case CORE_REPLY:
        reply(w, o);
        break;
    case CORE_CALL_NOMINATE: /* layout preemption is off */
    case CORE_CALL_EVICT:
    case CORE_RESERVED:
        break;
    }
}

static void step(struct world *w, int proc, struct core_input in)
{
    struct core *core = w->procs[proc].core;
    struct step_outputs out = {0};
    heap_on(true);
    core_step(core, now_of(w), &in, &out);
    heap_on(false);
    for (size_t i = 0; w->verbose && i < out.n_lines; i++)
        printf("                %s logs %s\n", w->procs[proc].identity,
               out.lines[i].text);
    STEP_EACH(struct core_output, o, &out)
    carry_out(w, proc, o);
    heap_on(true);
    step_outputs_fini(&out);
    arena_fini(&core->scratch); /* a large block, unused between steps */
    heap_on(false);
}

/* Processes */

static void start(struct world *w, int proc)
{
    struct proc *p = &w->procs[proc];
    snprintf(p->identity, sizeof p->identity, "%c%d", 'p' + proc, ++p->lives % 10);
    struct core_settings settings = {
        .ledger = {.unit_mib = 1, .external_tolerance_mib = 1024},
        .identity = p->identity,
        .lease_namespace = "kube-system",
        .lease_name = "gpushare-extender",
        .lease_ms = w->lease_ms[proc],
        .seed = 1,
    };
    heap_on(true);
    p->core = core_new(&settings);
    heap_on(false);
    p->lease_cut = p->watching = false;
    STEP(w, proc, .type = CORE_TICK);
}

/* An unsent request is never sent. */
static void stop_sending(const struct world *w, struct message *m)
{
    if (m->arrive_by_ms > w->now_ms + CORE_BIND_LIMIT_MS)
        m->arrive_by_ms = w->now_ms + CORE_BIND_LIMIT_MS;
}

static void crash(struct world *w, int proc)
{
    struct proc *p = &w->procs[proc];
    heap_on(true);
    core_free(p->core);
    heap_on(false);
    p->core = NULL;
    p->watching = false;
    EACH_MESSAGE(m, w)
    if (m->proc == proc) {
        m->waiting = m->deciding = false;
        if (m->type == MSG_BIND)
            stop_sending(w, m);
    }
    for (int i = 0; i < w->n_asks; i++)
        if (w->asks[i].proc == proc)
            w->asks[i].waits = false;
    drop_dead(w);
}

static void event(struct world *w, int proc)
{
    cleanup_arena struct arena a = {0};
    struct proc *p = &w->procs[proc];
    const struct walk_event *e = &w->events[p->next_event++];
    char version[TEXT];
    bool deleted = e->what == EVENT_DELETED; /* has the last state of the pod */
    struct pod pod = pod_object(&a, w, e->pod,
                                deleted ? w->pods[e->pod].bound : e->what == EVENT_BOUND);
    STEP(w, proc, .type = CORE_OBJECT, .kind = CORE_PODS, .run = p->watch_run,
         .pod = &pod, .deleted = deleted,
         .version = number(version, FIRST_VERSION + p->next_event));
    if (core_due(p->core) <= w->now_ms)
        STEP(w, proc, .type = CORE_TICK);
}

static void ask(struct world *w, int pod, int proc)
{
    static const struct span names[WALK_PODS] = {{"pod-A", 5}, {"pod-B", 5}};
    must(w->n_asks < WALK_TOKENS);
    w->asks[w->n_asks] = (struct ask){true, proc, pod};
    w->left.asks[pod]--;
    STEP(w, proc, .type = CORE_BIND, .token = (uint64_t)w->n_asks++,
         .ns = SPAN("default"), .name = names[pod], .uid = span_of(uids[pod]),
         .node_name = SPAN("n0"));
}

/* Time */

static void earlier(int64_t *to, int64_t now, int64_t t)
{
    if (t > now && t < *to)
        *to = t;
}

/* The next time at which anything changes. */
static int64_t next_moment(const struct world *w)
{
    int64_t next = w->now_ms + 1000;
    for (int i = 0; i < WALK_PROCS; i++)
        if (w->procs[i].core)
            earlier(&next, w->now_ms, core_due(w->procs[i].core));
    EACH_MESSAGE(m, w)
    {
        if (m->way == WAY_OUT)
            earlier(&next, w->now_ms, m->arrive_by_ms);
        if (m->waiting)
            earlier(&next, w->now_ms, m->give_up_ms);
    }
    return next;
}

static void pass_time(struct world *w)
{
    w->now_ms = next_moment(w);
    EACH_MESSAGE(m, w)
    {
        if (m->way == WAY_OUT && m->arrive_by_ms < w->now_ms)
            m->way = WAY_LOST;
        if (m->waiting && m->give_up_ms <= w->now_ms)
            tell(w, m, ERR_TIMEOUT, false);
    }
    drop_dead(w);
    for (int i = 0; i < WALK_PROCS; i++)
        if (w->procs[i].core && core_due(w->procs[i].core) <= w->now_ms)
            STEP(w, i, .type = CORE_TICK);
}

/* Choices */

struct menu {
    const struct world *w;
    struct choice *choices;
    int n;
};

static void offer(struct menu *menu, enum what what, int a, int b)
{
    if (what >= LIMITED && !menu->w->left.n[what])
        return;
    must(menu->n < WALK_CHOICES);
    menu->choices[menu->n++] = (struct choice){what, a, b};
}

int world_choices(const struct world *w, struct choice choices[WALK_CHOICES])
{
    struct menu menu = {w, choices, 0};
    EACH_MESSAGE(m, w)
    if (m->deciding) {
        for (enum what what = DO_LEASE_THROUGH; what <= DO_LEASE_CUT; what++)
            offer(&menu, what, (int)(m - w->messages), 0);
        return menu.n;
    }
    offer(&menu, DO_CREATE, 0, 0);
    if (w->pods[0].exists)
        offer(&menu, DO_DELETE, 0, 0);
    if (!w->lease.absent)
        offer(&menu, DO_DELETE_LEASE, 0, 0);
    EACH_MESSAGE(m, w)
    {
        int i = (int)(m - w->messages);
        if (m->way == WAY_OUT)
            offer(&menu, DO_ARRIVE, i, 0);
        if (m->way == WAY_BACK && m->waiting)
            offer(&menu, DO_ANSWER, i, 0);
        if (m->waiting && !is_lease(m))
            offer(&menu, DO_CUT, i, 0);
        if (m->waiting && m->type == MSG_BIND && m->way == WAY_OUT &&
            w->now_ms <= m->send_by_ms)
            offer(&menu, DO_UNSENT, i, 0);
    }
    for (int p = 0; p < WALK_PROCS; p++) {
        const struct proc *proc = &w->procs[p];
        for (int i = 0; i < WALK_PODS && proc->core; i++)
            if (w->pods[i].created && w->left.asks[i])
                offer(&menu, DO_ASK, i, p);
        if (proc->watching && proc->next_event < w->n_events)
            offer(&menu, DO_EVENT, p, 0);
        if (proc->watching)
            offer(&menu, DO_GONE, p, 0);
        for (int i = 0; i < CARDS && proc->core; i++)
            if (i != (int)proc->cards)
                offer(&menu, DO_SCV, p, i);
        if (proc->core)
            offer(&menu, DO_CRASH, p, 0);
        else if (proc->lives)
            offer(&menu, DO_START, p, 0);
    }
    if (w->now_ms < w->left.end_ms)
        offer(&menu, DO_TIME, 0, 0);
    return menu.n;
}

void world_take(struct world *w, struct choice c)
{
    static const struct err gone = {ERR_GONE, "too old"};
    struct message *m = &w->messages[c.a];
    if (c.what >= LIMITED)
        w->left.n[c.what]--;
    switch (c.what) {
    case DO_CREATE:
        create(w, c.a);
        break;
    case DO_DELETE:
        w->pods[c.a].exists = false;
        add_event(w, c.a, EVENT_DELETED);
        break;
    case DO_DELETE_LEASE:
        w->lease.absent = true;
        break;
    case DO_ASK:
        ask(w, c.a, c.b);
        break;
    case DO_ARRIVE:
        arrive(w, m);
        drop_dead(w);
        break;
    case DO_ANSWER:
        tell(w, m, ERR_NONE, false);
        break;
    case DO_CUT:
        stop_sending(w, m);
        tell(w, m, ERR_UNAVAILABLE, false);
        break;
    case DO_UNSENT:
        m->way = WAY_LOST;
        tell(w, m, ERR_UNAVAILABLE, true);
        break;
    case DO_EVENT:
        event(w, c.a);
        break;
    case DO_GONE:
        w->procs[c.a].watching = false;
        STEP(w, c.a, .type = CORE_WATCH_ENDED, .kind = CORE_PODS,
             .run = w->procs[c.a].watch_run, .err = &gone, .retry_after_ms = -1);
        break;
    case DO_SCV:
        show_cards(w, c.a, (enum cards)c.b);
        break;
    case DO_CRASH:
        crash(w, c.a);
        break;
    case DO_START:
        start(w, c.a);
        break;
    case DO_LEASE_THROUGH:
        pass(w, m);
        break;
    case DO_LEASE_HOLD:
        m->deciding = false;
        break;
    case DO_LEASE_CUT:
        m->deciding = false;
        m->way = WAY_LOST;
        w->procs[m->proc].lease_cut = true;
        break;
    default:
        pass_time(w);
    }
}

/* In capitals: L the state of the cards, M the message and its sender, P the pod, E the pod of
 * the next event, X the process, Y the one that is called. */
void world_describe(const struct world *w, struct choice c)
{
    static const char *const words[] = {
        [DO_CREATE] = "pod P is created",
        [DO_DELETE] = "pod P is deleted",
        [DO_DELETE_LEASE] = "the lease is deleted by hand",
        [DO_ASK] = "bind of Y for pod P is called by kube-scheduler",
        [DO_ARRIVE] = "M arrives and is applied",
        [DO_ANSWER] = "M is answered",
        [DO_CUT] = "M loses its connection",
        [DO_UNSENT] = "M could not be sent",
        [DO_EVENT] = "the next event, of pod E, is delivered to X",
        [DO_GONE] = "the watch of X breaks: version expired",
        [DO_SCV] = "X sees the cards L",
        [DO_CRASH] = "X crashes",
        [DO_START] = "the successor of X starts",
        [DO_LEASE_THROUGH] = "M is applied and answered at once",
        [DO_LEASE_HOLD] = "M is delayed",
        [DO_LEASE_CUT] = "M and all later ones are lost",
        [DO_TIME] = "time passes",
    };
    static const char *const types[] = {[MSG_BIND] = "Binding of pod ",
                                        [MSG_GET] = "GET of pod ",
                                        [MSG_LIST] = "list of pods",
                                        [MSG_LEASE_GET] = "read of the Lease",
                                        [MSG_LEASE_WRITE] = "write of the Lease"};
    static const char *const states[] = {[CARDS_CONNECTED] = "connected",
                                         [CARDS_APART] = "apart",
                                         [CARDS_SPLIT] = "split"};
    const struct message *m = &w->messages[c.a];
    for (const char *text = words[c.what]; *text; text++)
        if (*text == 'M')
            printf("the %s%s by %c%d", types[m->type],
                   m->type <= MSG_GET ? uids[m->pod] : "", 'p' + m->proc, m->life);
        else if (*text == 'P')
            printf("%s", uids[c.a]);
        else if (*text == 'L')
            printf("%s", states[c.b]);
        else if (*text == 'E')
            printf("%s", uids[w->events[w->procs[c.a].next_event].pod]);
        else if (*text == 'X' || *text == 'Y')
            printf("%s", w->procs[*text == 'X' ? c.a : c.b].identity);
        else
            putchar(*text);
    putchar('\n');
}

/* Rest */

bool world_at_rest(const struct world *w)
{
    EACH_MESSAGE(m, w)
    {
        return false;
    }
    for (int p = 0; p < WALK_PROCS; p++) {
        const struct proc *proc = &w->procs[p];
        if (proc->core && (!proc->watching || proc->next_event < w->n_events ||
                           core_stats(proc->core).binds_in_flight))
            return false;
    }
    return true;
}

static void compare_pod(struct world *w, const struct proc *p, int i)
{
    const struct walk_pod *pod = &w->pods[i];
    const struct ledger_pod *known =
        ledger_pod_find(core_ledger(p->core), span_of(uids[i]));
    if (pod->exists != (known != NULL))
        violated(w, "%s %s pod %s, which %s", p->identity, known ? "still has" : "lacks",
                 uids[i], pod->exists ? "exists" : "is deleted");
    else if (known && pod->bound != (known->node != NULL))
        violated(w, "%s has pod %s as %s, unlike the API", p->identity, uids[i],
                 known->node ? "bound" : "pending");
}

void world_compare(struct world *w)
{
    for (int i = 0; i < w->n_asks; i++)
        if (w->asks[i].waits)
            violated(w, "a bind of pod %s never gets a reply", uids[w->asks[i].pod]);
    for (int p = 0; p < WALK_PROCS; p++) {
        const struct proc *proc = &w->procs[p];
        if (!proc->core)
            continue;
        int64_t used = 0;
        for (int i = 0; i < WALK_PODS; i++) {
            compare_pod(w, proc, i);
            used += w->pods[i].exists && w->pods[i].bound ? POD_UNITS : 0;
        }
        const struct ledger_node *node =
            ledger_node_find(core_ledger(proc->core), SPAN("n0"));
        if (node && !w->linked &&
            node->cards[0].compute_promised != used / POD_UNITS * POD_CORE)
            violated(w, "%s counts %u percent of compute for %lld units", proc->identity,
                     node->cards[0].compute_promised, (long long)used);
        if (!node || node->n_cards != (unsigned)cards_of(w))
            violated(w, "%s lacks the node or a card", proc->identity);
        for (int i = 0; node && i < cards_of(w) && i < node->n_cards; i++) {
            const struct card *card = &node->cards[i];
            if (card->promised_mib != (card->kind->profile.n ? 0 : used))
                violated(w, "%s counts %lld units on card %d, the API has %lld",
                         proc->identity, (long long)card->promised_mib, i,
                         (long long)used);
        }
    }
}

/* Takes the first choice until rest; time passes only if nothing else is possible. */
static void go_on(struct world *w)
{
    struct choice choices[WALK_CHOICES];
    while (!world_at_rest(w) && !w->violation[0] && world_choices(w, choices))
        world_take(w, choices[0]);
}

void world_settle(struct world *w)
{
    w->calm = true;
    w->left = (struct scenario){.end_ms = w->now_ms + SETTLE_MS};
    EACH_MESSAGE(m, w)
    if (m->deciding)
        pass(w, m);
    go_on(w);
    if (!world_at_rest(w))
        violated(w, "no rest within %d s", SETTLE_MS / 1000);
    else
        world_compare(w);
}

void world_begin(struct world *w, const struct scenario *s)
{
    *w = (struct world){
        .linked = s->linked, .now_ms = 1000000, .lease = {.version = 1}, .calm = true};
    memcpy(w->lease_ms, s->lease_ms, sizeof w->lease_ms);
    if (!s->n[DO_CREATE])
        create(w, 0);
    create(w, 1);
    start(w, 0);
    go_on(w);
    if (s->standby)
        start(w, 1);
    go_on(w);
    must(core_is_leader(w->procs[0].core) && world_at_rest(w));
    w->calm = false;
    w->left = *s;
    w->left.end_ms += w->now_ms;
}

void world_free(struct world *w)
{
    for (int i = 0; i < WALK_PROCS; i++)
        if (w->procs[i].core)
            crash(w, i);
    EACH_MESSAGE(m, w)
    drop(m);
    for (int i = 0; i < WALK_PODS; i++)
        free(w->pods[i].annotations);
}
