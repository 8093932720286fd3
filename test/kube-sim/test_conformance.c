/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "base/mem.h"
#include "kube-sim/cases_http.h"
#include "kube-sim/cases_pure.h"
#include "kube-sim/sim.h"
#include "lib/unit.h"

/* The cases in test/kube-sim/conformance against the pure API, and against kube-sim over HTTP.
 */

static char **files;
static size_t n_files;

START_TEST(the_pure_api_answers_as_the_case_says)
{
    struct cases_pure p;
    struct cases_server server;
    cleanup_free char *id = cases_name(files[_i]);
    size_t faults = 0;
    cases_pure_init(&p);
    cases_pure_server(&p, &server);
    json_decref(cases_run(files[_i], id, &server, &faults));
    cases_pure_fini(&p);
    ck_assert_uint_eq(faults, 0);
}

/* -- over HTTP -- */

static struct sim_server *running;
static struct cases_http *http;

static void ask(const char *path, const char *body)
{
    unsigned status = cases_http_ask(http, "POST", path, body);
    ck_assert_msg(status / 100 == 2, "%s %s: %u", path, body ? body : "", status);
}

static void space(void *ctx, const char *name)
{
    cleanup_free char *body = xasprintf("{\"metadata\":{\"name\":\"%s\"}}", name);
    (void)ctx;
    ask("/api/v1/namespaces", body);
}

static void compact(void *ctx)
{
    (void)ctx;
    ask("/kube-sim/compact", NULL);
}

static void pass(void *ctx, int64_t ms)
{
    struct timespec t;
    cases_http_wait(ctx, ms);
    clock_gettime(CLOCK_REALTIME, &t);
    sim_server_tick(running, (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

START_TEST(the_server_answers_as_the_case_says)
{
    struct err err = {0};
    struct api_config ac = {.seed = 1};
    struct sim_server_config config = {.address = "127.0.0.1"};
    struct cases_server server = {
        .name = "kube-sim", .space = space, .compact = compact, .forget = compact};
    cleanup_free char *id = cases_name(files[_i]);
    size_t faults = 0;
    unsigned port;
    struct api *api = api_new(&ac);
    running = sim_server_start(api, &config, &port, &err);
    ck_assert_msg(running != NULL, "%s", err.msg);
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u", port);
    http = cases_http_new(&(struct cases_http_config){.url = url});
    cases_http_server(http, &server);
    server.wait = pass;
    json_decref(cases_run(files[_i], id, &server, &faults));
    cases_http_free(http);
    sim_server_stop(running);
    api_free(api);
    ck_assert_uint_eq(faults, 0);
}

START_TEST(the_folder_contains_cases)
{
    ck_assert_uint_gt(n_files, 10);
}

int main(void)
{
    files = cases_files(&n_files);
    const struct unit_loop tests[] = {
        {the_folder_contains_cases, 1},
        {the_pure_api_answers_as_the_case_says, (int)n_files},
        {the_server_answers_as_the_case_says, (int)n_files}};
    int rc = unit_run_loops("conformance", tests, ARRAY_LEN(tests), 120);
    cases_free(files, n_files);
    return rc;
}
