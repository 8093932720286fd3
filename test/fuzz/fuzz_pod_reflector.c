/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device plugin's pod reflector against arbitrary answers of an API server. The first
 * byte is the size of the pieces. The rest are the answers to consecutive requests,
 * separated by the byte 0x1e (which never occurs in JSON). The first character of an
 * answer is its kind: '2' status 200, '4' 410, '5' 500, 'x' 200 and then a broken
 * connection, '-' no answer.
 *
 * Invariants: requests are for the pods of the node and form a valid request line; a
 * watch follows a complete list, and a page its predecessor; pods are reported after a
 * list has started; errors have a text and are retried after a bounded delay. The size of
 * the pieces does not matter, and a truncated answer yields a prefix of the whole one's
 * output.
 */

#include "fuzz/fuzz.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/pod_reflector.h"

enum { REQUESTS_MAX = 64, LATEST_MS = 10 * 1000, SLACK_MS = 5000 };

struct world {
    struct pod_reflector *feed;
    bool listing, listed;
    struct buf output;
    size_t before_end; /* how much of it came before the end of the last answer */
};

static void on_pod(struct world *w, struct pod_allocation *pod)
{
    if (!pod->uid.n || !pod->name.n)
        fuzz_fail("a pod without name or UID");
    if (!w->listing && !w->listed)
        fuzz_fail("a pod before any list");
    buf_printf(&w->output, "seen %.*s %.*s/%.*s %zu %d\n", SPAN_ARG(pod->uid),
               SPAN_ARG(pod->ns), SPAN_ARG(pod->name), pod->n_containers, pod->terminal);
    pod_allocation_free(pod);
}

static void on_input(void *ctx, const struct alloc_input *in)
{
    struct world *w = ctx;
    bool ended = in->type == ALLOC_IN_LIST_ENDED;
    if (in->type == ALLOC_IN_POD) {
        on_pod(w, in->pod);
    } else if (in->type == ALLOC_IN_POD_DELETED) {
        if (!w->listed || w->listing)
            fuzz_fail("a list reports a deleted pod");
        buf_printf(&w->output, "deleted %.*s\n", SPAN_ARG(in->uid));
    } else {
        if (ended && !w->listing)
            fuzz_fail("a list ends that has not started");
        w->listing = !ended;
        w->listed |= ended;
        buf_adds(&w->output, ended ? "listed\n" : "list\n");
    }
}

static void check_path(const struct world *w, const char *path)
{
    static const char begin[] = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn%201&";
    bool watch = strstr(path, "&watch=1&") != NULL;
    if (strncmp(path, begin, sizeof begin - 1) != 0)
        fuzz_fail("a request for something else");
    for (const char *p = path; *p; p++)
        if (*p <= ' ' || *p > '~')
            fuzz_fail("an invalid request line");
    if (watch == w->listing || (watch && !w->listed))
        fuzz_fail("a watch where a list is due, or the reverse");
}

/* One request and its answer; status 0: there is none. */
static void turn(struct world *w, unsigned status, const struct err *why,
                 struct span body, size_t piece)
{
    const struct list_watch_fns *fns = &pod_reflector_fns;
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    bool go_on = status != 0;
    struct list_watch *in = fns->request(w->feed, 0, &a, &request);
    check_path(w, request.path);
    buf_printf(&w->output, "%s\n", request.path);
    if (status)
        list_watch_begin(in, status, -1);
    for (size_t at = 0; at < body.n && go_on; at += piece)
        go_on =
            list_watch_data(in, body.p + at, body.n - at < piece ? body.n - at : piece);
    w->before_end = w->output.n;
    int64_t before = clock_mono_ms();
    bool at_once = fns->end(w->feed, 0, why);
    const struct pod_reflector_status s = pod_reflector_status(w->feed);
    int64_t wait = s.due_ms - before;
    if (wait < 0 || wait > LATEST_MS + SLACK_MS || (s.failure.failures && at_once))
        fuzz_fail("retried without delay, or too late");
    if (s.failure.failures && !s.failure.err.msg[0])
        fuzz_fail("a failure without text");
    buf_printf(&w->output, "then %u %d\n", s.failure.failures, at_once);
}

static void run(struct world *w, struct span answers, size_t piece,
                const struct err *broken)
{
    static const struct err lost = {ERR_UNAVAILABLE, "the connection was lost"};
    *w = (struct world){0};
    w->feed =
        pod_reflector_new(&(struct pod_reflector_settings){"n 1", 1024, on_input, w});
    buf_adds(&w->output, "");
    for (int i = 0; answers.n && i < REQUESTS_MAX; i++) {
        struct span one = span_cut(&answers, 0x1e);
        char how = one.n ? *one.p : '-';
        struct span body = {one.n ? one.p + 1 : NULL, one.n ? one.n - 1 : 0};
        const struct err *why = how == 'x' || how == '-' ? &lost : NULL;
        if (!answers.n && broken)
            why = broken;
        /* What of it is read before the connection breaks depends on the pieces. */
        turn(w,
             how == '4'   ? 410
             : how == '5' ? 500
             : how == '-' ? 0
                          : 200,
             why, body, how == 'x' ? body.n + 1 : piece);
    }
    pod_reflector_free(w->feed);
}

static void check_pieces(const struct world *whole, struct span answers, size_t piece)
{
    struct world w;
    run(&w, answers, piece, NULL);
    if (!span_eq(buf_span(&whole->output), buf_span(&w.output)))
        fuzz_fail("the size of the pieces changes the output");
    buf_fini(&w.output);
}

/* The first part of the last answer. */
static void check_broken(const struct world *whole, struct span answers, size_t piece)
{
    static const struct err lost = {ERR_TIMEOUT, "silence"};
    struct world w;
    size_t last = answers.n;
    while (last > 0 && answers.p[last - 1] != 0x1e)
        last--;
    if (answers.n - last < 2)
        return;
    answers.n = last + 1 + (answers.n - last - 1) / 2;
    run(&w, answers, piece, &lost);
    if (w.before_end > whole->before_end ||
        memcmp(w.output.p, whole->output.p, w.before_end) != 0)
        fuzz_fail("a truncated answer changes the output");
    buf_fini(&w.output);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_set_level(LOG_ERROR);
    if (size < 2)
        return 0;
    struct span answers = {(const char *)data + 1, size - 1};
    struct world whole;
    run(&whole, answers, size, NULL);
    check_pieces(&whole, answers, 1 + data[0]);
    check_pieces(&whole, answers, 5);
    check_broken(&whole, answers, 1 + data[0]);
    buf_fini(&whole.output);
    return 0;
}
