/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "kube-sim/pure.h"
#include "kube-sim/sim.h"
#include "lib/mutate.h"

/*
 * Hostile requests: mutations of valid requests, from a seed. The server must answer each
 * with a status and JSON, and keep its invariants.
 */

enum { ROUNDS = 20, REQUESTS = 1500 };

struct seed {
    const char *method, *path, *query, *type, *body;
};

#define POD                                                                              \
    "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"p\",\"labels\":{"  \
    "\"a\":\"b\"},\"annotations\":{\"x\":\"y\"},\"finalizers\":[\"a/b\"]},\"spec\":{"    \
    "\"containers\":[{\"name\":\"c\",\"image\":\"i\",\"resources\":{\"limits\":{"        \
    "\"aliyun.com/gpu-mem\":\"8\",\"cpu\":0.5},\"requests\":{\"cpu\":\"250m\"}}}]},"     \
    "\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]}}"
#define PODS "/api/v1/namespaces/default/pods"
#define SCV                                                                              \
    "{\"metadata\":{\"name\":\"s\"},\"spec\":{\"updateInterval\":1000},\"status\":{"     \
    "\"cardList\":[{\"id\":0,\"model\":\"T4\",\"totalMemory\":15109}],\"cardNumber\":1}" \
    "}"

static const struct seed seeds[] = {
    {"POST", PODS, "", "application/json", POD},
    {"PUT", PODS "/p", "", "application/json", POD},
    {"PUT", PODS "/p/status", "", "application/json", POD},
    {"PATCH", PODS "/p", "", "application/merge-patch+json",
     "{\"metadata\":{\"labels\":{\"a\":null,\"c\":\"d\"},\"finalizers\":null}}"},
    {"PATCH", PODS "/p/status", "", "application/strategic-merge-patch+json",
     "{\"status\":{\"phase\":\"Running\",\"message\":null}}"},
    {"POST", PODS "/p/binding", "timeout=3s", "application/json",
     "{\"metadata\":{\"name\":\"p\",\"annotations\":{\"k\":\"v\"}},\"target\":{\"kind\":"
     "\"Node\",\"name\":\"n\"}}"},
    {"POST", PODS "/p/eviction", "", "application/json",
     "{\"metadata\":{\"name\":\"p\"},\"deleteOptions\":{\"dryRun\":[\"All\"],"
     "\"gracePeriodSeconds\":3,\"preconditions\":{\"uid\":\"u\"}}}"},
    {"DELETE", PODS "/p", "gracePeriodSeconds=5", NULL,
     "{\"preconditions\":{\"uid\":\"u\"},\"gracePeriodSeconds\":1}"},
    {"DELETE", PODS "/p", "gracePeriodSeconds=0", NULL, ""},
    {"GET", PODS "/p", "resourceVersion=0", NULL, ""},
    {"GET", "/api/v1/pods",
     "limit=1&labelSelector=a%3Db,!d&fieldSelector=spec.nodeName"
     "%3Dn,status.phase!%3DFailed",
     NULL, ""},
    {"GET", "/api/v1/pods",
     "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6Nywic3RhcnQiOiJhIn0", NULL,
     ""},
    {"GET", "/api/v1/pods",
     "watch=1&resourceVersion=3&allowWatchBookmarks=1&timeoutSeconds=9", NULL, ""},
    {"POST", "/apis/core.run-linux.com/v1/scvs", "", "application/json", SCV},
    {"PATCH", "/apis/core.run-linux.com/v1/scvs/s", "", "application/merge-patch+json",
     SCV},
    {"POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", "",
     "application/json",
     "{\"metadata\":{\"name\":\"l\"},\"spec\":{\"renewTime\":"
     "\"2026-11-21T09:00:00.000000Z\",\"leaseDurationSeconds\":5}}"},
    {"POST", "/api/v1/nodes", "", "application/json",
     "{\"metadata\":{\"name\":\"n\"},\"status\":{\"capacity\":{\"aliyun.com/gpu-mem\":"
     "\"1024Mi\"}}}"},
    {"POST", "/api/v1/namespaces", "", "application/json",
     "{\"metadata\":{\"name\":\"ns\"}}"},
    {"GET", "/apis/core.run-linux.com/v1", "", NULL, ""},
};

static const char *const words[] = {
    "{", "}",   "[",  "]",    ",",      ":",  "\"", "null", "-1", "1e9",  "\\u0",
    "/", "%00", "..", "\xff", "$patch", "{}", "[]", "&",    "=",  "true", NULL};

/* Without a NUL, which ends a path. */
static void mutate_text(struct rng *rng, struct buf *b)
{
    mutate(rng, words, b);
    for (size_t i = 0; i < b->n; i++)
        b->p[i] = b->p[i] ? b->p[i] : '0';
}

static void check_watch(struct api_watch *w)
{
    cleanup_buf struct buf line = {0};
    for (int i = 0; i < 50 && api_watch_next(w, 1000000, &line) == 1; i++) {
        json_t *event = json_loadb(line.p, line.n, 0, NULL);
        ck_assert_msg(event != NULL, "%s", line.p);
        json_decref(event);
        buf_clear(&line);
    }
}

static void send(struct api *api, struct rng *rng, int64_t now_ms)
{
    const struct seed *s = &seeds[rng_below(rng, ARRAY_LEN(seeds))];
    cleanup_buf struct buf path = {0}, query = {0}, body = {0};
    struct api_reply reply = {0};
    buf_adds(&path, s->path);
    buf_adds(&query, s->query);
    buf_adds(&body, s->body);
    switch (rng_below(rng, 5)) {
    case 0:
        mutate_text(rng, &path);
        break;
    case 1:
        mutate_text(rng, &query);
        break;
    case 2:
    case 3:
        mutate_text(rng, &body);
        break;
    }
    struct api_request req = {.method = s->method,
                              .path = path.p,
                              .query = query.p,
                              .content_type = s->type,
                              .body = buf_span(&body)};
    api_handle(api, now_ms, &req, &reply);
    ck_assert_uint_ge(reply.status, 200);
    ck_assert_uint_le(reply.status, 504);
    if (reply.watch) {
        check_watch(reply.watch);
    } else if (!reply.content_type) {
        json_t *j = json_loadb(reply.body.p, reply.body.n, 0, NULL);
        ck_assert_msg(j != NULL, "%s %s?%s %s: %.*s", req.method, path.p, query.p, body.p,
                      (int)reply.body.n, reply.body.p);
        json_decref(j);
    }
    api_reply_fini(&reply);
}

TEST_LOOP(every_request_gets_a_valid_reply, ROUNDS)
{
    struct api_config config = {.seed = 1, .history = 50, .run_pods = _i % 2};
    struct api *api = api_new(&config);
    struct rng rng;
    rng_init(&rng, (uint64_t)_i);
    for (int i = 0; i < REQUESTS; i++) {
        send(api, &rng, 1000 * i);
        if (i % 10 == 0)
            api_tick(api, 1000 * i);
    }
    /* The server still works. */
    ck_assert_uint_eq(pure_call(api, 0, "GET /api/v1/pods", NULL, NULL, NULL), 200);
    ck_assert_uint_eq(pure_call(api, 0, "POST /api/v1/nodes", NULL,
                                "{\"metadata\":{\"name\":\"last\"}}", NULL),
                      201);
    api_free(api);
}

TEST(deep_and_wide_bodies_are_refused_or_accepted_without_harm)
{
    struct api_config config = {.seed = 1};
    struct api *api = api_new(&config);
    static const char *const pieces[] = {"[", "{\"a\":", "[{\"a\":[", "\"",
                                         "1", "-",       "\\"};
    ARRAY_EACH(i, pieces) {
        cleanup_buf struct buf body = {0};
        buf_adds(&body, "{\"metadata\":{\"name\":\"x\"},\"data\":");
        for (int k = 0; k < 200000; k++)
            buf_adds(&body, pieces[i]);
        unsigned status = pure_call(api, 0, "POST /api/v1/namespaces/default/configmaps",
                                    NULL, body.p, NULL);
        ck_assert_uint_eq(status, 400);
    }
    cleanup_buf struct buf body = {0};
    buf_adds(&body, "{\"metadata\":{\"name\":\"x\"},\"x\":");
    for (int k = 0; k < 2000; k++)
        buf_adds(&body, "[");
    for (int k = 0; k < 2000; k++)
        buf_adds(&body, "]");
    buf_adds(&body, "}");
    ck_assert_uint_eq(pure_call(api, 0, "POST /api/v1/namespaces/default/configmaps",
                                NULL, body.p, NULL),
                      201);
    ck_assert_uint_eq(pure_call(api, 0, "GET /api/v1/namespaces/default/configmaps/x",
                                NULL, NULL, NULL),
                      200);
    api_free(api);
}

TEST(fault_rules_survive_invalid_input)
{
    static const char rule[] = "[{\"method\":\"POST\",\"resource\":\"pods\",\"nth\":2,"
                               "\"action\":\"answer\",\"status\":409}]";
    struct rng rng;
    rng_init(&rng, 5);
    struct faults *f = faults_new();
    for (int i = 0; i < 5000; i++) {
        cleanup_buf struct buf text = {0}, out = {0};
        buf_adds(&text, rule);
        mutate_text(&rng, &text);
        faults_add(f, buf_span(&text), NULL);
        if (i % 100)
            continue;
        faults_write(f, &out);
        json_t *j = json_loadb(out.p, out.n, 0, NULL);
        ck_assert_ptr_nonnull(j);
        json_decref(j);
        faults_clear(f);
    }
    faults_free(f);
}

UNIT_MAIN(120)
