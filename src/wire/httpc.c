/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/httpc.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/httpc_priv.h"

enum { /* defaults */
       IDLE_MAX = 64,
       IDLE_MS = 120 * 1000,
};

static void global_init(void)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        abort();
    struct sigaction now;
    sigaction(SIGPIPE, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

void httpc_global_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* libcurl's own state is global */
    pthread_once(&once, global_init);
}

static void blob_set(struct curl_blob *blob, struct span s)
{
    if (!s.n)
        return;
    /* The memory outlives all handles, so they need no copy. */
    *blob = (struct curl_blob){xmemdup0(s.p, s.n), s.n, CURL_BLOB_NOCOPY};
}

static int url_part(CURLU *u, CURLUPart part, char **out)
{
    char *s = NULL;
    *out = NULL;
    if (curl_url_get(u, part, &s, 0) != CURLUE_OK)
        return -1;
    *out = xstrdup(s);
    curl_free(s);
    return 0;
}

/* Whether the URL has parts other than scheme, host and port. */
static bool has_extra(CURLU *u)
{
    static const CURLUPart extra[] = {CURLUPART_USER, CURLUPART_PASSWORD, CURLUPART_QUERY,
                                      CURLUPART_FRAGMENT, CURLUPART_ZONEID};
    cleanup_free char *path = NULL;
    for (size_t i = 0; i < ARRAY_LEN(extra); i++) {
        cleanup_free char *s = NULL;
        if (!url_part(u, extra[i], &s))
            return true;
    }
    return url_part(u, CURLUPART_PATH, &path) || strcmp(path, "/");
}

static bool name_is_plain(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789.-_:";
    return *name && !name[strspn(name, allowed)];
}

/* Makes the server name the host of all URLs, so that libcurl uses it for SNI and for the
 * verification of the certificate; CONNECT_TO and the Host header have the real host. */
static int set_server_name(struct httpc *c, const char *name, const char *host,
                           const char *port, bool has_port, struct err *err)
{
    if (!name_is_plain(name))
        return err_set(err, ERR_INVALID, "invalid server name \"%s\"", name);
    const char *open = strchr(name, ':') ? "[" : "", *close = *open ? "]" : "";
    c->origin = xasprintf("https://%s%s%s:%s", open, name, close, port);
    cleanup_free char *to =
        xasprintf("%s%s%s:%s:%s:%s", open, name, close, port, host, port);
    c->connect_to = curl_slist_append(NULL, to);
    c->host =
        has_port ? xasprintf("Host: %s:%s", host, port) : xasprintf("Host: %s", host);
    if (!c->connect_to)
        abort();
    return 0;
}

static int read_url(struct httpc *c, CURLU *u, const struct httpc_config *config,
                    struct err *err)
{
    cleanup_free char *scheme = NULL, *host = NULL, *port = NULL;
    if (curl_url_set(u, CURLUPART_URL, config->url, 0) != CURLUE_OK ||
        url_part(u, CURLUPART_SCHEME, &scheme) || url_part(u, CURLUPART_HOST, &host))
        return err_set(err, ERR_INVALID, "invalid URL \"%s\"", config->url);
    bool tls = !strcmp(scheme, "https");
    if (!tls && strcmp(scheme, "http"))
        return err_set(err, ERR_INVALID, "%s: expected https or http", config->url);
    if (has_extra(u))
        return err_set(err, ERR_INVALID, "expected a URL of the form https://host:port");
    bool has_port = url_part(u, CURLUPART_PORT, &port) == 0;
    if (tls && config->server_name)
        return set_server_name(c, config->server_name, host, has_port ? port : "443",
                               has_port, err);
    c->origin = has_port ? xasprintf("%s://%s:%s", scheme, host, port)
                         : xasprintf("%s://%s", scheme, host);
    return 0;
}

static int configure(struct httpc *c, const struct httpc_config *config, struct err *err)
{
    if (!config->cert_pem.n != !config->key_pem.n)
        return err_set(err, ERR_INVALID,
                       "expected both a client certificate and its key");
    CURLU *u = curl_url();
    if (!u)
        abort();
    int rc = read_url(c, u, config, err);
    curl_url_cleanup(u);
    if (rc)
        return -1;
    c->url = xstrdup(config->url);
    c->proxy = xstrdup(config->proxy ? config->proxy : "");
    c->user_agent = config->user_agent ? xstrdup(config->user_agent) : NULL;
    c->insecure = config->insecure;
    c->connect_ms = config->connect_ms;
    c->idle_max = config->idle_max ? config->idle_max : IDLE_MAX;
    c->idle_ms = config->idle_ms ? config->idle_ms : IDLE_MS;
    blob_set(&c->ca, config->ca_pem);
    blob_set(&c->cert, config->cert_pem);
    blob_set(&c->key, config->key_pem);
    return 0;
}

struct httpc *httpc_new(const struct httpc_config *config, struct err *err)
{
    httpc_global_init();
    struct httpc *c = xcalloc(1, sizeof *c);
    atomic_init(&c->users, 1);
    pthread_mutex_init(&c->lock, NULL);
    if (configure(c, config, err)) {
        httpc_free(c);
        return NULL;
    }
    return c;
}

struct httpc *httpc_ref(struct httpc *c)
{
    atomic_fetch_add(&c->users, 1);
    return c;
}

void httpc_free(struct httpc *c)
{
    if (!c || atomic_fetch_sub(&c->users, 1) > 1)
        return;
    httpc_pool_drain(c);
    pthread_mutex_destroy(&c->lock);
    curl_slist_free_all(c->connect_to);
    free(c->url);
    free(c->origin);
    free(c->host);
    free(c->proxy);
    free(c->user_agent);
    free(c->ca.data);
    free(c->cert.data);
    if (c->key.data)
        explicit_bzero(c->key.data, c->key.len);
    free(c->key.data);
    free(c);
}

void httpc_must(CURLcode rc, const char *option)
{
    if (rc == CURLE_OK)
        return;
    fprintf(stderr, "libcurl: %s: %s\n", option, curl_easy_strerror(rc));
    abort();
}
