/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Requests to kube-sim's API server, as its HTTP front end passes them on. One per line:
 *
 *     METHOD TARGET TYPE BODY
 *
 * The target is as in HTTP. The type is "json", "merge", "strategic", "table" (a GET for
 * a table), "-" (none), or a content type. A line with only a number advances the time by
 * that many milliseconds.
 *
 * Invariants: the reply is JSON with a plausible status; a rejected request changes
 * nothing; a written object can be read; watches send JSON with ascending versions; equal
 * requests give equal replies.
 */

#include "fuzz/fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "kube-sim/sim.h"

enum { LINES_MAX = 24, WATCHES_MAX = 8 };

struct line {
    char *method, *path, *query, *type;
    struct span body;
};

struct world {
    struct api *api;
    struct api_watch *watches[WATCHES_MAX];
    size_t n;
    int64_t now_ms;
    struct buf said; /* all replies, to compare two runs */
};

static json_t *parse(struct span text)
{
    json_t *j = json_loadb(text.p, text.n, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(j))
        fuzz_fail("a reply that is not a JSON object");
    return j;
}

static const char *text_of(const json_t *j, const char *a, const char *b)
{
    const char *s = json_string_value(json_object_get(json_object_get(j, a), b));
    return s ? s : "";
}

static void check_status(const json_t *j, unsigned status)
{
    const char *kind = json_string_value(json_object_get(j, "kind"));
    if (status < 400)
        return;
    if (!kind || strcmp(kind, "Status") != 0 ||
        json_integer_value(json_object_get(j, "code")) != status)
        fuzz_fail("an error that is not a Status with its code");
    if (!json_is_string(json_object_get(j, "message")))
        fuzz_fail("a Status without a message");
}

/* A real server answers these invalid requests with 500. */
static bool is_known_500(const struct buf *body)
{
    static const char *const texts[] = {"target.", "resourceVersion",
                                        "strconv.ParseUint"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        if (body->n && memmem(body->p, body->n, texts[i], strlen(texts[i])))
            return true;
    return false;
}

/* The statuses that a real API server uses for these requests. */
static void check_plausible(const struct api_reply *reply)
{
    static const unsigned known[] = {200, 201, 202, 400, 403, 404, 405, 406,
                                     409, 410, 413, 415, 422, 429, 504};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (reply->status == known[i])
            return;
    if (reply->status != 500 || !is_known_500(&reply->body))
        fuzz_fail("an unexpected status");
}

static const char *type_of(const char *word)
{
    static const char *const types[][2] = {
        {"-", NULL},
        {"json", "application/json"},
        {"merge", "application/merge-patch+json"},
        {"strategic", "application/strategic-merge-patch+json"},
        {"table", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (!strcmp(word, types[i][0]))
            return types[i][1];
    return word;
}

/* Decodes as the HTTP front end does, which rejects malformed escapes and NULs. */
static bool decode(char *s)
{
    char *to = s;
    for (; *s; s++) {
        unsigned byte;
        if (*s != '%') {
            *to++ = *s;
            continue;
        }
        if (!strchr("0123456789abcdefABCDEF", s[1]) || !s[1] ||
            !strchr("0123456789abcdefABCDEF", s[2]) || !s[2] ||
            sscanf(s + 1, "%2x", &byte) != 1 || !byte)
            return false;
        *to++ = (char)byte;
        s += 2;
    }
    *to = '\0';
    return true;
}

static char *word(struct span *rest, struct arena *a)
{
    struct span s = span_cut(rest, ' ');
    return (char *)arena_copy(a, s).p;
}

static bool read_line(struct span text, struct arena *a, struct line *l)
{
    if (memchr(text.p, '\0', text.n))
        return false;
    l->method = word(&text, a);
    l->path = word(&text, a);
    l->type = word(&text, a);
    l->body = text;
    char *mark = strchr(l->path, '?');
    l->query = mark ? mark + 1 : l->path + strlen(l->path);
    if (mark)
        *mark = '\0';
    return l->path[0] == '/' && decode(l->path);
}

/* A created or replaced object can be read in the version of the reply. */
static void check_written(struct world *w, const struct line *l, const json_t *j)
{
    struct api_request req = {.method = "GET", .path = l->path, .query = ""};
    struct api_target target;
    struct api_reply reply = {0};
    if (strcmp(l->method, "PUT") != 0 || !api_classify(&req, &target) || target.sub.n)
        return;
    api_handle(w->api, w->now_ms, &req, &reply);
    if (reply.status == 200) { /* a PUT can complete a deletion */
        json_t *now = parse(buf_span(&reply.body));
        if (strcmp(text_of(now, "metadata", "resourceVersion"),
                   text_of(j, "metadata", "resourceVersion")) != 0 ||
            !*text_of(now, "metadata", "uid"))
            fuzz_fail("the object read differs from the one written");
        json_decref(now);
    }
    api_reply_fini(&reply);
}

static void keep_watch(struct world *w, struct api_reply *reply)
{
    if (w->n < WATCHES_MAX)
        w->watches[w->n++] = steal(&reply->watch);
}

static void handle(struct world *w, const struct line *l)
{
    struct api_request req = {.method = l->method,
                              .path = l->path,
                              .query = l->query,
                              .content_type = type_of(l->type),
                              .body = l->body};
    struct api_reply reply = {0};
    if (!strcmp(l->type, "table"))
        req.accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    uint64_t before = api_version(w->api);
    api_handle(w->api, w->now_ms, &req, &reply);
    check_plausible(&reply);
    bool changed = api_version(w->api) != before;
    if (changed && (reply.status >= 400 || !strcmp(l->method, "GET")))
        fuzz_fail("a rejected request or a GET has changed something");
    buf_printf(&w->said, "%u ", reply.status);
    buf_add_span(&w->said, buf_span(&reply.body));
    if (reply.watch) {
        if (reply.body.n || reply.status != 200)
            fuzz_fail("a watch with a body or an error status");
        keep_watch(w, &reply);
    } else if (!reply.content_type || !strcmp(reply.content_type, "application/json")) {
        json_t *j = parse(buf_span(&reply.body));
        check_status(j, reply.status);
        if (reply.status < 300)
            check_written(w, l, j);
        json_decref(j);
    }
    api_reply_fini(&reply);
}

static void check_event(struct span line, unsigned long long *last)
{
    json_t *j = parse(line);
    const char *type = json_string_value(json_object_get(j, "type"));
    const json_t *object = json_object_get(j, "object");
    if (!type || !json_is_object(object) || line.p[line.n - 1] != '\n')
        fuzz_fail("an invalid watch event");
    if (strcmp(type, "ERROR") != 0) {
        unsigned long long version =
            strtoull(text_of(object, "metadata", "resourceVersion"), NULL, 10);
        /* A watch without a version begins with the existing objects, in any order. */
        if (strcmp(type, "ADDED") != 0 && version < *last)
            fuzz_fail("the versions of a watch do not ascend");
        if (version > *last)
            *last = version;
    }
    json_decref(j);
}

static void drain(struct world *w, struct api_watch *watch)
{
    unsigned long long last = 0;
    for (;;) {
        cleanup_buf struct buf line = {0};
        int rc = api_watch_next(watch, w->now_ms, &line);
        if ((rc == 1) != (line.n > 0))
            fuzz_fail("the result of a watch contradicts its output");
        if (rc != 1)
            return;
        check_event(buf_span(&line), &last);
        buf_add_span(&w->said, buf_span(&line));
    }
}

static void step(struct world *w, struct span text, struct arena *a)
{
    struct line l;
    int64_t ms;
    if (span_i64(text, &ms) && ms >= 0 && ms < 100000000) {
        w->now_ms += ms;
        api_tick(w->api, w->now_ms);
    } else if (read_line(text, a, &l)) {
        handle(w, &l);
    }
}

static void play(struct world *w, struct span rest)
{
    struct api_config config = {
        .seed = 7, .history = 16, .now_ms = 1700000000000, .run_pods = true};
    cleanup_arena struct arena a = {0};
    w->api = api_new(&config);
    w->now_ms = config.now_ms;
    for (int i = 0; i < LINES_MAX && rest.n; i++) {
        struct span line = span_cut(&rest, '\n');
        step(w, line, &a);
    }
    for (size_t i = 0; i < w->n; i++) {
        drain(w, w->watches[i]);
        api_watch_free(w->watches[i]);
    }
    api_free(w->api);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world one = {0}, two = {0};
    struct span input = {(const char *)data, size};
    play(&one, input);
    play(&two, input);
    if (!span_eq(buf_span(&one.said), buf_span(&two.said)))
        fuzz_fail("equal requests, different replies");
    buf_fini(&one.said);
    buf_fini(&two.said);
    return 0;
}
