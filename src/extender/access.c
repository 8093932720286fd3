/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/access.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "extender/forward.h"
#include "extender/pod_defaults.h"

#define API "/apis/nvidia-gpu-scheduler/v1"

/* The class of a path. */
enum access_class {
    ACCESS_OPEN, /* /healthz, /readyz, /version, /pod-defaults: everyone */
    ACCESS_VERB, /* filter, prioritize, preempt, bind: clients of the verbs' CAs */
    ACCESS_VIEW, /* everything else */
};

/* What the owner of a token must be allowed to do for a view; the first path that begins
 * like that of the request decides. A view that names pods shows those of all namespaces.
 * gpunodes is a resource and no path: by default, every user may get all paths below /apis
 * (ClusterRole system:discovery). */
#define GET(url)                                                                         \
    {                                                                                    \
        "get nonResourceURL " url,                                                       \
        {                                                                                \
            .verb = "get", .path = url                                                   \
        }                                                                                \
    }
#define LIST_PODS                                                                        \
    {                                                                                    \
        "list pods in all namespaces",                                                   \
        {                                                                                \
            .verb = "list", .group = "", .version = "v1", .resource = "pods"             \
        }                                                                                \
    }
static const struct {
    const char *path;
    struct delegated_auth_question question;
} views[] = {
    {"/metrics", GET("/metrics")},
    {"/inspect", LIST_PODS},
    {"/gpushare-scheduler/inspect", LIST_PODS},
    {API "/gpupods", LIST_PODS},
    {API "/gpunodes",
     {"list gpunodes.nvidia-gpu-scheduler",
      {.verb = "list",
       .group = "nvidia-gpu-scheduler",
       .version = "v1",
       .resource = "gpunodes"}}},
    {"/apis", GET(API)},
    {"/", GET("/")},
};

static bool is_one_of(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static enum access_class class_of(const char *path)
{
    static const char *const open[] = {"/healthz", "/readyz", "/version",
                                       POD_DEFAULTS_PATH};
    static const char *const verbs[] = {"filter", "prioritize", "preempt", "bind"};
    const char *name = strrchr(path, '/');
    if (strstr(path, "/inspect/")) /* the rest is the name of a node */
        return ACCESS_VIEW;
    if (is_one_of(open, ARRAY_LEN(open), path))
        return ACCESS_OPEN;
    if (name && is_one_of(verbs, ARRAY_LEN(verbs), name + 1))
        return ACCESS_VERB;
    return ACCESS_VIEW;
}

/* -- what a web page could send -- */

/* A page on another origin may POST any body as text/plain without asking first (CORS,
 * "simple requests"), so this type is required; parameters are allowed. */
static bool is_json(const char *content_type)
{
    struct span rest = span_of(content_type);
    return span_eq_nocase(span_trim(span_cut(&rest, ';')), SPAN("application/json"));
}

/* Whether the origin is scheme://Host (RFC 6454). The scheme may be that of a proxy. */
static bool is_same_origin(const char *origin, const char *host)
{
    struct span at = span_of(origin);
    size_t scheme = span_starts(at, SPAN("https://"))  ? strlen("https://")
                    : span_starts(at, SPAN("http://")) ? strlen("http://")
                                                       : 0;
    at.p += scheme;
    at.n -= scheme;
    return scheme && host && span_eq_nocase(at, span_of(host));
}

/* A loopback address or localhost, with any port. */
static bool is_loopback_host(struct span host)
{
    bool v6 = span_starts(host, SPAN("["));
    host.p += v6;
    host.n -= v6;
    struct span name = span_cut(&host, v6 ? ']' : ':');
    cleanup_free char *address = xasprintf("%.*s", SPAN_ARG(name));
    return span_eq_nocase(name, SPAN("localhost")) || certs_is_loopback(address);
}

/* Rejects what a web page on another origin could send: a foreign Origin (403), and a POST
 * whose Content-Type is not application/json (415). On a loopback address, where nobody needs
 * credentials, the name of a page may resolve to this server (DNS rebinding): a request that
 * a page could send must name a loopback address. A page sends Origin with each POST. */
static bool checks_form(const struct access *a, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    const char *origin = httpd_header(req, "Origin"), *host = httpd_header(req, "Host");
    bool may_be_page = origin || strcmp(req->method, "POST") != 0;
    if (certs_info(a->certs)->on_loopback && may_be_page &&
        class_of(req->path) != ACCESS_OPEN && !is_loopback_host(span_of(host))) {
        httpd_fail(reply, 403, "Host: expected localhost or a loopback address");
        return false;
    }
    if (origin && !is_same_origin(origin, host)) {
        httpd_fail(reply, 403,
                   "Origin: requests from pages of another origin are "
                   "rejected");
        return false;
    }
    if (strcmp(req->method, "POST") == 0 && !is_json(httpd_header(req, "Content-Type"))) {
        httpd_fail(reply, 415, "Content-Type: expected application/json");
        return false;
    }
    return true;
}

/* -- who may call -- */

/* For kube-scheduler, or another replica. 401 without a certificate that a CA of this
 * port verifies, 403 with another's. */
static bool allows_verb(const struct access *a, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    const char *own = httpd_client_name(req, TLS_OWN),
               *name = httpd_client_name(req, TLS_ANY);
    bool secrets = certs_info(a->certs)->mode == CERTS_SECRETS;
    bool forwarded =
        httpd_header(req, FORWARD_HEADER) || httpd_header(req, REPORT_HEADER);
    if (!own && !httpd_client_name(req, TLS_CLIENTS)) {
        if (name)
            httpd_fail(reply, 403,
                       "the client certificate of \"%s\" is not allowed here: %s%s", name,
                       secrets ? "use that of Secret gpushare-scheduler-tls"
                               : "if it is of --client-ca, add --client-name=",
                       secrets ? "" : name);
        else
            httpd_fail(reply, 401,
                       "a client certificate is required: see TLS in docs/operations.md, "
                       "or --insecure on a trusted network");
        return false;
    }
    if (!secrets || !forwarded || (own && strcmp(own, CERTS_SERVER_NAME) == 0))
        return true;
    httpd_fail(reply, 403, "only a replica of the extender may forward a bind");
    return false;
}

/* Only the API server's front proxy may name a user. */
static bool checks_remote_user(const struct access *a, const struct httpd_request *req,
                               struct httpd_reply *reply)
{
    static const char *const headers[] = {"X-Remote-User", "X-Remote-Group",
                                          "X-Remote-Uid"};
    const char *user = NULL;
    if (!certs_info(a->certs)->has_front_proxy ||
        !span_starts(span_of(req->path), SPAN(API "/gpu")))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(headers) && !user; i++)
        user = httpd_header(req, headers[i]);
    if (user && !httpd_client_name(req, TLS_CLIENTS)) {
        httpd_fail(reply, 401,
                   "X-Remote-User is accepted only from a client with a certificate of "
                   "--requestheader-client-ca");
        return false;
    }
    if (user)
        log_debug("gpuapi", "request for a user", LOG_S("path", req->path),
                  LOG_S("user", user),
                  LOG_S("proxy", httpd_client_name(req, TLS_CLIENTS)));
    return true;
}

/* The token of "Authorization: Bearer TOKEN"; empty if there is none. */
static struct span bearer(const struct httpd_request *req)
{
    struct span rest = span_of(httpd_header(req, "Authorization"));
    struct span scheme = rest.n ? span_cut(&rest, ' ') : rest;
    if (!span_eq_nocase(scheme, SPAN("Bearer")))
        return (struct span){0};
    return span_trim(rest);
}

/* Does the certificate show everything? The observers' first CA is that of the front proxy,
 * to which the API server passes only what is below /apis. */
static bool is_reader(bool main, const struct httpd_request *req)
{
    return httpd_client_name(req, TLS_OWN) || httpd_client_name(req, TLS_SECONDARY) ||
           (httpd_client_name(req, TLS_CLIENTS) &&
            (main || span_starts(span_of(req->path), SPAN("/apis"))));
}

static bool allows_view(const struct access *a, bool main,
                        const struct httpd_request *req, struct httpd_reply *reply)
{
    struct span token = bearer(req);
    struct err err = {0};
    enum delegated_auth_answer answer = DELEGATED_AUTH_NO;
    if (is_reader(main, req))
        return true;
    size_t view = 0;
    while (view < ARRAY_LEN(views) - 1 &&
           !span_starts(span_of(req->path), span_of(views[view].path)))
        view++;
    if (token.n)
        answer = delegated_auth_check(a->auth, token, &views[view].question, req, &err);
    else
        err_set(&err, ERR_UNAUTHORIZED,
                "a bearer token or a client certificate is required for %s", req->path);
    if (answer == DELEGATED_AUTH_YES || answer == DELEGATED_AUTH_PENDING)
        return answer == DELEGATED_AUTH_YES;
    bool no = answer == DELEGATED_AUTH_NO, unknown = err.code == ERR_UNAUTHORIZED;
    httpd_fail(reply, !no ? 503 : unknown ? 401 : 403, "%s", err.msg);
    if (no && unknown)
        httpd_add_header(reply, "WWW-Authenticate", "Bearer realm=\"gpushare\"");
    return false;
}

/* Nobody knows who sends a body to the webhook. API servers name its length. */
static bool is_small(const struct httpd_request *req, struct httpd_reply *reply)
{
    int64_t n = 0;
    if (strcmp(req->method, "POST") != 0 ||
        (span_i64(span_of(httpd_header(req, "Content-Length")), &n) &&
         n <= POD_DEFAULTS_BODY))
        return true;
    httpd_fail(reply, 413, "Content-Length: expected at most %d bytes",
               POD_DEFAULTS_BODY);
    return false;
}

static bool allows(const struct access *a, bool main, const struct httpd_request *req,
                   struct httpd_reply *reply)
{
    if (!checks_form(a, req, reply) || !checks_remote_user(a, req, reply))
        return false;
    if (certs_info(a->certs)->mode == CERTS_INSECURE)
        return true;
    switch (class_of(req->path)) {
    case ACCESS_OPEN:
        return is_small(req, reply);
    case ACCESS_VERB:
        return allows_verb(a, req, reply);
    default:
        if (!allows_view(a, main, req, reply))
            return false;
        /* A full port closes others first. On the main port that, and the reserved
         * handlers, are for kube-scheduler and replicas: many users may have a token. */
        if (!main)
            httpd_trust(req);
        return true;
    }
}

bool access_allows_main(void *ctx, const struct httpd_request *req,
                        struct httpd_reply *reply)
{
    return allows(ctx, true, req, reply);
}

bool access_allows_observer(void *ctx, const struct httpd_request *req,
                            struct httpd_reply *reply)
{
    return allows(ctx, false, req, reply);
}

int64_t access_stream_end_ms(const struct access *a, bool main,
                             const struct httpd_request *req)
{
    if (certs_info(a->certs)->mode == CERTS_INSECURE ||
        httpd_client_name(req, TLS_SECONDARY) || httpd_client_name(req, TLS_OWN) ||
        (main && httpd_client_name(req, TLS_CLIENTS)))
        return INT64_MAX;
    return clock_mono_ms() + ACCESS_STREAM_MS;
}
