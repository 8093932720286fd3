/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"

#include <ctype.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "domain/object.h"
#include "kube/client_priv.h"
#include "kube/jpath.h"
#include "kube/kubeconfig_priv.h"

/* The client of the API server: credentials, calls, streams, errors, and how a program
 * connects. */

/* -- credentials -- */

enum {
    CONNECT_MS = 5000,
    FILES_MS = 50 * 1000, /* interval of reloading the files */
    SOON_MS = 1000,       /* the same after a failed connection */
};

static void set_authorization(struct kube_client *c, struct span token)
{
    cleanup_wipe char *text = token.n ? xasprintf("Bearer %.*s", SPAN_ARG(token)) : NULL;
    if (span_eq(span_of(text), span_of(c->authorization)))
        return;
    mem_wipe(c->authorization);
    c->authorization = steal(&text);
}

/* Moves a PEM text, if there is one, to *to. Returns whether it is a new one: connections
 * with it are new. */
static bool take_pem(struct kube_client *c, struct buf *pem, struct buf *to)
{
    bool differs = pem->n && !span_eq(buf_span(pem), buf_span(to));
    if (differs) {
        const struct buf old = *to;
        *to = *pem;
        *pem = old;
        c->has_new_pem = true;
    }
    return differs;
}

/* Warns once until the file is valid again. Returns -1. */
static int keep_old(const char *path, bool *warned, const struct err *why)
{
    if (!*warned)
        log_warn("kube", "credential file: cannot reload; still using the old content",
                 LOG_S("file", path), LOG_ERR(why));
    *warned = true;
    return -1;
}

static void load_token(struct kube_client *c, struct err *err)
{
    const char *path = c->config.token_file;
    cleanup_buf_wipe struct buf text = {0};
    if (!path)
        return;
    int rc = file_read(path, KUBE_FILE_MAX, &text, err);
    struct span token = span_trim(buf_span(&text));
    if (!rc && !kube_token_ok(token))
        rc = err_set(err, ERR_INVALID, "%s: %s", path,
                     token.n ? "expected printable ASCII without spaces" : "empty file");
    if (!rc)
        set_authorization(c, token);
    if (!rc)
        c->warned_token = false;
    else if (c->authorization)
        keep_old(path, &c->warned_token, err);
}

/* Reads a PEM file; 0 without effect if path is NULL. */
static int read_pem(const char *path, bool *warned, struct buf *pem)
{
    struct err err = {0};
    if (!path || !kube_read_pem(path, pem, &err))
        return 0;
    return keep_old(path, warned, &err);
}

/* Reloads the files if that is due. -1 if there is a token file, but never was a token. */
static int load_files(struct kube_client *c, int64_t now_ms, struct err *err)
{
    struct err why = {0};
    bool lacks_token = c->config.token_file && !c->authorization;
    int64_t age_ms = now_ms - c->loaded_ms;
    if (!c->has_loaded || lacks_token || c->is_rejected || age_ms >= FILES_MS ||
        (c->is_connect_failed && age_ms >= SOON_MS)) {
        c->has_loaded = true;
        c->is_rejected = c->is_connect_failed = false;
        c->loaded_ms = now_ms;
        load_token(c, &why);
        struct kube_config *config = &c->config;
        cleanup_buf_wipe struct buf ca = {0}, cert = {0}, key = {0};
        if (!read_pem(config->ca_file, &c->warned_ca, &ca))
            c->warned_ca = false;
        bool reloaded = take_pem(c, &ca, &config->ca_pem);
        if (!read_pem(config->cert_file, &c->warned_pair, &cert) &&
            !read_pem(config->key_file, &c->warned_pair, &key)) {
            c->warned_pair = false;
            reloaded |= take_pem(c, &cert, &config->cert_pem);
            reloaded |= take_pem(c, &key, &config->key_pem);
        }
        if (reloaded)
            log_info("kube", "certificates: reloaded", LOG_S("source", config->source));
    }
    if (c->config.token_file && !c->authorization)
        return err_set(err, why.code, "no token: %s", why.msg);
    return 0;
}

void kube_client_family(struct kube_client *c, enum x509_metric metric, struct buf *out)
{
    x509_family(out, metric);
    pthread_mutex_lock(&c->lock);
    x509_sample(out, metric, "kube-client", buf_span(&c->config.cert_pem), false);
    x509_sample(out, metric, "kube-ca", buf_span(&c->config.ca_pem), true);
    pthread_mutex_unlock(&c->lock);
}

void kube_client_metrics(struct kube_client *c, struct buf *out)
{
    for (int i = 0; i < X509_N_METRICS; i++)
        kube_client_family(c, i, out);
}

void kube_client_unauthorized(struct kube_client *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_rejected = true;
    pthread_mutex_unlock(&c->lock);
}

/* -- calls and streams -- */

static struct httpc *http_new(const struct kube_config *config, struct err *err)
{
    struct httpc_config http = {
        .url = config->server,
        .ca_pem = buf_span(&config->ca_pem),
        .cert_pem = buf_span(&config->cert_pem),
        .key_pem = buf_span(&config->key_pem),
        .server_name = config->server_name,
        .proxy = config->proxy,
        .unix_socket = config->unix_socket,
        .insecure = config->insecure,
        .user_agent = "gpushare/" GPUSHARE_VERSION,
        .connect_ms = CONNECT_MS,
    };
    return httpc_new(&http, err);
}

/* What names the API server and its credentials in errors. */
static const char *source_of(const struct kube_client *c)
{
    return c->config.source ? c->config.source : c->config.server;
}

struct kube_client *kube_client_new(struct kube_config *config, struct err *err)
{
    json_object_seed(0); /* not thread-safe */
    struct kube_client *c = xcalloc(1, sizeof *c);
    c->config = *config;
    *config = (struct kube_config){0};
    c->now_ms = clock_mono_ms;
    pthread_mutex_init(&c->lock, NULL);
    set_authorization(c, span_of(c->config.token));
    c->http = http_new(&c->config, err);
    if (c->http)
        return c;
    err_wrap(err, "%s", source_of(c));
    kube_client_free(c);
    return NULL;
}

void kube_client_free(struct kube_client *c)
{
    if (!c)
        return;
    httpc_free(c->http);
    mem_wipe(c->authorization);
    kube_config_fini(&c->config);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

void kube_session_fini(struct kube_session *s)
{
    mem_wipe(s->authorization);
    httpc_free(s->http);
}

int kube_session_begin(struct kube_client *c, struct kube_session *s, struct err *err)
{
    int64_t now_ms = c->now_ms();
    struct err why;
    pthread_mutex_lock(&c->lock);
    int rc = load_files(c, now_ms, &why);
    if (!rc && c->has_new_pem) {
        struct httpc *http = http_new(&c->config, &why);
        rc = http ? 0 : -1;
        if (http) {
            httpc_free(c->http); /* freed with its last call or stream */
            c->http = http;
            c->has_new_pem = false;
        }
    }
    *s = (struct kube_session){0};
    if (!rc)
        *s = (struct kube_session){c->authorization ? xstrdup(c->authorization) : NULL,
                                   httpc_ref(c->http)};
    pthread_mutex_unlock(&c->lock);
    /* The codes of files would look like answers of the API server. */
    return rc ? err_set(err, ERR_UNAVAILABLE, "%s: %s", source_of(c), why.msg) : 0;
}

/* The HTTP request. *path is new. */
static struct httpc_request http_request(const struct kube_client *c,
                                         const struct kube_request *req,
                                         const struct kube_session *s, char **path)
{
    const char *type = req->content_type ? req->content_type : "application/json";
    *path =
        xasprintf("%s%s", c->config.path_prefix ? c->config.path_prefix : "", req->path);
    return (struct httpc_request){
        .method = req->method,
        .path = *path,
        .authorization = s->authorization,
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
    struct kube_session s;
    cleanup_free char *path = NULL;
    *reply = (struct httpc_reply){.retry_after_s = -1};
    if (kube_session_begin(c, &s, err))
        return -1;
    struct httpc_request http = http_request(c, req, &s, &path);
    int rc = httpc_call(s.http, &http, KUBE_MAX_BODY, reply, err);
    if (rc && !reply->sent) {
        pthread_mutex_lock(&c->lock);
        c->is_connect_failed = true;
        pthread_mutex_unlock(&c->lock);
    }
    kube_session_fini(&s);
    if (!rc && reply->status == 401)
        kube_client_unauthorized(c);
    if (rc || !kube_client_lost(c, reply->status, buf_span(&reply->body), err))
        return rc;
    httpc_reply_fini(reply);
    reply->status = 0;
    return -1;
}

int kube_call(struct kube_client *c, const struct kube_request *req,
              struct httpc_reply *reply, struct err *err)
{
    const struct kube_config *config = &c->config;
    bool can_change = config->token_file || config->cert_file || config->key_file ||
                      config->unix_socket;
    int64_t start = clock_mono_ms();
    int rc = call_once(c, req, reply, err);
    if (rc || reply->status != 401 || !can_change)
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

int kube_ask(void *client, const struct kube_request *request, struct httpc_reply *reply,
             struct err *err)
{
    if (kube_call(client, request, reply, err))
        return -1;
    return kube_reply_check(reply->status, buf_span(&reply->body), err);
}

int kube_send(void *client, const struct kube_request *request, struct err *err)
{
    cleanup_reply struct httpc_reply reply = {0};
    return kube_ask(client, request, &reply, err);
}

struct httpc_stream *kube_stream_start(struct kube_client *c, struct httpc_loop *loop,
                                       const struct kube_request *req,
                                       const struct httpc_sink *sink, void *ctx,
                                       struct err *err)
{
    struct kube_session s;
    cleanup_free char *path = NULL;
    if (kube_session_begin(c, &s, err))
        return NULL;
    struct httpc_request http = http_request(c, req, &s, &path);
    struct httpc_stream *stream = httpc_stream_start(loop, s.http, &http, sink, ctx);
    kube_session_fini(&s);
    return stream;
}

/* -- error responses of the API server -- */

enum {
    STATUS_MAX = 1 << 20, /* bytes of a body that is parsed as a Status */
    MESSAGE_MAX = 400,
    SHOWN_MAX = 120, /* bytes of any other body in the error message */
};

/* As err_http_status, and other statuses of the API server. */
static enum err_code code_of(unsigned status)
{
    for (int code = ERR_INVALID; code <= ERR_INTERNAL; code++)
        if (err_http_status(code) == status)
            return code;
    return status == 408                   ? ERR_TIMEOUT
           : status == 429                 ? ERR_UNAVAILABLE
           : status >= 400 && status < 500 ? ERR_INVALID
                                           : ERR_INTERNAL;
}

/* The text on one line, without control characters, truncated to `max` bytes; new. */
static char *printable(struct span s, size_t max)
{
    struct buf out = {0};
    s = span_trim(s);
    for (size_t i = 0; i < s.n && i < max; i++) {
        unsigned char c = (unsigned char)s.p[i];
        buf_addc(&out, c < ' ' ? ' ' : c >= 0x7f ? '?' : (char)c);
    }
    if (s.n > max)
        buf_adds(&out, "...");
    return buf_take(&out);
}

/* The message of a Status object, or its reason; {"error": "..."} of our programs. NULL for any
 * other object. Borrowed. */
static const char *message_of(const json_t *root)
{
    /* The timeout filter of kube-apiserver sends a Status without a kind. */
    bool is_status = json_object_get(root, "kind")
                         ? !strcmp(jpath_string(root, "kind"), "Status")
                         : !strcmp(jpath_string(root, "status"), "Failure");
    const char *message = jpath_text(root, "message").p;
    if (!is_status)
        return jpath_text(root, "error").p;
    return message && *message ? message : jpath_text(root, "reason").p;
}

int kube_check_html(struct span body, struct err *err)
{
    cleanup_buf struct buf words = {0};
    body = span_trim(body);
    if (!span_starts(body, SPAN("<")))
        return 0;
    while (body.n) {
        span_cut(&body, '>');
        struct span text = span_trim(span_cut(&body, '<'));
        buf_add_span(&words, text);
        buf_adds(&words, text.n ? " " : "");
    }
    cleanup_free char *shown = printable(buf_span(&words), SHOWN_MAX);
    return err_set(err, ERR_INVALID, "text/html instead of JSON: %s", shown);
}

int kube_reply_check(unsigned status, struct span body, struct err *err)
{
    if (status >= 200 && status < 300)
        return kube_check_html(body, err);
    enum err_code code = code_of(status);
    json_auto_t *root = body.n && body.n <= STATUS_MAX && err
                            ? json_loadb(body.p, body.n, 0, NULL)
                            : NULL;
    const char *message = message_of(root);
    cleanup_free char *shown =
        message ? printable(span_of(message), MESSAGE_MAX) : printable(body, SHOWN_MAX);
    if (message || !*shown)
        return err_set(err, code, "HTTP %u%s%s", status, *shown ? ": " : "", shown);
    return err_set(err, code, "HTTP %u without a Status object: %s", status, shown);
}

bool kube_client_lost(const struct kube_client *c, unsigned status, struct span body,
                      struct err *err)
{
    if (!c->config.unix_socket || status != 500 || span_starts(body, SPAN("{")))
        return false;
    cleanup_free char *shown = printable(body, MESSAGE_MAX);
    err_set(err, ERR_UNAVAILABLE, "%s: %s", c->config.source, shown);
    return true;
}

bool kube_is_path_part(struct span name)
{
    return object_is_name(name) && span_has_only(name, "-_.") &&
           isalnum((unsigned char)name.p[0]) &&
           isalnum((unsigned char)name.p[name.n - 1]) && !memmem(name.p, name.n, "..", 2);
}

struct kube_client *kube_client_at(const char *url, const char *ca_file,
                                   const char *token_file, struct err *err)
{
    struct kube_config config = {
        .server = url, .ca_file = ca_file, .token_file = token_file};
    if (ca_file && kube_read_pem(ca_file, &config.ca_pem, err))
        return NULL;
    return kube_client_new(&config, err);
}

struct kube_client *kube_client_proxied(const char *socket, struct err *err)
{
    struct kube_config config = {
        .server = "http://localhost", .unix_socket = socket, .source = "kubectl proxy"};
    return kube_client_new(&config, err);
}

static struct kube_config_sources sources_of(const char *kubeconfig, const char *context)
{
    return (struct kube_config_sources){
        .kubeconfig = kubeconfig,
        .context = context,
        .host = getenv("KUBERNETES_SERVICE_HOST"),
        .port = getenv("KUBERNETES_SERVICE_PORT"),
        .home = getenv("HOME"),
    };
}

int kube_config_path(const char *kubeconfig, char **files, struct err *err)
{
    const struct kube_config_sources sources = sources_of(kubeconfig, NULL);
    cleanup_arena struct arena a = {0};
    const char *found;
    int rc = kube_config_find(&sources, &a, &found, err);
    *files = rc || !found ? NULL : xstrdup(found);
    return rc;
}

struct kube_client *kube_connect_in(const char *kubeconfig, const char *context,
                                    char **ns, struct err *err)
{
    struct kube_config config = {0};
    struct kube_client *client = NULL;
    const struct kube_config_sources sources = sources_of(kubeconfig, context);
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
