/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include <microhttpd.h>
#include <signal.h>

/*
 * The baseline of the extender's results: the minimal work of a conventional server for a
 * request of kube-scheduler. libmicrohttpd with a thread per connection reads the body,
 * parses it with jansson, and sends the node names back; prioritize gives all nodes the same
 * score. With --api, bind posts the Binding. It checks nothing.
 */

struct config {
    int64_t api_port;
    char *pki;
    struct peer api;
};

static json_t *names_of(const json_t *args)
{
    json_t *names = json_object_get(args, "NodeNames"), *node;
    if (json_is_array(names))
        return json_incref(names);
    names = json_array();
    lib_each(node, lib_at(args, "Nodes.items"))
        json_array_append(names, lib_at(node, "metadata.name"));
    return names;
}

static json_t *post_binding(const struct config *config, const json_t *args)
{
    const char *ns = lib_str(args, "PodNamespace"), *name = lib_str(args, "PodName");
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/%s/pods/%s/binding", ns, name);
    cleanup_free char *body = xasprintf(
        "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":\"%s\","
        "\"namespace\":\"%s\",\"uid\":\"%s\"},\"target\":{\"kind\":\"Node\","
        "\"name\":\"%s\"}}",
        name, ns, lib_str(args, "PodUID"), lib_str(args, "Node"));
    cleanup_buf struct buf reply = {0};
    unsigned status = peer_call(&config->api, "POST", path, body, &reply);
    return json_pack("{s:s}", "Error", status == 201 ? "" : "not bound");
}

static json_t *reply_to(const struct config *config, const char *url, const json_t *args)
{
    if (strstr(url, "/bind") && config->pki)
        return post_binding(config, args);
    json_t *names = names_of(args), *name;
    if (!strstr(url, "/prioritize") || !config->pki)
        return json_pack("{s:o}", "NodeNames", names);
    json_t *scores = json_array();
    lib_each(name, names)
        json_array_append_new(scores, json_pack("{s:O, s:i}", "Host", name, "Score", 0));
    json_decref(names);
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
    cleanup_json json_t *args = json_loadb(body->p ? body->p : "", body->n, 0, NULL);
    cleanup_json json_t *reply = reply_to(config, url, args);
    char *text = json_dumps(reply, JSON_COMPACT);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result = MHD_queue_response(c, args ? 200 : 400, r);
    MHD_destroy_response(r);
    return result;
}

static void done(void *ctx, struct MHD_Connection *c, void **request,
                 enum MHD_RequestTerminationCode why)
{
    (void)ctx, (void)c, (void)why;
    if (*request)
        buf_fini(*request);
    free(*request);
}

static void run(void *arg)
{
    struct config *config = arg;
    sigset_t stop;
    int number;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    if (config->pki) {
        cleanup_free char *ca = temp_path(config->pki, "ca.crt");
        cleanup_free char *crt = temp_path(config->pki, "admin.crt");
        cleanup_free char *key = temp_path(config->pki, "admin.key");
        peer_init_cert(&config->api, (unsigned)config->api_port, ca, crt, key);
    }
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL,
        handle, config, MHD_OPTION_NOTIFY_COMPLETED, done, NULL, MHD_OPTION_END);
    ck_assert_ptr_nonnull(d);
    fprintf(stderr, "listening on 127.0.0.1:%u\n",
            MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    sigwait(&stop, &number);
    MHD_stop_daemon(d);
}

static const struct opt options[] = {
    BENCH_OPT("api", "PORT", INT, "0", 0, 65535, api_port,
              "Port of the API server that gets the Bindings."),
    BENCH_OPT("pki", "DIR", STRING, NULL, 0, 0, pki,
              "Folder with certificates for the API server; default: bind does nothing."),
    {0},
};
const struct bench_command bench_floor = {
    "floor", "serve the baseline: a bare extender", false, options, sizeof(struct config),
    run};
