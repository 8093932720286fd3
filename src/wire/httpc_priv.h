/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "wire/httpc.h"

/* One request on one easy handle. A call's and a stream's state begin with it; libcurl's
 * callbacks get its address. */
struct httpc_exchange {
    struct httpc *c; /* borrowed */
    CURL *easy;      /* owned */
    struct curl_slist *headers;
    struct clock_deadline send_by;
    int64_t tcp_user_timeout_ms;
    int64_t last_byte_ms; /* when the request began to be written, or a byte came last */
    unsigned attempts;    /* times that the request began to be written */
    unsigned max_attempts;
    enum { STOP_NOT, STOP_REPEAT, STOP_LATE, STOP_SINK } stopped; /* by us, why */
    unsigned status; /* of the final answer, once its headers are complete */
    int64_t retry_after_s;
    int64_t date_s;
    bool (*begin)(struct httpc_exchange *x); /* the headers are complete; may be NULL */
    char why[CURL_ERROR_SIZE];
};

struct httpc {
    atomic_uint users;
    char *url;    /* as the caller named it, for messages */
    char *origin; /* what the paths are put behind: scheme, name to check, port */
    char *host;   /* Host header line when the name to check is not the host, or NULL */
    struct curl_slist *connect_to; /* and where to connect then */
    char *proxy, *user_agent;
    struct curl_blob ca, cert, key;
    bool insecure;
    int64_t connect_ms;
    pthread_mutex_t lock; /* of what follows */
    struct call **idle;   /* handles without a call, the one used last at the end */
    size_t n_idle, idle_cap;
    size_t idle_max; /* set once */
    int64_t idle_ms;
};

void httpc_global_init(void);

/* Makes the easy handle of x and sets what is the same for all requests. x must stay
 * where it is. */
void httpc_exchange_init(struct httpc_exchange *x, struct httpc *c);
void httpc_exchange_fini(struct httpc_exchange *x);
/* Sets what req asks for. The body is borrowed until the transfer is over. */
int httpc_exchange_prepare(struct httpc_exchange *x, const struct httpc_request *req,
                           struct err *err);
/* Judges the end of a transfer: 0 when there is a complete answer. */
int httpc_exchange_result(const struct httpc_exchange *x, CURLcode rc, struct err *err);
/* "GET https://host/path" without the query, in front of a message. Returns -1. */
int httpc_exchange_wrap(const struct httpc_exchange *x, const struct httpc_request *req,
                        struct err *err);

void httpc_pool_drain(struct httpc *c);

/* Setting an option fails only for want of memory or because libcurl lacks it. */
#define HTTPC_SET(easy, option, value)                                                   \
    httpc_must(curl_easy_setopt((easy), (option), (value)), #option)
void httpc_must(CURLcode rc, const char *option);
