/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/verb_report.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

struct verb_report {
    struct forward *forward;
    struct budget *budget;
    int64_t timeout_ms;
    struct worker *worker;
    pthread_mutex_t lock; /* protects the members below */
    size_t n;
    uint64_t bytes;
};

/* The address and the body are stored after the struct. */
struct job {
    const char *address;
    struct span body;
};

static void leave(struct verb_report *r, uint64_t bytes)
{
    pthread_mutex_lock(&r->lock);
    r->n--;
    r->bytes -= bytes;
    pthread_mutex_unlock(&r->lock);
    budget_give(r->budget, bytes);
}

static void post(void *ctx, void *work)
{
    struct verb_report *r = ctx;
    const struct job *job = work;
    cleanup_buf struct buf dropped = {0};
    bool sent;
    struct err err = {0};
    if (forward_verb(r->forward, "filter", REPORT_HEADER, job->address, job->body,
                     r->timeout_ms, &dropped, &sent, &err) == 0)
        log_debug("filter", "cannot report a rejected pod to the leader; not retried",
                  LOG_ERR(&err));
    leave(r, job->body.n);
}

struct verb_report *verb_report_start(struct forward *forward, struct budget *budget,
                                      int64_t timeout_ms)
{
    struct verb_report *r = xcalloc(1, sizeof *r);
    r->forward = forward;
    r->budget = budget;
    r->timeout_ms = timeout_ms;
    pthread_mutex_init(&r->lock, NULL);
    r->worker = worker_start("reports", post, r);
    return r;
}

static bool enter(struct verb_report *r, uint64_t bytes)
{
    pthread_mutex_lock(&r->lock);
    bool fits = r->n < VERB_REPORT_QUEUE && bytes <= VERB_REPORT_BYTES - r->bytes;
    fits = fits && budget_take(r->budget, bytes);
    if (fits) {
        r->n++;
        r->bytes += bytes;
    }
    pthread_mutex_unlock(&r->lock);
    return fits;
}

bool verb_report_add(struct verb_report *r, const char *address, struct span body)
{
    size_t n = strlen(address) + 1;
    if (!enter(r, body.n))
        return false;
    struct job *job = xmalloc(sizeof *job + n + body.n);
    char *at = (char *)(job + 1);
    memcpy(at, address, n);
    if (body.n)
        memcpy(at + n, body.p, body.n);
    *job = (struct job){.address = at, .body = {at + n, body.n}};
    worker_add(r->worker, job);
    return true;
}

void verb_report_free(struct verb_report *r)
{
    if (!r)
        return;
    worker_stop(r->worker);
    worker_free(r->worker);
    budget_give(r->budget, r->bytes);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
