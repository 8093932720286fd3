/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "base/file.h"
#include "base/mem.h"
#include "lib/sim.h"
#include "lib/watch.h"

/*
 * The files of the web page and its data: the inspect stream, with the reasons of pending
 * pods. test/web tests the page in a browser.
 */

#define WATCH "/inspect?watch=true"

static const struct file {
    const char *path, *name, *type;
} files[] = {{"/", "page.html", "text/html; charset=utf-8"},
             {"/page.css", "page.css", "text/css; charset=utf-8"},
             {"/page.js", "page.js", "text/javascript; charset=utf-8"}};

static void assert_headers(const struct raw_reply *r)
{
    static const char *const want[][2] = {
        {"Cache-Control", "no-cache"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
         "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        ck_assert_span_eq(raw_header(r, want[i][0]), want[i][1]);
}

/* A file that the client has cached is not sent again: 304 Not Modified. */
static void assert_cached(unsigned port, const struct file *f, struct span tag)
{
    static const char *const before[] = {"", "W/", "\"x\", ", "*,"};
    for (size_t i = 0; i < ARRAY_LEN(before); i++) {
        struct raw c;
        struct raw_reply r = {0};
        cleanup_free char *value = xasprintf("%s%.*s", before[i], SPAN_ARG(tag)),
                          *want = xmemdup0(tag.p, tag.n);
        raw_open(&c, port);
        raw_sendf(&c,
                  "GET %s HTTP/1.1\r\nHost: x\r\nIf-None-Match: %s\r\n"
                  "Connection: close\r\n\r\n",
                  f->path, value);
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 304);
        ck_assert_span_eq(raw_header(&r, "ETag"), want);
        assert_headers(&r);
        ck_assert_msg(raw_ended(&c), "a body came with 304");
        raw_reply_fini(&r);
        raw_close(&c);
    }
}

static void assert_file(unsigned port, const struct file *f)
{
    struct raw c;
    struct raw_reply r = {0};
    struct err err;
    cleanup_buf struct buf want = {0};
    cleanup_free char *path = xasprintf("src/view/web/%s", f->name),
                      *get = xasprintf("GET %s HTTP/1.1\r\nHost: x\r\nIf-None-Match: "
                                       "\"another\", W/\"x\"\r\n\r\n",
                                       f->path),
                      *post = xasprintf("POST %s HTTP/1.1\r\nHost: x\r\n\r\n", f->path);
    ck_assert_done(file_read(path, 1 << 20, &want, &err), err);
    raw_open(&c, port);
    raw_call(&c, &r, get);
    ck_assert_uint_eq(r.status, 200);
    ck_assert_msg(span_eq(buf_span(&r.body), buf_span(&want)),
                  "%s differs from its source", f->name);
    ck_assert_span_eq(raw_header(&r, "Content-Type"), f->type);
    assert_headers(&r);
    struct span tag = raw_header(&r, "ETag");
    ck_assert_uint_eq(tag.n, 34);
    assert_cached(port, f, tag);
    raw_call(&c, &r, post);
    ck_assert_uint_eq(r.status, 405);
    ck_assert_span_eq(raw_header(&r, "Allow"), "GET, HEAD");
    raw_reply_fini(&r);
    raw_close(&c);
}

START_TEST(page_files_are_served_on_both_ports)
{
    struct sim s;
    struct extender e;
    sim_start(&s, ARGV(NULL));
    extender_start(&e, &s, ARGV(NULL));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        assert_file(e.observers.port, &files[i]);
        assert_file(e.verbs.port, &files[i]);
    }
    static const char *const unknown[] = {"/page.html",    "/page",      "//",
                                          "/web/page.css", "/page.css/", "/../page.js"};
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++)
        ck_assert_uint_eq(peer_status(&e.observers, unknown[i]), 404);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

/* The page loads nothing from other servers and contains nothing that its policy
 * forbids. */
START_TEST(the_page_is_self_contained)
{
    static const char *const forbidden[] = {
        "http://",        "https://",  "@import",
        "innerHTML",      "outerHTML", "insertAdjacentHTML",
        "document.write", "eval(",     "new Function",
        " style=",        " onclick=", "<style"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_buf struct buf text = {0};
        struct err err;
        cleanup_free char *path = xasprintf("src/view/web/%s", files[i].name);
        ck_assert_done(file_read(path, 1 << 20, &text, &err), err);
        for (size_t k = 0; k < ARRAY_LEN(forbidden); k++) {
            const char *at = strstr(text.p, forbidden[k]);
            bool name_space = at && strncmp(at, "http://www.w3.org/2000/svg", 26) == 0;
            ck_assert_msg(!at || name_space, "%s has %s", files[i].name, forbidden[k]);
        }
    }
}
END_TEST

static json_t *node_of(const char *line)
{
    json_t *j = json_loads(line, 0, NULL);
    ck_assert_msg(j, "%s", line);
    return j;
}

/* The stream's last line of a node is what inspect shows. There may be a line before it,
 * because a node is created with two objects. */
static void assert_as_inspected(struct watch *w, const struct extender *e,
                                const char *name)
{
    cleanup_free char *mark = xasprintf("{\"Node\":{\"name\":\"%s\"", name);
    for (bool same = false; !same;) {
        cleanup_free char *line = watch_until(w, mark);
        cleanup_json json_t *said = node_of(line), *node = extender_inspect(e, name);
        ck_assert_str_eq(lib_str(said, "Type"), "SYNCED");
        same = json_equal(lib_at(said, "Node"), node);
    }
}

START_TEST(the_stream_agrees_with_inspect)
{
    struct sim s;
    struct extender e;
    struct watch w;
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 2, 16);
    sim_add_node(&s, "n2", 1, 16);
    extender_start(&e, &s, ARGV(NULL));
    lib_wait(extender_leads(&e));
    watch_open(&w, e.observers.port, "/gpushare-scheduler" WATCH);
    ck_assert_uint_eq(w.r.status, 200);
    assert_as_inspected(&w, &e, "n1");
    assert_as_inspected(&w, &e, "n2");
    cleanup_free char *cluster = watch_until(&w, "Cluster");
    cleanup_json json_t *said = node_of(cluster),
                        *all = peer_json(&e.observers, "GET", "/inspect", NULL);
    json_object_del(all, "nodes");
    ck_assert_msg(json_equal(lib_at(said, "Cluster"), all), "%s", cluster);
    free(watch_until(&w, "")); /* the end of the initial state */

    sim_add_pod(&s, "p1", 20);
    cleanup_free char *why = watch_until(&w, "p1");
    ck_assert_contains(
        why,
        "\"request\":\"20 "
        "GiB\",\"fittingNodes\":0,\"neverFits\":true,\"closestNode\":\"n1\","
        "\"reason\":\"needs 20480 MiB on one card; the largest card has 16384 MiB\"");
    sim_add_pod(&s, "p2", 4);
    lib_wait(extender_bind(&e, "p2", "n2", NULL));
    cleanup_free char *bound =
        watch_until(&w, "\"name\":\"p2\",\"namespace\":\"default\",\"usedGPU\":4");
    ck_assert_contains(bound, "{\"Node\":{\"name\":\"n2\"");
    json_decref(peer_json(&s.api, "DELETE", "/api/v1/nodes/n1", NULL));
    json_decref(peer_json(&s.api, "DELETE", "/apis/core.run-linux.com/v1/scvs/n1", NULL));
    cleanup_free char *gone = watch_until(&w, "DELETED");
    ck_assert_str_eq(gone, "{\"Node\":{\"name\":\"n1\"},\"Type\":\"DELETED\"}");
    sim_add_node(&s, "n3", 1, 16); /* takes the slot of n1 */
    assert_as_inspected(&w, &e, "n3");

    program_signal(&e.program, SIGTERM);
    char *line;
    while ((line = watch_line(&w)))
        free(line);
    watch_close(&w);
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

START_TEST(the_number_of_streams_is_limited)
{
    enum { MAIN = 16, ALL = 64 };
    struct sim s;
    struct extender e;
    struct watch w[ALL];
    cleanup_buf struct buf said = {0};
    sim_start(&s, ARGV(NULL));
    sim_add_node(&s, "n1", 1, 16);
    extender_start(&e, &s, ARGV(NULL));
    for (int i = 0; i < MAIN; i++)
        watch_open(&w[i], e.verbs.port, WATCH);
    ck_assert_uint_eq(peer_call(&e.verbs, "GET", WATCH, NULL, &said), 503);
    ck_assert_contains(said.p,
                       "too many watches: 16 are open on this port; use --observe-port");
    for (int i = MAIN; i < ALL; i++) {
        watch_open(&w[i], e.observers.port, WATCH);
        ck_assert_uint_eq(w[i].r.status, 200);
    }
    ck_assert_uint_eq(peer_call(&e.observers, "GET", WATCH, NULL, &said), 503);
    ck_assert_contains(said.p, "too many watches: 64 are open");
    ck_assert_uint_eq(peer_status(&e.observers, "/inspect?watch=1"), 200); /* a list */
    watch_close(&w[3]);
    lib_wait(({
        watch_open(&w[3], e.verbs.port, WATCH);
        bool open = w[3].r.status == 200;
        if (!open)
            watch_close(&w[3]);
        open;
    }));
    sim_add_node(&s, "n2", 1, 16);
    for (int i = 0; i < ALL; i++) {
        assert_as_inspected(&w[i], &e, "n2");
        watch_close(&w[i]);
    }
    extender_stop(&e);
    sim_stop(&s);
}
END_TEST

LIB_MAIN("web", 60, page_files_are_served_on_both_ports, the_page_is_self_contained,
         the_stream_agrees_with_inspect, the_number_of_streams_is_limited)
