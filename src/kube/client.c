/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"

#include <ctype.h>
#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/prom.h"
#include "domain/object.h"
#include "kube/client_priv.h"
#include "kube/kubeconfig_priv.h"
#include "wire/x509.h"

/* The client of the API server: credentials, calls, streams, errors, and how a program
 * connects. */

/* -- credentials -- */

/*
 * The lock is held while files are read, but not while a plugin runs. Meanwhile, other
 * threads use the old credential if it has not expired; otherwise they wait for the run and
 * take its result, also if it has failed.
 */

enum {
    CONNECT_MS = 5000,
    FILES_MS = 50 * 1000,  /* interval of reloading the files */
    SOON_MS = 1000,        /* the same after a failed connection, and between two runs */
    MARGIN_MS = 10 * 1000, /* a plugin runs this long before its credential expires */
    RUN_MS = 30 * 1000,    /* timeout of a plugin */
};

static void set_authorization(struct kube_client *c, struct span token)
{
    cleanup_wipe char *text = token.n ? xasprintf("Bearer %.*s", SPAN_ARG(token)) : NULL;
    if (span_eq(span_of(text), span_of(c->authorization)))
        return;
    mem_wipe(c->authorization);
    c->authorization = steal(&text);
    c->version++;
}

/* Moves a PEM text, if there is one, to *to. Returns whether it is a new one: connections
 * with it are new. */
static bool take_pem(struct kube_client *c, struct span *pem, struct span *to)
{
    bool differs = pem->n && !span_eq(*pem, *to);
    if (differs) {
        const struct span old = *to;
        *to = *pem;
        *pem = old;
        c->has_new_pem = true;
        c->version++;
    }
    kube_span_free(pem);
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

/* Reads a PEM file; 0 without effect if path is NULL. *pem is new. */
static int read_pem(const char *path, bool *warned, struct span *pem)
{
    struct err err = {0};
    if (!path || !kube_read_pem(path, pem, &err))
        return 0;
    return keep_old(path, warned, &err);
}

static void load_tls(struct kube_client *c)
{
    struct kube_config *config = &c->config;
    struct span ca = {0}, cert = {0}, key = {0};
    if (!read_pem(config->ca_file, &c->warned_ca, &ca))
        c->warned_ca = false;
    bool reloaded = take_pem(c, &ca, &config->ca_pem);
    if (!c->has_plugin_pair && !read_pem(config->cert_file, &c->warned_pair, &cert) &&
        !read_pem(config->key_file, &c->warned_pair, &key)) {
        c->warned_pair = false;
        reloaded |= take_pem(c, &cert, &config->cert_pem);
        reloaded |= take_pem(c, &key, &config->key_pem);
    }
    kube_span_free(&cert);
    if (reloaded)
        log_info("kube", "certificates: reloaded", LOG_S("source", config->source));
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
        load_tls(c);
    }
    if (c->config.token_file && !c->authorization)
        return err_set(err, why.code, "no token: %s", why.msg);
    return 0;
}

/* Runs the plugin. The lock is held on entry and return, but not during the run. */
static void run_plugin(struct kube_client *c, int64_t *now_ms)
{
    struct kube_exec_credential a;
    struct err err = {0};
    int64_t start = clock_mono_ms();
    c->is_running = true;
    pthread_mutex_unlock(&c->lock);
    int rc = kube_exec_run(c->config.exec, RUN_MS, &a, &err);
    pthread_mutex_lock(&c->lock);
    *now_ms += clock_mono_ms() - start;
    c->is_running = false;
    c->has_run = true;
    c->run_ms = *now_ms;
    c->run_err = err;
    if (!rc) {
        set_authorization(c, span_of(a.token));
        c->has_plugin_pair |= a.cert_pem.n > 0;
        take_pem(c, &a.cert_pem, &c->config.cert_pem);
        take_pem(c, &a.key_pem, &c->config.key_pem);
        c->has_credential = true;
        c->is_credential_rejected = false;
        c->expires_ms = INT64_MAX;
        if (a.expires)
            c->expires_ms = *now_ms + a.expires_s * 1000 - clock_wall_ns() / 1000000;
    }
    kube_exec_credential_fini(&a);
    pthread_cond_broadcast(&c->run_ended);
}

static bool is_usable(const struct kube_client *c, int64_t now_ms, int64_t margin_ms)
{
    return c->has_credential && !c->is_credential_rejected &&
           now_ms < c->expires_ms - margin_ms;
}

/* Runs the plugin, if one is configured and its credential is missing or expires soon. A
 * token has precedence over a plugin, as for kubectl. -1: the last run has failed, and the
 * credential of an earlier one has expired. */
static int refresh_plugin(struct kube_client *c, int64_t now_ms, struct err *err)
{
    const struct kube_config *config = &c->config;
    if (!config->exec || config->token || config->token_file ||
        is_usable(c, now_ms, MARGIN_MS))
        return 0;
    if (c->is_running) {
        int64_t start = clock_mono_ms();
        while (c->is_running && !is_usable(c, now_ms, 0))
            pthread_cond_wait(&c->run_ended, &c->lock);
        now_ms += clock_mono_ms() - start;
    } else if (!c->has_run || now_ms - c->run_ms >= SOON_MS) {
        run_plugin(c, &now_ms);
        if (c->run_err.code != ERR_NONE && is_usable(c, now_ms, 0))
            log_warn("kube",
                     "exec plugin: failed; using the old credential until it expires",
                     LOG_ERR(&c->run_err));
    }
    if (c->run_err.code == ERR_NONE || is_usable(c, now_ms, 0))
        return 0;
    return err_set(err, c->run_err.code, "%s", c->run_err.msg);
}

void kube_client_metrics(struct kube_client *c, struct buf *out)
{
    prom_family(out, X509_METRIC, PROM_GAUGE,
                "When a certificate that this process uses ends.");
    pthread_mutex_lock(&c->lock);
    x509_metric(out, "kube-client", c->config.cert_pem, false);
    x509_metric(out, "kube-ca", c->config.ca_pem, true);
    pthread_mutex_unlock(&c->lock);
}

void kube_session_rejected(struct kube_client *c, uint64_t version)
{
    pthread_mutex_lock(&c->lock);
    if (!version || version == c->version)
        c->is_rejected = c->is_credential_rejected = true;
    pthread_mutex_unlock(&c->lock);
}

void kube_client_unauthorized(struct kube_client *c)
{
    kube_session_rejected(c, 0);
}

/* -- calls and streams -- */

static struct httpc *http_new(const struct kube_config *config, struct err *err)
{
    struct httpc_config http = {
        .url = config->server,
        .ca_pem = config->ca_pem,
        .cert_pem = config->cert_pem,
        .key_pem = config->key_pem,
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

/* What names the API server and its credentials in errors. */
static const char *source_of(const struct kube_client *c)
{
    return c->config.source ? c->config.source : c->config.server;
}

struct kube_client *kube_client_new(struct kube_config *config, struct err *err)
{
    json_object_seed(0); /* neither is thread-safe */
    json_set_alloc_funcs(malloc, wiping_free);
    struct kube_client *c = xcalloc(1, sizeof *c);
    c->config = *config;
    *config = (struct kube_config){0};
    c->now_ms = clock_mono_ms;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->run_ended, NULL);
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
    pthread_cond_destroy(&c->run_ended);
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
    pthread_mutex_lock(&c->lock);
    int rc = load_files(c, now_ms, err) || refresh_plugin(c, now_ms, err)
                 ? err_wrap(err, "%s", source_of(c))
                 : 0;
    if (!rc && c->has_new_pem) {
        struct httpc *http = http_new(&c->config, err);
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
                                   httpc_ref(c->http), c->version};
    pthread_mutex_unlock(&c->lock);
    return rc;
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
    if (!rc && reply->status == 401)
        kube_session_rejected(c, s.version);
    kube_session_fini(&s);
    return rc;
}

int kube_call(struct kube_client *c, const struct kube_request *req,
              struct httpc_reply *reply, struct err *err)
{
    const struct kube_config *config = &c->config;
    bool can_change = config->token_file || config->cert_file || config->key_file ||
                      (config->exec && !config->token);
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
