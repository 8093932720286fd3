/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "kube-sim/pure.h"

/*
 * A client that lists and then watches must always have the state that a new list would
 * return: for every selector, from every version, with any changes in between.
 */

enum { PODS = 12, STEPS = 300, WATCHERS = 8 };

static const char *const selectors[WATCHERS] = {
    "",
    "fieldSelector=spec.nodeName%3Dn1",
    "fieldSelector=status.phase!%3DFailed",
    "labelSelector=app",
    "labelSelector=app%3Da",
    "labelSelector=app!%3Da",
    "fieldSelector=spec.nodeName!%3D&labelSelector=!app",
    "fieldSelector=metadata.name%3Dp3",
};

struct watcher {
    const char *selector;
    struct api_watch *w;
    json_t *seen;   /* name -> object */
    const char *rv; /* newest version received */
    bool woken;
};

static void on_ready(void *ctx)
{
    struct watcher *w = ctx;
    ck_assert_msg(!w->woken, "woken twice");
    w->woken = true;
}

static json_t *list(struct api *api, const struct watcher *w, json_t **answer)
{
    json_t *byname = lib_own(json_object()), *o;
    *answer = pure_get(api, 0, lib_fmt("/api/v1/pods?%s", w->selector));
    lib_each(o, lib_at(*answer, "items"))
        json_object_set(byname, lib_str(o, "metadata.name"), o);
    return byname;
}

static void watch_from_here(struct api *api, struct watcher *w)
{
    w->w = pure_watch(
        api, 0,
        lib_fmt("/api/v1/pods?watch=1&resourceVersion=%s&%s", w->rv, w->selector));
    w->woken = false;
    api_watch_on_ready(w->w, on_ready, w);
}

static void begin(struct api *api, struct watcher *w, const char *selector)
{
    json_t *answer;
    w->selector = selector;
    w->seen = list(api, w, &answer);
    w->rv = lib_str(answer, "metadata.resourceVersion");
    watch_from_here(api, w);
}

static void take(struct watcher *w, const char *line)
{
    json_t *event = lib_parse(line, strlen(line)), *o = lib_at(event, "object");
    const char *type = lib_str(event, "type"), *name = lib_str(o, "metadata.name");
    bool known = json_object_get(w->seen, name);
    w->rv = lib_str(o, "metadata.resourceVersion");
    ck_assert_msg(known == (strcmp(type, "ADDED") != 0), "%s of %s", type, name);
    json_object_del(o, "kind");
    json_object_del(o, "apiVersion");
    if (strcmp(type, "DELETED") == 0)
        json_object_del(w->seen, name);
    else
        json_object_set(w->seen, name, o);
}

static size_t take_all(struct watcher *w)
{
    cleanup_buf struct buf line = {0};
    size_t n = 0;
    for (; api_watch_next(w->w, 0, &line) == 1; n++) {
        take(w, line.p);
        buf_clear(&line);
    }
    return n;
}

static void catch_up(struct watcher *w)
{
    size_t n = take_all(w);
    ck_assert_msg((n > 0) == w->woken, "%s: woken %d, %zu events", w->selector, w->woken,
                  n);
    w->woken = false;
}

static void compare(struct api *api, const struct watcher *w)
{
    json_t *answer, *now = list(api, w, &answer);
    ck_assert_msg(json_equal(now, w->seen), "%s\nlist:  %s\nwatch: %s", w->selector,
                  lib_text(now, ""), lib_text(w->seen, ""));
}

static void change(struct api *api, struct rng *rng)
{
    static const char *const patches[] = {
        "{\"metadata\":{\"labels\":{\"app\":\"a\"}}}",
        "{\"metadata\":{\"labels\":{\"app\":\"b\"}}}",
        "{\"metadata\":{\"labels\":{\"app\":null}}}",
        "{\"metadata\":{\"annotations\":{\"x\":\"y\"}}}",
    };
    static const char merge[] = "application/merge-patch+json",
                      pods[] = "/api/v1/namespaces/default/pods";
    int pod = (int)rng_below(rng, PODS), patch = (int)rng_below(rng, 4);
    switch (rng_below(rng, 6)) {
    case 0:
        pure_call(api, 0, lib_fmt("POST %s", pods), NULL,
                  lib_fmt("{\"metadata\":{\"name\":\"p%d\"%s},\"spec\":{\"containers\":[{"
                          "\"name\":\"c\",\"image\":\"i\"}]}}",
                          pod, patch & 1 ? ",\"labels\":{\"app\":\"a\"}" : ""),
                  NULL);
        break;
    case 1:
        pure_call(
            api, 0, lib_fmt("POST %s/p%d/binding", pods, pod), NULL,
            lib_fmt("{\"metadata\":{\"name\":\"p%d\"},\"target\":{\"name\":\"n%d\"}}",
                    pod, patch),
            NULL);
        break;
    case 2:
        pure_call(
            api, 0, lib_fmt("PATCH %s/p%d/status", pods, pod), merge,
            lib_fmt("{\"status\":{\"phase\":\"%s\"}}", patch & 1 ? "Failed" : "Running"),
            NULL);
        break;
    case 3:
        pure_call(api, 0, lib_fmt("DELETE %s/p%d?gracePeriodSeconds=0", pods, pod), NULL,
                  NULL, NULL);
        break;
    default:
        pure_call(api, 0, lib_fmt("PATCH %s/p%d", pods, pod), merge, patches[patch],
                  NULL);
    }
}

TEST_LOOP(list_and_watch_give_the_same_state_as_a_list, 10)
{
    struct api_config config = {.seed = 1};
    struct api *api = api_new(&config);
    struct watcher watchers[WATCHERS];
    struct rng rng;
    rng_init(&rng, (uint64_t)_i);
    for (int i = 0; i < WATCHERS; i++)
        begin(api, &watchers[i], selectors[i]);
    for (int step = 0; step < STEPS; step++) {
        change(api, &rng);
        struct watcher *w = &watchers[rng_below(&rng, WATCHERS)];
        catch_up(w);
        compare(api, w);
        if (rng_below(&rng, 10) ==
            0) { /* after a reset: continue from the last version */
            api_watch_free(w->w);
            watch_from_here(api, w);
        }
    }
    for (int i = 0; i < WATCHERS; i++) {
        take_all(&watchers[i]); /* events before on_ready are there without a wake */
        compare(api, &watchers[i]);
        api_watch_free(watchers[i].w);
    }
    api_free(api);
}
