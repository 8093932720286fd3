/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "wire/httpc_priv.h"

/*
 * One request and the headers of its response, for calls and streams.
 *
 * Two callbacks control retries. libcurl calls PREREQ after the TLS handshake, each time
 * before it writes the request: there attempts are counted, so that `sent` is exact. It
 * calls OPENSOCKET before it opens a connection, so that an unwanted retry does not even
 * connect.
 *
 * TCP_USER_TIMEOUT and SO_LINGER are set when a socket is created, so a handle is reused
 * only for requests with the same tcp_user_timeout_ms: in the callbacks libcurl does not
 * tell which socket a reused connection has, and it closes some sockets without a
 * callback. SO_LINGER also applies if the process is killed: the kernel then resets the
 * connection, too.
 */

static bool may_attempt(struct httpc_exchange *x)
{
    if (x->attempts < x->max_attempts)
        return true;
    x->stopped = STOP_REPEAT;
    return false;
}

static int on_prereq(void *ctx, char *remote, char *local, int remote_port,
                     int local_port)
{
    (void)remote;
    (void)local;
    (void)remote_port;
    (void)local_port;
    struct httpc_exchange *x = ctx;
    int64_t now = clock_mono_ms();
    if (!may_attempt(x))
        return CURL_PREREQFUNC_ABORT;
    if (clock_deadline_passed(&x->send_by, now, clock_wall_ns())) {
        x->stopped = STOP_LATE;
        return CURL_PREREQFUNC_ABORT;
    }
    x->attempts++;
    x->last_byte_ms = now;
    return CURL_PREREQFUNC_OK;
}

static int set_delivery(int fd, int64_t tcp_user_timeout_ms)
{
    unsigned ms =
        tcp_user_timeout_ms < INT32_MAX ? (unsigned)tcp_user_timeout_ms : INT32_MAX;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms))
        return -1;
    return setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *a)
{
    (void)purpose;
    struct httpc_exchange *x = ctx;
    if (!may_attempt(x))
        return CURL_SOCKET_BAD;
    cleanup_close int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    if (fd < 0 ||
        (x->tcp_user_timeout_ms > 0 && set_delivery(fd, x->tcp_user_timeout_ms)))
        return CURL_SOCKET_BAD;
    int opened = fd;
    fd = -1;
    return opened;
}

static void reset_headers(struct httpc_exchange *x)
{
    x->retry_after_s = -1;
    x->date_s = 0;
}

static void read_field(struct httpc_exchange *x, struct span line)
{
    struct span name = span_cut(&line, ':');
    int64_t seconds;
    if (span_eq_nocase(name, SPAN("Retry-After")) &&
        span_i64(span_trim(line), &seconds) && seconds >= 0)
        x->retry_after_s = seconds;
    if (span_eq_nocase(name, SPAN("Date"))) {
        cleanup_free char *text = xmemdup0(line.p, line.n);
        time_t date = curl_getdate(text, NULL);
        x->date_s = date > 0 ? date : 0;
    }
}

/* A header line, also of 1xx responses, or a trailer of a chunked body. */
static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct httpc_exchange *x = ctx;
    struct span line = span_trim((struct span){p, size * n});
    x->last_byte_ms = clock_mono_ms();
    if (x->status)
        return size * n;
    if (span_starts(line, SPAN("HTTP/")))
        reset_headers(x);
    if (line.n) {
        read_field(x, line);
        return size * n;
    }
    long status = 0;
    curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return size * n;
    x->status = (unsigned)status;
    if (x->begin && !x->begin(x)) {
        x->stopped = STOP_SINK;
        return 0;
    }
    return size * n;
}

static void set_tls(CURL *easy, struct httpc *c)
{
    HTTPC_SET(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    HTTPC_SET(easy, CURLOPT_SSL_VERIFYPEER, c->insecure ? 0L : 1L);
    HTTPC_SET(easy, CURLOPT_SSL_VERIFYHOST, c->insecure ? 0L : 2L);
    /* Otherwise OpenSSL prompts on the terminal for the passphrase of an encrypted key.
     */
    HTTPC_SET(easy, CURLOPT_KEYPASSWD, "");
    if (c->ca.len) {
        /* Without these two lines, the CAs of the system would be trusted, too. */
        HTTPC_SET(easy, CURLOPT_CAPATH, NULL);
        HTTPC_SET(easy, CURLOPT_CAINFO, NULL);
        HTTPC_SET(easy, CURLOPT_CAINFO_BLOB, &c->ca);
    }
    if (c->cert.len) {
        HTTPC_SET(easy, CURLOPT_SSLCERT_BLOB, &c->cert);
        HTTPC_SET(easy, CURLOPT_SSLKEY_BLOB, &c->key);
    }
}

static void set_connection(CURL *easy, struct httpc *c)
{
    enum { IDLE_MAX_S = 60 }; /* API servers close idle connections after 90 s */
    HTTPC_SET(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    HTTPC_SET(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    HTTPC_SET(easy, CURLOPT_FOLLOWLOCATION, 0L);
    HTTPC_SET(easy, CURLOPT_NOSIGNAL, 1L);
    HTTPC_SET(easy, CURLOPT_QUICK_EXIT,
              1L); /* a timeout does not wait for the resolver thread */
    HTTPC_SET(easy, CURLOPT_PATH_AS_IS, 1L);
    HTTPC_SET(easy, CURLOPT_PROXY, c->proxy);
    HTTPC_SET(easy, CURLOPT_NOPROXY, ""); /* ignore the environment */
    HTTPC_SET(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    HTTPC_SET(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_ms);
    HTTPC_SET(easy, CURLOPT_MAXAGE_CONN, (long)IDLE_MAX_S);
    HTTPC_SET(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    HTTPC_SET(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    HTTPC_SET(easy, CURLOPT_TCP_KEEPINTVL, 10L);
    HTTPC_SET(easy, CURLOPT_USERAGENT, c->user_agent);
    if (c->connect_to)
        HTTPC_SET(easy, CURLOPT_CONNECT_TO, c->connect_to);
}

void httpc_exchange_init(struct httpc_exchange *x, struct httpc *c)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        abort();
    x->c = c;
    x->easy = easy;
    set_connection(easy, c);
    set_tls(easy, c);
    HTTPC_SET(easy, CURLOPT_ERRORBUFFER, x->why);
    HTTPC_SET(easy, CURLOPT_PREREQFUNCTION, on_prereq);
    HTTPC_SET(easy, CURLOPT_PREREQDATA, x);
    HTTPC_SET(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    HTTPC_SET(easy, CURLOPT_OPENSOCKETDATA, x);
    HTTPC_SET(easy, CURLOPT_HEADERFUNCTION, on_header);
    HTTPC_SET(easy, CURLOPT_HEADERDATA, x);
}

static void free_headers(struct httpc_exchange *x)
{
    for (struct curl_slist *l = x->headers; l; l = l->next)
        explicit_bzero(l->data, strlen(l->data));
    curl_slist_free_all(x->headers);
    x->headers = NULL;
}

void httpc_exchange_fini(struct httpc_exchange *x)
{
    curl_easy_cleanup(x->easy);
    free_headers(x);
    x->easy = NULL;
}

/* A header value may contain anything except control characters. */
static bool value_is_clean(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return false;
    return true;
}

static bool path_is_clean(const char *s)
{
    if (*s != '/')
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f || *s == '#')
            return false;
    return true;
}

static bool method_is_clean(const char *s)
{
    return *s && !s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")];
}

#define HEADER_NAME "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"

static int check(const struct httpc_request *req, struct err *err)
{
    if (!method_is_clean(req->method))
        return err_set(err, ERR_INVALID, "invalid HTTP method");
    if (!path_is_clean(req->path))
        return err_set(err, ERR_INVALID, "invalid path: not escaped");
    if (req->authorization && !value_is_clean(req->authorization))
        return err_set(err, ERR_INVALID, "invalid credentials: control characters");
    if ((req->accept && !value_is_clean(req->accept)) ||
        (req->content_type && !value_is_clean(req->content_type)))
        return err_set(err, ERR_INVALID, "invalid media type: control characters");
    if (req->flag_header &&
        (!*req->flag_header || req->flag_header[strspn(req->flag_header, HEADER_NAME)]))
        return err_set(err, ERR_INVALID, "invalid header name");
    return 0;
}

static void add_line(struct httpc_exchange *x, const char *line)
{
    struct curl_slist *longer = curl_slist_append(x->headers, line);
    if (!longer)
        abort();
    x->headers = longer;
}

static void add_header(struct httpc_exchange *x, const char *name, const char *value)
{
    cleanup_wipe char *line = xasprintf("%s: %s", name, value); /* may be a token */
    add_line(x, line);
}

static void set_headers(struct httpc_exchange *x, const struct httpc_request *req)
{
    free_headers(x);
    add_header(x, "Accept", req->accept ? req->accept : "application/json");
    if (req->authorization)
        add_header(x, "Authorization", req->authorization);
    if (req->content_type)
        add_header(x, "Content-Type", req->content_type);
    else
        add_line(x, "Content-Type:"); /* removes libcurl's default */
    if (req->flag_header)
        add_header(x, req->flag_header, "1");
    add_line(x, "Expect:"); /* no "100-continue" */
    if (x->c->host)
        add_line(x, x->c->host);
    HTTPC_SET(x->easy, CURLOPT_HTTPHEADER, x->headers);
}

static void set_method(struct httpc_exchange *x, const struct httpc_request *req)
{
    bool get = !strcmp(req->method, "GET"), head = !strcmp(req->method, "HEAD");
    bool bodyless = !req->body.n && strcmp(req->method, "POST") &&
                    strcmp(req->method, "PUT") && strcmp(req->method, "PATCH");
    HTTPC_SET(x->easy, CURLOPT_HTTPGET, 1L); /* resets the previous method */
    HTTPC_SET(x->easy, CURLOPT_CUSTOMREQUEST, get || head ? NULL : req->method);
    if (head)
        HTTPC_SET(x->easy, CURLOPT_NOBODY, 1L);
    if (!bodyless) {
        HTTPC_SET(x->easy, CURLOPT_POST, 1L);
        HTTPC_SET(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body.n);
        HTTPC_SET(x->easy, CURLOPT_POSTFIELDS, req->body.n ? req->body.p : "");
    }
    x->max_attempts = bodyless && (get || head) ? 2 : 1;
}

int httpc_exchange_prepare(struct httpc_exchange *x, const struct httpc_request *req,
                           struct err *err)
{
    x->status = 0;
    reset_headers(x);
    x->attempts = 0;
    x->stopped = STOP_NOT;
    x->why[0] = '\0';
    x->send_by = req->send_by;
    x->tcp_user_timeout_ms = req->tcp_user_timeout_ms > 0 ? req->tcp_user_timeout_ms : 0;
    if (check(req, err))
        return -1;
    cleanup_free char *url = xasprintf("%s%s", x->c->origin, req->path);
    HTTPC_SET(x->easy, CURLOPT_URL, url);
    HTTPC_SET(x->easy, CURLOPT_ACCEPT_ENCODING, req->gzip ? "gzip" : NULL);
    HTTPC_SET(x->easy, CURLOPT_TIMEOUT_MS,
              (long)(req->timeout_ms > 0 ? req->timeout_ms : 0));
    set_headers(x, req);
    set_method(x, req);
    x->last_byte_ms = clock_mono_ms();
    return 0;
}

int httpc_exchange_result(const struct httpc_exchange *x, CURLcode rc, struct err *err)
{
    if (rc == CURLE_OK && x->status)
        return 0;
    switch (x->stopped) {
    case STOP_REPEAT:
        return err_set(err, ERR_UNAVAILABLE,
                       "connection closed before a response; not retried");
    case STOP_LATE:
        return err_set(err, ERR_UNAVAILABLE, "not sent: deadline passed");
    case STOP_SINK:
        return err_set(err, ERR_INVALID, "stopped by the caller");
    case STOP_NOT:
        break;
    }
    enum err_code code = ERR_UNAVAILABLE;
    if (rc == CURLE_OPERATION_TIMEDOUT && x->attempts)
        code = ERR_TIMEOUT;
    if (rc == CURLE_OK)
        return err_set(err, code, "response without a status");
    return err_set(err, code, "%s", x->why[0] ? x->why : curl_easy_strerror(rc));
}

int httpc_exchange_wrap(const struct httpc_exchange *x, const struct httpc_request *req,
                        struct err *err)
{
    struct span rest = span_of(req->path), path = span_cut(&rest, '?');
    if (path.n > 200)
        path.n = 200;
    return err_wrap(err, "%.20s %.200s%.*s", req->method, x->c->url, SPAN_ARG(path));
}
