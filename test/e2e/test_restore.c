/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdatomic.h>

#include "e2e/daemon.h"
#include "lib/agent.h"
#include "lib/backup.h"
#include "lib/cluster.h"
#include "lib/plugin.h"

/*
 * etcd is restored from a snapshot while three extenders, scv-agent, the device plugin and
 * `kubectl inspect gpushare --serve` run. kube-scheduler, kube-controller-manager and kwok are
 * restarted, as the documents of Kubernetes ask for. The test acts as the kubelet of n1.
 *
 *           card 0           card 1 in the snapshot     card 1 at the end
 *     n1    kept-1: 12 GiB   -                          late-1: 12 GiB, in the kubelet
 *     n2    kept-2: 12 GiB   goes-2: 12 GiB             -
 *     n3    kept-3: 12 GiB   goes-3: 12 GiB             late-3: 12 GiB
 *
 * The pods waits, flight and greedy are pending in the snapshot. waits is bound afterwards.
 * flight is being bound when etcd ends. greedy fits on n2 only until the restore.
 */

#define PODS CLUSTER_PODS

enum { REPLICAS = 3, NODES = 3, BIG = 12, VERSIONS = 500, LIMIT_MS = 60 * 1000 };

static struct extender replicas[REPLICAS];
static size_t logged[REPLICAS]; /* length of the log before the test */
static struct agent agent;
static struct kubelet kubelet;
static struct plugin plugin;
static struct program page;

static const char *replica_name(size_t i)
{
    return i ? lib_fmt("gpushare-extender-%zu", i + 1) : "gpushare-extender";
}

/* -- pods -- */

static const char *name_on(const char *what, int node)
{
    return lib_fmt("%s-%d", what, node);
}

/* By kube-scheduler. */
static void create_on(const char *what, int node, int units)
{
    cluster_create_pod(
        name_on(what, node), units, "",
        lib_fmt(",\"nodeSelector\":{\"kubernetes.io/hostname\":\"n%d\"}", node));
}

static void run_on(const char *what, int node)
{
    create_on(what, node, BIG);
    cluster_wait_running(name_on(what, node));
}

static bool new_pods_are_bound(void)
{
    for (int i = 1; i <= NODES; i++)
        if (!cluster_bound(name_on("new", i)))
            return false;
    return true;
}

/* The kubelet starts the container, on the card of the promise. */
static void start_container(const char *pod, int units)
{
    struct kubelet_answer a = {0};
    kubelet_add(&kubelet, pod, ARGV("c"));
    lib_wait((kubelet_answer_fini(&a), kubelet_serve(&kubelet),
              kubelet_admit(&kubelet, pod, "c", MEM, units, &a), a.status == GRPC_OK));
    ck_assert_at(a.env, "NVIDIA_VISIBLE_DEVICES",
                 lib_annotation(cluster_pod(pod), "gpushare/card-uuid"));
    kubelet_answer_fini(&a);
}

static bool is_assigned(const char *pod)
{
    return strcmp(lib_annotation(cluster_pod(pod), "ALIYUN_COM_GPU_MEM_ASSIGNED"),
                  "true") == 0;
}

/* -- binds without kube-scheduler -- */

struct question {
    const struct extender *extender;
    const char *pod, *uid, *node;
    atomic_int yes, lies;
};

static atomic_bool stop_asking;

static void ask_about(struct question *q, const char *pod, const char *node,
                      const struct extender *e)
{
    *q = (struct question){.extender = e, .pod = pod, .node = node};
    q->uid = lib_str(cluster_pod(pod), "metadata.uid");
    ck_assert_at(cluster_pod(pod), "spec.nodeName", "");
}

static bool api_shows_bound(const struct question *q)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *path = xasprintf(PODS "/%s", q->pod);
    while (peer_call(&cluster.api, "GET", path, NULL, &reply) != 200)
        lib_pause();
    cleanup_json json_t *pod = json_loadb(reply.p, reply.n, 0, NULL);
    return strcmp(lib_str(pod, "metadata.uid"), q->uid) == 0 &&
           strcmp(lib_str(pod, "spec.nodeName"), q->node) == 0;
}

/* After etcd has ended, a yes is about what the restored API server shows. */
static void ask(struct question *q)
{
    cleanup_buf struct buf reply = {0};
    cleanup_free char *body =
        xasprintf("{\"PodName\":\"%s\",\"PodNamespace\":\"default\",\"PodUID\":\"%s\","
                  "\"Node\":\"%s\"}",
                  q->pod, q->uid, q->node);
    unsigned status =
        peer_call(&q->extender->verbs, "POST", "/gpushare-scheduler/bind", body, &reply);
    cleanup_json json_t *answer = json_loadb(reply.p, reply.n, 0, NULL);
    if (status != 200 || !answer || *lib_str(answer, "Error"))
        return;
    atomic_fetch_add(&q->lies, !api_shows_bound(q));
    atomic_fetch_add(&q->yes, 1);
}

static void *ask_once(void *q)
{
    ask(q);
    return NULL;
}

static void *ask_again(void *q)
{
    while (!atomic_load(&stop_asking)) {
        ask(q);
        lib_pause();
    }
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), struct question *q)
{
    ck_assert_int_eq(pthread_create(thread, NULL, run, q), 0);
}

static json_int_t binds_in_flight(const struct extender *e)
{
    return lib_int(peer_get(&e->observers, "/inspect"), "bindsInFlight");
}

/* -- the programs -- */

/* Card 1 of n1, where late-1 runs. */
static void set_used(long long gib)
{
    agent_cards("{'uuid':'GPU-0','model':'Tesla T4','memoryTotal':16106127360,"
                "'memoryReserved':0,'memoryUsed':0},{'uuid':'GPU-1','model':'Tesla T4',"
                "'memoryTotal':16106127360,'memoryReserved':0,'memoryUsed':%lld}",
                gib << 30);
}

static void start_node_programs(void)
{
    set_used(0);
    cluster_create_node("n1", GPU_NODE, CARDS(15360, 15360));
    kubelet_start(&kubelet);
    agent_start_at(&agent, daemon_kubeconfig("gpushare-device-plugin", NULL), NULL,
                   ARGV("--lease-renew", "1s", "--lease-grace", "4s"));
    plugin_start_at(&plugin, daemon_kubeconfig("gpushare-device-plugin", NULL), NULL);
    cluster_await_node("n1");
    kubelet_wait_registered(&kubelet, -1);
}

/* kubectl inspect gpushare --check. The Service of the extenders has no endpoint here, which is
 * a difference, too. */
static char *check(void)
{
    const char *self = lib_built("kubectl-inspect-gpushare");
    return lib_output(
        2, ARGV("env",
                lib_fmt("PATH=%.*s:%s", (int)(strrchr(self, '/') - self), self,
                        getenv("PATH")),
                lib_fmt("KUBECONFIG=%s/admin.kubeconfig", cluster.dir),
                cluster_program("kubectl"), "inspect", "gpushare", "--check",
                lib_fmt("--extender=http://127.0.0.1:%u", replicas[0].observers.port)));
}

/* What the page of --serve shows. */
static char *page_shows(void)
{
    struct span rest = span_of(strstr(program_output(&page), "http://"));
    struct span url = span_cut(&rest, '\n');
    return lib_output(
        0, ARGV("curl", "-sS", "--noproxy", "*", lib_fmt("%.*sinspect", SPAN_ARG(url))));
}

static void start_page(void)
{
    lib_program(&page, "kubectl-inspect-gpushare",
                ARGV("--kubeconfig", lib_fmt("%s/admin.kubeconfig", cluster.dir)),
                ARGV("--serve"));
    ck_assert(program_wait_output(&page, "Ctrl-C ends it.\n"));
}

static const struct extender *leader(void)
{
    for (size_t i = 0; i < REPLICAS; i++)
        if (extender_leads(&replicas[i]))
            return &replicas[i];
    return NULL;
}

/* -- the steps -- */

static void set_up(void)
{
    for (size_t i = 0; i < REPLICAS; i++) {
        cluster_extender(replica_name(i), &replicas[i]);
        extender_wait_answers(&replicas[i]);
        logged[i] = strlen(cluster_file(lib_fmt("log/%s.log", replica_name(i))));
    }
    start_node_programs();
    cluster_add_node("n2", "", CARDS(15360, 15360));
    cluster_add_node("n3", "", CARDS(15360, 15360));
    start_page();
    for (int i = 1; i <= NODES; i++)
        run_on("kept", i);
    start_container("kept-1", BIG);
    lib_wait(is_assigned("kept-1"));
    run_on("goes", 2);
    run_on("goes", 3);
    cluster_create_pod("waits", 2, "", SCHEDULER("nobody"));
    cluster_create_pod("flight", 2, "", SCHEDULER("nobody"));
    cluster_create_pod("greedy", BIG, "", SCHEDULER("nobody"));
    lib_wait(cluster_knows_pending());
}

static bool drifts(int64_t cards)
{
    for (size_t i = 0; i < REPLICAS; i++)
        if (extender_metric(&replicas[i], "gpushare_drift{kind=\"external-use\"}") !=
            cards)
            return false;
    return true;
}

/* What the snapshot lacks: as many versions as minutes of a cluster have. */
static void go_on(void)
{
    for (int i = 0; i < VERSIONS; i++)
        peer_do(&cluster.api, "PATCH", PODS "/kept-2",
                lib_fmt("{\"metadata\":{\"annotations\":{\"test/n\":\"%d\"}}}", i));
    cluster_delete(PODS "/goes-2");
    cluster_delete(PODS "/goes-3");
    run_on("late", 1);
    run_on("late", 3);
    start_container("late-1", BIG);
    set_used(BIG);
    lib_wait(is_assigned("late-1"));
    lib_wait(strstr(page_shows(), "\"late-1\""));
    for (size_t i = 0; i < REPLICAS; i++) {
        oracle_agrees(&cluster.api, &replicas[i]);
        lib_wait(lib_int(extender_node(&replicas[i], "n1"), "devs.1.usedMiB") ==
                 BIG * 1024);
    }
    lib_wait(drifts(0) && extender_promised(&replicas[0], "n2") == BIG);
}

/* From the end of etcd to new pods on every node. While they wait, no card is promised twice.
 * Returns when it began. */
static int64_t come_back(void)
{
    int64_t begun = lib_now_ms();
    backup_restore();
    cluster_report("until the restored API server is ready", lib_now_ms() - begun);
    for (int i = 1; i <= NODES; i++)
        create_on("new", i, 1);
    lib_wait_within(LIMIT_MS - (lib_now_ms() - begun),
                    (oracle_check(&cluster.api), new_pods_are_bound()),
                    "not every node has a new pod after %d s", LIMIT_MS / 1000);
    cluster_report("until every node has new pods", lib_now_ms() - begun);
    return begun;
}

/* The state is that of the snapshot, and each program shows it. */
static void check_all(void)
{
    ck_assert(cluster_is_gone("late-1") && cluster_is_gone("late-3"));
    ck_assert(cluster_bound("goes-2") && cluster_bound("goes-3"));
    ck_assert(!cluster_bound("greedy"));
    for (size_t i = 0; i < REPLICAS; i++) {
        ck_assert_contains(cluster_file(lib_fmt("log/%s.log", replica_name(i))) +
                               logged[i],
                           "the API server has an older state than before");
        oracle_agrees(&cluster.api, &replicas[i]);
    }
    const char *shown;
    lib_wait((shown = page_shows(), !strstr(shown, "\"late-") &&
                                        strstr(shown, "\"goes-2\"") &&
                                        strstr(shown, "\"new-1\"")));
}

/* The kubelet of n1 still runs late-1, of which the API knows nothing. */
static void check_drift(void)
{
    lib_wait(drifts(1));
    ck_assert_contains(check(), "n1: GPU1: processes outside Kubernetes use");
    start_container("new-1", 1);
    lib_wait(is_assigned("new-1"));
    kubelet_remove(&kubelet, "late-1");
    set_used(0);
    lib_wait(drifts(0));
    ck_assert_lacks(check(), "n1: GPU");
}

static void tear_down(void)
{
    program_stop(&page);
    agent_stop(&agent);
    plugin_stop(&plugin);
    kubelet_fini(&kubelet);
}

/* -- the tests -- */

/* etcd and kube-apiserver are killed: the leader may bind for a moment afterwards. */
TEST(a_restore_while_binds_are_in_flight)
{
    struct question waits[REPLICAS], greedy[REPLICAS], flight;
    pthread_t threads[2 * REPLICAS + 1];
    set_up();
    for (size_t i = 0; i < REPLICAS; i++) {
        ask_about(&waits[i], "waits", "n2", &replicas[i]);
        ask_about(&greedy[i], "greedy", "n2", &replicas[i]);
    }
    ask_about(&flight, "flight", "n3", NULL);
    backup_save();
    go_on();
    lib_wait((ask(&waits[0]), waits[0].yes)); /* pending in the snapshot */
    waits[0].yes = 0;

    lib_wait((flight.extender = leader()) != NULL);
    kill(cluster_pid("etcd"), SIGSTOP);
    start(&threads[0], ask_once, &flight);
    lib_wait(binds_in_flight(flight.extender) == 1);
    cluster_stop("etcd", "KILL");
    for (size_t i = 0; i < REPLICAS; i++) {
        start(&threads[1 + 2 * i], ask_again, &waits[i]);
        start(&threads[2 + 2 * i], ask_again, &greedy[i]);
    }
    int64_t begun = come_back();
    for (size_t i = 0; i < REPLICAS; i++)
        lib_wait(waits[i].yes);
    cluster_report("until all extenders say yes", lib_now_ms() - begun);
    atomic_store(&stop_asking, true);
    array_items(thread, threads)
        pthread_join(*thread, NULL);
    for (size_t i = 0; i < REPLICAS; i++) {
        ck_assert_int_eq(waits[i].lies, 0);
        ck_assert_int_eq(greedy[i].yes, 0);
    }
    ck_assert_int_eq(flight.lies, 0);
    check_all();
    check_drift();
    tear_down();
}

/* kube-apiserver ends the watches of all programs without an error. */
TEST(a_restore_after_an_orderly_stop)
{
    set_up();
    backup_save();
    go_on();
    cluster_stop("kube-apiserver", "TERM");
    cluster_stop("etcd", "TERM");
    come_back();
    check_all();
    check_drift();
    tear_down();
}

CLUSTER_MAIN(200, "--extenders", "3")
