/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/gangs.h"

#include <string.h>

#include "base/mem.h"
#include "lib/cluster.h"
#include "lib/gang_body.h"

enum {
    SIZE = 4, /* members of each of the 50 gangs */
    WAIT_MS = 60000,
};

static void start_extender(void)
{
    cluster_start_with("gpushare-extender", ARGV("--filter-answer=best"));
    extender_wait_answers(&cluster.extender);
}

/* Creates the gang and its members NAME-0, NAME-1, ... of 10 GiB, of which the object asks
 * for `minimum` at once. */
static void create_with(const struct gangs *g, const char *name, int members, int minimum)
{
    cleanup_free char *object = g->object(name, minimum);
    cleanup_free char *metadata = g->metadata(name);
    cleanup_free char *spec = g->spec(name);
    cluster_create(g->objects, "%s", object);
    for (int i = 0; i < members; i++) {
        cleanup_free char *pod = xasprintf("%s-%d", name, i);
        cluster_create_pod(pod, 10, metadata, spec);
    }
}

static void create(const struct gangs *g, const char *name, int members)
{
    create_with(g, name, members, members);
}

static void end(const struct gangs *g, const char *name, int members)
{
    for (int i = 0; i < members; i++) {
        cleanup_free char *pod = xasprintf(CLUSTER_PODS "/%s-%d", name, i);
        cluster_delete(pod);
    }
    cleanup_free char *object = xasprintf("%s/%s", g->objects, name);
    cluster_delete(object);
}

/* Waits until one of the members is refused with the text. kube-scheduler 1.37 judges the
 * members in one cycle, which ends with the first that cannot start; the others do not get
 * its reason. */
static void wait_refused(const char *name, int members, const char *text)
{
    int64_t end = lib_now_ms() + WAIT_MS;
    for (int i = 0;; i = (i + 1) % members) {
        cleanup_free char *pod = xasprintf("%s-%d", name, i);
        if (cluster_is_refused(pod, text))
            return;
        ck_assert_msg(lib_now_ms() < end, "no member of %s is refused with \"%s\"", name,
                      text);
        lib_pause();
    }
}

static void wait_running(const char *name, int members)
{
    for (int i = 0; i < members; i++) {
        cleanup_free char *pod = xasprintf("%s-%d", name, i);
        cluster_wait_running(pod);
    }
}

void gangs_wait_for_a_third_card(const struct gangs *g)
{
    start_extender();
    cluster_add_node("n1", NULL, NULL, CARDS(16276));
    cluster_add_node("n2", NULL, NULL, CARDS(16276));
    /* The extender has to know all members before it is asked about the first. */
    cluster_stop(g->scheduler, "TERM");
    create(g, "train", 3);
    lib_wait(cluster_knows_pending());
    cluster_start(g->scheduler);
    wait_refused("train", 3,
                 "gang train: 1 of 3 members finds no place beside the others; needs "
                 "10240 MiB on one card");
    cluster_create_pod("other", 10, "", ""); /* nothing is kept for the gang */
    cluster_wait_running("other");
    cluster_add_node("n3", NULL, NULL, CARDS(16276));
    wait_refused("train", 3, "gang train: 1 of 3 members finds no place");
    cluster_delete(CLUSTER_PODS "/other");
    wait_running("train", 3);
    end(g, "train", 3);
    cluster_delete_pods();
    cluster_agrees();
}

static int count_placed(void)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    int n = 0;
    json_t *pod;
    json_array_foreach(pods, i, pod) n += *lib_str(pod, "spec.nodeName") != '\0';
    return n;
}

void gangs_of_three_start_two(const struct gangs *g, const char *name)
{
    start_extender();
    cluster_add_node("n1", NULL, NULL, CARDS(16276));
    cluster_add_node("n2", NULL, NULL, CARDS(16276));
    cluster_stop(g->scheduler, "TERM");
    create_with(g, name, 3, 2);
    lib_wait(cluster_knows_pending());
    cluster_start(g->scheduler);
    lib_wait(count_placed() == 2);
    end(g, name, 3);
    cluster_delete_pods();
    cluster_agrees();
}

/* The number of bound pods of each gang "gNN". */
static void count_bound(int *bound, int gangs)
{
    cleanup_json json_t *pods = cluster_items(CLUSTER_PODS);
    size_t i;
    json_t *pod;
    memset(bound, 0, (size_t)gangs * sizeof *bound);
    json_array_foreach(pods, i, pod)
    {
        int gang = 0;
        if (sscanf(lib_str(pod, "metadata.name"), "g%d-", &gang) == 1 && gang < gangs)
            bound[gang] += *lib_str(pod, "spec.nodeName") != '\0';
    }
}

/* Waits until `full` gangs are bound and no other is bound in part. Returns for how long
 * some gang was bound in part, in ms. */
static int64_t wait_for_gangs(int *bound, int gangs, int full)
{
    int64_t end = lib_now_ms() + WAIT_MS, half_ms = 0, last = lib_now_ms();
    for (;;) {
        int whole = 0, half = 0;
        count_bound(bound, gangs);
        for (int i = 0; i < gangs; i++) {
            whole += bound[i] == SIZE;
            half += bound[i] > 0 && bound[i] < SIZE;
        }
        half_ms += half ? lib_now_ms() - last : 0;
        last = lib_now_ms();
        if (whole == full && !half)
            return half_ms;
        ck_assert_msg(last < end, "%d gangs are bound and %d in part, expected %d", whole,
                      half, full);
        lib_pause();
    }
}

void gangs_use_every_card(const struct gangs *g)
{
    enum { NODES = 10, GANGS = 50, AT_ONCE = NODES };
    int bound[GANGS], left = GANGS;
    bool done[GANGS] = {false};
    int64_t begun = lib_now_ms(), half_ms = 0;
    start_extender();
    for (int i = 0; i < NODES; i++) {
        cleanup_free char *node = xasprintf("n%d", i);
        cluster_add_node(node, NULL, NULL, CARDS(16276, 16276, 16276, 16276));
    }
    for (int i = 0; i < GANGS; i++) {
        cleanup_free char *name = xasprintf("g%d", i);
        create(g, name, SIZE);
    }
    while (left > 0) {
        half_ms += wait_for_gangs(bound, GANGS, left < AT_ONCE ? left : AT_ONCE);
        cluster_agrees();
        for (int i = 0; i < GANGS; i++) {
            cleanup_free char *name = xasprintf("g%d", i);
            if (bound[i] == 0 || done[i])
                continue;
            end(g, name, SIZE);
            done[i] = true;
            left--;
        }
    }
    cluster_report("50 gangs of four ran on 40 cards", lib_now_ms() - begun);
    cluster_report("meanwhile some gang was bound in part for", half_ms);
    cluster_agrees();
}

void gangs_filter_members(void)
{
    cleanup_buf struct buf body = {0};
    for (size_t i = 0; gang_body(&body, i); i++) {
        json_decref(peer_json(&cluster.extender.verbs, "POST",
                              "/gpushare-scheduler/filter", body.p));
        buf_clear(&body);
    }
}
