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

#include "agent/api.h"
#include "gpu/gpu_priv.h"

enum { CALLS = 64 };

static struct {
    struct publisher *publisher;
    struct step_time now;
    struct publisher_output calls[CALLS]; /* not answered yet; strings not valid */
    size_t n;
    uint64_t run;      /* of the newest watch */
    uint64_t watching; /* the watch that `feed` reads; 0: none */
    struct api_feed *feed;
    struct list_watch *decoder;
    bool node_seen;
} w;

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
    publisher_step(w.publisher, w.now, &in, &out);
    for (size_t i = 0; i < out.n; i++) {
        const struct publisher_output *o = (struct publisher_output *)out.items + i;
        if (o->type == PUBLISHER_WATCH) {
            w.run = o->run;
            continue;
        }
        check_call(o);
        fuzz_fail_if(w.n == CALLS, "too many calls at a time");
        w.calls[w.n++] = *o;
    }
    fuzz_fail_if(publisher_due(w.publisher) <= w.now.mono_ms, "a deadline in the past");
    step_outputs_fini(&out);
}

static void on_answer(struct span text, bool list)
{
    cleanup_arena struct arena a = {0};
    struct api_answer answer;
    int64_t status = 200;
    size_t i = 0;
    while (i < w.n && list != (w.calls[i].type == PUBLISHER_LIST))
        i++;
    if (i == w.n)
        return;
    struct publisher_output call = w.calls[i];
    w.calls[i] = w.calls[--w.n];
    if (!list && !span_i64(span_cut(&text, ' '), &status))
        status = 500;
    struct httpc_reply reply = {.status = (unsigned)status, .retry_after_s = -1};
    buf_add_span(&reply.body, text);
    api_answer(&call, &reply, NULL, &a, &answer);
    w.node_seen |= call.type == PUBLISHER_GET_NODE && answer.input.object;
    step(answer.input);
    buf_fini(&reply.body);
}

/* An input from the watch that the publisher has not received yet. */
static void on_input(void *ctx, const struct publisher_input *in)
{
    (void)ctx;
    if (in->type == PUBLISHER_WATCH_ENDED && in->err->code)
        fuzz_check_error(in->err);
    step(*in);
}

/* Starts to read a new watch when the agent has requested one. */
static void on_event(struct span text)
{
    if (!w.run)
        return;
    if (w.watching != w.run) {
        cleanup_arena struct arena a = {0};
        struct kube_request request;
        api_feed_fns.start(w.feed, 0, &(struct list_watch_run){w.run, true, "1"});
        w.decoder = api_feed_fns.request(w.feed, 0, &a, &request);
        list_watch_begin(w.decoder, 200, -1);
        w.watching = w.run;
    }
    if (!list_watch_data(w.decoder, text.p, text.n)) {
        api_feed_fns.end(w.feed, 0, NULL);
        w.watching = 0;
    }
}

static void on_watch_end(void)
{
    if (w.watching == w.run && w.run)
        api_feed_fns.end(w.feed, 0, NULL);
    w.watching = 0;
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
        on_answer(rest, true);
        break;
    case 'a':
        on_answer(rest, false);
        break;
    case 'e':
        on_event(rest);
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
    w.feed = api_feed_new("n1", on_input, NULL);
    while (in.n) {
        struct span line = span_cut(&in, '\n');
        if (line.n)
            on_line(line);
    }
    api_feed_free(w.feed);
    publisher_free(w.publisher);
}
