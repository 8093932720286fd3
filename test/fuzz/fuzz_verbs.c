/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Bodies of filter, prioritize and bind: an answer or an error, always JSON.
 */

#include "fuzz/fuzz.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "extender/feed.h"
#include "extender/verbs.h"

static uint64_t runs[CORE_KINDS];
static struct core_output *deferred[16];
static size_t n_deferred;

static void stream(void *ctx, const struct core_output *o)
{
    (void)ctx;
    runs[o->kind] = o->run;
}

static void defer(void *ctx, const struct core_output *o)
{
    (void)ctx;
    if (n_deferred < ARRAY_LEN(deferred))
        deferred[n_deferred++] = core_output_dup(o);
}

/* No pod exists, and nothing can be bound. */
static void perform(void *ctx, const struct core_output *call, struct arena *arena,
                    struct call_answer *answer)
{
    (void)ctx;
    struct call_result absent = {.status = 404, .body = SPAN("{}"), .sent = true};
    call_answer(call, &absent, arena, answer);
}

static void hurry(void *ctx)
{
    (void)ctx;
}

static void on_input(void *ctx, const struct core_input *in)
{
    store_input(ctx, in);
}

static void on_fault(void *ctx, const struct err *err)
{
    (void)ctx;
    fuzz_fail(err->msg);
}

static void list(struct store *store, enum core_kind kind, const char *items)
{
    static const struct feed_sink sink = {on_input, on_fault};
    struct feed f;
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[%s]}", items);
    feed_start(&f, kind, false, runs[kind], (struct span){0}, &sink, store);
    feed_begin(&f, 200, -1);
    feed_data(&f, text.p, text.n);
    feed_end(&f, NULL);
    feed_fini(&f);
}

/* A store that knows a few nodes; never the holder of the lease. */
static struct store *make_store(void)
{
    struct core_settings settings = {.ledger = {1, 1024, false},
                                     .identity = "me",
                                     .lease_namespace = "kube-system",
                                     .lease_name = "l"};
    struct store_io io = {stream, defer, perform, hurry, NULL};
    struct store *store = store_new(&settings, &io);
    log_set_level(LOG_ERROR);
    store_input(store, &(struct core_input){.type = CORE_TICK});
    struct call_answer answer;
    cleanup_arena struct arena a = {0};
    perform(NULL, deferred[0], &a, &answer);
    store_input(store, &answer.input); /* no lease: the pods are listed now */
    for (size_t i = 0; i < n_deferred; i++)
        free(deferred[i]);
    n_deferred = 0;
    for (int kind = 0; kind < CORE_KINDS; kind++)
        list(store, (enum core_kind)kind,
             kind == CORE_SCVS
                 ? "{\"metadata\":{\"name\":\"n1\"},\"status\":{\"cardList\":[{\"id\":0,"
                   "\"health\":\"Healthy\",\"totalMemory\":16276}]}},"
                   "{\"metadata\":{\"name\":\"n2\"},\"status\":{\"cardList\":[{\"id\":0,"
                   "\"health\":\"Unhealthy\",\"totalMemory\":16276}]}}"
                 : "");
    return store;
}

static void check(unsigned status, const struct buf *reply)
{
    json_error_t error;
    json_t *j = json_loadb(reply->p, reply->n, 0, &error);
    if (!j)
        fuzz_fail("the reply is not JSON");
    if (status != 200 && status != 400)
        fuzz_fail("an unexpected status");
    if (status == 400 && !json_is_string(json_object_get(j, "Error")))
        fuzz_fail("an error without words");
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* One store and one set of buffers for all inputs: what one leaves behind, the next
     * would show. They live until the process ends. */
    static struct store *store;
    static struct verbs *v;
    if (!store) {
        store = make_store();
        v = verbs_new(store);
    }
    struct span body = {(const char *)data, size};
    cleanup_buf struct buf reply = {0};
    check(verb_filter(v, body, &reply), &reply);
    buf_clear(&reply);
    check(verb_prioritize(v, body, &reply), &reply);

    /* Reading the arguments of bind; a bind that is well-formed would wait for the lease.
     */
    json_t *j = json_loadb(body.p, body.n, 0, NULL);
    bool complete = j != NULL;
    json_decref(j);
    if (!complete) {
        buf_clear(&reply);
        check(verb_bind(v, body, &reply), &reply);
    }
    return 0;
}
