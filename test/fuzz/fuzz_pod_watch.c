/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The device plugin's watch of its node's pods against arbitrary answers of an API server. The first
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

#include "base/clock.h"
#include "node/calls.h"

enum { REQUESTS_MAX = 64, LATEST_MS = 30 * 1000 };

static struct {
    struct informer *feed;
    int64_t now_ms;
    bool more; /* pages of the list */
    bool listing, listed;
    struct buf *output;
} w;

int64_t __wrap_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void)
{
    return w.now_ms;
}

static void on_input(void *ctx, const struct alloc_input *in)
{
    (void)ctx;
    bool ended = in->type == ALLOC_IN_LIST_ENDED;
    if (in->type == ALLOC_IN_POD) {
        struct pod_allocation *pod = in->pod;
        fuzz_fail_if(!pod->uid.n || !pod->name.n, "a pod without name or UID");
        fuzz_fail_if(!w.listing && !w.listed, "a pod before any list");
        buf_printf(w.output, "seen %.*s %.*s/%.*s %zu %d\n", SPAN_ARG(pod->uid),
                   SPAN_ARG(pod->ns), SPAN_ARG(pod->name), pod->n_containers,
                   pod->terminal);
        pod_allocation_free(pod);
    } else if (in->type == ALLOC_IN_POD_DELETED) {
        fuzz_fail_if(!w.listed || w.listing, "a list reports a deleted pod");
        buf_printf(w.output, "deleted %.*s\n", SPAN_ARG(in->uid));
    } else {
        fuzz_fail_if(ended && !w.listing, "a list ends that has not started");
        w.listing = !ended;
        w.listed |= ended;
        buf_adds(w.output, ended ? "listed\n" : "list\n");
    }
}

static void check_path(const char *path)
{
    bool watch = strstr(path, "&watch=1&") != NULL;
    fuzz_fail_if(!span_starts(span_of(path),
                              SPAN("/api/v1/pods?fieldSelector=spec.nodeName%3Dn%201&")),
                 "a request for something else");
    fuzz_fail_if(!fuzz_is_plain(span_of(path), '!'), "an invalid request line");
    fuzz_fail_if(watch == w.listing || (watch && !w.listed),
                 "a watch where a list is due, or the reverse");
}

/* Waits until a request is due. */
static void begin_run(void)
{
    int64_t from = w.now_ms, ms;
    while ((ms = informer_fns.tick(w.feed)) <= LATEST_MS)
        w.now_ms += ms;
    fuzz_fail_if(ms < INT64_MAX / 2 || w.now_ms - from > LATEST_MS, "retried too late");
    informer_fns.start(w.feed, 0, NULL);
}

/* One request and its answer. `piece` 0: as a whole. */
static void turn(struct span answer, size_t piece, const struct err *why,
                 struct fuzz_result *out)
{
    static const struct err lost = {ERR_UNAVAILABLE, "the connection was lost"};
    const struct list_watch_fns *fns = &informer_fns;
    cleanup_arena struct arena a = {0};
    struct kube_request request;
    char how = answer.n ? (char)fuzz_take(&answer) : '-';
    unsigned status = how == '4' ? 410 : how == '5' ? 500 : how == '-' ? 0 : 200;
    bool go_on = status != 0;
    if (how == 'x') /* what is read before the connection breaks depends on the pieces */
        piece = answer.n + 1;
    if (!why && (how == 'x' || how == '-'))
        why = &lost;
    if (!w.more)
        begin_run();
    struct list_watch *in = fns->request(w.feed, 0, &a, &request);
    check_path(request.path);
    buf_printf(w.output, "%s\n", request.path);
    if (status)
        list_watch_begin(in, status, -1);
    while (answer.n && go_on) {
        struct span part = fuzz_cut(&answer, piece);
        go_on = list_watch_data(in, part.p, part.n);
    }
    out->before_end = w.output->n;
    w.more = fns->end(w.feed, 0, why);
    const struct informer_status s = informer_status(w.feed);
    if (s.failure.failures)
        fuzz_check_error(&s.failure.err);
    buf_printf(w.output, "then %u %d\n", s.failure.failures, w.more);
}

/* `broken`: the last answer. */
static void read_answers(struct span in, size_t piece, bool broken,
                         struct fuzz_result *out)
{
    static const struct err silence = {ERR_TIMEOUT, "silence"};
    w.listing = w.listed = w.more = false;
    w.now_ms = 1000;
    w.output = &out->text;
    struct pods_settings settings = {.node = "n 1", .unit_mib = 1024, .input = on_input};
    w.feed = pods_informer_new(&settings, NULL);
    for (int i = 0; in.n && i < REQUESTS_MAX; i++) {
        struct span answer = span_cut(&in, 0x1e);
        turn(answer, piece, broken && !in.n ? &silence : NULL, out);
    }
    informer_free(w.feed);
}

void fuzz_input(struct span in)
{
    size_t piece = 1 + fuzz_take(&in), last = in.n; /* where the last answer begins */
    while (last > 0 && in.p[last - 1] != 0x1e)
        last--;
    size_t n = in.n - last > 1 ? last + 1 + (in.n - last - 1) / 2 : 0;
    fuzz_stream(read_answers, in, piece, (struct span){in.p, n});
}
