/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verbs_priv.h"

#include "base/clock.h"
#include "base/log.h"
#include "extender/forward.h"
#include "extender/told_priv.h"

/*
 * bind. kube-scheduler sends names and a UID, not the pod; what the pod asks for is known
 * from the watch. When no card fits any more, nothing is bound and Error says why. (The
 * Go extender's design has bind end silently then, and the scheduler's assumption time
 * out; since Kubernetes 1.23 an assumed pod never times out, so silence would strand the
 * pod.)
 *
 * Only the holder of the lease binds. Elsewhere the bind is handed on to it, and again
 * when it does not answer: to the same process, where it joins the first, or to the next
 * holder, which knows what the one before has bound. While nobody holds the lease it is
 * kept here.
 */

enum {
    UNSENT_MS = CORE_LEASE_MS + 2000, /* for somebody to be found who may bind */
    SENT_MS = 15 * 1000,              /* for an answer of who was found */
    STOP_MS = 2000,                   /* for the next holder, when this process ends */
    AGAIN_MS = 100,                   /* between two tries */
    ATTEMPT_MIN_MS = 200,
    BLIND_MS = 2000, /* an attempt while the API server does not answer here */
};

static int read_args(struct span body, struct arena *a, struct store_bind *bind,
                     struct err *err)
{
    struct jread j;
    struct jread_str key;
    jread_init(&j, body.p, body.n);
    jread_object(&j, "body");
    while (jread_member(&j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("PodName")))
            jread_text(&j, "PodName", a, &bind->name);
        else if (jread_str_eq_nocase(key, SPAN("PodNamespace")))
            jread_text(&j, "PodNamespace", a, &bind->ns);
        else if (jread_str_eq_nocase(key, SPAN("PodUID")))
            jread_text(&j, "PodUID", a, &bind->uid);
        else if (jread_str_eq_nocase(key, SPAN("Node")))
            jread_text(&j, "Node", a, &bind->node);
        else
            jread_skip(&j);
    }
    return jread_finish(&j, err);
}

/* These go into paths of the API: nothing but what a name can have. */
static bool is_name(struct span s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'))
            return false;
    }
    return s.n > 0 && s.n <= 253 && s.p[0] != '.';
}

static int check_args(const struct store_bind *bind, struct err *err)
{
    if (!is_name(bind->name))
        return err_set(err, ERR_INVALID, "PodName is missing or no name");
    if (!is_name(bind->ns))
        return err_set(err, ERR_INVALID, "PodNamespace is missing or no name");
    if (!is_name(bind->uid))
        return err_set(err, ERR_INVALID, "PodUID is missing or no UID");
    if (!is_name(bind->node))
        return err_set(err, ERR_INVALID, "Node is missing or no name");
    return 0;
}

/* A bind on its way to who may do it. */
struct errand {
    struct verbs *v;
    struct store_bind bind;
    struct span body;
    bool forwarded;
    bool sent;  /* it may have got to somebody */
    bool tried; /* here, and err says what came of it */
    int64_t since_ms;
    struct buf *reply;
    struct err err; /* why it has not been done yet */
};

static void log_end(const struct errand *e, const struct err *err)
{
    const struct store_bind *b = &e->bind;
    if (err)
        log_info("bind", "not bound", LOG_SPAN("namespace", b->ns),
                 LOG_SPAN("pod", b->name), LOG_SPAN("node", b->node), LOG_ERR(err));
    else
        log_info("bind", "bound", LOG_SPAN("namespace", b->ns), LOG_SPAN("pod", b->name),
                 LOG_SPAN("node", b->node));
}

static unsigned fail(struct errand *e, unsigned status)
{
    tally_bind(verbs_tally(e->v), e->err.code);
    log_end(e, &e->err);
    return reply_error(e->reply, status, &e->err);
}

/* 0: it came to nothing, and the lease is not here any more. */
static unsigned bind_here(struct errand *e)
{
    struct store *store = verbs_store(e->v);
    bool ready = true;
    if (store_bind(store, &e->bind, &ready, &e->err) == 0) {
        log_end(e, NULL);
        tally_bind(verbs_tally(e->v), ERR_NONE);
        told_placed(verbs_recorder(e->v), store, &e->bind);
        buf_adds(e->reply, "{\"Error\":\"\"}");
        return 200;
    }
    bool here = e->err.code != ERR_UNAVAILABLE || !ready;
    if (!here) {
        bool still;
        here = store_way(store, e->forwarded, &still, NULL).route == BIND_ROUTE_LOCAL;
    }
    e->tried = true;
    return here ? fail(e, ready ? 200 : 503) : 0;
}

/* What it said in words; all of it, if that cannot be read. */
static void explain(struct errand *e, const char *address, unsigned status,
                    const struct buf *answer)
{
    cleanup_arena struct arena a = {0};
    struct jread j;
    struct jread_str key;
    struct span said = {0};
    jread_init(&j, answer->n ? answer->p : "", answer->n);
    jread_object(&j, "answer");
    while (jread_member(&j, &key)) {
        if (jread_str_eq_nocase(key, SPAN("Error")))
            jread_text(&j, "Error", &a, &said);
        else
            jread_skip(&j);
    }
    if (jread_finish(&j, NULL))
        said = buf_span(answer);
    err_set(&e->err, ERR_UNAVAILABLE, "the holder of the lease, %s, answers %u: %.*s",
            address, status, (int)(said.n < 500 ? said.n : 500), said.n ? said.p : "");
}

/* 0: no answer that counts. */
static unsigned hand_on(struct errand *e, const struct store_way *way)
{
    cleanup_buf struct buf answer = {0};
    int64_t left = e->since_ms + SENT_MS - clock_mono_ms();
    int64_t wait = way->until_ms + AGAIN_MS - clock_mono_ms();
    bool sent;
    /* For as long as it holds the lease, should it have stopped to renew it: if it is
     * alive it is asked again then. */
    wait = wait < BLIND_MS && way->until_ms < clock_mono_ms() ? BLIND_MS : wait;
    wait = wait < left ? wait : left;
    wait = wait < ATTEMPT_MIN_MS ? ATTEMPT_MIN_MS : wait;
    unsigned status = forward_bind(verbs_forward(e->v), way->address, e->body, wait,
                                   &answer, &sent, &e->err);
    e->sent |= sent && status != FORWARD_MISDIRECTED;
    log_debug("bind", "handed on", LOG_SPAN("pod", e->bind.name),
              LOG_S("to", way->address), LOG_I("status", status));
    if (status == 200) {
        tally_handed_on(verbs_tally(e->v));
        buf_add_span(e->reply, buf_span(&answer));
        return status;
    }
    if (status)
        explain(e, way->address, status, &answer);
    store_look(verbs_store(e->v));
    return 0;
}

static bool is_late(const struct errand *e, bool stopping)
{
    int64_t limit = e->sent ? SENT_MS : stopping ? STOP_MS : UNSENT_MS;
    return clock_mono_ms() >= e->since_ms + limit;
}

/* One try. 0: to be tried again. */
static unsigned try(struct errand *e, bool *stopping)
{
    struct store *store = verbs_store(e->v);
    bool ready;
    struct err why = {0};
    struct store_way way = store_way(store, e->forwarded, &ready, &why);
    *stopping = way.stopping;
    if (way.route == BIND_ROUTE_FORWARD && verbs_forward(e->v))
        return hand_on(e, &way);
    if (way.route != BIND_ROUTE_LOCAL && !e->tried)
        e->err = why;
    if (!ready)
        return fail(e, 503);
    if (way.route == BIND_ROUTE_LOCAL)
        return bind_here(e);
    if (way.route == BIND_ROUTE_REJECT)
        return fail(e, FORWARD_MISDIRECTED);
    store_look(store);
    return 0;
}

static unsigned run(struct verbs *v, struct span body, bool forwarded, struct buf *reply)
{
    cleanup_arena struct arena a = {0};
    struct errand e = {.v = v,
                       .body = body,
                       .forwarded = forwarded,
                       .since_ms = clock_mono_ms(),
                       .reply = reply};
    bool stopping;
    unsigned status;
    if (read_args(body, &a, &e.bind, &e.err) || check_args(&e.bind, &e.err))
        return reply_error(reply, 400, &e.err);
    while ((status = try(&e, &stopping)) == 0) {
        if (is_late(&e, stopping))
            return fail(&e, 200);
        store_wait(verbs_store(v), AGAIN_MS);
    }
    return status;
}

unsigned verb_bind(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, false, reply);
}

unsigned verb_bind_forwarded(struct verbs *v, struct span body, struct buf *reply)
{
    return run(v, body, true, reply);
}
