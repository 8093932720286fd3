/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/verbs_driver.h"

#include "apisync/apisync.h"
#include "base/log.h"
#include "fuzz/fuzz.h"

#define LEASE(version, holder)                                                           \
    SPAN("{\"metadata\":{\"name\":\"l\",\"resourceVersion\":\"" version                  \
         "\"},\"spec\":{" holder "}}")
static const char scvs[] =
    "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"cardList\":[{\"id\":0,"
    "\"health\":\"Healthy\",\"totalMemory\":16276}]}},"
    "{\"metadata\":{\"name\":\"n2\"},\"status\":{\"cardList\":[{\"id\":0,"
    "\"health\":\"Unhealthy\",\"totalMemory\":16276}]}}";

static struct core_driver *driver; /* while verbs_driver_new sets it up; or NULL */
static uint64_t runs[CORE_KINDS];

static void stream(void *ctx, const struct core_output *o)
{
    (void)ctx;
    runs[o->kind] = o->run;
}

static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct apisync_answer *answer)
{
    struct apisync_result result = {.status = 200, .sent = true};
    (void)ctx;
    if (call->type == CORE_CALL_LEASE_GET)
        result.body = LEASE("1", "");
    else if (call->type == CORE_CALL_LEASE_WRITE)
        result.body = LEASE("2", "\"holderIdentity\":\"me\"");
    else
        result = (struct apisync_result){.status = 404, .body = SPAN("{}"), .sent = true};
    apisync_answer(call, &result, arena, answer);
}

/* The GET of the lease and its renewal, after which the pods are listed. Later outputs are not
 * executed. */
static void defer(void *ctx, const struct core_output *o)
{
    struct apisync_answer answer;
    cleanup_arena struct arena a = {0};
    if (!driver)
        return;
    perform(ctx, o, &a, &answer);
    core_driver_input(driver, &answer.input);
}

static void hurry(void *ctx)
{
    (void)ctx;
}

static void on_input(void *ctx, const struct core_input *in)
{
    (void)ctx;
    core_driver_input(driver, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    fuzz_fail(err->msg);
}

struct core_driver *verbs_driver_new(void)
{
    static const struct apisync_sink sink = {.input = on_input, .fault = on_fault};
    log_set_level(LOG_ERROR);
    struct core_driver *d = driver = core_driver_new(
        &(struct core_settings){.ledger = {.unit_mib = 1, .external_tolerance_mib = 1024},
                                .identity = "me",
                                .lease_namespace = "kube-system",
                                .lease_name = "l"},
        &(struct core_driver_io){stream, defer, perform, hurry, NULL});
    core_driver_input(d, &(struct core_input){.type = CORE_TICK});
    for (int kind = 0; kind < CORE_KINDS; kind++) {
        struct apisync f;
        cleanup_buf struct buf text = {0};
        buf_printf(&text, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}",
                   kind == CORE_SCVS ? scvs : "");
        apisync_start(&f, (enum core_kind)kind, false, runs[kind], (struct span){0},
                      &sink, NULL);
        list_watch_begin(&f.in, 200, -1);
        list_watch_data(&f.in, text.p, text.n);
        apisync_end(&f, NULL);
        apisync_fini(&f);
    }
    driver = NULL;
    return d;
}
