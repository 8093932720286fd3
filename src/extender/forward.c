/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/forward.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "wire/httpc.h"

enum {
    CONNECT_MS = 1000, /* in one cluster; a machine that is gone answers nothing */
    REPLY_MAX = 1 << 20,
    /* The holder has so many connections for everybody (--connections): few stay idle. */
    IDLE_MAX = 4,
    IDLE_MS = 5000,
};

struct forward {
    struct tls *tls;
    char *ca_file, *name;
    pthread_mutex_t lock; /* protects what follows */
    struct httpc *http;   /* NULL: there is none yet */
    char *address;        /* ... and what it was made for */
    struct buf cert;
    struct buf ca;      /* the last good content of the file */
    struct stat looked; /* the file, when it was read last, good or not */
};

static char *copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* Another look from outside, other content. */
static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Reads the authorities if the file is not what it was. 1: there are new ones. 0: there
 * are not. -1: the file is no good, and the old ones stay. */
static int renew_ca(struct forward *f, struct err *err)
{
    cleanup_buf struct buf pem = {0};
    struct stat now = {0};
    if (stat(f->ca_file, &now))
        now = (struct stat){0}; /* reading it will say why */
    if (f->ca.n && same_file(&f->looked, &now))
        return 0;
    f->looked = now;
    if (tls_read_ca(f->ca_file, &pem, err))
        return -1;
    buf_clear(&f->ca);
    buf_add_span(&f->ca, buf_span(&pem));
    return 1;
}

struct forward *forward_new(const struct forward_config *config, struct err *err)
{
    struct forward *f = xcalloc(1, sizeof *f);
    f->tls = config->tls;
    f->ca_file = config->tls ? copy(config->ca_file) : NULL;
    f->name = copy(config->name);
    pthread_mutex_init(&f->lock, NULL);
    if (f->ca_file && renew_ca(f, err) < 0) {
        forward_free(f);
        return NULL;
    }
    return f;
}

static void hang_up(struct forward *f)
{
    if (f->http)
        httpc_free(f->http); /* goes when its last call is over */
    f->http = NULL;
    free(steal(&f->address));
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    hang_up(f);
    pthread_mutex_destroy(&f->lock);
    buf_fini(&f->cert);
    buf_fini(&f->ca);
    free(f->ca_file);
    free(f->name);
    free(f);
}

/* The one place that knows how to get to another replica: URL and certificates. */
static struct httpc *connect_to(const struct forward *f, const char *address,
                                struct span cert, struct span key, struct err *err)
{
    cleanup_free char *url = xasprintf("%s://%s", f->tls ? "https" : "http", address);
    struct httpc_config config = {
        .url = url,
        .ca_pem = buf_span(&f->ca),
        .cert_pem = cert,
        .key_pem = key,
        .server_name = f->tls ? f->name : NULL,
        .user_agent = "gpushare/" GPUSHARE_VERSION,
        .connect_ms = CONNECT_MS,
        .idle_max = IDLE_MAX,
        .idle_ms = IDLE_MS,
    };
    return httpc_new(&config, err);
}

/* A client for the address: the one that is there, or a new one when the address or a
 * certificate is another. */
static struct httpc *client_for(struct forward *f, const char *address, struct err *err)
{
    cleanup_buf struct buf cert = {0};
    struct buf key = {0};
    struct err why = {0};
    if (f->tls)
        tls_copy_pair(f->tls, &cert, &key);
    pthread_mutex_lock(&f->lock);
    int ca = f->ca_file ? renew_ca(f, &why) : 0;
    if (ca < 0)
        log_error("forward",
                  "new authorities of replicas are not taken; the old ones stay",
                  LOG_ERR(&why));
    bool good = ca <= 0 && f->http && strcmp(f->address, address) == 0 &&
                span_eq(buf_span(&f->cert), buf_span(&cert));
    if (!good) {
        hang_up(f);
        f->http = connect_to(f, address, buf_span(&cert), buf_span(&key), err);
        f->address = f->http ? xstrdup(address) : NULL;
        buf_clear(&f->cert);
        buf_add_span(&f->cert, buf_span(&cert));
    }
    struct httpc *http = f->http ? httpc_ref(f->http) : NULL;
    pthread_mutex_unlock(&f->lock);
    tls_wipe(&key);
    return http;
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

unsigned forward_bind(struct forward *f, const char *address, struct span body,
                      int64_t timeout_ms, struct buf *reply, bool *sent, struct err *err)
{
    struct httpc_reply answer;
    struct httpc_request request = {
        .method = "POST",
        .path = "/gpushare-scheduler/bind",
        .content_type = "application/json",
        .flag_header = FORWARD_HEADER,
        .body = body,
        .timeout_ms = timeout_ms,
    };
    *sent = false;
    struct httpc *http = client_for(f, address, err);
    if (!http) {
        err_wrap(err, "the holder of the lease, %s", address);
        return 0;
    }
    int rc = httpc_call(http, &request, REPLY_MAX, &answer, err);
    unsigned status = rc ? 0 : answer.status;
    *sent = answer.sent;
    if (rc)
        err_wrap(err, "the holder of the lease, %s", address);
    else
        buf_add_span(reply, buf_span(&answer.body));
    httpc_reply_fini(&answer);
    httpc_free(http);
    return status;
}
