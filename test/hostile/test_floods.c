/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/file.h"
#include "lib/raw.h"
#include "lib/sim.h"

/*
 * Requests that make the extender take memory or time: huge lists of names, long reasons,
 * and clients that do not read their replies. Resident memory stays bounded, probes are
 * answered, and the leader keeps its Lease.
 */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { MEASURES_MEMORY = 0, NODES = 1000, LOOP_MS = 2000, IDLE_CLIENTS = 60, BODY = 8 };
#else
enum { MEASURES_MEMORY = 1, NODES = 5000, LOOP_MS = 8000, IDLE_CLIENTS = 250, BODY = 32 };
#endif

enum {
    READY_MS = 30000 * LIB_SLOWER, /* the longest answer of /readyz */
    LOOPS = 8,
    BODY_BYTES = BODY << 20, /* 32 MiB: the default of --body-limit */
    NAMES = 7 * NODES / 4,   /* almost the most that are accepted */
    NAME_BYTES = sizeof "\"node-00000\"",
};

struct world {
    struct sim sim;
    struct extender extender;
    pthread_t thread; /* of the probe; 0: none */
    atomic_bool stop;
    _Atomic int64_t slowest_ms; /* answer of /readyz */
    atomic_int unready;
    struct buf body; /* of a looping client */
    const char *path;
    int64_t loop_ms;
    atomic_int answers[600]; /* by status */
};

/* Nodes node-00000 and so on, with eight cards each. */
static struct world *begin_with(int nodes, const char *body_limit)
{
    struct world *w = xcalloc(1, sizeof *w);
    cleanup_free char *cluster =
        xasprintf("nodes=%d,cards=8,pods=0,mib=16384,full=0,node-bytes=0,uuid=1", nodes);
    sim_start(&w->sim, ARGV("--generate", cluster));
    /* The largest replies: a filter that decides answers with one node. */
    extender_start(&w->extender, &w->sim,
                   ARGV("--filter-answer=all", "--metrics-detail", "card",
                        body_limit ? "--body-limit" : NULL, body_limit));
    return w;
}

static struct world *begin(int nodes)
{
    return begin_with(nodes, NULL);
}

static void end(struct world *w)
{
    atomic_store(&w->stop, true);
    if (w->thread)
        pthread_join(w->thread, NULL);
    fprintf(stderr, "slowest /readyz: %lld ms\n", (long long)atomic_load(&w->slowest_ms));
    ck_assert_int_le(atomic_load(&w->slowest_ms), READY_MS);
    ck_assert_int_eq(atomic_load(&w->unready), 0);
    buf_fini(&w->body);
    extender_stop(&w->extender);
    sim_stop(&w->sim);
    free(w);
}

/* The largest resident memory since reset_peak, in MiB. */
static int64_t peak_mib(const struct world *w)
{
    cleanup_free char *path = xasprintf("/proc/%d/status", w->extender.program.pid);
    cleanup_buf struct buf text = {0};
    struct err err = {0};
    ck_assert_done(file_read(path, 1 << 16, &text, &err), err);
    const char *at = strstr(text.p, "VmHWM:");
    ck_assert_ptr_nonnull(at);
    return strtoll(at + strlen("VmHWM:"), NULL, 10) / 1024;
}

static void reset_peak(const struct world *w)
{
    cleanup_free char *path = xasprintf("/proc/%d/clear_refs", w->extender.program.pid);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs("5", f);
    ck_assert_int_eq(fclose(f), 0);
}

static void ck_peak(const struct world *w, const char *when, int64_t most_mib)
{
    int64_t peak = peak_mib(w);
    fprintf(stderr, "%s: peak %lld MiB\n", when, (long long)peak);
    ck_assert_msg(!MEASURES_MEMORY || peak <= most_mib,
                  "%s: %lld MiB, expected at most %lld", when, (long long)peak,
                  (long long)most_mib);
}

/* -- clients -- */

static void *probe(void *arg)
{
    struct world *w = arg;
    struct peer p;
    peer_init(&p, w->extender.observers.port);
    while (!atomic_load(&w->stop)) {
        int64_t began_ms = lib_now_ms();
        bool ready = peer_status(&p, "/readyz") == 200;
        int64_t took_ms = lib_now_ms() - began_ms;
        if (took_ms > atomic_load(&w->slowest_ms))
            atomic_store(&w->slowest_ms, took_ms);
        if (!ready)
            atomic_fetch_add(&w->unready, 1);
        lib_pause();
    }
    peer_fini(&p);
    return NULL;
}

/* /readyz is asked from now until the end of the world. */
static void start_probe(struct world *w)
{
    ck_assert_int_eq(pthread_create(&w->thread, NULL, probe, w), 0);
}

/* Appends a body for a pod of `units` up to the list or object `member`. `annotations`: JSON
 * object of the pod. */
static void begin_body(struct buf *body, int units, const char *annotations,
                       const char *member)
{
    buf_adds(body, "{\"Pod\":");
    lib_pod(body, "flood", units, NULL, annotations);
    buf_printf(body, ",\"%s\":", member);
}

/* Appends a body that names the nodes again and again. */
static void add_body(struct buf *body, int units, const char *annotations, int nodes,
                     int n)
{
    begin_body(body, units, annotations, "NodeNames");
    for (int i = 0; i < n; i++)
        buf_printf(body, "%s\"node-%05d\"", i ? "," : "[", i % nodes);
    buf_adds(body, "]}");
}

/* Annotations of a pod: a list of 250 bytes of models is in each reason. New. */
static char *long_models(void)
{
    return xasprintf("{\"nvidia-gpu-scheduler/gpu.model\":\"%0250d\"}", 0);
}

static unsigned post(const struct world *w, const char *path, const struct buf *body,
                     struct buf *reply)
{
    return peer_call(&w->extender.verbs, "POST", path, body->p, reply);
}

/* Calls until loop_ms have passed, at least once. */
static void post_in_a_loop(void *ctx, size_t i)
{
    struct world *w = ctx;
    cleanup_buf struct buf reply = {0};
    struct peer p;
    int64_t until = lib_now_ms() + w->loop_ms;
    (void)i;
    peer_init(&p, w->extender.verbs.port);
    do {
        unsigned status = peer_call(&p, "POST", w->path, w->body.p, &reply);
        atomic_fetch_add(&w->answers[status < 600 ? status : 0], 1);
    } while (lib_now_ms() < until);
    peer_fini(&p);
}

/* So many clients post the body. */
static void flood(struct world *w, size_t clients, int64_t ms)
{
    w->loop_ms = ms;
    lib_threads(clients, post_in_a_loop, w);
    fprintf(stderr, "answered %d, too large %d, refused %d\n",
            atomic_load(&w->answers[200]), atomic_load(&w->answers[413]),
            atomic_load(&w->answers[503]));
}

/* -- huge requests -- */

TEST(more_names_than_the_cluster_can_have_are_refused_with_the_limit)
{
    static const struct {
        const char *path, *member, *first, *next, *end, *error;
    } cases[] = {
        {"/filter", "NodeNames", "[\"a\"", ",\"a\"", "]}", "1004"},
        {"/prioritize", "NodeNames", "[\"a\"", ",\"a\"", "]}", "1004"},
        {"/preempt", "NodeNameToMetaVictims", "{\"n0\":{\"Pods\":[{\"UID\":\"a\"}",
         ",{\"UID\":\"a\"}", "]}}}", "too many victims"},
    };
    struct world *w = begin(2);
    cleanup_buf struct buf reply = {0};
    start_probe(w);
    array_items(c, cases) {
        buf_clear(&w->body);
        begin_body(&w->body, 4, "{}", c->member);
        buf_adds(&w->body, c->first);
        while (w->body.n < BODY_BYTES - 16)
            buf_adds(&w->body, c->next);
        buf_adds(&w->body, c->end);
        reset_peak(w);
        unsigned status = post(w, c->path, &w->body, &reply);
        ck_peak(w, c->path, 100);
        ck_assert_msg(status == 413, "%s: %u", c->path, status);
        ck_assert_contains(reply.p, c->error);
    }
    end(w);
}

/* What a request of full size may name: twice the nodes and 1,000. */
TEST(names_up_to_the_limit_are_answered)
{
    struct world *w = begin(3);
    cleanup_buf struct buf reply = {0};
    for (int n = 1005; n <= 1007; n++) {
        buf_clear(&w->body);
        add_body(&w->body, 4, "{}", n, n);
        unsigned expected = n <= 2 * 3 + 1000 ? 200 : 413;
        ck_assert_uint_eq(post(w, "/filter", &w->body, &reply), expected);
        ck_assert_uint_eq(post(w, "/prioritize", &w->body, &reply), expected);
    }
    end(w);
}

TEST(long_reasons_and_large_bodies_together_stay_within_the_budget)
{
    cleanup_free char *annotations = long_models();
    struct world *w = begin(NODES);
    w->path = "/filter";
    start_probe(w);
    add_body(&w->body, 4, annotations, NODES, (8 << 20) / NAME_BYTES);
    reset_peak(w);
    flood(w, 1, 0);
    ck_peak(w, "a body of 8 MiB", 128);
    ck_assert_int_eq(atomic_load(&w->answers[413]), 1);
    /* The most that is accepted, from many clients at once. */
    buf_clear(&w->body);
    add_body(&w->body, 4, annotations, NODES, NAMES);
    reset_peak(w);
    flood(w, 64, 0);
    ck_peak(w, "64 clients with long reasons", 256);
    ck_assert_int_gt(atomic_load(&w->answers[200]), 0);
    ck_assert_int_eq(atomic_load(&w->answers[200]) + atomic_load(&w->answers[503]), 64);
    /* Four bodies of almost full size. */
    buf_clear(&w->body);
    add_body(&w->body, 4, "{}", NODES, BODY_BYTES / 16 * 15 / NAME_BYTES);
    reset_peak(w);
    flood(w, 4, 0);
    ck_peak(w, "four large bodies", 256);
    end(w);
}

/* Full Node objects (nodeCacheCapable: false) of 10 KB each. */
TEST(full_node_objects_up_to_the_limit_of_a_body_are_answered)
{
    struct world *w = begin_with(NODES, "64Mi");
    cleanup_buf struct buf reply = {0};
    begin_body(&w->body, 4, "{}", "Nodes");
    buf_adds(&w->body, "{\"items\":[");
    for (int i = 0; i < NODES; i++)
        buf_printf(&w->body,
                   "%s{\"metadata\":{\"name\":\"node-%05d\",\"annotations\":{\"a\":"
                   "\"%010000d\"}}}",
                   i ? "," : "", i, 0);
    buf_adds(&w->body, "]}}");
    reset_peak(w);
    ck_assert_uint_eq(post(w, "/filter", &w->body, &reply), 200);
    ck_assert_uint_gt(reply.n, (size_t)NODES * 10000);
    ck_peak(w, "full Nodes", 256);
    end(w);
}

static json_int_t lease_transitions(const struct world *w)
{
    cleanup_json json_t *j =
        peer_json(&w->sim.api, "GET",
                  "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
                  "gpushare-extender",
                  NULL);
    return json_integer_value(lib_at(j, "spec.leaseTransitions"));
}

TEST(eight_clients_that_loop_large_filters_do_not_take_the_lease)
{
    struct world *w = begin(NODES);
    lib_wait(extender_leads(&w->extender));
    json_int_t before = lease_transitions(w);
    start_probe(w);
    w->path = "/filter";
    add_body(&w->body, 4, "{}", NODES, (7 << 20) / NAME_BYTES);
    flood(w, LOOPS, LOOP_MS);
    buf_clear(&w->body);
    add_body(&w->body, 32, "{}", NODES, NAMES); /* each node is rejected */
    flood(w, LOOPS, LOOP_MS);
    w->path = "/prioritize";
    flood(w, LOOPS, LOOP_MS);
    ck_assert_int_gt(atomic_load(&w->answers[200]), 0);
    ck_assert(extender_leads(&w->extender));
    ck_assert_int_eq(lease_transitions(w), before);
    const char *said = program_output(&w->extender.program);
    ck_assert_msg(!strstr(said, "lease expired") && !strstr(said, "lost"), "%s", said);
    end(w);
}

/* -- clients that do not read -- */

static const char *const views[] = {
    "/inspect",
    "/metrics",
    "/",
    "/page.js",
    "/apis/nvidia-gpu-scheduler/v1/gpunodes",
    "/apis/nvidia-gpu-scheduler/v1/gpupods",
};

/* A client that will read little. */
static void open_small(struct raw *c, unsigned port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 4096;
    ck_assert_int_ge(fd, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ck_assert(raw_connect(c, fd, port));
}

static void open_idle(struct raw *c, unsigned port, const char *path)
{
    open_small(c, port);
    raw_sendf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
}

/* Waits for the head of the reply, which is one or a refusal. Returns whether it is refused. */
static bool is_refused(struct raw *c, const char *what)
{
    struct raw_reply r = {0};
    ck_assert_int_eq(raw_read_head(c, &r), RAW_OK);
    bool refused = r.status == 503;
    ck_assert_msg(r.status == 200 || refused, "%s: %u", what, r.status);
    ck_assert(!refused || raw_header(&r, "Retry-After").n);
    raw_reply_fini(&r);
    return refused;
}

static void close_all(struct raw *c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        raw_close(&c[i]);
}

TEST(clients_that_do_not_read_share_one_reply)
{
    struct world *w = begin(NODES);
    struct raw idle[IDLE_CLIENTS];
    start_probe(w);
    array_items(view, views) {
        for (int i = 0; i < IDLE_CLIENTS; i++)
            open_idle(&idle[i], w->extender.observers.port, *view);
        for (int i = 0; i < IDLE_CLIENTS; i++)
            is_refused(&idle[i], *view);
        ck_peak(w, *view, 160);
        close_all(idle, IDLE_CLIENTS);
    }
    end(w);
}

/* -- all at once -- */

/* A filter of so many bytes of a body of `all`. */
static void send_part(const struct world *w, struct raw *c, size_t all, const char *body,
                      size_t n)
{
    open_small(c, w->extender.verbs.port);
    raw_sendf(
        c,
        "POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n",
        all);
    raw_send(c, body, n);
}

/* Bodies, replies of filter and texts of inspect: each budget is used up, while the others
 * are. */
TEST(all_budgets_together_stay_within_256_mib)
{
    enum { STATES = 40, BODIES = 5, EACH = 9 << 20, REPLIES = 60 };
    struct world *w = begin(NODES);
    struct raw view[STATES], reply[REPLIES], body[BODIES];
    int refused = 0;
    cleanup_free char *annotations = long_models(), *spaces = xasprintf("%*s", EACH, "");
    add_body(&w->body, 4, annotations, NODES, NAMES);
    reset_peak(w);
    for (int i = 0; i < STATES; i++) {
        cleanup_free char *name = xasprintf("more-%d", i);
        sim_add_node(&w->sim, name, 1, 16);
        open_idle(&view[i], w->extender.observers.port, views[i % 2]);
    }
    for (int i = 0; i < REPLIES; i++) {
        send_part(w, &reply[i], w->body.n, w->body.p, w->body.n);
        refused += is_refused(&reply[i], "filter");
    }
    /* The replies about fewer nodes do not use up their budget. */
    ck_assert(refused > 0 || !MEASURES_MEMORY);
    for (int i = 0; i < BODIES; i++)
        send_part(w, &body[i], EACH + 1, spaces, EACH);
    lib_wait(extender_metric(&w->extender, "gpushare_http_request_body_bytes") >=
             BODIES * EACH);
    ck_peak(w, "all budgets", 256);
    close_all(view, STATES);
    close_all(reply, REPLIES);
    close_all(body, BODIES);
    end(w);
}

/* A filter of a pod that nobody created, or of a real pod's UID under another name. */
TEST(an_invented_pod_gets_no_event)
{
    static const struct {
        const char *ns, *name, *uid;
    } invented[] = {
        {"kube-system", "invented", "uid-invented"},
        {"kube-system", "real", "uid-real"},
        {"default", "other", "uid-real"},
        {"default", "real", "uid-other"},
    };
    struct world *w = begin(2);
    cleanup_buf struct buf reply = {0};
    sim_add_pod(&w->sim, "real", 99);
    cleanup_json json_t *seen = NULL;
    lib_wait((json_decref(seen),
              seen = peer_json(&w->extender.observers, "GET", "/inspect", NULL),
              json_array_size(lib_at(seen, "pendingPods")) == 1));
    array_items(c, invented) {
        cleanup_buf struct buf body = {0};
        buf_printf(&body,
                   "{\"Pod\":{\"metadata\":{\"name\":\"%s\",\"namespace\":\"%s\","
                   "\"uid\":\"%s\"},"
                   "\"spec\":{\"containers\":[{\"resources\":{\"limits\":{\"aliyun."
                   "com/gpu-mem\":"
                   "\"99\"}}}]}},\"NodeNames\":[\"node-00000\"]}",
                   c->name, c->ns, c->uid);
        ck_assert_uint_eq(post(w, "/filter", &body, &reply), 200);
    }
    cleanup_buf struct buf body = {0};
    lib_filter_body(&body, "real", 99, ARGV("node-00000"));
    ck_assert_uint_eq(post(w, "/filter", &body, &reply), 200);
    lib_wait(sim_count(&w->sim, "create", "events", "") > 0);
    ck_assert_int_eq(sim_count(&w->sim, "create", "events", ""), 1);
    end(w);
}

LIB_MAIN(180)
