/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/api.h"

#include "sim/cases.h"

/* The cases in test/sim/conformance against the pure API. */

struct pure {
    struct api *api;
    int64_t now_ms;
};

static void request(struct pure *p, const struct api_request *req,
                    struct api_reply *reply, struct buf *out)
{
    api_handle(p->api, p->now_ms, req, reply);
    buf_clear(out);
    buf_add_span(out, buf_span(&reply->body));
}

static unsigned pure_call(void *ctx, const char *method, const char *path,
                          const char *type, const char *accept, struct span body,
                          struct buf *out)
{
    cleanup_free char *copy = xstrdup(path);
    char *query = strchr(copy, '?');
    struct api_reply reply = {0};
    if (query)
        *query++ = '\0';
    struct api_request req = {.method = method,
                              .path = copy,
                              .query = query ? query : "",
                              .content_type = type,
                              .accept = accept,
                              .body = body};
    request(ctx, &req, &reply, out);
    unsigned status = reply.status;
    api_reply_fini(&reply);
    return status;
}

static unsigned pure_watch(void *ctx, const char *path, const char *accept, void **watch,
                           struct buf *out)
{
    cleanup_free char *copy = xstrdup(path);
    char *query = strchr(copy, '?');
    struct api_reply reply = {0};
    *query++ = '\0';
    struct api_request req = {
        .method = "GET", .path = copy, .query = query, .accept = accept};
    request(ctx, &req, &reply, out);
    *watch = steal(&reply.watch);
    unsigned status = reply.status;
    api_reply_fini(&reply);
    return status;
}

static int pure_next(void *ctx, void *watch, struct buf *line)
{
    struct pure *p = ctx;
    return api_watch_next(watch, p->now_ms, line);
}

static void pure_close(void *ctx, void *watch)
{
    (void)ctx;
    api_watch_free(watch);
}

static void pure_advance(void *ctx, int64_t ms)
{
    struct pure *p = ctx;
    p->now_ms += ms;
    api_tick(p->api, p->now_ms);
}

static void pure_compact(void *ctx)
{
    struct pure *p = ctx;
    api_compact(p->api);
}

static char **files;
static size_t n_files;

START_TEST(the_pure_api_answers_as_the_case_says)
{
    struct api_config config = {.seed = 1};
    struct pure p = {api_new(&config), 1763715600000};
    struct cases_server server = {.call = pure_call,
                                  .watch = pure_watch,
                                  .next = pure_next,
                                  .close = pure_close,
                                  .advance = pure_advance,
                                  .compact = pure_compact,
                                  .ctx = &p};
    ck_assert(cases_run(files[_i], &server));
    api_free(p.api);
}

START_TEST(there_are_cases)
{
    ck_assert_uint_gt(n_files, 10);
}

int main(void)
{
    files = cases_files(&n_files);
    Suite *suite = suite_create("conformance");
    TCase *tcase = tcase_create("conformance");
    tcase_add_test(tcase, there_are_cases);
    tcase_add_loop_test(tcase, the_pure_api_answers_as_the_case_says, 0, (int)n_files);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    cases_free(files, n_files);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
