/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/verbs_driver.h"

#include <stdlib.h>

#include "apisync/apisync.h"
#include "base/log.h"
#include "base/mem.h"
#include "fuzz/fuzz.h"

static const char free_lease[] =
    "{\"metadata\":{\"name\":\"l\",\"resourceVersion\":\"1\"},\"spec\":{}}";
static const char own_lease[] =
    "{\"metadata\":{\"name\":\"l\",\"resourceVersion\":\"2\"},"
    "\"spec\":{\"holderIdentity\":\"me\"}}";
static const char scvs[] =
    "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"cardList\":[{\"id\":0,"
    "\"health\":\"Healthy\",\"totalMemory\":16276}]}},"
    "{\"metadata\":{\"name\":\"n2\"},\"status\":{\"cardList\":[{\"id\":0,"
    "\"health\":\"Unhealthy\",\"totalMemory\":16276}]}}";

/* Records the outputs of the driver while verbs_driver_new sets it up. */
static struct {
    bool on;
    uint64_t runs[CORE_KINDS];
    struct core_output *calls[16];
    size_t n;
} setup;

static void stream(void *ctx, const struct core_output *o)
{
    (void)ctx;
    setup.runs[o->kind] = o->run;
}

static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer)
{
    (void)ctx;
    struct apisync_result result = {.status = 404, .body = SPAN("{}"), .sent = true};
    if (call->type == CORE_CALL_LEASE_GET || call->type == CORE_CALL_LEASE_WRITE) {
        bool get = call->type == CORE_CALL_LEASE_GET;
        result.status = 200;
        result.body = span_of(get ? free_lease : own_lease);
    }
    apisync_answer(call, &result, arena, answer);
}

/* Later outputs are not executed. */
static void defer(void *ctx, const struct core_output *o)
{
    (void)ctx;
    if (setup.on && setup.n < ARRAY_LEN(setup.calls))
        setup.calls[setup.n++] = core_output_dup(o);
}

static void hurry(void *ctx)
{
    (void)ctx;
}

static void on_input(void *ctx, const struct core_input *in)
{
    core_driver_input(ctx, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    fuzz_fail(err->msg);
}

static void settle(struct core_driver *driver)
{
    size_t n = setup.n;
    struct core_output *calls[ARRAY_LEN(setup.calls)];
    memcpy(calls, setup.calls, sizeof calls);
    setup.n = 0; /* an answer may cause the next call */
    for (size_t i = 0; i < n; i++) {
        struct apisync_answer answer;
        cleanup_arena struct arena a = {0};
        perform(NULL, calls[i], &a, &answer);
        core_driver_input(driver, &answer.input);
        free(calls[i]);
    }
}

static void list(struct core_driver *driver, enum core_kind kind)
{
    static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};
    struct apisync f;
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}",
               kind == CORE_SCVS ? scvs : "");
    apisync_start(&f, kind, false, setup.runs[kind], (struct span){0}, &sink, driver);
    list_watch_begin(&f.in, 200, -1);
    list_watch_data(&f.in, text.p, text.n);
    apisync_end(&f, NULL);
    apisync_fini(&f);
}

struct core_driver *verbs_driver_new(void)
{
    struct core_settings settings = {
        .ledger = {.unit_mib = 1, .external_tolerance_mib = 1024},
        .identity = "me",
        .lease_namespace = "kube-system",
        .lease_name = "l"};
    struct core_driver_io io = {stream, defer, perform, hurry, NULL};
    struct core_driver *driver = core_driver_new(&settings, &io);
    log_set_level(LOG_ERROR);
    setup.on = true;
    core_driver_input(driver, &(struct core_input){.type = CORE_TICK});
    settle(driver); /* the GET of the lease */
    settle(driver); /* the renewal, after which the pods are listed */
    setup.on = false;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        list(driver, (enum core_kind)kind);
    return driver;
}
