/* SPDX-License-Identifier: Apache-2.0 */
#include "extender/event_forged.h"

#include <stdlib.h>

#include "base/mem.h"

/* A pod with a difference. Pods without one are forgotten at the end of a scan. */
struct known_pod {
    struct span uid, ns, name; /* in `strings` */
    char *strings;             /* owned */
    struct buf text;           /* what differs */
    int64_t since_ms;          /* last change of the text */
    int64_t wait_ms;           /* the text is reported this long after `since_ms` */
    int64_t again_ms;          /* earliest next attempt */
    uint64_t scan;
    bool reported;
    struct known_pod *next;
};

struct event_forged {
    struct map by_uid;
    struct known_pod *pods;
    uint64_t scan; /* number of the current one */
    struct event_forged_scan now;
    struct buf text; /* of the pod being scanned */
};

struct event_forged *event_forged_new(uint64_t seed)
{
    struct event_forged *f = xcalloc(1, sizeof *f);
    map_init(&f->by_uid, seed, offsetof(struct known_pod, uid));
    return f;
}

static void pod_free(struct known_pod *pod)
{
    free(pod->strings);
    buf_fini(&pod->text);
    free(pod);
}

void event_forged_free(struct event_forged *f)
{
    if (!f)
        return;
    for (struct known_pod *pod = f->pods, *next; pod; pod = next) {
        next = pod->next;
        pod_free(pod);
    }
    map_fini(&f->by_uid);
    buf_fini(&f->text);
    free(f);
}

void event_forged_begin(struct event_forged *f, const struct event_forged_scan *scan)
{
    f->scan++;
    f->now = *scan;
}

static struct known_pod *pod_of(struct event_forged *f, const struct ledger_pod *pod)
{
    struct known_pod *known = map_get(&f->by_uid, pod->uid);
    cleanup_buf struct buf strings = {0};
    if (known)
        return known;
    buf_add_span(&strings, pod->uid);
    buf_add_span(&strings, pod->ns);
    buf_add_span(&strings, pod->name);
    known = xcalloc(1, sizeof *known);
    known->strings = xmemdup0(strings.p, strings.n);
    known->uid = (struct span){known->strings, pod->uid.n};
    known->ns = (struct span){known->uid.p + pod->uid.n, pod->ns.n};
    known->name = (struct span){known->ns.p + pod->ns.n, pod->name.n};
    known->next = f->pods;
    f->pods = known;
    map_set(&f->by_uid, known);
    return known;
}

static void take_pod(struct event_forged *f, const struct ledger_node *node,
                     const struct ledger_pod *pod)
{
    bool only_cards;
    buf_clear(&f->text);
    if (!ledger_pod_is_forged(node, pod, &f->text, &only_cards))
        return;
    struct known_pod *known = pod_of(f, pod);
    known->scan = f->scan;
    if (span_eq(buf_span(&known->text), buf_span(&f->text)))
        return;
    buf_clear(&known->text);
    buf_add_span(&known->text, buf_span(&f->text));
    known->since_ms = f->now.now_ms;
    known->wait_ms = only_cards ? EVENT_FORGED_CARDS_MS : 0;
    known->again_ms = INT64_MIN;
    known->reported = false;
}

void event_forged_node(struct event_forged *f, const struct ledger_node *node)
{
    for (const struct ledger_pod *pod = node->pods; pod; pod = pod->next)
        take_pod(f, node, pod);
}

static void report(const struct event_forged *f, struct known_pod *pod)
{
    struct event event = {.kind = EVENT_POD,
                          .ns = pod->ns,
                          .name = pod->name,
                          .uid = pod->uid,
                          .warning = true,
                          .reason = "GPUPromiseDiffers",
                          .action = "WatchingPromises",
                          .note = buf_span(&pod->text)};
    if (f->now.now_ms < pod->since_ms + pod->wait_ms || f->now.now_ms < pod->again_ms)
        return;
    pod->reported = event_recorder_add(f->now.recorder, &event);
    pod->again_ms = f->now.now_ms + EVENT_FORGED_AGAIN_MS;
}

bool event_forged_end(struct event_forged *f)
{
    bool left = false;
    for (struct known_pod **at = &f->pods; *at;) {
        struct known_pod *pod = *at;
        if (pod->scan != f->scan) {
            *at = pod->next;
            map_remove(&f->by_uid, pod->uid);
            pod_free(pod);
            continue;
        }
        if (f->now.recorder && !pod->reported)
            report(f, pod);
        else if (!f->now.recorder && f->now.led_ms > 0 &&
                 pod->since_ms + pod->wait_ms <= f->now.led_ms - EVENT_FORGED_OTHER_MS)
            pod->reported = true;
        left |= !pod->reported;
        at = &pod->next;
    }
    return left;
}
