/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The inputs of scv-agent's state publisher, one per line: "l" a list, "e" bytes of the
 * watch, "a" the answer to a call (its status first: "a409 {...}"), "s" a sample in the
 * format of the file source, "x" an XID, "w" the end of the watch, "t" time.
 *
 * Invariants: the body of every call is JSON; only the creation contains a spec; an Scv
 * is created only after its Node was seen; no card is published twice; the next deadline
 * is never in the past.
 */

#include "fuzz/fuzz.h"

#include <stdio.h>

#include "gpu/gpu_priv.h"
#include "node/api.h"

enum { CALLS = 64 };

static struct {
    struct publisher *publisher;
    struct step_time now;
    struct publisher_output calls[CALLS]; /* not answered yet; strings not valid */
    size_t n;
    struct informer *scv;
    struct list_watch *decoder; /* of its request; NULL: none */
    bool node_seen;
} w;

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return w.now.mono_ms;
}

static void check_cards(const json_t *body)
{
    const json_t *cards = json_object_get(json_object_get(body, "status"), "cardList");
    for (size_t i = 0; i < json_array_size(cards); i++)
        for (size_t k = 0; k < i; k++) {
            const json_t *a = json_array_get(cards, i), *b = json_array_get(cards, k);
            fuzz_fail_if(json_equal(json_object_get(a, "id"), json_object_get(b, "id")),
                         "a duplicate id");
            fuzz_fail_if(
                json_equal(json_object_get(a, "uuid"), json_object_get(b, "uuid")),
                "a duplicate UUID");
        }
}

static void check_call(const struct publisher_output *o)
{
    fuzz_fail_if(o->type == PUBLISHER_CREATE && !w.node_seen,
                 "an Scv was created without a Node");
    if (!o->body)
        return;
    json_t *body = json_loads(o->body, 0, NULL);
    fuzz_fail_if(!body, "a request body that is not JSON");
    fuzz_fail_if(o->type == PUBLISHER_PATCH && json_object_get(body, "spec"),
                 "a patch that changes the spec");
    check_cards(body);
    json_decref(body);
}

static void step(struct publisher_input in)
{
    struct step_outputs out = {0};
    struct informer_status status = informer_status(w.scv);
    in.watch = &status;
    publisher_step(w.publisher, w.now, &in, &out);
    for (size_t i = 0; i < out.n; i++) {
        const struct publisher_output *o = (struct publisher_output *)out.items + i;
        if (o->type == PUBLISHER_RELIST) {
            informer_relist(w.scv);
            w.decoder = NULL;
            continue;
        }
        check_call(o);
        fuzz_fail_if(w.n == CALLS, "too many calls at a time");
        w.calls[w.n++] = *o;
    }
    fuzz_fail_if(publisher_due(w.publisher) <= w.now.mono_ms, "a deadline in the past");
    step_outputs_fini(&out);
}

static void on_answer(struct span text)
{
    cleanup_arena struct arena a = {0};
    struct api_answer answer;
    int64_t status = 200;
    if (!w.n)
        return;
    struct publisher_output call = w.calls[0];
    w.calls[0] = w.calls[--w.n];
    if (!span_i64(span_cut(&text, ' '), &status))
        status = 500;
    struct httpc_reply reply = {.status = (unsigned)status, .retry_after_s = -1};
    buf_add_span(&reply.body, text);
    api_answer(&call, &reply, NULL, &a, &answer);
    w.node_seen |= call.type == PUBLISHER_GET_NODE && answer.input.object;
    step(answer.input);
    buf_fini(&reply.body);
}

static int on_scv(void *ctx, struct jread *j, struct arena *a, bool gone,
                  struct span *version, struct err *err)
{
    struct api_object object;
    struct span raw;
    (void)ctx;
    if (!jread_raw(j, &raw))
        return 0;
    if (api_object_read(raw, a, &object, err)) {
        fuzz_check_error(err);
        return -1;
    }
    *version = object.meta.version;
    step((struct publisher_input){
        .type = PUBLISHER_OBJECT, .gone = gone, .object = &object});
    return 0;
}

static void on_scv_listed(void *ctx, bool complete)
{
    (void)ctx;
    step((struct publisher_input){.type = complete ? PUBLISHER_LIST_ENDED
                                                   : PUBLISHER_LIST_STARTED});
}

static void on_response(bool more)
{
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    w.decoder = NULL;
    if (!more)
        return;
    w.decoder = informer_fns.request(w.scv, 0, &a, &request);
    list_watch_begin(w.decoder, 200, -1);
}

/* Bytes of a list, all of it, or of a watch, if that is due or in progress. */
static void on_bytes(struct span text, bool list)
{
    if (!w.decoder && informer_fns.tick(w.scv) > INT64_MAX / 2) {
        informer_fns.start(w.scv, 0, NULL);
        on_response(true);
    }
    if (!w.decoder || w.decoder->watch == list)
        return;
    if (!list_watch_data(w.decoder, text.p, text.n) || list)
        on_response(informer_fns.end(w.scv, 0, NULL));
}

static void on_watch_end(void)
{
    if (w.decoder)
        on_response(informer_fns.end(w.scv, 0, NULL));
}

static void on_sample(struct span text)
{
    struct gpu_sample sample = {0};
    struct err err = {0};
    struct publisher_input in = {.type = PUBLISHER_SAMPLED, .retry_after_ms = -1};
    if (gpu_file_parse(text, &sample, &err))
        in.err = &err;
    else
        in.sample = &sample;
    step(in);
    gpu_sample_fini(&sample);
}

static void on_xid(struct span text)
{
    struct gpu_event e = {.kind = GPU_EVENT_XID, .index = -1};
    struct span number = span_cut(&text, ' ');
    if (!span_i64(number, &e.xid))
        e.kind = GPU_EVENT_ECC;
    gpu_set_uuid(e.uuid, sizeof e.uuid, text);
    step((struct publisher_input){
        .type = PUBLISHER_EVENT, .event = &e, .retry_after_ms = -1});
}

static void on_line(struct span line)
{
    struct span rest = {line.p + 1, line.n - 1};
    int64_t ms = 1000;
    switch (line.p[0]) {
    case 'l':
        on_bytes(rest, true);
        break;
    case 'a':
        on_answer(rest);
        break;
    case 'e':
        on_bytes(rest, false);
        break;
    case 's':
        on_sample(rest);
        break;
    case 'x':
        on_xid(rest);
        break;
    case 'w':
        on_watch_end();
        break;
    default:
        if (span_i64(rest, &ms) && (ms < 1 || ms > 100000000))
            ms = 1;
        w.now.mono_ms += ms;
        w.now.wall_ns += ms * 1000000;
        step((struct publisher_input){.type = PUBLISHER_TICK, .retry_after_ms = -1});
    }
}

void fuzz_input(struct span in)
{
    memset(&w, 0, sizeof w);
    w.now = (struct step_time){1000, 1795338000000000000};
    w.publisher = publisher_new(
        &(struct publisher_settings){
            .node = "n1",
            .interval_ms = 1000,
            .refresh_ms = 60000,
            .renew_ms = 10000,
            .grace_ms = 40000,
            .late_ms = 15000,
            .sampler_limit_ms = 30000,
            .cards = {.keep_lost_ms = 100000,
                      .health = {.unhealthy_after_ms = 3000,
                                 .healthy_after_ms = 30000,
                                 .xid_hold_ms = 60000}},
            .seed = 1,
        },
        w.now);
    w.scv = informer_new(
        &(struct informer_settings){.path = "/scvs?fieldSelector=metadata.name%3D",
                                    .value = "n1",
                                    .name = "scvs",
                                    .not_served = "",
                                    .kind = {.watch_s = REFLECTOR_WATCH_S},
                                    .object = on_scv,
                                    .listed = on_scv_listed});
    while (in.n) {
        struct span line = span_cut(&in, '\n');
        if (line.n)
            on_line(line);
    }
    informer_free(w.scv);
    publisher_free(w.publisher);
}
