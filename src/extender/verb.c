/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verb.h"

#include <stdlib.h>

#include "base/mem.h"
#include "extender/tried.h"

/* What the verbs share: their bodies and limits, working memory, errors, scores of candidates. */

enum {
    /* Working memory that is kept after a call: that of one call, if no other is kept; else of
     * all together. */
    KEEP_BYTES = 4 << 20,
    KEEP_ALL_BYTES = 2 << 20,
    REPORT_MS = 1000, /* to report a rejected pod to the leader */
    /* A container with a limit has at least 46 bytes. It takes 88 in an array that doubles,
     * and 32 in the parts of the request. (The CPU and memory of containers take 53 KiB at
     * most, whatever the pod, which are not counted.) */
    POD_COST = 5,
    NODES_MORE = 1000, /* candidates beyond twice the known nodes */
};

struct verbs *verbs_new(const struct verbs_config *config)
{
    struct verbs *v = xcalloc(1, sizeof *v);
    v->config = *config;
    v->rules =
        ledger_rules(ledger_settings(core_ledger(core_driver_read(config->driver))));
    core_driver_read_end(config->driver);
    pthread_mutex_init(&v->lock, NULL);
    v->tried = tried_new();
    if (config->forward)
        v->reports = forward_reports_start(config->forward, config->budget, REPORT_MS);
    return v;
}

static void work_free(struct verb_work *w)
{
    arena_fini(&w->arena);
    free(w->args.nodes);
    buf_fini(&w->failed);
    buf_fini(&w->never);
    score_scratch_fini(&w->scratch);
    free(w->points);
    free(w->fitting);
    free(w);
}

void verbs_free(struct verbs *v)
{
    if (!v)
        return;
    forward_reports_free(v->reports);
    for (struct verb_work *w = v->free, *next; w; w = next) {
        next = w->next;
        work_free(w);
    }
    pthread_mutex_destroy(&v->lock);
    tried_free(v->tried);
    free(v);
}

static size_t work_bytes(const struct verb_work *w)
{
    return w->args.cap * sizeof *w->args.nodes + w->failed.cap + w->never.cap +
           w->points_cap * sizeof *w->points + w->fitting_cap * sizeof *w->fitting +
           w->scratch.cap * sizeof *w->scratch.values + arena_bytes(&w->arena);
}

void verb_end(struct verb_call *call)
{
    struct verbs *v = call->verbs;
    struct verb_work *w = call->work;
    size_t bytes = work_bytes(w);
    budget_give(v->config.budget, w->charged + w->charged_pod);
    w->charged = w->charged_pod = 0;
    arena_reset(&w->arena);
    buf_clear(&w->failed);
    buf_clear(&w->never);
    call->work = NULL;
    pthread_mutex_lock(&v->lock);
    bool keep =
        bytes <= KEEP_BYTES && (!v->free || v->kept_bytes + bytes <= KEEP_ALL_BYTES);
    if (keep) {
        v->kept_bytes += bytes;
        w->next = v->free;
        v->free = w;
    }
    pthread_mutex_unlock(&v->lock);
    if (!keep)
        work_free(w);
}

unsigned verb_error(struct buf *reply, unsigned status, const struct err *err)
{
    buf_clear(reply);
    buf_adds(reply, "{\"Error\":");
    buf_add_json(reply, span_of(err->msg));
    buf_addc(reply, '}');
    if (status)
        return status;
    return err->code == ERR_INVALID ? 400 : err_http_status(err->code);
}

unsigned verb_charge(struct verb_call *call, size_t more)
{
    struct err err;
    size_t bytes = work_bytes(call->work) + call->reply->cap + more;
    if (budget_change(call->verbs->config.budget, &call->work->charged, bytes))
        return 200;
    buf_fini(call->reply);
    err_set(&err, ERR_UNAVAILABLE, "too many bytes of requests and replies in memory");
    return verb_error(call->reply, 503, &err);
}

/* -- the body -- */

/* By what the ledger knows now. -1: not every kind of object has been listed. */
static int limits_now(struct verbs *v, struct verb_limits *limits, struct err *err)
{
    const struct core *core = core_driver_read(v->config.driver);
    int rc = core_ready(core, core_driver_now(), err);
    size_t known = ledger_totals(core_ledger(core)).nodes;
    core_driver_read_end(v->config.driver);
    *limits = (struct verb_limits){2 * known + NODES_MORE, known, v->config.budget};
    return rc;
}

int verb_too_many_nodes(const struct verb_limits *limits, struct err *err)
{
    return err_set(err, ERR_TOO_LARGE,
                   "too many nodes: expected at most %zu, twice the %zu nodes that are "
                   "known and %d",
                   limits->nodes, limits->nodes_known, NODES_MORE);
}

int verb_read_pod(struct jread *j, struct arena *a, struct budget *budget,
                  struct pod *pod, uint64_t *charged, struct err *err)
{
    size_t n = j->n, left = n - j->pos;
    if (left > VERB_POD_MAX)
        left = VERB_POD_MAX;
    if (!budget_take(budget, left * POD_COST))
        return err_set(err, ERR_UNAVAILABLE,
                       "too many bytes of requests and replies in memory");
    *charged += left * POD_COST;
    /* To the reader, a larger pod looks like an incomplete one. */
    j->part = left < n - j->pos;
    j->n = j->pos + left;
    pod_read(j, a, pod);
    j->n = n;
    j->part = false;
    if (j->state == JREAD_TRUNCATED)
        return err_set(err, ERR_TOO_LARGE, "Pod: expected at most %d MiB",
                       VERB_POD_MAX >> 20);
    return 0;
}

static void add_candidate(struct verb_reading *r, struct span raw, struct span name)
{
    struct verb_args *args = r->args;
    if (r->seen++ == r->limits->nodes) {
        r->failed = verb_too_many_nodes(r->limits, r->err) != 0;
        return;
    }
    MEM_GROW(args->nodes, args->cap, args->n + 1);
    args->nodes[args->n++] = (struct verb_candidate){raw, name};
}

static void add_name(struct verb_reading *r, const struct jread_str *name)
{
    struct span decoded = {name->p, name->n};
    /* A long list of names is nearly always one of plain names. */
    bool plain = name->plain && object_is_plain_name(decoded);
    if (!plain)
        decoded = jread_span(*name, r->a);
    if (plain || object_is_name(decoded))
        add_candidate(r, (struct span){name->p - 1, name->n + 2}, decoded);
    else
        jread_fail(&r->j, "NodeNames[]", "is not a valid node name");
}

static void read_names(struct verb_reading *r)
{
    struct jread *j = &r->j;
    struct jread_str names[32] = {0};
    bool more;
    r->args->n = 0;
    r->args->full = false;
    jread_array(j, "NodeNames");
    do {
        size_t n;
        while (!r->failed && (n = jread_strings(j, names, ARRAY_LEN(names))) > 0)
            for (size_t i = 0; i < n && !r->failed; i++)
                add_name(r, &names[i]);
        more = !r->failed && jread_item(j);
        if (more && jread_string(j, "NodeNames[]", &names[0]))
            add_name(r, &names[0]);
        else if (more)
            jread_fail(j, "NodeNames[]", "is not a valid node name");
    } while (more);
}

static void read_node(struct verb_reading *r)
{
    struct jread *j = &r->j;
    struct jread_str key;
    struct object_meta meta = {0};
    jread_peek(j); /* moves to the first byte of the object */
    const char *start = j->data + j->pos;
    jread_object(j, "Nodes.items[]");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "metadata"))
            object_meta_read(j, r->a, &meta, NULL, 0);
        else
            jread_skip(j);
        if (arena_bytes(r->a) > VERB_ARENA_MAX)
            r->failed = err_set(r->err, ERR_TOO_LARGE,
                                "Nodes.items[]: the names have more than %d MiB",
                                VERB_ARENA_MAX >> 20) != 0;
    }
    if (jread_check(j, NULL))
        return;
    object_meta_check(j, &meta);
    add_candidate(r, (struct span){start, (size_t)(j->data + j->pos - start)}, meta.name);
}

static void read_nodes(struct verb_reading *r)
{
    struct jread *j = &r->j;
    struct jread_str key;
    r->args->n = 0;
    r->args->full = true;
    jread_object(j, "Nodes");
    while (!r->failed && jread_member(j, &key)) {
        if (!jread_str_eq_nocase(key, SPAN("items"))) {
            jread_skip(j);
            continue;
        }
        r->args->n = 0;
        jread_array(j, "Nodes.items");
        while (!r->failed && jread_item(j))
            read_node(r);
    }
}

static bool read_candidates(struct verb_reading *r, struct jread_str key)
{
    bool names = jread_str_eq_nocase(key, SPAN("NodeNames"));
    if (names)
        read_names(r);
    else if (jread_str_eq_nocase(key, SPAN("Nodes")))
        read_nodes(r);
    else
        return false;
    return true;
}

const struct verb_body verb_candidates = {read_candidates,
                                          "NodeNames and Nodes are both missing"};

int verb_read_body(struct verb_call *call, const struct verb_body *body, void *ctx,
                   const struct verb_limits *limits, struct err *err)
{
    struct verb_args *args = &call->work->args;
    struct verb_reading r = {
        .a = &call->work->arena, .args = args, .limits = limits, .err = err, .ctx = ctx};
    struct jread_str key;
    bool has_pod = false, has_nodes = false;
    args->n = 0;
    args->invalid = (struct err){0};
    jread_init(&r.j, call->body.p, call->body.n);
    jread_object(&r.j, "body");
    while (!r.failed && jread_member(&r.j, &key)) {
        if (jread_peek(&r.j) == JREAD_NULL) {
            jread_skip(&r.j);
        } else if (jread_str_eq_nocase(key, SPAN("Pod"))) {
            r.failed = verb_read_pod(&r.j, r.a, limits->budget, &args->pod,
                                     &call->work->charged_pod, err) != 0;
            has_pod = true;
        } else if (body->member(&r, key)) {
            has_nodes = true;
        } else {
            jread_skip(&r.j);
        }
    }
    if (r.failed || jread_finish(&r.j, err))
        return -1;
    if (!has_pod)
        return err_set(err, ERR_INVALID, "Pod is missing");
    if (!has_nodes)
        return err_set(err, ERR_INVALID, "%s", body->missing);
    if (request_of(&args->pod, &call->verbs->rules, r.a, &args->request, &args->invalid))
        args->request.kind = REQUEST_NONE;
    return 0;
}

unsigned verb_read(struct verb_call *call, const struct verb_body *body, void *ctx)
{
    struct verbs *v = call->verbs;
    struct err err, not_ready;
    struct verb_limits limits;
    pthread_mutex_lock(&v->lock);
    struct verb_work *w = v->free;
    if (w) {
        v->free = w->next;
        v->kept_bytes -= work_bytes(w);
    }
    pthread_mutex_unlock(&v->lock);
    call->work = w ? w : xcalloc(1, sizeof *w);
    bool ready = limits_now(v, &limits, &not_ready) == 0;
    bool read = verb_read_body(call, body, ctx, &limits, &err) == 0;
    if (!read && (ready || err.code == ERR_INVALID))
        return verb_error(call->reply, 0, &err);
    if (!ready) /* also if there are more nodes than were listed so far */
        return verb_error(call->reply, 503, &not_ready);
    return verb_charge(call, 0);
}

size_t verb_find_nodes(const struct verb_args *args, const uint32_t *at, size_t i,
                       size_t end, const struct ledger *l,
                       const struct ledger_node *nodes[MAP_BATCH])
{
    struct span names[MAP_BATCH];
    size_t n = end - i < MAP_BATCH ? end - i : MAP_BATCH;
    for (size_t k = 0; k < n; k++)
        names[k] = args->nodes[at ? at[i + k] : i + k].name;
    ledger_nodes_find(l, names, n, nodes);
    return n;
}

/* -- scores -- */

void verb_score(struct verb_call *call, struct score_run *run, const uint32_t *at,
                size_t n)
{
    const struct verb_args *args = &call->work->args;
    struct core_driver *driver = call->verbs->config.driver;
    for (size_t i = 0, end; i < n;) {
        const struct ledger *l = core_ledger(core_driver_read(driver));
        for (end = n - i < VERB_LOCK_NODES ? n : i + VERB_LOCK_NODES; i < end;) {
            const struct ledger_node *nodes[MAP_BATCH];
            size_t found = verb_find_nodes(args, at, i, end, l, nodes);
            score_visit(run, i, nodes, found);
            i += found;
        }
        core_driver_read_end(driver);
    }
}

void verb_score_begin(struct verb_call *call, struct score_run *run,
                      const struct ledger *l)
{
    struct verb_work *w = call->work;
    w->scored = (struct score_pod){
        .pod = {&w->args.request, w->args.pod.priority, w->args.pod.meta.uid, NULL},
        .cpu_milli = w->args.pod.requests.cpu_milli};
    score_begin(run, call->verbs->config.policy, &w->scored, ledger_requests(l),
                &w->scratch, w->args.n);
}
