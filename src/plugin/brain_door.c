/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "plugin/brain_priv.h"

enum { LOOK_MS = 30 * 1000 }; /* an event of the directory may get lost */

void door_open(struct brain *b)
{
    for (int r = 0; r < IDS_RESOURCES; r++)
        enroll_init(&b->enroll[r]);
    door_look(b);
}

void door_look(struct brain *b)
{
    int64_t now = clock_mono_ms();
    dir_drain(b->dir);
    uint64_t inode = dir_kubelet_inode(b->dir);
    b->looked_ms = now;
    if (inode && inode != b->enroll[0].kubelet) {
        log_info("kubelet", "its socket is there", LOG_S("socket", dir_kubelet(b->dir)));
        alloc_kubelet_started(b->alloc, brain_now(), &b->out);
    }
    for (int r = 0; r < IDS_RESOURCES; r++) {
        if (b->endpoints[r] && b->enroll[r].reachable)
            enroll_served(&b->enroll[r], now, endpoint_is_reachable(b->endpoints[r]));
        enroll_kubelet(&b->enroll[r], now, inode);
    }
}

static void serve(struct brain *b, enum ids_resource r)
{
    struct endpoint_fns fns = calls_fns(b);
    endpoint_free(b->endpoints[r]);
    b->endpoints[r] = endpoint_start(dir_socket(b->dir, r), r, &fns, &b->refused[r]);
    if (!b->endpoints[r])
        log_error("server", "cannot serve", LOG_S("resource", ids_resource_name(r)),
                  LOG_ERR(&b->refused[r]));
    enroll_served(&b->enroll[r], clock_mono_ms(), b->endpoints[r] != NULL);
}

static void step(struct brain *b, enum ids_resource r)
{
    const struct brain_fns *fns = &b->settings.fns;
    struct enroll *e = &b->enroll[r];
    int64_t now = clock_mono_ms();
    if (enroll_looks_for_rival(e, now))
        enroll_rival(e, now, dir_has_rival(b->dir, r));
    for (;;) {
        enum enroll_action action = enroll_next(e, now);
        if (action == ENROLL_SERVE)
            serve(b, r);
        else if (action == ENROLL_REGISTER)
            fns->enroll(fns->ctx, r, dir_endpoint(b->dir, r));
        else
            return;
    }
}

void door_step(struct brain *b)
{
    if (clock_mono_ms() - b->looked_ms >= LOOK_MS)
        door_look(b);
    for (int r = 0; r < IDS_RESOURCES; r++)
        step(b, (enum ids_resource)r);
}

int64_t door_due(const struct brain *b)
{
    int64_t due = b->looked_ms + LOOK_MS;
    for (int r = 0; r < IDS_RESOURCES; r++)
        if (enroll_due(&b->enroll[r]) < due)
            due = enroll_due(&b->enroll[r]);
    return due;
}

/* Streams are kept calls. Takes their handles out one by one; they stay kept. */
static size_t streams_of(struct brain *b, enum ids_resource r, struct arena *a,
                         struct grpcd_call ***calls)
{
    size_t n = 0;
    pthread_mutex_lock(&b->lock);
    *calls = arena_alloc(a, (b->n_kept + 1) * sizeof **calls);
    for (size_t i = 0; i < b->n_kept; i++)
        if (b->kept[i].stream && b->kept[i].resource == r)
            (*calls)[n++] = b->kept[i].call;
    pthread_mutex_unlock(&b->lock);
    return n;
}

static void send_list(struct brain *b, enum ids_resource r,
                      struct grpcd_call *const *calls, size_t n)
{
    cleanup_buf struct buf list = {0};
    struct err err;
    if (endpoint_list(alloc_cards_of(b->alloc), r, &list, &err)) {
        log_error("server", "the list of ids cannot be sent", LOG_ERR(&err));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        struct buf copy = {0};
        buf_add_span(&copy, buf_span(&list));
        grpcd_send(calls[i], &copy);
        buf_fini(&copy);
    }
}

/* One that does not fit is not registered; the other one may be. What is registered stays
 * so: ids are never taken back. */
static bool is_wanted(struct brain *b, enum ids_resource r)
{
    const struct cards *cards = alloc_cards_of(b->alloc);
    struct err err;
    if (b->enroll[r].wanted || !cards->n)
        return b->enroll[r].wanted;
    if (r == IDS_COUNT || cards_fit(cards, &err) == 0)
        return true;
    if (!b->fit_said)
        log_error("server", "aliyun.com/gpu-mem is not registered", LOG_ERR(&err));
    b->fit_said = true;
    return false;
}

void door_cards(struct brain *b)
{
    for (int r = 0; r < IDS_RESOURCES; r++) {
        cleanup_arena struct arena a = {0};
        struct grpcd_call **calls;
        enroll_want(&b->enroll[r], is_wanted(b, (enum ids_resource)r));
        size_t n = streams_of(b, (enum ids_resource)r, &a, &calls);
        if (n)
            send_list(b, (enum ids_resource)r, calls, n);
    }
}

static int why_not_wanted(const struct brain *b, struct err *err)
{
    const struct cards *cards = alloc_cards_of(b->alloc);
    if (cards->n && cards_fit(cards, err))
        return err_wrap(err, "not registered");
    return err_set(err, ERR_UNAVAILABLE, "not registered: no card has been seen yet");
}

int door_check(const struct brain *b, enum ids_resource r, struct err *err)
{
    const struct enroll *e = &b->enroll[r];
    const struct err *refused = &b->refused[r];
    const char *waits = enroll_waits_for(e);
    if (!e->wanted)
        return why_not_wanted(b, err);
    if (!waits)
        return 0;
    if (!e->kubelet)
        return err_set(err, ERR_UNAVAILABLE, "not registered: %s: there is no %s", waits,
                       dir_kubelet(b->dir));
    return err_set(err, ERR_UNAVAILABLE, "not registered: %s%s%s", waits,
                   refused->code ? ": " : "", refused->code ? refused->msg : "");
}

/* Another plugin may have been at work meanwhile: what it wrote down counts too. */
void door_stream(struct brain *b, enum ids_resource r, uint64_t token)
{
    struct grpcd_call *call = NULL;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < b->n_kept; i++)
        if (b->kept[i].token == token) {
            call = b->kept[i].call;
            b->kept[i].stream = true;
            b->kept[i].resource = r;
        }
    pthread_mutex_unlock(&b->lock);
    do_load(b);
    log_info("kubelet", "it listens", LOG_S("resource", ids_resource_name(r)));
    enroll_stream(&b->enroll[r], clock_mono_ms(), true, false);
    send_list(b, r, &call, 1);
}

bool door_stream_over(struct brain *b, uint64_t token)
{
    bool stream = false;
    enum ids_resource r = IDS_MEM;
    pthread_mutex_lock(&b->lock);
    for (size_t i = 0; i < b->n_kept; i++)
        if (b->kept[i].token == token) {
            stream = b->kept[i].stream;
            r = b->kept[i].resource;
        }
    pthread_mutex_unlock(&b->lock);
    if (!stream)
        return false;
    struct grpcd_call *call = calls_take(b, token);
    grpcd_end(call, GRPC_CANCELLED, "nobody listens");
    bool rival = dir_has_rival(b->dir, r);
    log_info("kubelet", rival ? "it listens to a newer plugin" : "it listens no more",
             LOG_S("resource", ids_resource_name(r)));
    enroll_stream(&b->enroll[r], clock_mono_ms(), false, rival);
    return true;
}

/* Handles of calls are ended by us, whatever became of the calls. */
static void end_calls(struct brain *b)
{
    for (;;) {
        uint64_t token = 0;
        pthread_mutex_lock(&b->lock);
        if (b->n_kept)
            token = b->kept[0].token;
        pthread_mutex_unlock(&b->lock);
        if (!token)
            return;
        grpcd_end(calls_take(b, token), GRPC_UNAVAILABLE, "the device plugin stops");
    }
}

void door_close(struct brain *b)
{
    end_calls(b);
    for (int r = 0; r < IDS_RESOURCES; r++)
        if (b->endpoints[r])
            endpoint_stop(b->endpoints[r]);
    end_calls(b); /* that came meanwhile */
}
