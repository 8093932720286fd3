/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "kube-sim/cases_http.h"
#include "kube-sim/cases_pure.h"
#include "kube-sim/sim.h"
#include "lib/lib.h"

/* The cases in test/kube-sim/conformance against the pure API, and against kube-sim over HTTP.
 */

enum { CASES = 29 };

static const char *const *files;

static void begin(void)
{
    files = lib_glob(CASES_DIR "/*.json");
}

TEST_LOOP(the_pure_api_answers_as_the_case_says, CASES)
{
    struct cases_pure p;
    struct cases_server server;
    size_t faults = 0;
    cases_pure_init(&p);
    cases_pure_server(&p, &server);
    json_decref(cases_run(files[_i], cases_name(files[_i]), &server, &faults));
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
    (void)ctx;
    ask("/api/v1/namespaces", lib_fmt("{\"metadata\":{\"name\":\"%s\"}}", name));
}

static void compact(void *ctx)
{
    (void)ctx;
    ask("/kube-sim/compact", NULL);
}

static void pass(void *ctx, int64_t ms)
{
    cases_http_wait(ctx, ms);
    sim_server_tick(running, clock_wall_ns() / 1000000);
}

TEST_LOOP(the_server_answers_as_the_case_says, CASES)
{
    struct err err = {0};
    struct api_config ac = {.seed = 1};
    struct sim_server_config config = {.address = "127.0.0.1"};
    struct cases_server server = {
        .name = "kube-sim", .space = space, .compact = compact, .forget = compact};
    size_t faults = 0;
    unsigned port;
    struct api *api = api_new(&ac);
    running = sim_server_start(api, &config, &port, &err);
    ck_assert_msg(running != NULL, "%s", err.msg);
    http = cases_http_new(
        &(struct cases_http_config){.url = lib_fmt("http://127.0.0.1:%u", port)});
    cases_http_server(http, &server);
    server.wait = pass;
    json_decref(cases_run(files[_i], cases_name(files[_i]), &server, &faults));
    cases_http_free(http);
    sim_server_stop(running);
    api_free(api);
    ck_assert_uint_eq(faults, 0);
}

TEST(there_are_so_many_cases)
{
    ck_assert_ptr_nonnull(files[CASES - 1]);
    ck_assert_ptr_null(files[CASES]);
}

UNIT_MAIN_WITH(120, .begin = begin)
