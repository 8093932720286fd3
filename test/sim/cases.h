/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "support/unit.h"

/*
 * Conformance cases: what an API server answers to a sequence of requests, as data.
 *
 * A case is a JSON file with an array of steps. They know nothing of the server, so that
 * they can run against the pure API, against kube-sim over HTTP, and against a real API
 * server. A step is an object:
 *
 *   "do": "POST /api/v1/..."  the request; with "body" (JSON) or "raw" (text), "type" (of
 *                             the body), "accept"
 *   "status": 201             what must come back
 *   "expect": {...}           must be contained in the answer, see below
 *   "save": {"x": "a.b"}      keeps a string of the answer; "${x}" stands for it later on
 *   "watch": "w"              together with "do": opens a watch under that name
 *   "next": "w"               the next event of the watch; with "expect"
 *   "quiet": "w"              the watch has nothing to say
 *   "over": "w"               the watch has ended
 *   "advance_ms": 1000        lets time pass     } only where the clock and the history
 *   "compact": true           forgets history    } can be controlled
 *
 * Contained: an object holds all expected members; null means that the member is absent;
 * an array has as many elements, each containing the expected one; a string that starts
 * with '~' must occur in the answer's string.
 */

/* A server under test. What it cannot do is NULL; cases that need it are skipped. */
struct cases_server {
    /* `reply` is cleared; returns the status. */
    unsigned (*call)(void *ctx, const char *method, const char *path, const char *type,
                     const char *accept, struct span body, struct buf *reply);
    /* Returns the status; a watch that was opened goes to *watch. */
    unsigned (*watch)(void *ctx, const char *path, const char *accept, void **watch,
                      struct buf *reply);
    /* The next event: 1, appended to line; 0: none; -1: over. May wait for one. */
    int (*next)(void *ctx, void *watch, struct buf *line);
    bool (*quiet)(void *ctx, void *watch); /* NULL: ask next, which does not wait */
    void (*close)(void *ctx, void *watch);
    void (*advance)(void *ctx, int64_t ms);
    void (*compact)(void *ctx);
    void *ctx;
};

#define CASES_DIR "test/sim/conformance"

/* -- is it contained? -- */

static inline bool cases_contains(const json_t *have, const json_t *want,
                                  struct buf *where);

static inline bool cases_contains_object(const json_t *have, const json_t *want,
                                         struct buf *where)
{
    const char *key;
    json_t *v;
    size_t n = where->n;
    json_object_foreach((json_t *)want, key, v)
    {
        buf_printf(where, ".%s", key);
        json_t *found = json_object_get(have, key);
        if (json_is_null(v) ? found && !json_is_null(found)
                            : !cases_contains(found, v, where))
            return false;
        where->n = n;
    }
    return json_is_object(have);
}

static inline bool cases_contains(const json_t *have, const json_t *want,
                                  struct buf *where)
{
    if (json_is_object(want))
        return cases_contains_object(have, want, where);
    if (json_is_array(want)) {
        size_t n = where->n;
        if (!json_is_array(have) || json_array_size(have) != json_array_size(want))
            return false;
        for (size_t i = 0; i < json_array_size(want); i++) {
            buf_printf(where, "[%zu]", i);
            if (!cases_contains(json_array_get(have, i), json_array_get(want, i), where))
                return false;
            where->n = n;
        }
        return true;
    }
    const char *text = json_string_value(want);
    if (text && text[0] == '~')
        return json_is_string(have) && strstr(json_string_value(have), text + 1);
    return json_equal(have, want);
}

/* -- one case -- */

struct cases_run {
    const char *file;
    const struct cases_server *server;
    size_t step;
    const json_t *what; /* the step */
    json_t *saved;      /* name -> string */
    json_t *watches;    /* name -> index in open */
    void *open[16];
    size_t n_open;
};

static inline void cases_fail(struct cases_run *r, const char *why, const struct buf *got)
{
    char *step = json_dumps(r->what, JSON_COMPACT);
    ck_abort_msg("%s, step %zu: %s\n  step: %s\n  got: %.2000s", r->file, r->step, why,
                 step, got && got->p ? got->p : "");
    free(step);
}

/* The text with each ${name} replaced by what was saved. */
static inline void cases_expand(struct cases_run *r, const char *text, struct buf *out)
{
    const char *mark;
    buf_reserve(out, 0);
    while ((mark = strstr(text, "${"))) {
        const char *end = strchr(mark, '}');
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(end - mark - 2), mark + 2);
        const char *value = json_string_value(json_object_get(r->saved, name));
        if (!value)
            cases_fail(r, "nothing was saved under that name", NULL);
        buf_add(out, text, (size_t)(mark - text));
        buf_adds(out, value);
        text = end + 1;
    }
    buf_adds(out, text);
}

static inline json_t *cases_member(struct cases_run *r, const char *key)
{
    json_t *v = json_object_get(r->what, key);
    if (!v)
        return NULL;
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    struct buf full = {0};
    cases_expand(r, text, &full);
    json_t *expanded = json_loads(full.p, JSON_DECODE_ANY, NULL);
    ck_assert_ptr_nonnull(expanded);
    free(text);
    buf_fini(&full);
    return expanded;
}

static inline void cases_check(struct cases_run *r, const struct buf *got)
{
    json_t *want = cases_member(r, "expect");
    json_t *have = json_loadb(got->p ? got->p : "", got->n, JSON_DECODE_ANY, NULL);
    struct buf where = {0};
    if (want && !cases_contains(have, want, &where)) {
        struct buf why = {0};
        buf_printf(&why, "not as expected at \"%.*s\"", (int)where.n,
                   where.p ? where.p : "");
        cases_fail(r, why.p, got);
    }
    const char *name;
    json_t *path;
    json_object_foreach(json_object_get(r->what, "save"), name, path)
    {
        const json_t *at = have;
        struct span rest = span_of(json_string_value(path));
        while (rest.n) {
            struct span key = span_cut(&rest, '.');
            int64_t index;
            char text[64];
            snprintf(text, sizeof text, "%.*s", SPAN_ARG(key));
            at = span_i64(key, &index) ? json_array_get(at, (size_t)index)
                                       : json_object_get(at, text);
        }
        if (!json_is_string(at))
            cases_fail(r, "nothing to save", got);
        json_object_set(r->saved, name, (json_t *)at);
    }
    json_decref(want);
    json_decref(have);
    buf_fini(&where);
}

static inline void *cases_watch(struct cases_run *r, const char *key)
{
    const char *name = json_string_value(json_object_get(r->what, key));
    json_t *at = name ? json_object_get(r->watches, name) : NULL;
    if (!at)
        cases_fail(r, "no such watch", NULL);
    return r->open[json_integer_value(at)];
}

static inline void cases_do(struct cases_run *r)
{
    struct buf line = {0}, body = {0}, got = {0};
    cases_expand(r, json_string_value(json_object_get(r->what, "do")), &line);
    char *path = strchr(line.p, ' ');
    *path++ = '\0';
    json_t *j = cases_member(r, "body");
    const char *raw = json_string_value(json_object_get(r->what, "raw"));
    const char *type = json_string_value(json_object_get(r->what, "type"));
    const char *accept = json_string_value(json_object_get(r->what, "accept"));
    const char *watch = json_string_value(json_object_get(r->what, "watch"));
    char *text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
    buf_adds(&body, text ? text : raw ? raw : "");
    unsigned status;
    if (watch) {
        void **slot = &r->open[r->n_open];
        status = r->server->watch(r->server->ctx, path, accept, slot, &got);
        if (*slot)
            json_object_set_new(r->watches, watch, json_integer((json_int_t)r->n_open++));
    } else {
        status = r->server->call(r->server->ctx, line.p, path, type, accept,
                                 buf_span(&body), &got);
    }
    json_t *want = json_object_get(r->what, "status");
    if (want && json_integer_value(want) != status) {
        struct buf why = {0};
        buf_printf(&why, "status %u", status);
        cases_fail(r, why.p, &got);
    }
    cases_check(r, &got);
    free(text);
    json_decref(j);
    buf_fini(&line);
    buf_fini(&body);
    buf_fini(&got);
}

static inline void cases_next(struct cases_run *r, const char *key, int want)
{
    struct buf got = {0};
    void *w = cases_watch(r, key);
    if (want == 0 && r->server->quiet) {
        if (!r->server->quiet(r->server->ctx, w))
            cases_fail(r, "the watch is not quiet", NULL);
        return;
    }
    int rc = r->server->next(r->server->ctx, w, &got);
    if (rc != want)
        cases_fail(r, rc == 1 ? "an event" : rc ? "the watch is over" : "no event", &got);
    if (want == 1)
        cases_check(r, &got);
    buf_fini(&got);
}

static inline void cases_step(struct cases_run *r)
{
    const json_t *ms = json_object_get(r->what, "advance_ms");
    if (json_object_get(r->what, "do"))
        cases_do(r);
    else if (json_object_get(r->what, "next"))
        cases_next(r, "next", 1);
    else if (json_object_get(r->what, "quiet"))
        cases_next(r, "quiet", 0);
    else if (json_object_get(r->what, "over"))
        cases_next(r, "over", -1);
    else if (ms)
        r->server->advance(r->server->ctx, json_integer_value(ms));
    else if (json_object_get(r->what, "compact"))
        r->server->compact(r->server->ctx);
    else
        cases_fail(r, "a step that is none", NULL);
}

static inline bool cases_can_run(const json_t *steps, const struct cases_server *server)
{
    size_t i;
    json_t *step;
    json_array_foreach(
        steps, i,
        step) if ((json_object_get(step, "advance_ms") && !server->advance) ||
                  (json_object_get(step, "compact") && !server->compact)) return false;
    return true;
}

/* Runs the file. False: skipped, and that was said on standard output. Fails the running
 * test when an answer is not as expected. */
static inline bool cases_run(const char *file, const struct cases_server *server)
{
    json_error_t why;
    json_t *steps = json_load_file(file, 0, &why);
    ck_assert_msg(json_is_array(steps), "%s: line %d: %s", file, why.line, why.text);
    struct cases_run r = {.file = file, .server = server};
    bool run = cases_can_run(steps, server);
    if (!run)
        printf("skipped, needs a clock or compaction that can be controlled: %s\n", file);
    r.saved = json_object();
    r.watches = json_object();
    for (; run && r.step < json_array_size(steps); r.step++) {
        r.what = json_array_get(steps, r.step);
        cases_step(&r);
    }
    while (r.n_open)
        server->close(server->ctx, r.open[--r.n_open]);
    json_decref(r.saved);
    json_decref(r.watches);
    json_decref(steps);
    return run;
}

/* -- all cases -- */

static inline int cases_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of all case files in order. New; release with cases_free. */
static inline char **cases_files(size_t *n)
{
    char **files = NULL;
    size_t cap = 0;
    DIR *dir = opendir(CASES_DIR);
    struct dirent *e;
    *n = 0;
    while (dir && (e = readdir(dir))) {
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 5, ".json") != 0)
            continue;
        MEM_GROW(files, cap, *n + 1);
        files[(*n)++] = xasprintf(CASES_DIR "/%s", e->d_name);
    }
    if (dir)
        closedir(dir);
    if (*n)
        qsort(files, *n, sizeof *files, cases_by_name);
    return files;
}

static inline void cases_free(char **files, size_t n)
{
    while (n)
        free(files[--n]);
    free(files);
}
