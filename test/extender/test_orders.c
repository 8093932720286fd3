/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include "base/rng.h"
#include "extender/verb.h"
#include "placement/reason.h"
#include "placement/score.h"

/*
 * filter and prioritize look up, judge and score thousands of nodes at once. Whatever names
 * a body has, in whatever order and notation, the answer is that of the plain way: one node
 * after the other, with select_fit_pod, reason_add and score_nodes.
 */

enum { NODES = 90, NAMES_MAX = 300, ROUNDS = 120 };

static const struct ledger_settings settings = {.unit_mib = 1};

struct world {
    struct core_driver_rig rig;
    char names[NODES][128];
    struct rng rng;
    uint64_t uids;
};

static uint64_t below(struct world *w, uint64_t n)
{
    return rng_below(&w->rng, n);
}

static json_t *scv_of(struct world *w, int i)
{
    cleanup_buf struct buf cards = {0};
    int n = (int)below(w, 11); /* more than 8 have no brief */
    buf_adds(&cards, "");
    for (int k = 0; k < n; k++) {
        int total = below(w, 3) ? 16000 : 24000;
        buf_printf(&cards,
                   "%s{\"id\":%d,\"health\":\"%sealthy\",\"totalMemory\":%d,"
                   "\"freeMemory\":%d,\"model\":\"%s\",\"clock\":%d}",
                   k ? "," : "", k, below(w, 9) ? "H" : "Unh", total,
                   below(w, 4) ? total : (int)below(w, 16000),
                   below(w, 2) ? "Tesla T4" : "A\\\"100", 5000 + (int)below(w, 2));
    }
    return rig_scv(w->names[i], cards.p, ",\"updateTime\":\"2026-01-01T00:00:00Z\"");
}

static json_t *node_of(struct world *w, int i)
{
    static const char *const modes[] = {"", "", "", "memory", "card", "none"};
    cleanup_free char *has =
        xasprintf("{\"cpu\":\"%d\",\"aliyun.com/gpu-mem\":\"32000\",\"aliyun.com/"
                  "gpu-count\":\"2\"}",
                  below(w, 4) ? 64 : 8);
    cleanup_free char *text =
        xasprintf("{\"kind\":\"Node\",\"metadata\":{\"name\":\"%s\",\"labels\":{"
                  "\"gpushare/mode\":\"%s\"}},\"status\":{\"capacity\":%s,"
                  "\"allocatable\":%s}}",
                  w->names[i], modes[below(w, ARRAY_LEN(modes))], has, has);
    return rig_json(text);
}

/* Bound, or only nominated to the node. */
static json_t *pod_of(struct world *w, int i, int k)
{
    bool bound = below(w, 5) > 0;
    int mib = 1 + (int)below(w, 15000);
    cleanup_free char *text = xasprintf(
        "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"p-%d-%d\",\"namespace\":\"d\","
        "\"uid\":"
        "\"p-%d-%d\",\"annotations\":{\"ALIYUN_COM_GPU_MEM_IDX\":\"%d\","
        "\"ALIYUN_COM_GPU_MEM_POD\":\"%d\"}},\"spec\":{\"priority\":%d%s%s%s,"
        "\"containers\":[{\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"},"
        "\"requests\":{\"cpu\":\"%s\"}}}]},\"status\":{\"phase\":\"%s\""
        "%s%s%s}}",
        i, k, i, k, (int)below(w, 9), mib, (int)below(w, 3),
        bound ? ",\"nodeName\":\"" : "", bound ? w->names[i] : "", bound ? "\"" : "", mib,
        k % 2 ? "1" : "1500m", bound ? "Running" : "Pending",
        bound ? "" : ",\"nominatedNodeName\":\"", bound ? "" : w->names[i],
        bound ? "" : "\"");
    return rig_json(text);
}

static void begin(struct world *w, uint64_t seed)
{
    json_t *objects = json_array();
    *w = (struct world){0};
    rng_init(&w->rng, seed);
    rig_start(&w->rig, &settings, false);
    for (int i = 0; i < NODES; i++) {
        /* Many are about as long as what is copied or scanned at once. */
        snprintf(w->names[i], sizeof w->names[i], "%0*d", 3 + (int)below(w, 98), i);
        if (below(w, 8))
            json_array_append_new(objects, node_of(w, i));
        if (below(w, 5))
            json_array_append_new(objects, scv_of(w, i));
        for (int k = (int)below(w, 6); k > 0; k--)
            json_array_append_new(objects, pod_of(w, i, k));
    }
    rig_deliver(&w->rig, objects);
}

/* -- bodies -- */

struct call {
    const char *names[NAMES_MAX]; /* as decoded */
    size_t n;
    struct buf body;
    struct verb_work work; /* of the body: for the request */
};

/* All nodes in one order, rotated; or any of them, some twice, and names that nobody knows, of
 * which most are a part of a known one. */
static void choose_names(struct world *w, struct call *c)
{
    bool ordered = below(w, 3) == 0;
    size_t start = below(w, NODES);
    for (c->n = 0; c->n < (ordered ? NODES : NAMES_MAX / 2); c->n++) {
        const char *name = w->names[ordered ? (start + c->n) % NODES : below(w, NODES)];
        c->names[c->n] = ordered || below(w, 9) ? name
                         : below(w, 9)          ? name + 1
                                                : "unknown";
    }
}

/* kube-scheduler writes names as they are. Any JSON means the same. */
static void add_name(struct world *w, struct buf *out, const char *name, bool plainly)
{
    uint64_t how = plainly ? 9 : below(w, 10);
    buf_adds(out, how == 0 ? "\n \"" : "\"");
    if (how == 1)
        buf_printf(out, "\\u%04x%s", (unsigned)(unsigned char)name[0], name + 1);
    else
        buf_adds(out, name);
    buf_adds(out, how == 2 ? "\" " : "\"");
}

static void make_call(struct world *w, struct call *c)
{
    static const char *const limits[] = {
        "\"aliyun.com/gpu-mem\":\"1500\"",  "\"aliyun.com/gpu-mem\":\"9000\"",
        "\"aliyun.com/gpu-mem\":\"16000\"", "\"aliyun.com/gpu-mem\":\"20000\"",
        "\"aliyun.com/gpu-mem\":\"30000\"", "\"aliyun.com/gpu-mem\":\"-1\"",
        "\"nvidia.com/gpu\":\"1\"",         "\"cpu\":\"1\""};
    static const char *const meta[] = {
        "",
        "",
        "",
        ",\"annotations\":{\"nvidia-gpu-scheduler/gpu.model\":\"Tesla T4\"}",
        ",\"labels\":{\"scv/memory\":\"1500\",\"scv/clock\":\"5001\"}",
        ",\"labels\":{\"scv/number\":\"2\"}"};
    struct err err = {0};
    *c = (struct call){0};
    choose_names(w, c);
    buf_printf(&c->body,
               "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"namespace\":\"d\",\"uid\":"
               "\"u%d\"%s},\"spec\":{\"priority\":%d,\"containers\":[{\"resources\":{"
               "\"requests\":{\"cpu\":\"%d\"},\"limits\":{%s}}}]}},\"NodeNames\":[",
               (int)w->uids++, meta[below(w, ARRAY_LEN(meta))], (int)below(w, 3),
               (int)below(w, 3), limits[below(w, ARRAY_LEN(limits))]);
    bool plainly = below(w, 2);
    for (size_t i = 0; i < c->n; i++) {
        buf_adds(&c->body, i ? "," : "");
        add_name(w, &c->body, c->names[i], plainly);
    }
    buf_adds(&c->body, "]}");
    struct verbs reader = {.rules = ledger_rules(&settings)};
    struct verb_call call = {
        .verbs = &reader, .body = buf_span(&c->body), .work = &c->work};
    ck_assert_done(verb_read_body(&call, &verb_candidates, NULL,
                                  &(struct verb_limits){.nodes = NAMES_MAX}, &err),
                   err);
}

static void call_fini(struct call *c)
{
    free(c->work.args.nodes);
    arena_fini(&c->work.arena);
    buf_fini(&c->body);
}

static json_t *answer(rig_verb verb, struct verbs *v, const struct call *c)
{
    cleanup_buf struct buf reply = {0};
    /* Exactly as long as the body, so that a sanitizer sees a read beyond it. */
    cleanup_free char *body = xmalloc(c->body.n);
    memcpy(body, c->body.p, c->body.n);
    ck_assert_uint_eq(rig_call(verb, v, (struct span){body, c->body.n}, &reply), 200);
    json_t *j = json_loadb(reply.p, reply.n, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

/* The plain way, beside the reply of the verb. */
struct round {
    const struct call *call;
    const struct ledger *ledger; /* before the call; the rig is not locked */
    enum score_policy policy;
    struct score_scratch scratch;
    size_t counts[3]; /* of results, so that the test knows that it tests something */
};

/* Makes calls of the verb; `check` compares a reply. */
static void run_rounds(uint64_t seed, rig_verb verb, int64_t best,
                       void (*check)(struct round *r, json_t *reply),
                       const size_t least[3])
{
    struct world w;
    struct round r = {0};
    begin(&w, seed);
    for (int i = 0; i < ROUNDS; i++) {
        struct call c;
        r.call = &c;
        r.policy = (enum score_policy)(i % SCORE_POLICIES);
        struct verbs *v = verbs_new(&(struct verbs_config){
            .driver = w.rig.driver, .answer = best, .policy = r.policy});
        make_call(&w, &c);
        rig_renew(&w.rig); /* without the lease nothing is reserved */
        r.ledger = core_ledger(core_driver_read(w.rig.driver));
        core_driver_read_end(w.rig.driver);
        check(&r, NULL);
        json_t *reply = answer(verb, v, &c);
        check(&r, reply);
        json_decref(reply);
        call_fini(&c);
        verbs_free(v);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_uint_ge(r.counts[i], least[i]);
    score_scratch_fini(&r.scratch);
    rig_stop(&w.rig);
}

/* -- one node after the other -- */

static enum fit fit_of(const struct call *c, const struct ledger_node *node)
{
    if (request_fits_anywhere(&c->work.args.request))
        return FIT_YES;
    return node ? select_fit_pod(node,
                                 &(struct select_pod){&c->work.args.request,
                                                      c->work.args.pod.priority,
                                                      c->work.args.pod.meta.uid, NULL})
                : FIT_LATER;
}

static void check_filter(struct round *r, json_t *reply)
{
    const struct call *c = r->call;
    const json_t *lists[] = {NULL, json_object_get(reply, "FailedNodes"),
                             json_object_get(reply, "FailedAndUnresolvableNodes")};
    json_t *passed = json_object_get(reply, "NodeNames");
    size_t n = 0;
    bool invalid = c->work.args.invalid.code != ERR_NONE;
    for (size_t i = 0; reply && i < c->n; i++) {
        const struct ledger_node *node =
            ledger_node_find(r->ledger, span_of(c->names[i]));
        enum fit fit = invalid ? FIT_NEVER : fit_of(c, node);
        cleanup_buf struct buf why = {0};
        r->counts[fit]++;
        if (fit == FIT_YES) {
            ck_assert_str_eq(json_string_value(json_array_get(passed, n++)), c->names[i]);
            continue;
        }
        if (invalid)
            buf_adds(&why, c->work.args.invalid.msg);
        else if (node)
            reason_add(&why, node, &c->work.args.request,
                       select_fit(node, &c->work.args.request));
        else
            buf_adds(&why, "the GPUs of this node are not known yet");
        ck_assert_pstr_eq(json_string_value(json_object_get(lists[fit], c->names[i])),
                          why.p);
    }
    ck_assert_uint_eq(json_array_size(passed), n);
}

TEST(filter_judges_each_name_as_if_it_were_the_only_one)
{
    run_rounds(1, filter_answer, VERBS_ALL, check_filter,
               (const size_t[]){ROUNDS, ROUNDS, ROUNDS});
}

/* The nodes of the names, of all or of those that fit. Returns their number. */
static size_t nodes_of(const struct round *r, bool fitting,
                       const struct ledger_node **nodes, struct span *names)
{
    size_t n = 0;
    for (size_t i = 0; i < r->call->n; i++) {
        struct span name = span_of(r->call->names[i]);
        const struct ledger_node *node = ledger_node_find(r->ledger, name);
        if (fitting && fit_of(r->call, node) != FIT_YES)
            continue;
        names[n] = name;
        nodes[n++] = node;
    }
    return n;
}

static struct score_pod pod_of_call(const struct call *c)
{
    return (struct score_pod){{&c->work.args.request, c->work.args.pod.priority,
                               c->work.args.pod.meta.uid, NULL},
                              c->work.args.pod.requests.cpu_milli};
}

static void check_scores(struct round *r, json_t *reply)
{
    const struct ledger_node *nodes[NAMES_MAX];
    struct span names[NAMES_MAX];
    int points[NAMES_MAX];
    const struct score_pod pod = pod_of_call(r->call);
    size_t n = nodes_of(r, false, nodes, names);
    if (!reply)
        return;
    score_nodes(r->policy, &pod, ledger_requests(r->ledger), nodes, n, &r->scratch,
                points);
    ck_assert_uint_eq(json_array_size(reply), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *host = json_array_get(reply, i);
        ck_assert_str_eq(json_string_value(json_object_get(host, "Host")),
                         r->call->names[i]);
        ck_assert_int_eq(json_integer_value(json_object_get(host, "Score")), points[i]);
        r->counts[0] += points[i] > 0;
    }
}

TEST(prioritize_scores_each_name)
{
    run_rounds(2, prioritize_answer, VERBS_ALL, check_scores,
               (const size_t[]){ROUNDS, 0, 0});
}

static struct span name_of(const void *names, size_t i)
{
    return ((const struct span *)names)[i];
}

/* Each call reserves cards for its pod, so each finds another cluster. */
static void check_best(struct round *r, json_t *reply)
{
    static char expected[128]; /* before the call */
    static bool full;          /* its CPU is reserved for others, so it comes last */
    const struct ledger_node *nodes[NAMES_MAX];
    struct span names[NAMES_MAX];
    const struct score_pod pod = pod_of_call(r->call);
    struct score_run run;
    size_t best = 0;
    if (!reply) {
        size_t n = nodes_of(r, true, nodes, names);
        score_begin(&run, r->policy, &pod, ledger_requests(r->ledger), &r->scratch, n);
        do
            score_visit(&run, 0, nodes, n);
        while (score_again(&run));
        bool found = score_best(&run, n, name_of, names, &best, 1) == 1;
        snprintf(expected, sizeof expected, "%s", found ? names[best].p : "");
        struct resources wanted = r->call->work.args.pod.requests, seen;
        wanted.pods = 1;
        full = found && nodes[best];
        if (full)
            seen = ledger_requests_seen(nodes[best], pod.pod.priority, pod.pod.uid);
        full = full && nodes[best]->has_reserved &&
               !ledger_requests_fit(nodes[best], &seen, &wanted);
        return;
    }
    json_t *answered = json_object_get(reply, "NodeNames");
    if (!expected[0]) {
        ck_assert_uint_eq(json_array_size(answered), 0);
        r->counts[1]++;
    } else if (r->call->work.args.request.kind != REQUEST_NONE) {
        ck_assert_uint_eq(json_array_size(answered), 1);
        if (full)
            return;
        ck_assert_str_eq(json_string_value(json_array_get(answered, 0)), expected);
        r->counts[0]++;
    }
}

TEST(the_best_node_is_the_best_of_those_that_fit)
{
    run_rounds(3, filter_answer, 1, check_best,
               (const size_t[]){ROUNDS / 3, ROUNDS / 10, 0});
}

/* A name that no object has, at any position and length. */
TEST(a_body_with_an_invalid_name_is_rejected)
{
    static const char *const wrong[] = {" ", "/", "\x7f", "\\\"", "\\\\", "\\u0000"};
    struct world w;
    begin(&w, 4);
    struct verbs *v = verbs_new(&(struct verbs_config){.driver = w.rig.driver});
    for (size_t i = 0; i <= ARRAY_LEN(wrong); i++) {
        for (int n = 0; n < 40; n++) {
            cleanup_buf struct buf body = {0}, reply = {0};
            buf_adds(&body, "{\"Pod\":{\"metadata\":{\"name\":\"p\",\"uid\":\"u\"}},"
                            "\"NodeNames\":[\"a\",\"");
            if (i < ARRAY_LEN(wrong))
                buf_printf(&body, "%.*s%sx", n,
                           "0123456789012345678901234567890123456789", wrong[i]);
            else if (n)
                buf_printf(&body, "%0*d", 253 + n, 0);
            buf_adds(&body, "\",\"a-name-that-follows\",\"and-another-one\"]}");
            ck_assert_uint_eq(rig_call(filter_answer, v, buf_span(&body), &reply), 400);
            ck_assert_contains(reply.p, "is not a valid node name");
        }
    }
    verbs_free(v);
    rig_stop(&w.rig);
}
