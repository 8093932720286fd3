/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/opt.h"
#include "kube-sim/sim.h"
#include "wire/entry.h"

/* The program: options, and the server with its clock. */

/* kube-sim: a Kubernetes API server in memory (docs/testing.md). */

struct config {
    char *listen, *token, *cert, *key, *generate;
    int64_t port, tick_ms, history, version, connections;
    struct opt_list loads;
    bool run_pods;
    int log_level;
};

#define OPT_CONFIG struct config
static const struct opt table[] = {
    OPT_STRING("listen", listen, "ADDRESS", "127.0.0.1", "Address to listen on."),
    OPT_INT("port", port, "N", "8001", 0, 65535,
            "Port to listen on; 0 selects a free port.", .env = "PORT"),
    OPT_LIST("load", loads, "FILE",
             "YAML or JSON file with initial objects; repeatable; default: none."),
    OPT_STRING(
        "generate", generate, "PARAMETERS", NULL,
        "Generated cluster, NAME=VALUE,..., as nodes=10,cards=8 (kube-sim(1)); default: "
        "none."),
    OPT_BOOL("run-pods", run_pods, "off",
             "Act as the kubelets: run bound pods, and remove deleted pods within one "
             "second."),
    OPT_STRING("token", token, "TOKEN", NULL,
               "Bearer token that every request must carry; default: none."),
    OPT_STRING("cert", cert, "FILE", NULL,
               "PEM file with the TLS certificate; requires --key; default: plain HTTP."),
    OPT_STRING(
        "key", key, "FILE", NULL,
        "PEM file with the private key of the TLS certificate; default: plain HTTP."),
    OPT_INT("history", history, "N", "100000", 1, 10000000,
            "Number of events kept per resource for watches."),
    OPT_INT("resource-version", version, "N", "0", 0, INT64_MAX / 2,
            "Resource version to continue from; watches of older versions get 410."),
    OPT_INT("connections", connections, "N", "1024", 1, 100000,
            "Maximum number of concurrent connections."),
    OPT_DURATION("tick", tick_ms, "100ms", 1, 60000,
                 "Interval at which due deletions and pod starts are executed."),
    ENTRY_LOG_LEVEL("info"),
    {0},
};
static const struct opt_program program = {
    .name = "kube-sim",
    .summary = "a Kubernetes API server in memory",
    .version = GPUSHARE_VERSION,
    .table = table,
};

static int fill(const struct config *c, struct api *api, struct err *err)
{
    int64_t now_ms = clock_wall_ns() / 1000000;
    for (size_t i = 0; i < c->loads.n; i++)
        if (manifest_load(api, now_ms, c->loads.items[i], err))
            return -1;
    if (!c->generate)
        return 0;
    struct generate g = generate_defaults;
    if (generate_parse(span_of(c->generate), &g, err))
        return err_wrap(err, "generate");
    return generate_run(&g, api, now_ms, err);
}

static struct sim_server *start(const struct config *c, struct api *api, unsigned *port,
                                struct err *err)
{
    if (!c->cert != !c->key) {
        err_set(err, ERR_INVALID, "--cert and --key must be given together");
        return NULL;
    }
    struct sim_server_config sc = {.address = c->listen,
                                   .port = (unsigned)c->port,
                                   .token = c->token,
                                   .cert_file = c->cert,
                                   .key_file = c->key,
                                   .connections = (unsigned)c->connections};
    return sim_server_start(api, &sc, port, err);
}

/* Runs until one of the blocked signals in `set` arrives. */
static void serve(struct sim_server *server, const sigset_t *set, int64_t tick_ms)
{
    struct timespec tick = {tick_ms / 1000, tick_ms % 1000 * 1000000};
    while (sigtimedwait(set, NULL, &tick) < 0)
        sim_server_tick(server, clock_wall_ns() / 1000000);
}

static int run(void *ctx, struct err *err)
{
    const struct config *c = ctx;
    const sigset_t set = signals_block();
    unsigned port;
    struct api_config ac = {.seed = 1,
                            .history = (size_t)c->history,
                            .version = (uint64_t)c->version,
                            .now_ms = clock_wall_ns() / 1000000,
                            .run_pods = c->run_pods};
    json_object_seed(0);
    log_set_level(c->log_level);
    struct api *api = api_new(&ac);
    struct sim_server *server = NULL;
    if (fill(c, api, err) == 0)
        server = start(c, api, &port, err);
    if (server) {
        cleanup_buf struct buf line = {0};
        buf_printf(&line, "listening on " STR_HOST ":%u\n", STR_HOST_ARG(c->listen),
                   port);
        ssize_t n = write(STDERR_FILENO, line.p, line.n);
        (void)n;
        serve(server, &set, c->tick_ms);
    }
    sim_server_stop(server);
    api_free(api);
    return server ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct config c = {0};
    file_raise_limit();
    return entry_command(&program, &c, argc, argv, run, &c) ? EXIT_FAILURE : EXIT_SUCCESS;
}
