/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/forward.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "wire/httpc.h"

enum {
    CONNECT_MS = 1000,    /* a machine in the cluster answers sooner, or is down */
    REPLY_MAX = 32 << 20, /* of filter: a reason for each of 100,000 nodes */
    /* Few idle connections: those of the leader are limited (--connections). */
    IDLE_MAX = 4,
    IDLE_MS = 5000,
};

struct forward {
    struct tls *tls;
    char *ca_file, *name;
    struct err problem;   /* with the file; ERR_NONE: none */
    pthread_mutex_t lock; /* protects the members below */
    struct httpc *http;   /* or NULL */
    char *address;        /* ... of http */
    /* What `http` has: the pair, and the last valid content of the file, or the CAs of
     * tls_set. */
    struct buf cert, ca;
};

static char *copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static void disconnect(struct forward *f)
{
    if (f->http)
        httpc_free(f->http); /* lives on until its last call ends */
    f->http = NULL;
    free(steal(&f->address));
}

/* Reads the authorities. -1: the file is invalid, and the old ones stay. */
static int read_ca(struct forward *f, struct err *err)
{
    cleanup_buf struct buf pem = {0};
    if (f->ca_file && tls_read_ca(f->ca_file, &pem, err))
        return -1;
    if (f->tls && !f->ca_file)
        tls_copy_own_ca(f->tls, &pem);
    pthread_mutex_lock(&f->lock);
    if (!span_eq(buf_span(&pem), buf_span(&f->ca))) {
        buf_set(&f->ca, buf_span(&pem));
        disconnect(f);
    }
    pthread_mutex_unlock(&f->lock);
    return 0;
}

struct forward *forward_new(const struct forward_config *config, struct err *err)
{
    struct forward *f = xcalloc(1, sizeof *f);
    f->tls = config->tls;
    f->ca_file = config->tls ? copy(config->ca_file) : NULL;
    f->name = copy(config->name);
    pthread_mutex_init(&f->lock, NULL);
    if (read_ca(f, err)) {
        forward_free(f);
        return NULL;
    }
    return f;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    disconnect(f);
    pthread_mutex_destroy(&f->lock);
    buf_fini(&f->cert);
    buf_fini(&f->ca);
    free(f->ca_file);
    free(f->name);
    free(f);
}

/* A client for the address: the existing one, or a new one if the address or the
 * certificate has changed. The only place that sets URL and certificates of another
 * replica. */
static struct httpc *client_for(struct forward *f, const char *address, struct err *err)
{
    cleanup_buf struct buf cert = {0};
    struct buf key = {0};
    if (f->tls)
        tls_copy_pair(f->tls, &cert, &key);
    pthread_mutex_lock(&f->lock);
    if (!f->http || strcmp(f->address, address) != 0 ||
        !span_eq(buf_span(&f->cert), buf_span(&cert))) {
        cleanup_free char *url = xasprintf("%s://%s", f->tls ? "https" : "http", address);
        const struct httpc_config config = {
            .url = url,
            .ca_pem = buf_span(&f->ca),
            .cert_pem = buf_span(&cert),
            .key_pem = buf_span(&key),
            .server_name = f->tls ? f->name : NULL,
            .user_agent = "gpushare/" GPUSHARE_VERSION,
            .connect_ms = CONNECT_MS,
            .idle_max = IDLE_MAX,
            .idle_ms = IDLE_MS,
        };
        disconnect(f);
        f->http = httpc_new(&config, err);
        f->address = f->http ? xstrdup(address) : NULL;
        buf_set(&f->cert, buf_span(&cert));
    }
    struct httpc *http = f->http ? httpc_ref(f->http) : NULL;
    pthread_mutex_unlock(&f->lock);
    buf_wipe(&key);
    return http;
}

void forward_refresh(struct forward *f)
{
    struct err problem = {0};
    if (read_ca(f, &problem) && strcmp(problem.msg, f->problem.msg) != 0)
        log_error("forward",
                  "the new CA file for replicas is invalid; the old one stays in use",
                  LOG_ERR(&problem));
    f->problem = problem;
}

void forward_trim(struct forward *f)
{
    pthread_mutex_lock(&f->lock);
    struct httpc *http = f->http ? httpc_ref(f->http) : NULL;
    pthread_mutex_unlock(&f->lock);
    if (http)
        httpc_close_idle(http);
    httpc_free(http);
}

unsigned forward_verb(struct forward *f, const struct forward_call *call,
                      struct buf *reply, bool *sent, struct err *err)
{
    cleanup_free char *path = xasprintf("/gpushare-scheduler/%s", call->verb);
    cleanup_reply struct httpc_reply answer = {0};
    struct httpc_request request = {
        .method = "POST",
        .path = path,
        .content_type = "application/json",
        .flag_header = call->header,
        .body = call->body,
        .timeout_ms = call->timeout_ms,
        .gone = call->gone,
        .gone_ctx = call->ctx,
    };
    *sent = false;
    struct httpc *http = client_for(f, call->address, err);
    if (!http) {
        err_wrap(err, "the leader at %s", call->address);
        return 0;
    }
    int rc = httpc_call(http, &request, REPLY_MAX, &answer, err);
    unsigned status = rc ? 0 : answer.status;
    *sent = answer.sent;
    if (rc)
        err_wrap(err, "the leader at %s", call->address);
    else
        buf_add_span(reply, buf_span(&answer.body));
    httpc_free(http);
    return status;
}

/* -- reports -- */

struct forward_reports {
    struct forward *forward;
    struct budget *budget;
    int64_t timeout_ms;
    struct worker *worker;
    struct budget count, bytes; /* of the queue */
};

/* The address and the body are stored after the struct. */
struct job {
    const char *address;
    struct span body;
};

static void send_report(void *ctx, void *work)
{
    struct forward_reports *r = ctx;
    const struct job *job = work;
    cleanup_buf struct buf dropped = {0};
    bool sent;
    struct err err = {0};
    const struct forward_call call = {
        "filter", REPORT_HEADER, job->address, job->body, r->timeout_ms, NULL, NULL};
    if (forward_verb(r->forward, &call, &dropped, &sent, &err) == 0)
        log_debug("filter", "cannot report a rejected pod to the leader; not retried",
                  LOG_ERR(&err));
    budget_give(r->budget, job->body.n);
    budget_give(&r->bytes, job->body.n);
    budget_give(&r->count, 1);
}

struct forward_reports *forward_reports_start(struct forward *forward,
                                              struct budget *budget, int64_t timeout_ms)
{
    struct forward_reports *r = xcalloc(1, sizeof *r);
    r->forward = forward;
    r->budget = budget;
    r->timeout_ms = timeout_ms;
    r->count.max = FORWARD_REPORTS;
    r->bytes.max = FORWARD_REPORTS_BYTES;
    r->worker = worker_start("reports", send_report, r);
    return r;
}

bool forward_reports_add(struct forward_reports *r, const char *address, struct span body)
{
    size_t n = strlen(address) + 1;
    bool room = budget_take(&r->count, 1), fits = room && budget_take(&r->bytes, body.n);
    if (!fits || !budget_take(r->budget, body.n)) {
        budget_give(&r->bytes, fits ? body.n : 0);
        budget_give(&r->count, room);
        return false;
    }
    struct job *job = xmalloc(sizeof *job + n + body.n);
    char *at = (char *)(job + 1);
    memcpy(at, address, n);
    if (body.n)
        memcpy(at + n, body.p, body.n);
    *job = (struct job){.address = at, .body = {at + n, body.n}};
    worker_add(r->worker, job);
    return true;
}

void forward_reports_free(struct forward_reports *r)
{
    if (!r)
        return;
    worker_stop(r->worker);
    worker_free(r->worker);
    budget_give(r->budget, r->bytes.used);
    free(r);
}
