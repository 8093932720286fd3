/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client.h"

#include <jansson.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "kube/client_priv.h"
#include "kube/kubeconfig_priv.h"

/* The client of the API server: credentials, calls, streams, errors, and how a program
 * connects. */

/* -- credentials -- */

/*
 * The latest identity is an immutable, reference-counted object; a change creates a new
 * one. The lock is held while files are read, but not while a plugin runs. Meanwhile,
 * other threads use the old credential if it has not expired; otherwise they wait for the
 * run and take its result, also if it has failed.
 */

enum {
    FILES_MS = 50 * 1000,  /* interval of reloading the files */
    SOON_MS = 1000,        /* the same after a failed connection, and between two runs */
    MARGIN_MS = 10 * 1000, /* a plugin runs this long before its credential expires */
    RUN_MS = 30 * 1000,    /* timeout of a plugin */
};

struct shared {
    struct kube_identity id; /* first */
    atomic_uint users;
};

struct kube_credential {
    const struct kube_config *config; /* borrowed */
    pthread_mutex_t lock;
    pthread_cond_t run_ended;
    struct shared *latest;

    /* files */
    bool has_loaded;
    bool is_rejected;       /* the server responded with 401 since the last load */
    bool is_connect_failed; /* a connection failed since the last load */
    int64_t loaded_ms;
    bool warned_token, warned_ca, warned_pair;

    /* the plugin */
    bool is_running, has_run, has_credential, is_credential_rejected;
    bool has_plugin_pair; /* the certificate and key in use are from the plugin */
    int64_t run_ms;       /* end of the last run */
    int64_t expires_ms;   /* of its credential */
    struct err run_err;   /* of the last run; ERR_NONE: it succeeded */
};

static void shared_free(struct shared *s)
{
    if (!s || atomic_fetch_sub(&s->users, 1) > 1)
        return;
    mem_wipe(s->id.authorization);
    kube_span_free(&s->id.ca_pem);
    kube_span_free(&s->id.cert_pem);
    kube_span_free(&s->id.key_pem);
    free(s);
}

void kube_identity_free(struct kube_identity *id)
{
    shared_free((struct shared *)id);
}

/* Makes `want` the latest identity, with a new version, if it differs from it. */
static void set_latest(struct kube_credential *c, const struct kube_identity *want)
{
    const struct kube_identity *old = &c->latest->id;
    bool tls = !span_eq(old->ca_pem, want->ca_pem) ||
               !span_eq(old->cert_pem, want->cert_pem) ||
               !span_eq(old->key_pem, want->key_pem);
    if (!tls && span_eq(span_of(old->authorization), span_of(want->authorization)))
        return;
    struct shared *next = xcalloc(1, sizeof *next);
    next->id = (struct kube_identity){
        .authorization = want->authorization ? xstrdup(want->authorization) : NULL,
        .ca_pem = kube_span_copy(want->ca_pem),
        .cert_pem = kube_span_copy(want->cert_pem),
        .key_pem = kube_span_copy(want->key_pem),
        .version = old->version + 1,
        .tls_version = tls ? old->version + 1 : old->tls_version,
    };
    atomic_init(&next->users, 1);
    shared_free(c->latest);
    c->latest = next;
}

static char *bearer(const char *token)
{
    return xasprintf("Bearer %s", token);
}

struct kube_credential *kube_credential_new(const struct kube_config *config)
{
    struct kube_credential *c = xcalloc(1, sizeof *c);
    cleanup_wipe char *authorization = config->token ? bearer(config->token) : NULL;
    c->config = config;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->run_ended, NULL);
    c->latest = xcalloc(1, sizeof *c->latest);
    atomic_init(&c->latest->users, 1);
    set_latest(c, &(struct kube_identity){.authorization = authorization,
                                          .ca_pem = config->ca_pem,
                                          .cert_pem = config->cert_pem,
                                          .key_pem = config->key_pem});
    return c;
}

void kube_credential_free(struct kube_credential *c)
{
    if (!c)
        return;
    shared_free(c->latest);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->run_ended);
    free(c);
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

static void read_token(struct kube_credential *c, struct kube_identity *want,
                       char **authorization, struct err *err)
{
    const char *path = c->config->token_file;
    cleanup_buf_wipe struct buf text = {0};
    if (!path)
        return;
    int rc = file_read(path, KUBE_FILE_MAX, &text, err);
    struct span token = span_trim(buf_span(&text));
    if (!rc && !kube_token_ok(token))
        rc = err_set(err, ERR_INVALID, "%s: %s", path,
                     token.n ? "expected printable ASCII without spaces" : "empty file");
    if (rc) {
        if (want->authorization)
            keep_old(path, &c->warned_token, err);
        return;
    }
    c->warned_token = false;
    *authorization = xasprintf("Bearer %.*s", SPAN_ARG(token));
    want->authorization = *authorization;
}

/* Replaces *pem by the content of a PEM file, which is new in *read. 0 without effect if path
 * is NULL. */
static int read_pem(const char *path, bool *warned, struct span *read, struct span *pem)
{
    struct err err = {0};
    if (!path)
        return 0;
    if (kube_read_pem(path, read, &err))
        return keep_old(path, warned, &err);
    *pem = *read;
    return 0;
}

static void read_tls(struct kube_credential *c, struct kube_identity *want,
                     struct span read[3])
{
    const struct kube_config *config = c->config;
    struct span cert = want->cert_pem, key = want->key_pem;
    if (!read_pem(config->ca_file, &c->warned_ca, &read[0], &want->ca_pem))
        c->warned_ca = false;
    if (c->has_plugin_pair)
        return;
    if (!read_pem(config->cert_file, &c->warned_pair, &read[1], &cert) &&
        !read_pem(config->key_file, &c->warned_pair, &read[2], &key)) {
        c->warned_pair = false;
        want->cert_pem = cert;
        want->key_pem = key;
    }
}

static bool must_load(const struct kube_credential *c, int64_t now_ms)
{
    bool lacks_token = c->config->token_file && !c->latest->id.authorization;
    if (!c->has_loaded || lacks_token)
        return true;
    if (c->is_connect_failed && now_ms - c->loaded_ms >= SOON_MS)
        return true;
    return c->is_rejected || now_ms - c->loaded_ms >= FILES_MS;
}

/* Reloads the files if that is due. -1 if there is a token file, but never was a token.
 */
static int load_files(struct kube_credential *c, int64_t now_ms, struct err *err)
{
    struct err why = {0};
    if (must_load(c, now_ms)) {
        struct kube_identity want = c->latest->id;
        struct span read[3] = {{0}};
        cleanup_wipe char *authorization = NULL;
        uint64_t tls_version = want.tls_version;
        c->has_loaded = true;
        c->is_rejected = c->is_connect_failed = false;
        c->loaded_ms = now_ms;
        read_token(c, &want, &authorization, &why);
        read_tls(c, &want, read);
        set_latest(c, &want);
        for (size_t i = 0; i < ARRAY_LEN(read); i++)
            kube_span_free(&read[i]);
        if (c->latest->id.tls_version != tls_version)
            log_info("kube", "certificates: reloaded",
                     LOG_S("source", c->config->source));
    }
    if (c->config->token_file && !c->latest->id.authorization)
        return err_set(err, why.code, "no token: %s", why.msg);
    return 0;
}

static void use_credential(struct kube_credential *c,
                           const struct kube_exec_credential *a, int64_t now_ms)
{
    struct kube_identity want = c->latest->id;
    cleanup_wipe char *authorization = a->token ? bearer(a->token) : NULL;
    want.authorization = authorization;
    if (a->cert_pem.n) {
        want.cert_pem = a->cert_pem;
        want.key_pem = a->key_pem;
        c->has_plugin_pair = true;
    }
    set_latest(c, &want);
    c->has_credential = true;
    c->is_credential_rejected = false;
    c->expires_ms = INT64_MAX;
    if (a->expires)
        c->expires_ms = now_ms + a->expires_s * 1000 - clock_wall_ns() / 1000000;
}

/* Runs the plugin. The lock is held on entry and return, but not during the run. */
static void run_plugin(struct kube_credential *c, int64_t *now_ms)
{
    struct kube_exec_credential credential;
    struct err err = {0};
    int64_t start = clock_mono_ms();
    c->is_running = true;
    pthread_mutex_unlock(&c->lock);
    int rc = kube_exec_run(c->config->exec, RUN_MS, &credential, &err);
    pthread_mutex_lock(&c->lock);
    *now_ms += clock_mono_ms() - start;
    c->is_running = false;
    c->has_run = true;
    c->run_ms = *now_ms;
    c->run_err = err;
    if (!rc)
        use_credential(c, &credential, *now_ms);
    kube_exec_credential_fini(&credential);
    pthread_cond_broadcast(&c->run_ended);
}

static void wait_for_run(struct kube_credential *c, int64_t *now_ms)
{
    int64_t start = clock_mono_ms();
    while (c->is_running)
        pthread_cond_wait(&c->run_ended, &c->lock);
    *now_ms += clock_mono_ms() - start;
}

static bool is_usable(const struct kube_credential *c, int64_t now_ms, int64_t margin_ms)
{
    return c->has_credential && !c->is_credential_rejected &&
           now_ms < c->expires_ms - margin_ms;
}

/* The result of the last run: 0 if it succeeded, or if its predecessor's credential has
 * not expired. */
static int result_of_run(const struct kube_credential *c, int64_t now_ms, struct err *err)
{
    if (c->run_err.code == ERR_NONE || is_usable(c, now_ms, 0))
        return 0;
    return err_set(err, c->run_err.code, "%s", c->run_err.msg);
}

/* Runs the plugin, if one is configured and its credential is missing or expires soon. A
 * token has precedence over a plugin, as for kubectl. */
static int refresh_plugin(struct kube_credential *c, int64_t now_ms, struct err *err)
{
    const struct kube_config *config = c->config;
    if (!config->exec || config->token || config->token_file ||
        is_usable(c, now_ms, MARGIN_MS))
        return 0;
    if (c->is_running) {
        if (!is_usable(c, now_ms, 0))
            wait_for_run(c, &now_ms);
        return result_of_run(c, now_ms, err);
    }
    if (c->has_run && now_ms - c->run_ms < SOON_MS)
        return result_of_run(c, now_ms, err);
    run_plugin(c, &now_ms);
    if (c->run_err.code != ERR_NONE && is_usable(c, now_ms, 0))
        log_warn("kube", "exec plugin: failed; using the old credential until it expires",
                 LOG_ERR(&c->run_err));
    return result_of_run(c, now_ms, err);
}

struct kube_identity *kube_credential_get(struct kube_credential *c, int64_t now_ms,
                                          struct err *err)
{
    struct shared *got = NULL;
    pthread_mutex_lock(&c->lock);
    if (!load_files(c, now_ms, err) && !refresh_plugin(c, now_ms, err)) {
        got = c->latest;
        atomic_fetch_add(&got->users, 1);
    }
    pthread_mutex_unlock(&c->lock);
    return got ? &got->id : NULL;
}

void kube_credential_rejected(struct kube_credential *c, const struct kube_identity *id)
{
    pthread_mutex_lock(&c->lock);
    if (!id || id->version == c->latest->id.version)
        c->is_rejected = c->is_credential_rejected = true;
    pthread_mutex_unlock(&c->lock);
}

void kube_credential_connect_failed(struct kube_credential *c)
{
    pthread_mutex_lock(&c->lock);
    c->is_connect_failed = true;
    pthread_mutex_unlock(&c->lock);
}

bool kube_credential_can_change(const struct kube_credential *c)
{
    const struct kube_config *config = c->config;
    return config->token_file || config->cert_file || config->key_file ||
           (config->exec && !config->token);
}

/* -- calls and streams -- */

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
