/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "integration/suite.h"
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
    array_indices(i, want)
        ck_assert_span_eq(raw_header(r, want[i][0]), want[i][1]);
}

/* A file that the client has cached is not sent again: 304 Not Modified. */
static void assert_cached(unsigned port, const struct file *f, struct span tag)
{
    static const char *const before[] = {"", "W/", "\"x\", ", "*,"};
    array_items(b, before) {
        struct raw c;
        struct raw_reply r = {0};
        raw_open(&c, port);
        raw_sendf(&c,
                  "GET %s HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: %s\r\n"
                  "Connection: close\r\n\r\n",
                  f->path, lib_fmt("%s%.*s", *b, SPAN_ARG(tag)));
        ck_assert_int_eq(raw_read_head(&c, &r), RAW_OK);
        ck_assert_uint_eq(r.status, 304);
        ck_assert_span_eq(raw_header(&r, "ETag"), lib_fmt("%.*s", SPAN_ARG(tag)));
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
    raw_open(&c, port);
    raw_call(&c, &r,
             lib_fmt("GET %s HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "
                     "\"another\", W/\"x\"\r\n\r\n",
                     f->path));
    ck_assert_uint_eq(r.status, 200);
    ck_assert_span_eq(buf_span(&r.body), lib_file(lib_fmt("src/view/web/%s", f->name)));
    ck_assert_span_eq(raw_header(&r, "Content-Type"), f->type);
    assert_headers(&r);
    struct span tag = raw_header(&r, "ETag");
    ck_assert_uint_eq(tag.n, 34);
    assert_cached(port, f, tag);
    raw_call(&c, &r, lib_fmt("POST %s HTTP/1.1\r\nHost: localhost\r\n\r\n", f->path));
    ck_assert_uint_eq(r.status, 405);
    ck_assert_span_eq(raw_header(&r, "Allow"), "GET, HEAD");
    raw_reply_fini(&r);
    raw_close(&c);
}

TEST(page_files_are_served_on_both_ports)
{
    suite_extender(NULL);
    array_items(file, files) {
        assert_file(extender.observers.port, file);
        assert_file(extender.verbs.port, file);
    }
    static const char *const unknown[] = {"/page.html",    "/page",      "//",
                                          "/web/page.css", "/page.css/", "/../page.js"};
    array_items(u, unknown)
        ck_assert_uint_eq(peer_status(&extender.observers, *u), 404);
}

/* The page loads nothing from other servers and contains nothing that its policy
 * forbids. */
TEST(the_page_is_self_contained)
{
    static const char *const forbidden[] = {
        "http://",        "https://",  "@import",
        "innerHTML",      "outerHTML", "insertAdjacentHTML",
        "document.write", "eval(",     "new Function",
        " style=",        " onclick=", "<style"};
    array_items(file, files) {
        const char *text = lib_file(lib_fmt("src/view/web/%s", file->name));
        array_items(f, forbidden) {
            const char *at = strstr(text, *f);
            bool name_space = at && strncmp(at, "http://www.w3.org/2000/svg", 26) == 0;
            ck_assert_msg(!at || name_space, "%s has %s", file->name, *f);
        }
    }
}

/* The stream's last line of a node is what inspect shows. There may be a line before it,
 * because a node is created with two objects. */
static void assert_as_inspected(struct watch *w, const char *name)
{
    const json_t *said, *all;
    do {
        const char *line = watch_until(w, lib_fmt("{\"Node\":{\"name\":\"%s\"", name));
        said = lib_parse(line, strlen(line));
        all = peer_get(&extender.observers, lib_fmt("/inspect/%s", name));
        ck_assert_at(said, "Type", "SYNCED");
    } while (!json_equal(lib_at(said, "Node"), lib_at(all, "nodes.0")));
}

TEST(the_stream_agrees_with_inspect)
{
    struct watch w;
    sim_add_node(&sim, "n1", 2, 16);
    sim_add_node(&sim, "n2", 1, 16);
    suite_extender(NULL);
    lib_wait(extender_leads(&extender));
    watch_open(&w, extender.observers.port, "/gpushare-scheduler" WATCH);
    ck_assert_uint_eq(w.r.status, 200);
    assert_as_inspected(&w, "n1");
    assert_as_inspected(&w, "n2");
    const char *cluster = watch_until(&w, "Cluster");
    json_t *all = peer_get(&extender.observers, "/inspect");
    json_object_del(all, "nodes");
    ck_assert_str_eq(lib_text(lib_parse(cluster, strlen(cluster)), "Cluster"),
                     lib_text(all, ""));
    watch_until(&w, ""); /* the end of the initial state */

    sim_add_pod(&sim, "p1", 20);
    ck_assert_contains(
        watch_until(&w, "p1"),
        "\"request\":\"20 "
        "GiB\",\"fittingNodes\":0,\"neverFits\":true,\"closestNode\":\"n1\","
        "\"reason\":\"needs 20480 MiB on one card; the largest card has 16384 MiB\"");
    sim_add_pod(&sim, "p2", 4);
    lib_wait(extender_bind(&extender, "p2", "n2", NULL));
    ck_assert_contains(
        watch_until(&w, "\"name\":\"p2\",\"namespace\":\"default\",\"usedGPU\":4"),
        "{\"Node\":{\"name\":\"n2\"");
    peer_do(&sim.api, "DELETE", "/api/v1/nodes/n1", NULL);
    peer_do(&sim.api, "DELETE", "/apis/core.run-linux.com/v1/scvs/n1", NULL);
    ck_assert_str_eq(watch_until(&w, "DELETED"),
                     "{\"Node\":{\"name\":\"n1\"},\"Type\":\"DELETED\"}");
    sim_add_node(&sim, "n3", 1, 16); /* takes the slot of n1 */
    assert_as_inspected(&w, "n3");

    program_signal(&extender.program, SIGTERM);
    while (watch_line(&w))
        ;
    watch_close(&w);
}

TEST(the_number_of_streams_is_limited)
{
    enum { MAIN = 16, ALL = 64 };
    struct watch w[ALL];
    sim_add_node(&sim, "n1", 1, 16);
    suite_extender(NULL);
    for (int i = 0; i < MAIN; i++)
        watch_open(&w[i], extender.verbs.port, WATCH);
    ck_assert(
        peer_says(&extender.verbs, WATCH, 503,
                  "too many watches: 16 are open on this port; use --observe-port"));
    for (int i = MAIN; i < ALL; i++) {
        watch_open(&w[i], extender.observers.port, WATCH);
        ck_assert_uint_eq(w[i].r.status, 200);
    }
    ck_assert(
        peer_says(&extender.observers, WATCH, 503, "too many watches: 64 are open"));
    ck_assert_uint_eq(peer_status(&extender.observers, "/inspect?watch=1"),
                      200); /* a list */
    watch_close(&w[3]);
    lib_wait(({
        watch_open(&w[3], extender.verbs.port, WATCH);
        bool open = w[3].r.status == 200;
        if (!open)
            watch_close(&w[3]);
        open;
    }));
    sim_add_node(&sim, "n2", 1, 16);
    for (int i = 0; i < ALL; i++) {
        assert_as_inspected(&w[i], "n2");
        watch_close(&w[i]);
    }
}

SUITE_MAIN(60, NULL)
