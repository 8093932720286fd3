/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "kube/client_priv.h"

/* The client of the API server: calls, streams, errors, and how a program connects. */

enum { CONNECT_MS = 5000 };

/* References that one request holds: credentials, and the HTTP client made for them. */
struct session {
    struct kube_identity *id;
    struct httpc *http;
};

static void session_fini(struct session *p)
{
    if (p->id)
        kube_identity_free(p->id);
    httpc_free(p->http);
}

static struct httpc *http_new(const struct kube_config *config,
                              const struct kube_identity *id, struct err *err)
{
    struct httpc_config http = {
        .url = config->server,
        .ca_pem = id->ca_pem,
        .cert_pem = id->cert_pem,
        .key_pem = id->key_pem,
        .server_name = config->server_name,
        .proxy = config->proxy,
        .insecure = config->insecure,
        .user_agent = "gpushare/" GPUSHARE_VERSION,
        .connect_ms = CONNECT_MS,
    };
    return httpc_new(&http, err);
}

/* jansson reads the output of credential plugins, with tokens and keys. */
static void wiping_free(void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

struct kube_client *kube_client_new(struct kube_config *config, struct err *err)
{
    json_object_seed(0); /* neither is thread-safe */
    json_set_alloc_funcs(malloc, wiping_free);
    struct kube_client *c = xcalloc(1, sizeof *c);
    c->config = *config;
    *config = (struct kube_config){0};
    config = &c->config;
    c->now_ms = clock_mono_ms;
    pthread_mutex_init(&c->lock, NULL);
    c->credential = kube_credential_new(&c->config);
    const struct kube_identity first = {.ca_pem = config->ca_pem,
                                        .cert_pem = config->cert_pem,
                                        .key_pem = config->key_pem};
    c->http = http_new(config, &first, err);
    if (c->http)
        return c;
    err_wrap(err, "%s", config->source ? config->source : config->server);
    kube_client_free(c);
    return NULL;
}

void kube_client_free(struct kube_client *c)
{
    if (!c)
        return;
    httpc_free(c->http);
    kube_credential_free(c->credential);
    kube_config_fini(&c->config);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* Replaces c->http if the identity has newer certificates. */
static int renew_http(struct kube_client *c, const struct kube_identity *id,
                      struct err *err)
{
    if (id->tls_version <= c->tls_version)
        return 0;
    struct httpc *http = http_new(&c->config, id, err);
    if (!http)
        return -1;
    httpc_free(c->http); /* freed with its last call or stream */
    c->http = http;
    c->tls_version = id->tls_version;
    return 0;
}

static int session_begin(struct kube_client *c, struct session *p, struct err *err)
{
    *p = (struct session){.id = kube_credential_get(c->credential, c->now_ms(), err)};
    if (!p->id)
        return err_wrap(err, "%s",
                        c->config.source ? c->config.source : c->config.server);
    pthread_mutex_lock(&c->lock);
    int rc = renew_http(c, p->id, err);
    if (!rc)
        p->http = httpc_ref(c->http);
    pthread_mutex_unlock(&c->lock);
    if (rc)
        session_fini(p);
    return rc;
}

/* The HTTP request. *path is new. */
static struct httpc_request http_request(const struct kube_client *c,
                                         const struct kube_request *req,
                                         const struct session *p, char **path)
{
    const char *type = req->content_type ? req->content_type : "application/json";
    *path =
        xasprintf("%s%s", c->config.path_prefix ? c->config.path_prefix : "", req->path);
    return (struct httpc_request){
        .method = req->method,
        .path = *path,
        .authorization = p->id->authorization,
        .content_type = req->body.n ? type : NULL,
        .body = req->body,
        .gzip = req->gzip,
        .timeout_ms = req->timeout_ms,
        .tcp_user_timeout_ms = req->tcp_user_timeout_ms,
        .send_by = req->send_by,
        .stall_ms = req->stall_ms,
    };
}

static int call_once(struct kube_client *c, const struct kube_request *req,
                     struct httpc_reply *reply, struct err *err)
{
    struct session p;
    cleanup_free char *path = NULL;
    *reply = (struct httpc_reply){.retry_after_s = -1};
    if (session_begin(c, &p, err))
        return -1;
    struct httpc_request http = http_request(c, req, &p, &path);
    int rc = httpc_call(p.http, &http, KUBE_MAX_BODY, reply, err);
    if (rc && !reply->sent)
        kube_credential_connect_failed(c->credential);
    if (!rc && reply->status == 401)
        kube_credential_rejected(c->credential, p.id);
    session_fini(&p);
    return rc;
}

int kube_call(struct kube_client *c, const struct kube_request *req,
              struct httpc_reply *reply, struct err *err)
{
    int64_t start = clock_mono_ms();
    int rc = call_once(c, req, reply, err);
    if (rc || reply->status != 401 || !kube_credential_can_change(c->credential))
        return rc;
    struct kube_request again = *req;
    if (req->timeout_ms > 0) {
        again.timeout_ms = req->timeout_ms - (clock_mono_ms() - start);
        if (again.timeout_ms <= 0)
            return 0; /* no time for a retry: the 401 is the result */
    }
    httpc_reply_fini(reply);
    return call_once(c, &again, reply, err);
}

int kube_send(void *client, const struct kube_request *request, struct err *err)
{
    struct httpc_reply reply;
    int rc = kube_call(client, request, &reply, err);
    if (rc == 0)
        rc = kube_reply_check(reply.status, buf_span(&reply.body), err);
    httpc_reply_fini(&reply);
    return rc;
}

struct httpc_stream *kube_stream_start(struct kube_client *c, struct httpc_loop *loop,
                                       const struct kube_request *req,
                                       const struct httpc_sink *sink, void *ctx,
                                       struct err *err)
{
    struct session p;
    cleanup_free char *path = NULL;
    if (session_begin(c, &p, err))
        return NULL;
    struct httpc_request http = http_request(c, req, &p, &path);
    struct httpc_stream *s = httpc_stream_start(loop, p.http, &http, sink, ctx);
    session_fini(&p);
    return s;
}

void kube_client_unauthorized(struct kube_client *c)
{
    kube_credential_rejected(c->credential, NULL);
}

/* Error responses of the API server. */

enum {
    STATUS_MAX = 1 << 20, /* bytes of a body that is parsed as a Status */
    MESSAGE_MAX = 400,
    SHOWN_MAX = 120, /* bytes of any other body in the error message */
};

static enum err_code code_of(unsigned status)
{
    static const struct {
        unsigned status;
        enum err_code code;
    } codes[] = {
        {400, ERR_INVALID},     {401, ERR_UNAUTHORIZED}, {403, ERR_FORBIDDEN},
        {404, ERR_NOT_FOUND},   {408, ERR_TIMEOUT},      {409, ERR_CONFLICT},
        {410, ERR_GONE},        {413, ERR_TOO_LARGE},    {422, ERR_INVALID},
        {429, ERR_UNAVAILABLE}, {503, ERR_UNAVAILABLE},  {504, ERR_TIMEOUT},
    };
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return status >= 400 && status < 500 ? ERR_INVALID : ERR_INTERNAL;
}

static bool has_text(const json_t *root, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(root, key));
    return value && strcmp(value, text) == 0;
}

/* The timeout filter of kube-apiserver sends a Status without a kind. */
static bool is_status(const json_t *root)
{
    return json_object_get(root, "kind") ? has_text(root, "kind", "Status")
                                         : has_text(root, "status", "Failure");
}

/* The message of a Status object, or its reason; NULL for any other object. Borrowed. */
static const char *message_of(const json_t *root)
{
    const char *message = json_string_value(json_object_get(root, "message"));
    if (!is_status(root))
        return NULL;
    return message && *message ? message
                               : json_string_value(json_object_get(root, "reason"));
}

int kube_reply_check(unsigned status, struct span body, struct err *err)
{
    if (status >= 200 && status < 300)
        return 0;
    enum err_code code = code_of(status);
    bool parse = body.n && body.n <= STATUS_MAX && err;
    json_t *root = parse ? json_loadb(body.p, body.n, 0, NULL) : NULL;
    const char *message = message_of(root);
    cleanup_free char *shown = message ? kube_printable(span_of(message), MESSAGE_MAX)
                                       : kube_printable(body, SHOWN_MAX);
    json_decref(root);
    if (message || !*shown)
        return err_set(err, code, "HTTP %u%s%s", status, *shown ? ": " : "", shown);
    return err_set(err, code, "HTTP %u without a Status object: %s", status, shown);
}

struct kube_client *kube_connect_in(const char *kubeconfig, const char *context,
                                    char **ns, struct err *err)
{
    struct kube_config config = {0};
    struct kube_client *client = NULL;
    const struct kube_config_sources sources = {
        .kubeconfig = kubeconfig,
        .context = context,
        .host = getenv("KUBERNETES_SERVICE_HOST"),
        .port = getenv("KUBERNETES_SERVICE_PORT"),
        .home = getenv("HOME"),
    };
    if (kube_config_load(&sources, &config, err) == 0)
        client = kube_client_new(&config, err);
    if (client)
        log_info("kube", "API server: configured", LOG_S("server", client->config.server),
                 LOG_S("source", client->config.source));
    if (client && ns)
        *ns = xstrdup(client->config.ns);
    kube_config_fini(&config);
    return client;
}

struct kube_client *kube_connect(const char *kubeconfig, const char *context,
                                 struct err *err)
{
    return kube_connect_in(kubeconfig, context, NULL, err);
}
