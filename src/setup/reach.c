/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "setup/facts.h"
#include "setup/host.h"
#include "wire/httpc.h"

enum { CONNECT_MS = 3000, ANSWER_MS = 5000, BODY_MAX = 64 * 1024, ADDRESSES = 4 };

static const char body[] =
    "{\"Pod\":{\"metadata\":{\"name\":\"gpushare-setup\",\"namespace\":\"kube-system\","
    "\"uid\":\"gpushare-setup\"},\"spec\":{\"containers\":[]}},\"Nodes\":null,"
    "\"NodeNames\":[]}";

/* One connection attempt. Returns 0 or an errno. */
static int try_connect(const struct addrinfo *a)
{
    cleanup_close int fd =
        socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t n = sizeof error;
    if (fd < 0)
        return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, CONNECT_MS) != 1)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) ? errno : error;
}

/* Can a connection be opened? libcurl's error does not distinguish a refusal from a
 * timeout. */
static bool can_connect(struct facts_reach *r)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all;
    char port[8];
    int error = 0;
    snprintf(port, sizeof port, "%u", r->url.port);
    int rc = getaddrinfo(r->url.host, port, &hints, &all);
    if (rc) {
        r->answer = FACTS_REACH_NO_ROUTE;
        err_set(&r->detail, ERR_NOT_FOUND, "%s: %s", r->url.host, gai_strerror(rc));
        return false;
    }
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        if (!(error = try_connect(a)))
            break;
    freeaddrinfo(all);
    if (!error)
        return true;
    r->answer = error == ECONNREFUSED ? FACTS_REACH_REFUSED
                : error == ETIMEDOUT  ? FACTS_REACH_TIMEOUT
                                      : FACTS_REACH_NO_ROUTE;
    if (r->answer == FACTS_REACH_NO_ROUTE)
        err_set(&r->detail, ERR_UNAVAILABLE, "%s", strerror(error));
    return false;
}

static int send_request(struct httpc *http, const char *method, const char *path,
                        struct span text, struct httpc_reply *reply, struct err *err)
{
    const struct httpc_request request = {.method = method,
                                          .path = path,
                                          .body = text,
                                          .content_type =
                                              text.n ? "application/json" : NULL,
                                          .timeout_ms = ANSWER_MS};
    return httpc_call(http, &request, BODY_MAX, reply, err);
}

/* Only this project's extender returns its version as JSON. */
static bool is_ours(struct httpc *http)
{
    struct httpc_reply reply = {0};
    bool ours = false;
    if (send_request(http, "GET", "/version", SPAN(""), &reply, NULL) == 0 &&
        reply.body.n) {
        json_t *j = json_loadb(reply.body.p, reply.body.n, 0, NULL);
        ours = reply.status == 200 && json_is_string(jsonpath_at(j, "version"));
        json_decref(j);
    }
    httpc_reply_fini(&reply);
    return ours;
}

/* The result of filter, of any extender. */
static bool is_filter_result(const struct httpc_reply *reply)
{
    json_t *j = json_loadb(reply->body.n ? reply->body.p : "", reply->body.n, 0, NULL);
    bool is = json_object_get(j, "NodeNames") && json_object_get(j, "FailedNodes");
    json_decref(j);
    return reply->status == 200 && is;
}

static void store_error(struct facts_reach *r, const struct httpc_reply *reply)
{
    cleanup_buf struct buf text = {0};
    json_t *j = json_loadb(reply->body.n ? reply->body.p : "", reply->body.n, 0, NULL);
    const char *error = jsonpath_str(j, "Error");
    error = *error ? error : jsonpath_str(j, "error");
    if (*error)
        buf_adds(&text, error);
    else if (reply->body.n)
        buf_add(&text, reply->body.p, reply->body.n < 120 ? reply->body.n : 120);
    err_set(&r->detail, ERR_UNAVAILABLE, "HTTP status %u%s%s", r->status,
            text.n ? ": " : "", text.n ? text.p : "");
    json_decref(j);
}

static enum facts_answer answer_of(unsigned status)
{
    switch (status) {
    case 503:
        return FACTS_REACH_NOT_READY;
    case 401:
        return FACTS_REACH_NO_CREDENTIALS;
    case 403:
        return FACTS_REACH_FORBIDDEN;
    default:
        return FACTS_REACH_WRONG_PATH;
    }
}

static void classify(struct facts_reach *r, struct httpc *http,
                     const struct httpc_reply *reply)
{
    bool ours = is_ours(http), result = is_filter_result(reply);
    r->status = reply->status;
    if (result && ours)
        r->answer = FACTS_REACH_OK;
    else if (ours)
        r->answer = answer_of(r->status);
    else
        r->answer = result ? FACTS_REACH_GO_EXTENDER : FACTS_REACH_OTHER_PROGRAM;
    if (r->answer != FACTS_REACH_OK && r->answer != FACTS_REACH_GO_EXTENDER)
        store_error(r, reply);
}

static struct httpc *connect_to(const struct extender_entry_url *url,
                                const struct reach_tls *tls, struct err *err)
{
    cleanup_buf struct buf base = {0};
    extender_entry_url_base(url, &base);
    const struct httpc_config config = {.url = base.p,
                                        .ca_pem = tls->ca,
                                        .cert_pem = tls->cert,
                                        .key_pem = tls->key,
                                        .server_name = tls->server_name,
                                        .insecure = !tls->ca.n,
                                        .user_agent = "gpushare-setup",
                                        .connect_ms = CONNECT_MS};
    return httpc_new(&config, err);
}

/* Is our extender there, with `tls` or without, if its certificate is not verified? */
static bool is_ours_at(const struct extender_entry_url *url, bool tls,
                       const struct reach_tls *credentials)
{
    const struct reach_tls unverified = {.cert = credentials->cert,
                                         .key = credentials->key};
    struct extender_entry_url other = *url;
    other.tls = tls;
    struct httpc *http = connect_to(&other, &unverified, NULL);
    bool ours = http && is_ours(http);
    httpc_free(http);
    return ours;
}

static enum facts_answer explain_protocol(const struct extender_entry_url *url,
                                          const struct reach_tls *tls)
{
    if (url->tls && is_ours_at(url, true, tls))
        return FACTS_REACH_UNTRUSTED;
    if (is_ours_at(url, !url->tls, tls))
        return url->tls ? FACTS_REACH_WANTS_HTTP : FACTS_REACH_WANTS_HTTPS;
    return FACTS_REACH_PROTOCOL_ERROR;
}

static void try_url(struct facts_reach *r, const char *verb, const struct reach_tls *tls)
{
    struct httpc_reply reply = {0};
    if (!can_connect(r))
        return;
    struct httpc *http = connect_to(&r->url, tls, &r->detail);
    cleanup_free char *path = xasprintf("%s/%s", r->url.path, verb);
    r->answer = FACTS_REACH_PROTOCOL_ERROR;
    if (!http)
        return;
    if (send_request(http, "POST", path, (struct span){body, strlen(body)}, &reply,
                     &r->detail) == 0)
        classify(r, http, &reply);
    else if (r->detail.code == ERR_TIMEOUT)
        r->answer = FACTS_REACH_TIMEOUT;
    else
        r->answer = explain_protocol(&r->url, tls);
    httpc_reply_fini(&reply);
    httpc_free(http);
}

void reach_call(struct facts *f, const char *verb, const struct reach_tls *tls)
{
    char addresses[ADDRESSES][64];
    try_url(&f->reach, verb, tls);
    if (f->reach.answer != FACTS_REACH_REFUSED && f->reach.answer != FACTS_REACH_TIMEOUT)
        return;
    size_t n = host_addresses(addresses, ADDRESSES);
    for (size_t i = 0; i < n && !f->reachable_at; i++) {
        struct facts_reach r = {.url = f->reach.url};
        snprintf(r.url.host, sizeof r.url.host, "%s", addresses[i]);
        try_url(&r, verb, tls);
        if (r.answer == FACTS_REACH_OK || r.answer == FACTS_REACH_NOT_READY)
            f->reachable_at = xasprintf("%s:%u", addresses[i], r.url.port);
    }
}

/* The entry's own files and its name. */
static struct reach_tls entry_tls(const struct facts *f, const json_t *ours)
{
    const char *name = jsonpath_str(ours, "tlsConfig.serverName");
    return (struct reach_tls){buf_span(&f->tls[CLIENT_SECRET_CA].bytes),
                              buf_span(&f->tls[CLIENT_SECRET_CERT].bytes),
                              buf_span(&f->tls[CLIENT_SECRET_KEY].bytes),
                              *name ? name : NULL};
}

void reach_call_configured(struct facts *f, const char *address)
{
    const json_t *ours = extender_entry_find(f->config.json);
    const char *verb = jsonpath_str(ours, "filterVerb");
    struct reach_tls tls = entry_tls(f, ours);
    bool known = extender_entry_read_url(jsonpath_str(ours, "urlPrefix"), &f->reach.url,
                                         NULL) == 0;
    cleanup_free char *url =
        xasprintf("http%s://%s/gpushare-scheduler", known && f->reach.url.tls ? "s" : "",
                  address ? address : "");
    if (!ours ||
        (address ? extender_entry_read_url(url, &f->reach.url, NULL) != 0 : !known))
        return;
    reach_call(f, *verb ? verb : "filter", &tls);
}

/* The certificate that the plan leaves or puts there: the administrator's own, or that of
 * the Secret, or without a Secret the files on the node. */
static struct reach_tls planned_tls(const struct facts *f, const json_t *ours,
                                    const char *server)
{
    const struct buf *pem = f->secret.pem;
    const char *cert = jsonpath_str(ours, "tlsConfig.certFile");
    if (!pem[CLIENT_SECRET_CERT].n ||
        (*cert && strcmp(cert, client_secret_path(CLIENT_SECRET_CERT))))
        return entry_tls(f, ours);
    return (struct reach_tls){buf_span(&pem[CLIENT_SECRET_CA]),
                              buf_span(&pem[CLIENT_SECRET_CERT]),
                              buf_span(&pem[CLIENT_SECRET_KEY]), server};
}

void reach_call_planned(struct facts *f, const char *address, bool insecure)
{
    const json_t *ours = extender_entry_find(f->config.json);
    const char *verb = jsonpath_str(ours, "filterVerb");
    cleanup_free char *url =
        xasprintf("http://%s/gpushare-scheduler", address ? address : "127.0.0.1:32766");
    bool known = extender_entry_read_url(jsonpath_str(ours, "urlPrefix"), &f->reach.url,
                                         NULL) == 0;
    if ((!known || address) && extender_entry_read_url(url, &f->reach.url, NULL))
        return;
    f->reach.url.tls = !insecure;
    cleanup_free char *server = facts_server_name(f);
    const struct reach_tls tls =
        insecure ? (struct reach_tls){0} : planned_tls(f, ours, server);
    reach_call(f, *verb ? verb : "filter", &tls);
}
