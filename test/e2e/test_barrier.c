/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "e2e/gangs.h"
#include "lib/cluster.h"

/*
 * Gangs whose members have terms of their own, under kube-scheduler without any plugin for
 * gangs: only kube-scheduler knows on which nodes they may go. None starts in part, and none
 * keeps others from starting.
 */

enum {
    GIB = 10,                  /* of each member, on cards of 16,276 MiB */
    PART_MS = 5000,            /* for the Bindings of a gang ... */
    PART_LARGE_MS = 30 * 1000, /* ... of hundreds, on a busy machine */
    NEVER_MS = 25 * 1000,      /* a gang that must not start is watched for this long */
    MOST_MS = 150 * 1000,
};

#define EIGHT CARDS(16276, 16276, 16276, 16276, 16276, 16276, 16276, 16276)
/* Of a container: a node runs one of them. Of a pod: the same by another term. */
#define PORT ",\"ports\":[{\"containerPort\":2222,\"hostPort\":2222}]"
#define APART                                                                            \
    ",\"affinity\":{\"podAntiAffinity\":{\"requiredDuringSchedulingIgnored"              \
    "DuringExecution\":[{\"topologyKey\":\"kubernetes.io/hostname\",\"labelSelector\":"  \
    "{\"matchExpressions\":[{\"key\":\"scheduling.x-k8s.io/pod-group\",\"operator\":"    \
    "\"Exists\"}]}}]}}"

static char *of_gang(const char *name, int minimum)
{
    return lib_fmt(",\"labels\":{\"scheduling.x-k8s.io/pod-group\":\"%s\"},"
                   "\"annotations\":{\"gpushare/gang-minimum\":\"%d\"}",
                   name, minimum);
}

/* Creates the member NAME-I. `container` and `spec`: further members, each preceded by a
 * comma, or "". */
static void add(const char *name, int i, int minimum, const char *container,
                const char *spec)
{
    cluster_create(
        CLUSTER_PODS,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s-%d\""
        "%s},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\","
        "\"resources\":{\"limits\":{\"aliyun.com/gpu-mem\":\"%d\"}}%s}]%s}}",
        name, i, of_gang(name, minimum), GIB, container, spec);
}

static void add_nodes(int n, const int *cards)
{
    cluster_start_with("gpushare-extender", ARGV("--filter-answer=best"));
    extender_wait_answers(&cluster.extender);
    for (int i = 0; i < n; i++)
        cluster_add_node(lib_fmt("n%d", i), "", cards);
}

/* While kube-scheduler is paused, the extender gets to know all pods of a test. Then
 * kube-scheduler takes them in the order of their creation. */
static void pause_scheduler(void)
{
    lib_wait(cluster_pid("kube-scheduler") > 0);
    ck_assert_int_eq(kill(cluster_pid("kube-scheduler"), SIGSTOP), 0);
}

static int64_t resume_scheduler(void)
{
    lib_wait(cluster_knows_pending());
    ck_assert_int_eq(kill(cluster_pid("kube-scheduler"), SIGCONT), 0);
    return lib_now_ms();
}

/* What was seen of a gang. */
struct seen {
    const char *name;
    int size, bound;
    int64_t part_ms; /* since when it is bound in part; 0: it is not */
    int64_t longest; /* that it was */
};

/* Reads how many members of each gang are bound. Fails if one is bound in part for long. Returns
 * how many are bound completely. */
static int look(struct seen *gangs, int n)
{
    int64_t now = lib_now_ms();
    int whole = 0;
    json_t *pod;
    for (int i = 0; i < n; i++)
        gangs[i].bound = 0;
    lib_each(pod, cluster_list(CLUSTER_PODS "?fieldSelector=spec.nodeName%21%3D")) {
        struct span rest = span_of(lib_str(pod, "metadata.name"));
        struct span name = span_cut(&rest, '-');
        for (int i = 0; i < n; i++)
            gangs[i].bound += span_eq(name, span_of(gangs[i].name));
    }
    for (int i = 0; i < n; i++) {
        struct seen *g = &gangs[i];
        bool part = g->bound > 0 && g->bound < g->size;
        whole += g->bound == g->size;
        g->part_ms = !part ? 0 : g->part_ms ? g->part_ms : now;
        g->longest =
            part && now - g->part_ms > g->longest ? now - g->part_ms : g->longest;
        ck_assert_msg(!part || now - g->part_ms <
                                   (g->size > 64 ? PART_LARGE_MS : PART_MS) * LIB_SLOWER,
                      "%d of %d members of %s are bound, the others are not", g->bound,
                      g->size, g->name);
    }
    return whole;
}

/* Waits until all are bound. Returns the time since `begun`. */
static int64_t wait_whole(struct seen *gangs, int n, int64_t begun)
{
    lib_wait_within(MOST_MS * LIB_SLOWER, look(gangs, n) == n,
                    "%d of %d gangs have started", look(gangs, n), n);
    return lib_now_ms() - begun;
}

static bool none_until(struct seen *gangs, int n, int64_t until_ms)
{
    look(gangs, n);
    for (int i = 0; i < n; i++)
        ck_assert_msg(!gangs[i].bound, "%d of %d members of %s are bound", gangs[i].bound,
                      gangs[i].size, gangs[i].name);
    return lib_now_ms() >= until_ms;
}

static void expect_none(struct seen *gangs, int n, int64_t ms)
{
    int64_t until_ms = lib_now_ms() + ms;
    lib_wait_within(2 * ms * LIB_SLOWER, none_until(gangs, n, until_ms), "timeout");
}

static void end(const char *name, int size)
{
    for (int i = 0; i < size; i++)
        cluster_delete(lib_fmt(CLUSTER_PODS "/%s-%d", name, i));
}

/* Two gangs fit at a time. A gang that has started is done. */
TEST(six_interleaved_gangs_with_a_host_port_start_one_after_the_other)
{
    enum { NODES = 6, GANGS = 6, SIZE = 3 };
    struct seen gangs[GANGS] = {{.name = "a", .size = SIZE}, {.name = "b", .size = SIZE},
                                {.name = "c", .size = SIZE}, {.name = "d", .size = SIZE},
                                {.name = "e", .size = SIZE}, {.name = "f", .size = SIZE}};
    add_nodes(NODES, EIGHT);
    pause_scheduler();
    for (int i = 0; i < SIZE; i++)
        for (int g = 0; g < GANGS; g++)
            add(gangs[g].name, i, SIZE, PORT, "");
    int64_t begun = resume_scheduler();
    for (int left = GANGS; left > 0;) {
        lib_wait_within(MOST_MS * LIB_SLOWER, look(gangs, left) > 0,
                        "%d of %d gangs have started", GANGS - left, GANGS);
        if (left == GANGS)
            cluster_report("the first of six interleaved gangs of three started",
                           lib_now_ms() - begun);
        for (int g = 0; g < left;) {
            if (gangs[g].bound < SIZE) {
                g++;
                continue;
            }
            end(gangs[g].name, SIZE);
            gangs[g] = gangs[--left];
        }
    }
    cluster_report("all of six interleaved gangs of three started", lib_now_ms() - begun);
    cluster_settle();
}

/* The members of x that could start need nodes of a and b. */
TEST(two_gangs_start_beside_one_that_is_never_complete)
{
    enum { NODES = 6, SIZE = 3 };
    struct seen gangs[] = {{.name = "a", .size = SIZE},
                           {.name = "b", .size = SIZE},
                           {.name = "x", .size = SIZE}};
    add_nodes(NODES, EIGHT);
    pause_scheduler();
    for (int i = 0; i < SIZE; i++) {
        add("x", i, SIZE, PORT, i == SIZE - 1 ? ON("nowhere") : "");
        add("a", i, SIZE, PORT, "");
        add("b", i, SIZE, PORT, "");
    }
    int64_t begun = resume_scheduler();
    cluster_report("two gangs beside one that is never complete started",
                   wait_whole(gangs, 2, begun));
    expect_none(&gangs[2], 1, NEVER_MS);
    cluster_delete_pods();
    cluster_settle();
}

TEST(members_that_exclude_each_other_on_too_few_nodes_do_not_start)
{
    enum { NODES = 2, OTHERS = 4, SIZE = 3 };
    struct seen gang = {.name = "t", .size = SIZE};
    add_nodes(NODES, CARDS(16276, 16276));
    pause_scheduler();
    for (int i = 0; i < SIZE; i++)
        add("t", i, SIZE, "", APART);
    resume_scheduler();
    expect_none(&gang, 1, NEVER_MS);
    int64_t begun = lib_now_ms();
    for (int i = 0; i < OTHERS; i++) /* no card is kept for the gang for long */
        cluster_create_pod(lib_fmt("other%d", i), GIB, "", "");
    for (int i = 0; i < OTHERS; i++)
        cluster_wait_running(lib_fmt("other%d", i));
    cluster_report("pods took every card beside a gang without enough nodes",
                   lib_now_ms() - begun);
    for (int i = 0; i < OTHERS; i++)
        cluster_delete(lib_fmt(CLUSTER_PODS "/other%d", i));
    expect_none(&gang, 1, NEVER_MS / 2);
    cluster_add_node(lib_fmt("n%d", NODES), "", CARDS(16276, 16276));
    cluster_report("a gang started after the node that it lacked was added",
                   wait_whole(&gang, 1, lib_now_ms()));
    cluster_delete_pods();
    cluster_settle();
}

/* Each of the terms that only kube-scheduler knows: one member finds no node, or nobody may try. */
TEST(a_member_that_cannot_start_keeps_its_gang_back)
{
    enum { SIZE = 3, CASES = 4 };
    static const char *const lasts[CASES] = {
        ON("nowhere"),
        ON("full"),
        SCHEDULER("another"),
        ",\"schedulingGates\":[{\"name\":\"example.com/data\"}]",
    };
    struct seen gangs[CASES];
    add_nodes(3, EIGHT);
    cluster_add_node("full", "", CARDS(16276));
    cluster_create_pod("filler", 16276 / 1024, "", ON("full"));
    cluster_wait_running("filler");
    pause_scheduler();
    for (int g = 0; g < CASES; g++) {
        gangs[g] = (struct seen){.name = lib_fmt("g%d", g), .size = SIZE};
        for (int i = 0; i < SIZE; i++)
            add(gangs[g].name, i, SIZE, "", i == SIZE - 1 ? lasts[g] : "");
    }
    resume_scheduler();
    expect_none(gangs, CASES, NEVER_MS);
    int64_t begun = lib_now_ms();
    for (int g = 0; g < CASES; g++) { /* one that can start takes its place */
        cluster_delete(lib_fmt(CLUSTER_PODS "/%s-%d", gangs[g].name, SIZE - 1));
        add(gangs[g].name, SIZE, SIZE, "", "");
    }
    cluster_report("four gangs started after each got a member that can start",
                   wait_whole(gangs, CASES, begun));
    cluster_delete_pods();
    cluster_settle();
}

static void start_at_once(int nodes, int size)
{
    struct seen gang = {.name = "big", .size = size};
    add_nodes(nodes, EIGHT);
    pause_scheduler();
    for (int i = 0; i < size; i++)
        add("big", i, size, "", "");
    int64_t begun = resume_scheduler();
    cluster_report(lib_fmt("a gang of %d started", size), wait_whole(&gang, 1, begun));
    cluster_report("meanwhile it was bound in part for", gang.longest);
    cluster_delete_pods();
    cluster_settle();
}

TEST(sixty_four_members_start_at_once)
{
    start_at_once(8, 64);
}

TEST(two_hundred_and_fifty_six_members_start_at_once)
{
    start_at_once(32, 256);
}

static size_t count_bound(const char *prefix)
{
    size_t n = 0;
    json_t *pod;
    lib_each(pod, cluster_list(CLUSTER_PODS "?fieldSelector=spec.nodeName%21%3D"))
        n += strncmp(lib_str(pod, "metadata.name"), prefix, strlen(prefix)) == 0;
    return n;
}

/* As many binds as a gang can have wait for a member that nobody can place. */
TEST(others_are_bound_while_a_large_gang_waits)
{
    enum { SIZE = 256, OTHERS = 29 };
    struct seen gang = {.name = "big", .size = SIZE};
    add_nodes(36, EIGHT);
    pause_scheduler();
    for (int i = 0; i < SIZE; i++)
        add("big", i, SIZE, "", i == SIZE - 1 ? ON("nowhere") : "");
    int64_t begun = resume_scheduler();
    lib_wait(peer_metric(&cluster.extender.observers, "gpushare_http_requests_held") ==
             SIZE - 1);
    cluster_report("255 binds were held", lib_now_ms() - begun);
    begun = lib_now_ms();
    for (int i = 0; i < OTHERS; i++)
        cluster_create_pod(lib_fmt("other%d", i), GIB, "", "");
    lib_wait(count_bound("other") == OTHERS);
    cluster_report("29 pods were bound while 255 binds waited", lib_now_ms() - begun);
    expect_none(&gang, 1, NEVER_MS);
    cluster_delete_pods();
    cluster_settle();
}

/* Its callers have gone: the binds leave the barrier, and their pods are tried again. */
TEST(a_gang_starts_after_kube_scheduler_was_killed_while_its_binds_waited)
{
    enum { SIZE = 4 };
    struct seen gang = {.name = "t", .size = SIZE};
    add_nodes(2, EIGHT);
    for (int i = 0; i < SIZE; i++)
        add("t", i, SIZE, "", i == SIZE - 1 ? ON("late") : "");
    lib_wait(peer_metric(&cluster.extender.observers, "gpushare_http_requests_held") ==
             SIZE - 1);
    cluster_stop("kube-scheduler", "KILL");
    int64_t begun = lib_now_ms();
    lib_wait(peer_metric(&cluster.extender.observers, "gpushare_http_requests_held") ==
             0);
    cluster_report("held binds ended after kube-scheduler was killed",
                   lib_now_ms() - begun);
    cluster_add_node("late", "", EIGHT);
    cluster_start("kube-scheduler");
    cluster_report("the gang started after that", wait_whole(&gang, 1, lib_now_ms()));
    cluster_delete_pods();
    cluster_settle();
}

static char *of_four(const char *name)
{
    return of_gang(name, 4);
}

static char *no_spec(const char *name)
{
    (void)name;
    return lib_fmt("%s", "");
}

static const struct gangs plain = {.metadata = of_four, .spec = no_spec};

TEST(fifty_gangs_of_four_use_every_card)
{
    gangs_use_every_card(&plain);
}

CLUSTER_MAIN(300)
