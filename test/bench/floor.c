/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The baseline of the extender's results: the minimal work of a conventional server for a
 * request of kube-scheduler. libmicrohttpd with a thread per connection reads the body,
 * parses it with jansson, and sends the node names back.
 */

struct body {
    char *p;
    size_t n, cap;
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

static enum MHD_Result answer(struct MHD_Connection *c, struct body *body)
{
    json_error_t error;
    json_t *args = json_loadb(body->p, body->n, 0, &error);
    json_t *reply = json_object();
    if (args)
        json_object_set_new(reply, "NodeNames", names_of(args));
    char *text = json_dumps(reply, JSON_COMPACT);
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result result = MHD_queue_response(c, args ? 200 : 400, r);
    MHD_destroy_response(r);
    json_decref(reply);
    json_decref(args);
    return result;
}

static enum MHD_Result handle(void *ctx, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *n, void **request)
{
    (void)ctx, (void)url, (void)method, (void)version;
    struct body *body = *request;
    if (!body) {
        *request = calloc(1, sizeof *body);
        return *request ? MHD_YES : MHD_NO;
    }
    if (!*n)
        return answer(c, body);
    if (body->n + *n > body->cap) {
        body->cap = 2 * (body->n + *n);
        body->p = realloc(body->p, body->cap);
        if (!body->p)
            return MHD_NO;
    }
    memcpy(body->p + body->n, data, *n);
    body->n += *n;
    *n = 0;
    return MHD_YES;
}

static void done(void *ctx, struct MHD_Connection *c, void **request,
                 enum MHD_RequestTerminationCode why)
{
    (void)ctx, (void)c, (void)why;
    struct body *body = *request;
    if (body)
        free(body->p);
    free(body);
}

int main(void)
{
    sigset_t stop;
    int number;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_AUTO_INTERNAL_THREAD, 0, NULL, NULL,
        handle, NULL, MHD_OPTION_NOTIFY_COMPLETED, done, NULL, MHD_OPTION_END);
    if (!d)
        return 1;
    fprintf(stderr, "listening on 127.0.0.1:%u\n",
            MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    sigwait(&stop, &number);
    MHD_stop_daemon(d);
    return 0;
}
