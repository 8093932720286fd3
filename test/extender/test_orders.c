/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/core_driver_rig.h"

#include "base/mem.h"
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

/* From one byte to more than fit beside the node's other fields; many are about as long as
 * what is copied or scanned at once. */
static void make_name(struct world *w, int i)
{
    static const int lengths[] = {3,  8,  14, 15, 16, 17, 28, 29,
                                  30, 31, 32, 33, 63, 64, 100};
    int n = lengths[below(w, ARRAY_LEN(lengths))];
    snprintf(w->names[i], sizeof w->names[i], "%0*d", n, i);
}

static json_t *scv_of(struct world *w, int i)
{
    json_t *cards = json_array();
    int n = (int)below(w, 11); /* more than 8 have no brief */
    for (int k = 0; k < n; k++) {
        int total = below(w, 3) ? 16000 : 24000;
        json_array_append_new(
            cards, json_pack("{s:i,s:s,s:i,s:i,s:s,s:i}", "id", k, "health",
                             below(w, 9) ? "Healthy" : "Unhealthy", "totalMemory", total,
                             "freeMemory", below(w, 4) ? total : (int)below(w, 16000),
                             "model", below(w, 2) ? "Tesla T4" : "A\"100", "clock",
                             5000 + (int)below(w, 2)));
    }
    return json_pack("{s:s,s:s,s:{s:s},s:{s:s,s:o}}", "apiVersion",
                     "core.run-linux.com/v1", "kind", "Scv", "metadata", "name",
                     w->names[i], "status", "updateTime", "2026-01-01T00:00:00Z",
                     "cardList", cards);
}

static json_t *node_of(struct world *w, int i)
{
    static const char *const modes[] = {"", "", "", "memory", "card", "none"};
    const char *cpu = below(w, 4) ? "64" : "8";
    return json_pack("{s:s,s:s,s:{s:s,s:{s:s}},s:{s:{s:s,s:s,s:s},s:{s:s,s:s,s:s}}}",
                     "apiVersion", "v1", "kind", "Node", "metadata", "name", w->names[i],
                     "labels", "gpushare/mode", modes[below(w, ARRAY_LEN(modes))],
                     "status", "capacity", "cpu", cpu, "aliyun.com/gpu-mem", "32000",
                     "aliyun.com/gpu-count", "2", "allocatable", "cpu", cpu,
                     "aliyun.com/gpu-mem", "32000", "aliyun.com/gpu-count", "2");
}

/* Bound, or only nominated to the node. */
static json_t *pod_of(struct world *w, int i, int k)
{
    char name[32], units[16], index[8];
    snprintf(name, sizeof name, "p-%d-%d", i, k);
    snprintf(units, sizeof units, "%d", 1 + (int)below(w, 15000));
    snprintf(index, sizeof index, "%d", (int)below(w, 9));
    bool bound = below(w, 5) > 0;
    return json_pack(
        "{s:s,s:s,s:{s:s,s:s,s:s,s:{s:s,s:s,s:s,s:s}},"
        "s:{s:s*,s:[{s:s,s:{s:{s:s},s:{s:s}}}],s:i},s:{s:s,s:s*}}",
        "apiVersion", "v1", "kind", "Pod", "metadata", "name", name, "namespace", "d",
        "uid", name, "annotations", "ALIYUN_COM_GPU_MEM_ASSIGNED", "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1", "ALIYUN_COM_GPU_MEM_IDX", index,
        "ALIYUN_COM_GPU_MEM_POD", units, "spec", "nodeName", bound ? w->names[i] : NULL,
        "containers", "name", "c", "resources", "limits", "aliyun.com/gpu-mem", units,
        "requests", "cpu", k % 2 ? "1" : "1500m", "priority", (int)below(w, 3), "status",
        "phase", bound ? "Running" : "Pending", "nominatedNodeName",
        bound ? NULL : w->names[i]);
}

static void begin(struct world *w, uint64_t seed)
{
    json_t *objects = json_array();
    *w = (struct world){0};
    rng_init(&w->rng, seed);
    rig_start(&w->rig, &settings, false);
    for (int i = 0; i < NODES; i++) {
        make_name(w, i);
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

static void shuffle(struct world *w, struct call *c)
{
    for (size_t i = c->n; i > 1; i--) {
        size_t k = below(w, i);
        const char *other = c->names[k];
        c->names[k] = c->names[i - 1];
        c->names[i - 1] = other;
    }
}

/* All nodes in one order, rotated; shuffled; some of them; with duplicates; with names that
 * nobody knows, of which some are prefixes of known ones. */
static void choose_names(struct world *w, struct call *c)
{
    size_t start = below(w, NODES), kind = below(w, 5);
    c->n = 0;
    for (size_t i = 0; i < NODES; i++)
        if (kind != 2 || below(w, 3))
            c->names[c->n++] = w->names[(start + i) % NODES];
    if (kind == 3)
        for (int i = 0; i < 40; i++)
            c->names[c->n++] = w->names[below(w, NODES)];
    if (kind == 4) {
        for (int i = 0; i < 20; i++)
            c->names[c->n++] = w->names[below(w, NODES)] + 1;
        c->names[c->n++] = "unknown";
    }
    if (kind)
        shuffle(w, c);
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

static const struct verbs_config *config(const struct world *w, int answer, int policy)
{
    static struct verbs_config c;
    c = (struct verbs_config){
        .driver = w->rig.driver, .answer = answer, .policy = (enum score_policy)policy};
    return &c;
}

static void end(struct world *w)
{
    rig_stop(&w->rig);
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

/* Also counts the verdicts, so that the test knows that it tests something. */
static void expect_filter(const struct call *c, const struct ledger *l, json_t *reply,
                          size_t counts[3])
{
    const json_t *lists[] = {NULL, json_object_get(reply, "FailedNodes"),
                             json_object_get(reply, "FailedAndUnresolvableNodes")};
    json_t *passed = json_object_get(reply, "NodeNames");
    size_t n = 0;
    bool invalid = c->work.args.invalid.code != ERR_NONE;
    for (size_t i = 0; i < c->n; i++) {
        const struct ledger_node *node = ledger_node_find(l, span_of(c->names[i]));
        enum fit fit = invalid ? FIT_NEVER : fit_of(c, node);
        cleanup_buf struct buf why = {0};
        counts[fit]++;
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

START_TEST(filter_judges_each_name_as_if_it_were_the_only_one)
{
    struct world w;
    size_t counts[3] = {0};
    begin(&w, 1);
    struct verbs *v = verbs_new(config(&w, VERBS_ALL, SCORE_FGD));
    for (int round = 0; round < ROUNDS; round++) {
        struct call c;
        make_call(&w, &c);
        json_t *reply = answer(filter_answer, v, &c);
        expect_filter(&c, core_ledger(core_driver_read(w.rig.driver)), reply, counts);
        core_driver_read_end(w.rig.driver);
        json_decref(reply);
        call_fini(&c);
    }
    for (int fit = FIT_YES; fit <= FIT_NEVER; fit++)
        ck_assert_uint_gt(counts[fit], ROUNDS);
    verbs_free(v);
    end(&w);
}
END_TEST

/* The nodes of the names, of all or of those that fit. Returns their number. */
static size_t nodes_of(const struct call *c, const struct ledger *l, bool fitting,
                       const struct ledger_node **nodes, struct span *names)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct ledger_node *node = ledger_node_find(l, span_of(c->names[i]));
        if (fitting && fit_of(c, node) != FIT_YES)
            continue;
        names[n] = span_of(c->names[i]);
        nodes[n++] = node;
    }
    return n;
}

START_TEST(prioritize_scores_each_name)
{
    struct world w;
    struct score_scratch scratch = {0};
    size_t above_zero = 0;
    begin(&w, 2);
    for (int round = 0; round < ROUNDS; round++) {
        const struct ledger_node *nodes[NAMES_MAX];
        struct span names[NAMES_MAX];
        int points[NAMES_MAX], policy = round % SCORE_POLICIES;
        struct call c;
        struct verbs *v = verbs_new(config(&w, VERBS_ALL, policy));
        make_call(&w, &c);
        json_t *reply = answer(prioritize_answer, v, &c);
        const struct ledger *l = core_ledger(core_driver_read(w.rig.driver));
        const struct score_pod pod = {{&c.work.args.request, c.work.args.pod.priority,
                                       c.work.args.pod.meta.uid, NULL},
                                      c.work.args.pod.requests.cpu_milli};
        size_t n = nodes_of(&c, l, false, nodes, names);
        score_nodes((enum score_policy)policy, &pod, ledger_mix(l), nodes, n, &scratch,
                    points);
        core_driver_read_end(w.rig.driver);
        ck_assert_uint_eq(json_array_size(reply), n);
        for (size_t i = 0; i < n; i++) {
            const json_t *host = json_array_get(reply, i);
            ck_assert_str_eq(json_string_value(json_object_get(host, "Host")),
                             c.names[i]);
            ck_assert_int_eq(json_integer_value(json_object_get(host, "Score")),
                             points[i]);
            above_zero += points[i] > 0;
        }
        json_decref(reply);
        call_fini(&c);
        verbs_free(v);
    }
    ck_assert_uint_gt(above_zero, ROUNDS);
    score_scratch_fini(&scratch);
    end(&w);
}
END_TEST

static struct span name_of(const void *names, size_t i)
{
    return ((const struct span *)names)[i];
}

/* Each call reserves cards for its pod, so each finds another cluster. */
START_TEST(the_best_node_is_the_best_of_those_that_fit)
{
    struct world w;
    struct score_scratch scratch = {0};
    size_t found = 0, none = 0;
    begin(&w, 3);
    for (int round = 0; round < ROUNDS; round++) {
        const struct ledger_node *nodes[NAMES_MAX];
        struct span names[NAMES_MAX];
        int policy = round % SCORE_POLICIES;
        size_t best = 0;
        struct score_run run;
        struct call c;
        struct verbs *v = verbs_new(config(&w, 1, policy));
        make_call(&w, &c);
        const struct ledger *l = core_ledger(core_driver_read(w.rig.driver));
        const struct score_pod pod = {{&c.work.args.request, c.work.args.pod.priority,
                                       c.work.args.pod.meta.uid, NULL},
                                      c.work.args.pod.requests.cpu_milli};
        size_t n = nodes_of(&c, l, true, nodes, names);
        score_begin(&run, (enum score_policy)policy, &pod, ledger_mix(l), &scratch, n);
        do
            score_visit(&run, 0, nodes, n);
        while (score_again(&run));
        bool chosen = score_best(&run, n, name_of, names, &best, 1) == 1;
        core_driver_read_end(w.rig.driver);
        json_t *reply = answer(filter_answer, v, &c);
        json_t *answered = json_object_get(reply, "NodeNames");
        if (!chosen) {
            ck_assert_uint_eq(json_array_size(answered), 0);
            none++;
        } else if (c.work.args.request.kind != REQUEST_NONE) {
            ck_assert_uint_eq(json_array_size(answered), 1);
            const char *name = json_string_value(json_array_get(answered, 0));
            ck_assert_str_eq(name, names[best].p);
            found++;
        }
        json_decref(reply);
        call_fini(&c);
        verbs_free(v);
    }
    ck_assert_uint_gt(found, ROUNDS / 3);
    ck_assert_uint_gt(none, ROUNDS / 10);
    score_scratch_fini(&scratch);
    end(&w);
}
END_TEST

/* A name that no object has, at any position and length. */
START_TEST(a_body_with_an_invalid_name_is_rejected)
{
    static const char *const wrong[] = {" ", "/", "\x7f", "\\\"", "\\\\", "\\u0000"};
    struct world w;
    begin(&w, 4);
    struct verbs *v = verbs_new(config(&w, VERBS_ALL, SCORE_FGD));
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
            ck_assert_ptr_nonnull(strstr(reply.p, "is not a valid node name"));
        }
    }
    verbs_free(v);
    end(&w);
}
END_TEST

UNIT_MAIN("orders", a_body_with_an_invalid_name_is_rejected,
          filter_judges_each_name_as_if_it_were_the_only_one, prioritize_scores_each_name,
          the_best_node_is_the_best_of_those_that_fit)
