/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/sim.h"
#include "lib/watch.h"

/*
 * kubectl inspect gpushare --serve: the page for clients with the URL and for no others, and
 * the same ledger as the extender's.
 */

static const char idx_0[] = "{\"ALIYUN_COM_GPU_MEM_IDX\":\"0\"}";

struct served {
    struct sim s;
    struct program p;
    unsigned port;
    char *path; /* "/TOKEN/" */
};

static void start(struct served *v)
{
    struct span rest;
    sim_start(&v->s, ARGV(NULL));
    sim_add_node(&v->s, "n1", 2, 15);
    cleanup_free char *config = lib_kubeconfig("config", "http", v->s.api.port, "", "");
    lib_program(&v->p, "kubectl-inspect-gpushare", ARGV("--kubeconfig", config),
                ARGV("--serve", "--extender=none"));
    v->port = program_port(&v->p, "serving the page on http://127.0.0.1:");
    rest = span_of(strstr(program_output(&v->p), "127.0.0.1:"));
    span_cut(&rest, '/');
    rest = span_cut(&rest, '\n');
    v->path = xasprintf("/%.*s", SPAN_ARG(rest));
    ck_assert_uint_eq(strlen(v->path), 34);
}

static void stop(struct served *v, int number)
{
    program_signal(&v->p, number);
    ck_assert_int_eq(program_wait(&v->p), 0);
    program_fini(&v->p);
    free(v->path);
    sim_stop(&v->s);
}

/* `more`: header lines besides Host. */
static unsigned get_with(const struct served *v, const char *method, const char *path,
                         const char *host, const char *more, struct buf *body)
{
    struct raw c;
    struct raw_reply r = {0};
    cleanup_free char *request =
        xasprintf("%s %s HTTP/1.1\r\n%s%s\r\n", method, path, host, more);
    raw_open(&c, v->port);
    raw_call(&c, &r, request);
    unsigned status = r.status;
    if (body)
        buf_add_span(body, buf_span(&r.body));
    raw_reply_fini(&r);
    raw_close(&c);
    return status;
}

static unsigned get(const struct served *v, const char *name, struct buf *body)
{
    cleanup_free char *path = xasprintf("%s%s", v->path, name),
                      *host = xasprintf("Host: 127.0.0.1:%u\r\n", v->port);
    return get_with(v, "GET", path, host, "", body);
}

static void assert_file(const struct served *v, const char *path, const char *name)
{
    cleanup_buf struct buf got = {0}, want = {0};
    cleanup_free char *file = xasprintf("src/view/web/%s", name);
    struct err err;
    ck_assert_done(file_read(file, 1 << 20, &want, &err), err);
    ck_assert_uint_eq(get(v, path, &got), 200);
    ck_assert_msg(span_eq(buf_span(&got), buf_span(&want)), "%s differs", name);
}

START_TEST(the_url_opens_the_page)
{
    struct served v;
    start(&v);
    cleanup_buf struct buf body = {0};
    json_error_t error;
    assert_file(&v, "", "page.html");
    assert_file(&v, "page.css", "page.css");
    assert_file(&v, "page.js", "page.js");
    ck_assert_uint_eq(get(&v, "other", NULL), 404);
    sim_add_pod(&v.s, "w", 20);
    lib_wait((buf_clear(&body), get(&v, "inspect", &body) == 200 &&
                                    strstr(body.p, "needs 20480 MiB on one card")));
    cleanup_json json_t *j = json_loadb(body.p, body.n, 0, &error);
    ck_assert_msg(j != NULL, "%s", body.p);
    ck_assert_str_eq(lib_str(json_array_get(lib_at(j, "nodes"), 0), "name"), "n1");
    ck_assert(json_is_true(lib_at(j, "observer")));
    ck_assert_ptr_null(json_object_get(j, "leader"));
    ck_assert_ptr_null(json_object_get(j, "error"));
    stop(&v, SIGINT);
}
END_TEST

START_TEST(the_stream_follows_the_cluster)
{
    struct served v;
    struct watch w;
    struct extender e;
    start(&v);
    extender_start(&e, &v.s, ARGV(NULL));
    cleanup_free char *target = xasprintf("%sinspect?watch=true", v.path);
    raw_open(&w.c, v.port);
    w.r = (struct raw_reply){0};
    raw_sendf(&w.c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n", target, v.port);
    ck_assert_int_eq(raw_read_head(&w.c, &w.r), RAW_OK);
    ck_assert_uint_eq(w.r.status, 200);
    free(watch_until(&w, "\"name\":\"n1\""));
    free(watch_until(&w, "\"observer\":true"));
    cleanup_free char *empty = watch_line(&w);
    ck_assert_str_eq(empty, "");
    sim_add_pod(&v.s, "a", 4);
    lib_wait(extender_bind(&e, "a", "n1", NULL));
    cleanup_free char *bound = watch_until(&w, "\"promisedMiB\":4096");
    ck_assert_contains(bound, "\"uid\":\"uid-a\"");
    /* Node by node what the extender shows. */
    cleanup_json json_t *ours = json_loads(bound, 0, NULL),
                        *theirs = extender_inspect(&e, "n1");
    ck_assert_msg(json_equal(lib_at(ours, "Node"), theirs), "%s", bound);
    sim_add_bound_pod(&v.s, "b", 3, "n1", idx_0);
    free(watch_until(&w, "\"uid\":\"uid-b\""));
    json_decref(peer_json(&v.s.api, "DELETE", "/api/v1/nodes/n1", NULL));
    extender_stop(&e);
    /* An open stream does not delay the end. */
    int64_t since_ms = lib_now_ms();
    stop(&v, SIGINT);
    ck_assert_int_lt(lib_now_ms() - since_ms, 10000 * LIB_SLOWER);
    watch_close(&w);
}
END_TEST

START_TEST(other_outputs_are_rejected)
{
    static const char *const others[] = {"n1", "--check", "--classic", "--watch",
                                         "-ojson"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct program p;
        lib_program(&p, "kubectl-inspect-gpushare", ARGV("--serve"), ARGV(others[i]));
        ck_assert_int_eq(program_wait(&p), 1);
        ck_assert_contains(p.said.p, "--serve shows the whole cluster; ");
        program_fini(&p);
    }
}
END_TEST

LIB_MAIN("serve", 60, the_url_opens_the_page, the_stream_follows_the_cluster,
         other_outputs_are_rejected)
