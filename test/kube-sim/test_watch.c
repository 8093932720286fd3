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
    json_t *seen; /* name -> object */
    char rv[24];  /* newest version received */
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
    char line[256];
    json_t *items, *byname = json_object(), *o;
    size_t i;
    snprintf(line, sizeof line, "GET /api/v1/pods?%s", w->selector);
    ck_assert_uint_eq(pure_call(api, 0, line, NULL, NULL, answer), 200);
    items = json_object_get(*answer, "items");
    json_array_foreach(items, i, o)
        json_object_set(byname, pure_str(o, "metadata", "name"), o);
    return byname;
}

static void watch_from_here(struct api *api, struct watcher *w)
{
    char path[256];
    snprintf(path, sizeof path, "/api/v1/pods?watch=1&resourceVersion=%s&%s", w->rv,
             w->selector);
    w->w = pure_watch(api, 0, path);
    w->woken = false;
    api_watch_on_ready(w->w, on_ready, w);
}

static void begin(struct api *api, struct watcher *w, const char *selector)
{
    json_t *answer;
    w->selector = selector;
    w->seen = list(api, w, &answer);
    snprintf(w->rv, sizeof w->rv, "%s", pure_str(answer, "metadata", "resourceVersion"));
    json_decref(answer);
    watch_from_here(api, w);
}

static void take(struct watcher *w, const char *line)
{
    json_t *event = json_loads(line, 0, NULL), *o = json_object_get(event, "object");
    const char *type = json_string_value(json_object_get(event, "type"));
    const char *name = pure_str(o, "metadata", "name");
    bool known = json_object_get(w->seen, name);
    snprintf(w->rv, sizeof w->rv, "%s", pure_str(o, "metadata", "resourceVersion"));
    ck_assert_msg(known == (strcmp(type, "ADDED") != 0), "%s of %s", type, name);
    json_object_del(o, "kind");
    json_object_del(o, "apiVersion");
    if (strcmp(type, "DELETED") == 0)
        json_object_del(w->seen, name);
    else
        json_object_set(w->seen, name, o);
    json_decref(event);
}

static void catch_up(struct watcher *w)
{
    cleanup_buf struct buf line = {0};
    size_t n = 0;
    while (api_watch_next(w->w, 0, &line) == 1) {
        take(w, line.p);
        buf_clear(&line);
        n++;
    }
    ck_assert_msg((n > 0) == w->woken, "%s: woken %d, %zu events", w->selector, w->woken,
                  n);
    w->woken = false;
}

static void compare(struct api *api, const struct watcher *w)
{
    json_t *answer, *now = list(api, w, &answer);
    if (!json_equal(now, w->seen)) {
        char *a = json_dumps(now, 0), *b = json_dumps(w->seen, 0);
        ck_abort_msg("%s\nlist:  %s\nwatch: %s", w->selector, a, b);
    }
    json_decref(now);
    json_decref(answer);
}

static void change(struct api *api, struct rng *rng)
{
    static const char *const patches[] = {
        "{\"metadata\":{\"labels\":{\"app\":\"a\"}}}",
        "{\"metadata\":{\"labels\":{\"app\":\"b\"}}}",
        "{\"metadata\":{\"labels\":{\"app\":null}}}",
        "{\"metadata\":{\"annotations\":{\"x\":\"y\"}}}",
    };
    char line[256], body[256];
    int pod = (int)rng_below(rng, PODS), patch = (int)rng_below(rng, 4);
    snprintf(line, sizeof line, "/api/v1/namespaces/default/pods/p%d", pod);
    char full[320];
    switch (rng_below(rng, 6)) {
    case 0:
        snprintf(body, sizeof body,
                 "{\"metadata\":{\"name\":\"p%d\"%s},\"spec\":{\"containers\":[{\"name\":"
                 "\"c\",\"image\":\"i\"}]}}",
                 pod, patch & 1 ? ",\"labels\":{\"app\":\"a\"}" : "");
        pure_call(api, 0, "POST /api/v1/namespaces/default/pods", NULL, body, NULL);
        break;
    case 1:
        snprintf(full, sizeof full, "POST %s/binding", line);
        snprintf(body, sizeof body,
                 "{\"metadata\":{\"name\":\"p%d\"},\"target\":{\"name\":"
                 "\"n%d\"}}",
                 pod, patch);
        pure_call(api, 0, full, NULL, body, NULL);
        break;
    case 2:
        snprintf(full, sizeof full, "PATCH %s/status", line);
        pure_call(api, 0, full, "application/merge-patch+json",
                  patch & 1 ? "{\"status\":{\"phase\":\"Failed\"}}"
                            : "{\"status\":{\"phase\":\"Running\"}}",
                  NULL);
        break;
    case 3:
        snprintf(full, sizeof full, "DELETE %s?gracePeriodSeconds=0", line);
        pure_call(api, 0, full, NULL, NULL, NULL);
        break;
    default:
        snprintf(full, sizeof full, "PATCH %s", line);
        pure_call(api, 0, full, "application/merge-patch+json", patches[patch], NULL);
    }
}

START_TEST(list_and_watch_give_the_same_state_as_a_list)
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
        /* Events before on_ready are available without a wake. */
        watchers[i].woken = false;
        cleanup_buf struct buf line = {0};
        while (api_watch_next(watchers[i].w, 0, &line) == 1) {
            take(&watchers[i], line.p);
            buf_clear(&line);
        }
        compare(api, &watchers[i]);
        api_watch_free(watchers[i].w);
        json_decref(watchers[i].seen);
    }
    api_free(api);
}

int main(void)
{
    const struct unit_loop tests[] = {{list_and_watch_give_the_same_state_as_a_list, 10}};
    return unit_run_loops("watch", tests, ARRAY_LEN(tests), 60);
}
