/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <jansson.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The minimal cost of any scheduler extender: libmicrohttpd with a thread per connection.
 * Filter passes every node, prioritize gives all the same score, bind posts the Binding.
 * It checks nothing.
 *
 *   bench-echo API-URL CA CERTIFICATE KEY
 */

static char **options;

struct call {
    char *p;
    size_t n, cap;
};

static bool append(struct call *c, const char *p, size_t n)
{
    if (c->n + n > c->cap) {
        c->cap = 2 * (c->n + n);
        c->p = realloc(c->p, c->cap);
        if (!c->p)
            return false;
    }
    memcpy(c->p + c->n, p, n);
    c->n += n;
    return true;
}

static size_t discard(char *p, size_t size, size_t n, void *ctx)
{
    (void)p, (void)ctx;
    return size * n;
}

/* One connection to the API server per connection of kube-scheduler. */
static CURL *handle_of_thread(void)
{
    static _Thread_local CURL *curl;
    if (curl)
        return curl;
    curl = curl_easy_init();
    curl_easy_setopt(curl, CURLOPT_CAINFO, options[1]);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, options[2]);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, options[3]);
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

/* Returns an error text, or NULL. */
static const char *post_binding(const json_t *args)
{
    char url[1024];
    long status = 0;
    snprintf(url, sizeof url, "%s/api/v1/namespaces/%s/pods/%s/binding", options[0],
             member(args, "PodNamespace"), member(args, "PodName"));
    json_t *binding = json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:s}, s:{s:s, s:s}}", "apiVersion", "v1", "kind",
        "Binding", "metadata", "name", member(args, "PodName"), "namespace",
        member(args, "PodNamespace"), "uid", member(args, "PodUID"), "target", "kind",
        "Node", "name", member(args, "Node"));
    char *body = json_dumps(binding, JSON_COMPACT);
    CURL *curl = handle_of_thread();
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    free(body);
    json_decref(binding);
    return rc != CURLE_OK ? curl_easy_strerror(rc) : status != 201 ? "not bound" : NULL;
}

static json_t *scores(const json_t *names)
{
    json_t *all = json_array(), *name;
    size_t i;
    json_array_foreach(names, i, name)
        json_array_append_new(all, json_pack("{s:O, s:i}", "Host", name, "Score", 0));
    return all;
}

static json_t *reply_to(const char *url, const json_t *args)
{
    if (strstr(url, "/prioritize"))
        return scores(json_object_get(args, "NodeNames"));
    json_t *reply = json_object();
    if (strstr(url, "/bind")) {
        const char *why = post_binding(args);
        json_object_set_new(reply, "Error", json_string(why ? why : ""));
    } else {
        json_object_set(reply, "NodeNames", json_object_get(args, "NodeNames"));
    }
    return reply;
}

static enum MHD_Result handle(void *ctx, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *n, void **request)
{
    (void)ctx, (void)method, (void)version;
    struct call *call = *request;
    if (!call) {
        *request = calloc(1, sizeof *call);
        return *request ? MHD_YES : MHD_NO;
    }
    if (*n) {
        bool kept = append(call, data, *n);
        *n = 0;
        return kept ? MHD_YES : MHD_NO;
    }
    json_t *args = json_loadb(call->p ? call->p : "", call->n, 0, NULL);
    json_t *reply = reply_to(url, args);
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
    struct call *call = *request;
    if (call)
        free(call->p);
    free(call);
}

int main(int argc, char **argv)
{
    sigset_t stop;
    int number;
    if (argc != 5) {
        fprintf(stderr, "bench-echo API-URL CA CERTIFICATE KEY\n");
        return 1;
    }
    options = argv + 1;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    struct MHD_Daemon *d =
        MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_AUTO_INTERNAL_THREAD, 0,
                         NULL, NULL, handle, NULL, MHD_OPTION_NOTIFY_COMPLETED, done,
                         NULL, MHD_OPTION_LISTENING_ADDRESS_REUSE, 1, MHD_OPTION_END);
    if (!d)
        return 1;
    fprintf(stderr, "listening on 127.0.0.1:%u\n",
            MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    sigwait(&stop, &number);
    MHD_stop_daemon(d);
    return 0;
}
