/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e/gangs.h"

#include "lib/cluster.h"
#include "lib/gang_body.h"

enum { SIZE = 4 }; /* members of each of the 50 gangs */

static void start_extender(void)
{
    cluster_start_with("gpushare-extender", ARGV("--filter-answer=best"));
    extender_wait_answers(&cluster.extender);
}

/* Creates the gang and its members NAME-0, NAME-1, ... of 10 GiB, of which the object asks
 * for `minimum` at once. */
static void create(const struct gangs *g, const char *name, int members, int minimum)
{
    if (g->objects)
        cluster_create(g->objects, "%s", g->object(name, minimum));
    for (int i = 0; i < members; i++)
        cluster_create_pod(lib_fmt("%s-%d", name, i), 10,
                           g->metadata ? g->metadata(name) : "", g->spec(name));
}

static void end(const struct gangs *g, const char *name, int members)
{
    for (int i = 0; i < members; i++)
        cluster_delete(lib_fmt(CLUSTER_PODS "/%s-%d", name, i));
    if (g->objects)
        cluster_delete(lib_fmt("%s/%s", g->objects, name));
}

/* Creates it on two nodes with a card each. The extender has to know all members before it is
 * asked about the first. */
static void begin(const struct gangs *g, const char *name, int minimum)
{
    start_extender();
    cluster_add_node("n1", "", CARDS(16276));
    cluster_add_node("n2", "", CARDS(16276));
    cluster_stop(g->scheduler, "TERM");
    create(g, name, 3, minimum);
    lib_wait(cluster_knows_pending());
    cluster_start(g->scheduler);
}

/* Waits until one of the members of train is refused with the text. kube-scheduler 1.37 judges
 * the members in one cycle, which ends with the first that cannot start; the others do not get
 * its reason. */
static void wait_refused(const char *text)
{
    lib_wait_saying(cluster_is_refused("train-0", text) ||
                        cluster_is_refused("train-1", text) ||
                        cluster_is_refused("train-2", text),
                    "no member of train is refused with \"%s\"", text);
}

void gangs_wait_for_a_third_card(const struct gangs *g)
{
    begin(g, "train", 3);
    wait_refused("gang train: 1 of 3 members finds no place beside the others; needs "
                 "10240 MiB on one card");
    cluster_create_pod("other", 10, "", ""); /* nothing is kept for the gang */
    cluster_wait_running("other");
    cluster_add_node("n3", "", CARDS(16276));
    wait_refused("gang train: 1 of 3 members finds no place");
    cluster_delete(CLUSTER_PODS "/other");
    for (int i = 0; i < 3; i++)
        cluster_wait_running(lib_fmt("train-%d", i));
    end(g, "train", 3);
    cluster_delete_pods();
    cluster_agrees();
}

void gangs_of_three_start_two(const struct gangs *g, const char *name, int minimum)
{
    begin(g, name, minimum);
    lib_wait(json_array_size(
                 cluster_list(CLUSTER_PODS "?fieldSelector=spec.nodeName%21%3D")) == 2);
    end(g, name, 3);
    cluster_delete_pods();
    cluster_agrees();
}

/* Reads the number of bound pods of each gang "gNN". Are so many gangs bound, and none in
 * part? Adds to *half_ms for how long some gang has been bound in part since the last call. */
static bool are_bound(int *bound, int gangs, int full, int64_t *last, int64_t *half_ms)
{
    int whole = 0, half = 0, gang;
    int64_t now = lib_now_ms();
    json_t *pod;
    memset(bound, 0, (size_t)gangs * sizeof *bound);
    lib_each(pod, cluster_list(CLUSTER_PODS))
        if (sscanf(lib_str(pod, "metadata.name"), "g%d-", &gang) == 1 && gang < gangs)
            bound[gang] += *lib_str(pod, "spec.nodeName") != '\0';
    for (int i = 0; i < gangs; i++) {
        whole += bound[i] == SIZE;
        half += bound[i] > 0 && bound[i] < SIZE;
    }
    *half_ms += half ? now - *last : 0;
    *last = now;
    return whole == full && !half;
}

void gangs_use_every_card(const struct gangs *g)
{
    enum { NODES = 10, GANGS = 50, AT_ONCE = NODES };
    int bound[GANGS], left = GANGS;
    bool done[GANGS] = {false};
    int64_t begun = lib_now_ms(), half_ms = 0, last;
    start_extender();
    for (int i = 0; i < NODES; i++)
        cluster_add_node(lib_fmt("n%d", i), "", CARDS(16276, 16276, 16276, 16276));
    for (int i = 0; i < GANGS; i++)
        create(g, lib_fmt("g%d", i), SIZE, SIZE);
    while (left > 0) {
        int full = left < AT_ONCE ? left : AT_ONCE;
        last = lib_now_ms();
        lib_wait_saying(are_bound(bound, GANGS, full, &last, &half_ms),
                        "not exactly %d gangs are bound", full);
        cluster_agrees();
        for (int i = 0; i < GANGS; i++) {
            if (bound[i] == 0 || done[i])
                continue;
            end(g, lib_fmt("g%d", i), SIZE);
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
    const char *body;
    for (size_t i = 0; (body = gang_body(i)); i++)
        peer_do(&cluster.extender.verbs, "POST", "/gpushare-scheduler/filter", body);
}
