/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "bench/bench.h"

/*
 * The baseline of the extender's results: the minimal work of a conventional server for a
 * request of kube-scheduler. libmicrohttpd with a thread per connection reads the body,
 * parses it with jansson, and sends the node names back; prioritize gives all nodes the same
 * score. With --api, bind posts the Binding. It checks nothing.
 */

struct config {
    char *api, *ca, *cert, *key;
};

static json_t *names_of(json_t *args)
{
    json_t *names = json_object_get(args, "NodeNames"), *node;
    if (json_is_array(names))
        return json_incref(names);
    size_t i;
    names = json_array();
    json_array_foreach(json_object_get(json_object_get(args, "Nodes"), "items"), i, node)
        json_array_append(names,
                          json_object_get(json_object_get(node, "metadata"), "name"));
    return names;
}

static size_t discard(char *p, size_t size, size_t n, void *ctx)
{
    (void)p, (void)ctx;
    return size * n;
}

/* One connection to the API server per connection of kube-scheduler. */
static CURL *handle_of_thread(const struct config *config)
{
    static _Thread_local CURL *curl;
    if (curl)
        return curl;
    curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_CAINFO, config->ca);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, config->cert);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, config->key);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard);
    return curl;
}

static const char *member(const json_t *args, const char *name)
{
    const char *s = json_string_value(json_object_get(args, name));
    return s ? s : "";
}

/* Returns an error text, or "". */
static const char *post_binding(const struct config *config, const json_t *args)
{
    long status = 0;
    cleanup_free char *url =
        xasprintf("%s/api/v1/namespaces/%s/pods/%s/binding", config->api,
                  member(args, "PodNamespace"), member(args, "PodName"));
    json_t *binding = json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:s}, s:{s:s, s:s}}", "apiVersion", "v1", "kind",
        "Binding", "metadata", "name", member(args, "PodName"), "namespace",
        member(args, "PodNamespace"), "uid", member(args, "PodUID"), "target", "kind",
        "Node", "name", member(args, "Node"));
    cleanup_free char *body = json_dumps(binding, JSON_COMPACT);
    CURL *curl = handle_of_thread(config);
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    json_decref(binding);
    return rc != CURLE_OK ? curl_easy_strerror(rc) : status != 201 ? "not bound" : "";
}

static json_t *reply_to(const struct config *config, const char *url, json_t *args)
{
    json_t *names = names_of(args), *scores = json_array(), *name;
    size_t i;
    if (strstr(url, "/bind") && config->api)
        return json_pack("{s:s}", "Error", post_binding(config, args));
    if (!strstr(url, "/prioritize") || !config->api)
        return json_pack("{s:o}", "NodeNames", names);
    json_array_foreach(names, i, name)
        json_array_append_new(scores, json_pack("{s:O, s:i}", "Host", name, "Score", 0));
    return scores;
}

static enum MHD_Result handle(void *config, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *n, void **request)
{
    (void)method, (void)version;
    struct buf *body = *request;
    if (!body) {
        *request = xcalloc(1, sizeof *body);
        return MHD_YES;
    }
    if (*n) {
        buf_add(body, data, *n);
        *n = 0;
        return MHD_YES;
    }
    json_t *args = json_loadb(body->p ? body->p : "", body->n, 0, NULL);
    json_t *reply = reply_to(config, url, args);
    char *text = json_dumps(reply, JSON_COMPACT);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result = MHD_queue_response(c, args ? 200 : 400, r);
    MHD_destroy_response(r);
    json_decref(reply);
    json_decref(args);
    return result;
}

static void done(void *ctx, struct MHD_Connection *c, void **request,
                 enum MHD_RequestTerminationCode why)
{
    (void)ctx, (void)c, (void)why;
    struct buf *body = *request;
    if (body)
        buf_fini(body);
    free(body);
}

static int run(void *config)
{
    sigset_t stop;
    int number;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL,
        handle, config, MHD_OPTION_NOTIFY_COMPLETED, done, NULL, MHD_OPTION_END);
    if (!d)
        bench_die("cannot listen");
    fprintf(stderr, "listening on 127.0.0.1:%u\n",
            MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    sigwait(&stop, &number);
    MHD_stop_daemon(d);
    return 0;
}

static const struct opt options[] = {
    BENCH_OPT("api", "URL", STRING, NULL, 0, 0, api,
              "API server that gets the Bindings; default: none."),
    BENCH_OPT("ca", "FILE", STRING, NULL, 0, 0, ca, "CA of the API server."),
    BENCH_OPT("cert", "FILE", STRING, NULL, 0, 0, cert, "Client certificate."),
    BENCH_OPT("key", "FILE", STRING, NULL, 0, 0, key, "Key of --cert."),
    {0},
};
const struct bench_command bench_floor = {"floor", "serve the baseline: a bare extender",
                                          options, sizeof(struct config), run};
