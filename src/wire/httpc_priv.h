/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "wire/httpc.h"

/* One request on one easy handle. The first member of struct call and of struct
 * httpc_stream; libcurl's callbacks get its address. */
struct httpc_exchange {
    struct httpc *c; /* borrowed */
    CURL *easy;      /* owned */
    struct curl_slist *headers;
    struct clock_deadline send_by;
    int64_t tcp_user_timeout_ms;
    int64_t last_byte_ms; /* time of the last byte, or of the start of the request */
    unsigned attempts;    /* how often libcurl began to write the request */
    unsigned max_attempts;
    enum { STOP_NOT, STOP_REPEAT, STOP_LATE, STOP_SINK } stopped; /* why we stopped it */
    unsigned status; /* of the final response, once its headers are complete */
    int64_t retry_after_s;
    int64_t date_s;
    bool (*begin)(struct httpc_exchange *x); /* called after the headers; may be NULL */
    char why[CURL_ERROR_SIZE];
};

struct httpc {
    atomic_uint users;
    char *url;    /* as configured, for messages */
    char *origin; /* prefix of all URLs: scheme, server name, port */
    char *host;   /* Host header line if the server name is not the host, else NULL */
    struct curl_slist *connect_to; /* the real host and port, in that case */
    char *proxy, *user_agent;
    struct curl_blob ca, cert, key;
    bool insecure;
    int64_t connect_ms;
    size_t idle_max;
    int64_t idle_ms;
    pthread_mutex_t lock; /* protects the fields below */
    struct call **idle;   /* the pool; the most recently used handle is the last */
    size_t n_idle, idle_cap;
};

void httpc_global_init(void);

/* Creates the easy handle of x and sets the options that all requests have in common. x
 * must not move. */
void httpc_exchange_init(struct httpc_exchange *x, struct httpc *c);
void httpc_exchange_fini(struct httpc_exchange *x);
/* Sets the options of a request. The body is borrowed until the transfer has ended. */
int httpc_exchange_prepare(struct httpc_exchange *x, const struct httpc_request *req,
                           struct err *err);
/* The result of a transfer: 0 if the response is complete. */
int httpc_exchange_result(const struct httpc_exchange *x, CURLcode rc, struct err *err);
/* Prepends "GET https://host/path", without the query, to a message. Returns -1. */
int httpc_exchange_wrap(const struct httpc_exchange *x, const struct httpc_request *req,
                        struct err *err);

void httpc_pool_drain(struct httpc *c);

/* Aborts on failure: an option fails only without memory, or if libcurl lacks it. */
#define HTTPC_SET(easy, option, value)                                                   \
    httpc_must(curl_easy_setopt((easy), (option), (value)), #option)
void httpc_must(CURLcode rc, const char *option);
