/* SPDX-License-Identifier: Apache-2.0 */
#include "apisync/apisync.h"

#include "domain/keys.h"
#include "lib/unit.h"

/* The inputs that the core would get, one line each. */
static struct buf seen;
static unsigned faults;
static struct arena a;

static void add_err(const struct core_input *in)
{
    buf_printf(&seen, " %s", in->err ? err_code_name(in->err->code) : "ok");
    if (in->err && in->retry_after_ms >= 0)
        buf_printf(&seen, " after %lld", (long long)in->retry_after_ms);
}

static void on_input(void *ctx, const struct core_input *in)
{
    (void)ctx;
    ck_assert_uint_eq(in->run, 7);
    switch (in->type) {
    case CORE_OBJECT:
        buf_printf(&seen, "%s %.*s", in->deleted ? "gone" : "seen",
                   SPAN_ARG(in->kind == CORE_PODS     ? in->pod->meta.name
                            : in->kind == CORE_SCVS   ? in->scv->meta.name
                            : in->kind == CORE_QUOTAS ? in->quota->meta.name
                                                      : in->node->meta.name));
        if (in->kind == CORE_QUOTAS)
            buf_printf(&seen, " (%.*s)", SPAN_ARG(in->quota->hard));
        if ((in->kind == CORE_SCVS && in->scv->damaged) ||
            (in->kind == CORE_NODES && in->node->damaged))
            buf_adds(&seen, " damaged");
        if (in->invalid)
            buf_adds(&seen, " faulty");
        break;
    case CORE_LIST_ENDED:
        buf_adds(&seen, "list ended");
        break;
    case CORE_LIST_FAILED:
        buf_adds(&seen, "list failed");
        add_err(in);
        break;
    case CORE_WATCH_PROGRESS:
        buf_adds(&seen, "alive");
        break;
    case CORE_WATCH_ENDED:
        buf_adds(&seen, "watch ended");
        add_err(in);
        break;
    default:
        ck_abort_msg("an unexpected input");
    }
    if (in->version.n)
        buf_printf(&seen, " @%.*s", SPAN_ARG(in->version));
    buf_addc(&seen, '\n');
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    (void)err;
    faults++;
}

static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};

static void start(struct apisync *f, enum core_kind kind, bool watch)
{
    buf_clear(&seen);
    buf_adds(&seen, "");
    faults = 0;
    apisync_start(f, kind, watch, 7, watch ? SPAN("42") : (struct span){0}, &sink, NULL);
}

static bool answer(struct apisync *f, unsigned status, const char *body,
                   const struct err *why)
{
    list_watch_begin(&f->in, status, status == 429 ? 3 : -1);
    list_watch_data(&f->in, body, strlen(body));
    return apisync_end(f, why);
}

static const char *path_of(const struct apisync *f)
{
    struct kube_request r;
    apisync_request(f, true, &a, &r);
    ck_assert_str_eq(r.method, "GET");
    ck_assert(r.gzip == !f->watch);
    return r.path;
}

TEST(a_list_is_read_page_by_page)
{
    struct apisync f;
    start(&f, CORE_NODES, false);
    ck_assert_str_eq(path_of(&f), "/api/v1/nodes?limit=500");
    ck_assert(answer(&f, 200,
                     "{\"metadata\":{\"resourceVersion\":\"9\",\"continue\":\"a+/b=\"},"
                     "\"items\":[{\"metadata\":{\"name\":\"n1\"}}]}",
                     NULL));
    ck_assert_str_eq(path_of(&f), "/api/v1/nodes?limit=500&continue=a%2B%2Fb%3D");
    ck_assert(!answer(&f, 200,
                      "{\"items\":[{\"metadata\":{\"name\":\"n2\"}}],\"metadata\":{"
                      "\"resourceVersion\":\"9\"}}",
                      NULL));
    ck_assert_str_eq(seen.p, "seen n1\nseen n2\nlist ended @9\n");
    apisync_fini(&f);
}

TEST(a_list_without_paging_is_one_page)
{
    struct apisync f;
    start(&f, CORE_PODS, false);
    ck_assert_contains(path_of(&f), "fieldSelector=status.phase%21%3DSucceeded%2C"
                                    "status.phase%21%3DFailed&limit=500");
    ck_assert(!answer(&f, 200,
                      "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"3\"},"
                      "\"items\":null}",
                      NULL));
    ck_assert_str_eq(seen.p, "list ended @3\n");
    apisync_fini(&f);
}

TEST(a_failed_list_reports_the_error)
{
    static const struct {
        unsigned status;
        const char *body;
        bool broken;
        const char *want;
    } cases[] = {
        {403, "{\"kind\":\"Status\",\"message\":\"no list of nodes for you\"}", false,
         "list failed forbidden\n"},
        {429, "", false, "list failed unavailable after 3000\n"},
        {200, "{\"items\":[", true, "list failed timeout\n"},
        {200, "{\"items\":[", false, "list failed invalid\n"},
        {0, "", true, "list failed timeout\n"},
    };
    array_items(c, cases) {
        struct apisync f;
        struct err why = {.code = ERR_TIMEOUT, .msg = "silence"};
        start(&f, CORE_NODES, false);
        if (c->status)
            ck_assert(!answer(&f, c->status, c->body, c->broken ? &why : NULL));
        else
            ck_assert(!apisync_end(&f, &why));
        ck_assert_str_eq(seen.p, c->want);
        apisync_fini(&f);
    }
}

/* An invalid Node or Scv is passed on as damaged and not swept: it exists. */
TEST(an_invalid_object_does_not_stop_the_list)
{
    static const struct {
        enum core_kind kind;
        const char *items, *want;
        unsigned faults;
    } cases[] = {
        {CORE_PODS,
         "{\"metadata\":{\"name\":\"a\",\"labels\":{\"" KEY_GPU_COUNT "\":1}}},"
         "{\"metadata\":{\"name\":\"b\"}},7,{\"metadata\":{\"name\":\"c\"}},"
         "{\"metadata\":{\"name\":\"d\",\"uid\":\"u\"},\"spec\":7}",
         "seen b\nseen c\nseen d faulty\n", 3},
        {CORE_SCVS,
         "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"cardList\":[{\"id\":-1}]}}",
         "seen n1 damaged\n", 1},
        {CORE_NODES,
         "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"capacity\":7}},{\"metadata\":{"
         "\"name\":\"n/2\"}},{\"metadata\":{\"name\":\"n3\"}}",
         "seen n1 damaged\nseen n3\n", 2},
        /* What cannot be read allows nothing. */
        {CORE_QUOTAS,
         "{\"metadata\":{\"name\":\"q\",\"namespace\":\"a\"},\"spec\":7},"
         "{\"metadata\":{\"name\":\"q\",\"namespace\":\"c\"},\"spec\":{\"hard\":{"
         "\"limits.nvidia.com/gpumem\":\"5k\"}}},{\"metadata\":{\"name\":\"q\"}}",
         "seen q ()\nseen q ({\"limits.nvidia.com/gpumem\":\"5k\"})\n", 1},
    };
    array_items(c, cases) {
        struct apisync f;
        cleanup_free char *body = xasprintf(
            "{\"metadata\":{\"resourceVersion\":\"3\"},\"items\":[%s]}", c->items);
        cleanup_free char *want = xasprintf("%slist ended @3\n", c->want);
        start(&f, c->kind, false);
        answer(&f, 200, body, NULL);
        ck_assert_str_eq(seen.p, want);
        ck_assert_uint_eq(faults, c->faults);
        apisync_fini(&f);
    }
}

TEST(a_watch_delivers_events)
{
    struct apisync f;
    start(&f, CORE_NODES, true);
    ck_assert_contains(path_of(&f), "watch=1&allowWatchBookmarks=true&timeout");
    ck_assert_contains(path_of(&f), "&resourceVersion=42");
    answer(
        &f, 200,
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"n1\","
        "\"resourceVersion\":\"43\"}}}\n"
        "{\"object\":{\"metadata\":{\"name\":\"n2\",\"resourceVersion\":\"44\"}},"
        "\"type\":\"MODIFIED\"}\n"
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"50\"}}}\n"
        "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"n1\","
        "\"resourceVersion\":\"51\"}}}\n{\"type\":\"NEWS\",\"object\":{}}\n",
        NULL);
    ck_assert_str_eq(seen.p, "alive\nseen n1 @43\nseen n2 @44\nalive @50\ngone n1 @51\n"
                             "watch ended ok\n");
    apisync_fini(&f);
}

TEST(the_end_of_a_watch_reports_the_error)
{
    static const struct {
        unsigned status;
        const char *body;
        bool broken;
        const char *want;
    } cases[] = {
        {410, "{}", false, "watch ended gone\n"},
        {200, "{\"type\":\"ADD", false, "alive\nwatch ended ok\n"},
        {200, "{\"type\":\"ADD", true, "alive\nwatch ended timeout\n"},
        {200,
         "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n"
         "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"n1\"}}}\n",
         false, "alive\nwatch ended gone\n"},
    };
    array_items(c, cases) {
        struct apisync f;
        struct err why = {.code = ERR_TIMEOUT, .msg = "silence"};
        start(&f, CORE_NODES, true);
        answer(&f, c->status, c->body, c->broken ? &why : NULL);
        ck_assert_str_eq(seen.p, c->want);
        apisync_fini(&f);
    }
}

/* -- calls -- */

#define PODS_NS "/api/v1/namespaces/ns/pods/"
#define LEASES  "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
#define MERGE   "application/merge-patch+json"

/* A GET of a pod has no resourceVersion, so it is a consistent read. A PATCH of the Lease keeps
 * members of other writers. */
static const struct {
    struct core_output call;
    const char *method, *path, *type, *body;
} requests[] = {
    {{.type = CORE_CALL_BIND, .annotations = "{\"k\":\"v\"}"},
     "POST",
     PODS_NS "p/binding?timeout=3s",
     NULL,
     "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":\"p\","
     "\"namespace\":\"ns\",\"uid\":\"u-1\",\"annotations\":{\"k\":\"v\"}},\"target\":{"
     "\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":\"n1\"}}"},
    {{.type = CORE_CALL_GET_POD}, "GET", PODS_NS "p", NULL, ""},
    {{.type = CORE_CALL_LEASE_GET, .limit_ms = 2000}, "GET", LEASES "/p", NULL, ""},
    {{.type = CORE_CALL_LEASE_WRITE, .body = "{}"}, "PATCH", LEASES "/p", MERGE, "{}"},
    {{.type = CORE_CALL_LEASE_WRITE, .body = "{}", .create = true},
     "POST",
     LEASES,
     NULL,
     "{}"},
    {{.type = CORE_CALL_WAKEUP, .value = "t"},
     "PATCH",
     NULL,
     MERGE,
     "{\"metadata\":{\"annotations\":{\"gpushare/room-since\":\"t\"}}}"},
    {{.type = CORE_CALL_NOMINATE},
     "PATCH",
     PODS_NS "p/status",
     MERGE,
     "{\"metadata\":{\"uid\":\"u-1\"},\"status\":{\"nominatedNodeName\":\"n1\"}}"},
    {{.type = CORE_CALL_NOMINATE, .node = ""},
     "PATCH",
     PODS_NS "p/status",
     MERGE,
     "{\"metadata\":{\"uid\":\"u-1\"},\"status\":{\"nominatedNodeName\":null}}"},
    {{.type = CORE_CALL_EVICT},
     "POST",
     PODS_NS "p/eviction",
     NULL,
     "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"p\","
     "\"namespace\":\"ns\"},\"deleteOptions\":{\"preconditions\":{\"uid\":\"u-1\"}}}"},
};

TEST(each_call_is_one_request)
{
    array_items(request, requests) {
        struct kube_request r;
        struct core_output call = request->call;
        call.ns = "ns";
        call.name = "p";
        call.uid = "u-1";
        call.node = call.node ? NULL : "n1";
        call.send_by = (struct clock_deadline){99, 7};
        ck_assert(apisync_is_call(&call));
        apisync_call(&call, &a, &r);
        ck_assert_str_eq(r.method, request->method);
        if (request->path)
            ck_assert_str_eq(r.path, request->path);
        if (request->type)
            ck_assert_str_eq(r.content_type, request->type);
        ck_assert_span_eq(r.body, request->body);
        if (call.type != CORE_CALL_BIND && call.type != CORE_CALL_NOMINATE &&
            call.type != CORE_CALL_EVICT)
            continue;
        ck_assert_int_eq(r.send_by.mono_ms, 99);
        ck_assert_int_eq(r.send_by.offset_ms, 7);
        if (call.type != CORE_CALL_BIND)
            continue;
        ck_assert_int_eq(r.tcp_user_timeout_ms, CORE_DELIVERY_MS);
        /* The client timeout must exceed the server's time limit. */
        ck_assert_int_ge(r.timeout_ms, CORE_BIND_LIMIT_MS);
    }
}

static struct apisync_answer got;

static void answer_call(enum core_output_type type, struct apisync_result result)
{
    struct core_output call = {.type = type, .call = 5};
    apisync_answer(&call, &result, &a, &got);
    ck_assert_int_eq(got.input.type, CORE_ANSWER);
    ck_assert_uint_eq(got.input.call, 5);
}

/* The answers of kube-apiserver 1.37 to an eviction. */
TEST(a_disruption_budget_is_not_an_overload)
{
    answer_call(
        CORE_CALL_EVICT,
        (struct apisync_result){
            .status = 429,
            .body =
                SPAN("{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"Cannot "
                     "evict pod as it would violate the pod's disruption budget.\","
                     "\"reason\":\"TooManyRequests\",\"details\":{\"causes\":[{"
                     "\"reason\":\"DisruptionBudget\",\"message\":\"The disruption "
                     "budget b needs 1 healthy pods and has 1 currently\"}]},"
                     "\"code\":429}")});
    ck_assert(got.input.disruption_budget);
    ck_assert_int_eq(got.input.retry_after_ms, -1);
    answer_call(CORE_CALL_EVICT,
                (struct apisync_result){.status = 429,
                                        .retry_after_s = 2,
                                        .body = SPAN("{\"kind\":\"Status\",\"details\":{"
                                                     "\"retryAfterSeconds\":2}}")});
    ck_assert(!got.input.disruption_budget);
    ck_assert_int_eq(got.input.retry_after_ms, 2000);
    answer_call(CORE_CALL_EVICT, (struct apisync_result){.status = 429,
                                                         .retry_after_s = INT64_MAX,
                                                         .body = SPAN("{}")});
    ck_assert_int_eq(got.input.retry_after_ms, 60000);

    static const char *const odd[] = {"", "Too many requests", "{\"details\":null}",
                                      "{\"details\":{\"causes\":[3]}}",
                                      "{\"details\":{\"causes\":[{\"reason\":7}]}}"};
    array_items(o, odd) {
        answer_call(CORE_CALL_EVICT,
                    (struct apisync_result){.status = 429, .body = span_of(*o)});
        ck_assert(!got.input.disruption_budget);
        ck_assert_int_eq(got.input.err->code, ERR_UNAVAILABLE);
    }
}

static void answer_get(unsigned status, const char *body)
{
    answer_call(CORE_CALL_GET_POD,
                (struct apisync_result){.status = status, .body = span_of(body)});
}

TEST(answers_become_inputs)
{
    answer_get(200, "{\"metadata\":{\"name\":\"p\",\"uid\":\"u\"}}");
    ck_assert_ptr_null(got.input.err);
    ck_assert_span_eq(got.input.pod->meta.uid, "u");
    answer_get(200, "{\"metadata\":");
    ck_assert_int_eq(got.input.err->code, ERR_INTERNAL);
    ck_assert_ptr_null(got.input.pod);
    answer_get(404, "{\"kind\":\"Status\",\"message\":\"gone\"}");
    ck_assert_int_eq(got.input.err->code, ERR_NOT_FOUND);
    ck_assert(!got.input.not_sent);

    struct err why = {.code = ERR_UNAVAILABLE, .msg = "connection refused"};
    for (int sent = 0; sent < 2; sent++) {
        answer_call(CORE_CALL_GET_POD,
                    (struct apisync_result){.why = &why, .sent = sent});
        ck_assert_int_eq(got.input.not_sent, !sent);
        ck_assert_str_eq(got.input.err->msg, "connection refused");
    }
}

TEST(a_copied_output_owns_its_strings)
{
    char ns[] = "default", text[] = "why";
    struct core_output o = {.type = CORE_REPLY, .token = 9, .ns = ns, .text = text};
    cleanup_free struct core_output *copy = core_output_dup(&o);
    memset(ns, 'x', sizeof ns - 1);
    memset(text, 'x', sizeof text - 1);
    ck_assert_str_eq(copy->ns, "default");
    ck_assert_str_eq(copy->text, "why");
    ck_assert_ptr_null(copy->uid);
    ck_assert_uint_eq(copy->token, 9);
}
