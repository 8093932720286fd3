/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/client_priv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "kube/kubeconfig_priv.h"

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
