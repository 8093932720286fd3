/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The gRPC server and client, with the kubelet's messages, against @grpc/grpc-js: a
 * device plugin whose kubelet is kubelet.js, and a client of podresources.js.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "kube/deviceplugin.h"
#include "kube/podresources.h"
#include "lib/program.h"
#include "lib/stub.h"
#include "lib/temp.h"
#include "lib/unit.h"
#include "wire/grpcc.h"
#include "wire/grpcd.h"

enum { STREAMS = 8 };

/* A plugin of two cards. */
struct plugin {
    pthread_mutex_t lock;
    bool is_unhealthy;                 /* card-0 */
    struct grpcd_call *watch[STREAMS]; /* NULL: free */
    struct grpcd_call *waits, *asks;   /* a parked call, and the call that waits for it */
    unsigned n_over;
    atomic_bool stop;
};

static void answer(struct grpcd_call *call, int rc, struct buf *reply,
                   const struct err *err)
{
    if (rc == 0) {
        grpcd_reply(call, reply);
        return;
    }
    buf_fini(reply);
    grpcd_end(call,
              err->code == ERR_CONFLICT ? GRPC_FAILED_PRECONDITION
                                        : GRPC_INVALID_ARGUMENT,
              "%s", err->msg);
}

static void get_options(void *ctx, struct grpcd_call *call, struct span request)
{
    struct buf reply = {0};
    struct err err = {0};
    (void)ctx, (void)request;
    answer(call,
           proto_encode(&dp_options_type, &(struct dp_options){true, true},
                        DP_MESSAGE_MAX, &reply, &err),
           &reply, &err);
}

/* The lock is held. */
static void send_list(struct plugin *p, struct grpcd_call *call)
{
    const struct dp_device devices[] = {
        {SPAN("card-0"), p->is_unhealthy ? SPAN("Unhealthy") : SPAN("Healthy")},
        {SPAN("card-1"), SPAN("Healthy")}};
    struct buf list = {0};
    if (proto_encode(&dp_devices_type, &(struct dp_devices){devices, 2}, DP_MESSAGE_MAX,
                     &list, NULL) == 0)
        grpcd_send(call, &list);
}

static void watch(void *ctx, struct grpcd_call *call, struct span request)
{
    struct plugin *p = ctx;
    (void)request;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < STREAMS; i++) {
        if (p->watch[i])
            continue;
        p->watch[i] = call;
        send_list(p, call);
        break;
    }
    pthread_mutex_unlock(&p->lock);
}

static void watch_cancelled(void *ctx, struct grpcd_call *call)
{
    struct plugin *p = ctx;
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < STREAMS; i++)
        if (p->watch[i] == call)
            p->watch[i] = NULL;
    pthread_mutex_unlock(&p->lock);
    grpcd_end(call, GRPC_OK, "%s", "");
}

static void flip(struct plugin *p)
{
    p->is_unhealthy = true;
    for (size_t i = 0; i < STREAMS; i++)
        if (p->watch[i])
            send_list(p, p->watch[i]);
}

static int allocation(const struct dp_entry *envs, size_t n, struct buf *out,
                      struct err *err)
{
    static const struct dp_entry note = {SPAN("note"), SPAN("x")};
    static const struct dp_mount mount = {SPAN("/c"), SPAN("/h"), true};
    static const struct dp_spec spec = {SPAN("/dev/a"), SPAN("/dev/b"), SPAN("rw")};
    static const struct span cdi = SPAN("vendor.com/gpu=0");
    const struct dp_allocation a = {.envs = envs,
                                    .n_envs = n,
                                    .annotations = &note,
                                    .n_annotations = 1,
                                    .mounts = &mount,
                                    .n_mounts = 1,
                                    .specs = &spec,
                                    .n_specs = 1,
                                    .cdi = &cdi,
                                    .n_cdi = 1};
    return proto_encode(&dp_allocations_type, &(struct dp_allocations){&a, 1},
                        DP_MESSAGE_MAX, out, err);
}

static int allocate_cards(const struct dp_ids *ids, struct buf *out, struct err *err)
{
    cleanup_buf struct buf text = {0};
    for (size_t i = 0; i < ids->n; i++) {
        if (!span_starts(ids->items[i], SPAN("card-")) ||
            span_eq(ids->items[i], SPAN("card-9")))
            return err_set(err, ERR_CONFLICT, "%.*s ist f\xc3\xbcr niemanden: 100%%",
                           SPAN_ARG(ids->items[i]));
        buf_adds(&text, i ? "," : "");
        buf_add_span(&text, ids->items[i]);
    }
    const struct dp_entry envs[] = {{SPAN("IDS"), buf_span(&text)},
                                    {SPAN("WORDS"), SPAN("gr\xc3\xb6\xc3\x9f"
                                                         "e=1")}};
    return allocation(envs, 2, out, err);
}

static void reply_count(struct grpcd_call *call, unsigned n)
{
    struct buf reply = {0};
    struct err err = {0};
    char text[12];
    snprintf(text, sizeof text, "%u", n);
    const struct dp_entry env = {SPAN("N"), span_of(text)};
    answer(call, allocation(&env, 1, &reply, &err), &reply, &err);
}

/* The two meet, in either order. The lock is held. */
static void signal_closed(struct plugin *p)
{
    if (!p->waits || !p->asks)
        return;
    reply_count(p->asks, p->n_over);
    p->asks = NULL;
}

/* Words that are no card. True: the call is answered, or will be. */
static bool on_command(struct plugin *p, struct grpcd_call *call, struct span word)
{
    bool is_known = true;
    pthread_mutex_lock(&p->lock);
    if (span_eq(word, SPAN("wait"))) {
        p->waits = call;
        signal_closed(p);
    } else if (span_eq(word, SPAN("waiting"))) {
        p->asks = call;
        signal_closed(p);
    } else if (span_eq(word, SPAN("overs"))) {
        reply_count(call, p->n_over);
    } else if (span_eq(word, SPAN("flip"))) {
        flip(p);
        reply_count(call, 0);
    } else if (span_eq(word, SPAN("stop"))) {
        reply_count(call, 0);
        atomic_store(&p->stop, true);
    } else {
        is_known = false;
    }
    pthread_mutex_unlock(&p->lock);
    return is_known;
}

static void allocate(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_groups groups;
    struct err err = {0};
    struct buf reply = {0};
    cleanup_arena struct arena a = {0};
    int rc = proto_decode(&dp_groups_type, request, &a, &groups, &err);
    if (rc == 0 && (groups.n != 1 || !groups.items[0].n))
        rc = err_set(&err, ERR_INVALID, "one container with ids is wanted");
    if (rc == 0 && on_command(ctx, call, groups.items[0].items[0]))
        return;
    if (rc == 0)
        rc = allocate_cards(&groups.items[0], &reply, &err);
    answer(call, rc, &reply, &err);
}

static void allocate_over(void *ctx, struct grpcd_call *call)
{
    struct plugin *p = ctx;
    pthread_mutex_lock(&p->lock);
    p->n_over++;
    if (p->waits == call)
        p->waits = NULL;
    pthread_mutex_unlock(&p->lock);
    grpcd_end(call, GRPC_CANCELLED, "%s", "");
}

/* Those that must be in it, and then the first ones. */
static void prefer(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_preferences m;
    struct err err = {0};
    struct buf reply = {0};
    cleanup_arena struct arena a = {0};
    (void)ctx;
    int rc = proto_decode(&dp_preferences_type, request, &a, &m, &err);
    if (rc == 0 && m.n == 1) {
        const struct dp_preference *one = &m.items[0];
        struct span *ids = arena_alloc(&a, (size_t)one->size * sizeof *ids);
        size_t n = 0, size = (size_t)one->size;
        for (size_t i = 0; i < one->must_include.n && n < size; i++)
            ids[n++] = one->must_include.items[i];
        for (size_t i = 0; i < one->available.n && n < size; i++)
            ids[n++] = one->available.items[i];
        const struct dp_ids group = {ids, n};
        rc = proto_encode(&dp_groups_type, &(struct dp_groups){&group, 1}, DP_MESSAGE_MAX,
                          &reply, &err);
    }
    answer(call, rc, &reply, &err);
}

static void pre_start(void *ctx, struct grpcd_call *call, struct span request)
{
    struct dp_ids ids;
    struct err err = {0};
    struct buf reply = {0};
    cleanup_arena struct arena a = {0};
    (void)ctx;
    int rc = proto_decode(&dp_ids_type, request, &a, &ids, &err);
    if (rc == 0 && !ids.n)
        rc = err_set(&err, ERR_INVALID, "no ids");
    answer(call, rc, &reply, &err);
}

static const struct grpcd_method methods[] = {
    {.path = DP_OPTIONS, .start = get_options},
    {.path = DP_WATCH, .start = watch, .on_cancel = watch_cancelled},
    {.path = DP_ALLOCATE, .start = allocate, .on_cancel = allocate_over},
    {.path = DP_PREFERRED, .start = prefer},
    {.path = "/v1beta1.DevicePlugin/PreStartContainer", .start = pre_start},
    {0},
};

/* Starts a script of this folder under node, and waits until it is ready. */
static void node(struct program *p, const char *dir, const char *script)
{
    const char *modules = getenv("GPUSHARE_PEERS");
    ck_assert_msg(modules != NULL, "run this with `make peers`");
    cleanup_free char *path = xasprintf("NODE_PATH=%s", modules);
    cleanup_free char *file = xasprintf("test/peers/%s", script);
    program_start(p, dir, ARGV("env", path, "node", file, dir));
    ck_assert_msg(program_wait_output(p, "ready"), "%s: %s", script, program_output(p));
}

static void say_hello(const char *dir)
{
    cleanup_free char *kubelet = temp_path(dir, "kubelet.sock");
    const struct dp_register m = {
        SPAN("v1beta1"), SPAN("plugin.sock"), SPAN("aliyun.com/gpu-mem"), {true, true}};
    struct err err = {0};
    cleanup_buf struct buf request = {0}, reply = {0};
    ck_assert_done(proto_encode(&dp_register_type, &m, DP_MESSAGE_MAX, &request, &err),
                   err);
    struct grpcc_request req = {.socket = kubelet,
                                .method = DP_REGISTER,
                                .message = buf_span(&request),
                                .timeout_ms = 20000};
    ck_assert_done(grpcc_call(&req, &reply, NULL, &err), err);
}

TEST(a_kubelet_of_grpc_js)
{
    struct plugin p = {0};
    struct program kubelet;
    struct err err = {0};
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "plugin.sock");
    pthread_mutex_init(&p.lock, NULL);
    struct grpcd *d = grpcd_start(
        &(struct grpcd_config){.path = path, .methods = methods, .ctx = &p}, &err);
    ck_assert_msg(d != NULL, "%s", err.msg);
    node(&kubelet, dir, "kubelet.js");
    say_hello(dir);
    while (!atomic_load(&p.stop) && program_runs(&kubelet))
        lib_pause();
    pthread_mutex_lock(&p.lock);
    for (size_t i = 0; i < STREAMS && atomic_load(&p.stop); i++)
        if (p.watch[i])
            grpcd_end(steal(&p.watch[i]), GRPC_UNAVAILABLE, "server is stopping");
    pthread_mutex_unlock(&p.lock);
    grpcd_free(d);
    int status = program_wait(&kubelet);
    printf("%s", program_output(&kubelet));
    ck_assert_msg(status == 0, "exit status %d: %s", status, program_output(&kubelet));
    program_fini(&kubelet);
    temp_dir_remove(dir);
}

static int get(const char *path, const char *name, int64_t timeout_ms, struct arena *a,
               struct podres_pod *pod, enum grpc_status *status, struct err *err)
{
    cleanup_buf struct buf request = {0}, reply = {0};
    ck_assert_done(proto_encode(&podres_get_request_type,
                                &(struct podres_get_request){span_of(name), SPAN("ns")},
                                PODRES_MESSAGE_MAX, &request, err),
                   *err);
    struct grpcc_request req = {.socket = path,
                                .method = PODRES_GET,
                                .message = buf_span(&request),
                                .timeout_ms = timeout_ms,
                                .max_message = PODRES_MESSAGE_MAX};
    if (grpcc_call(&req, &reply, status, err))
        return -1;
    return proto_decode(&podres_get_type, buf_span(&reply), a, pod, err);
}

static void expect_rejected_get(const char *path, const char *name, enum grpc_status want,
                                const char *words)
{
    struct podres_pod pod;
    struct err err = {0};
    enum grpc_status status = GRPC_OK;
    cleanup_arena struct arena a = {0};
    ck_assert_int_eq(get(path, name, 20000, &a, &pod, &status, &err), -1);
    ck_assert_msg(status == want, "%s", err.msg);
    ck_assert_contains(err.msg, words);
}

static void list(const char *path)
{
    struct podres_list got;
    struct err err = {0};
    enum grpc_status status = GRPC_OK;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf reply = {0};
    struct grpcc_request req = {.socket = path,
                                .method = PODRES_LIST,
                                .timeout_ms = 30000,
                                .max_message = PODRES_MESSAGE_MAX};
    int64_t start = clock_mono_ms();
    ck_assert_done(grpcc_call(&req, &reply, &status, &err), err);
    int64_t there = clock_mono_ms();
    ck_assert_done(proto_decode(&podres_list_type, buf_span(&reply), &a, &got, &err),
                   err);
    printf("List of %zu bytes: %d ms, and %d ms to decode\n", reply.n,
           (int)(there - start), (int)(clock_mono_ms() - there));
    ck_assert_uint_eq(got.n, 15000);
    const struct podres_devices *d = &got.pods[14999].containers[0].devices[0];
    ck_assert_span_eq(got.pods[14999].name, "pod-14999");
    ck_assert_uint_eq(d->n_ids, 8);
    ck_assert_span_eq(d->ids[7], "GPU-fef8089b-4820-abfc-e83e-94318197576e-_-119999");

    req.max_message = 0; /* 4 MiB */
    buf_clear(&reply);
    ck_assert_int_eq(grpcc_call(&req, &reply, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(err.code, ERR_TOO_LARGE);
}

TEST(podresources_of_grpc_js)
{
    struct program server;
    struct podres_pod pod;
    struct err err = {0};
    enum grpc_status status = GRPC_OK;
    cleanup_arena struct arena a = {0};
    cleanup_buf struct buf none = {0};
    cleanup_free char *dir = temp_dir(), *path = temp_path(dir, "podresources.sock");
    node(&server, dir, "podresources.js");
    list(path);
    ck_assert_done(get(path, "some", 20000, &a, &pod, NULL, &err), err);
    ck_assert_span_eq(pod.name, "some");
    ck_assert_span_eq(pod.ns, "ns");
    expect_rejected_get(
        path, "absent", GRPC_NOT_FOUND,
        "NOT_FOUND: pod \"absent\" nicht gefunden: 100% gr\xc3\xb6\xc3\x9f"
        "e");
    expect_rejected_get(path, "busy", GRPC_RESOURCE_EXHAUSTED, "rejected by rate limit");
    expect_rejected_get(path, "off", GRPC_FAILED_PRECONDITION, "is off");
    int64_t start = clock_mono_ms();
    ck_assert_int_eq(get(path, "slow", 100, &a, &pod, &status, &err), -1);
    ck_assert_msg(status == GRPC_DEADLINE_EXCEEDED, "%s", err.msg);
    ck_assert_int_eq(err.code, ERR_TIMEOUT);
    ck_assert_int_ge(clock_mono_ms() - start, 99);
    struct grpcc_request req = {.socket = path,
                                .method =
                                    "/v1.PodResourcesLister/GetAllocatableResources",
                                .timeout_ms = 20000};
    ck_assert_int_eq(grpcc_call(&req, &none, &status, &err), -1);
    ck_assert_int_eq(status, GRPC_UNIMPLEMENTED);
    program_stop(&server);
    temp_dir_remove(dir);
}

UNIT_MAIN(240)
