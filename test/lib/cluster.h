/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/extender.h"
#include "lib/lib.h"
#include "lib/oracle.h"
#include "lib/peer.h"

/*
 * The cluster of a suite: the real control plane with our extender, which scripts/cluster
 * starts once for all tests of the suite. It ends with the suite's process, also when that
 * is killed. When a test fails, the logs stay in e2e-logs/SUITE of the build folder, and
 * the output names the folder. An error fails the test.
 */

struct cluster {
    const char *dir;          /* keys, kubeconfigs, logs: see scripts/cluster */
    struct peer api;          /* kube-apiserver, as admin */
    struct extender extender; /* its ports; scripts/cluster started the program */
};
extern struct cluster cluster;

/* Runs the tests. `up`: further options of `scripts/cluster up` (ends with NULL). Before each
 * test every program runs, and there are no pods, nodes or Scvs. With E2E_LOOPBACK=::1 in the
 * environment, the cluster is in a network of its own with IPv6 alone, where suites fail whose
 * subject has an address of IPv4: that of kubeadm's files, or of localhost. */
int cluster_run(double seconds, const char *const *up);
#define CLUSTER_MAIN(seconds, ...)                                                       \
    int main(void)                                                                       \
    {                                                                                    \
        return cluster_run(seconds, ARGV("--nodes", "0", ##__VA_ARGS__));                \
    }

/* Call before cluster_run to keep Nodes and Scvs between tests. */
void cluster_keep_nodes(void);
/* Call before cluster_run with `up` --empty or --bare: do not wait for an extender. */
void cluster_no_extender(void);

/* Runs scripts/cluster with these words (ends with NULL). */
void cluster_script(const char *const *words);
/* Ends a program of scripts/cluster with a signal ("TERM", "KILL"), or starts it again with
 * the same options. Does not wait until it answers. */
void cluster_stop(const char *program, const char *signal);
void cluster_start(const char *program);

/* Restarts it with further options (ends with NULL) for the rest of this test. */
void cluster_start_with(const char *program, const char *const *options);
/* With `up` --extenders N: connects to gpushare-extender, gpushare-extender-2, ... */
void cluster_extender(const char *program, struct extender *e);
/* Adds a program to the cluster, after ending a running one of this name. cluster_stop and
 * cluster_start work on it, and its log is log/NAME.log. */
void cluster_add_program(const char *name, const char *const *command);
/* Creates a client certificate with this subject, and DIR/NAME.kubeconfig. */
void cluster_add_user(const char *name, const char *subject);
bool cluster_runs(const char *program);

pid_t cluster_pid(const char *program);
/* How often the extender has logged the text since cluster_listen. */
void cluster_listen(void);
size_t cluster_logged(const char *text);

/* An Authorization header with a token that may see all views of an extender with HTTPS.
 * Once per test. Kept. */
char *cluster_viewer(void);

/* The Kubernetes release of the suite: E2E_K8S, or else the default of scripts/cluster. */
const char *cluster_release(void);

/* The content of a file of cluster.dir, kept. */
char *cluster_file(const char *name);
char *cluster_pki(const char *name); /* path of a key or certificate, kept */
/* The path of a Kubernetes program, kept. */
char *cluster_program(const char *name);
/* Runs it as admin; the arguments end with NULL, and it must exit with `status` (-1: any).
 * Returns its output, kept. */
char *cluster_tool(const char *program, int status, const char *const *args);
#define CHART                "manifests/chart"
#define cluster_kubectl(...) cluster_tool("kubectl", 0, ARGV(__VA_ARGS__))

/* Starts a further kube-scheduler with this configuration (a file) as DIR/USER.kubeconfig. Its
 * extender is ours, which listens on 127.0.0.1 without certificates. */
void cluster_scheduler(struct program *p, const char *config, const char *user);

/* A token of a service account of kube-system, bound to this pod unless it is NULL. Kept. */
char *cluster_token(const char *account, const char *pod);
/* A token of the pod of a DaemonSet on the node. `component`: its label, and the name of its
 * service account. Waits for the pod. Kept. */
char *cluster_token_of(const char *component, const char *node);

/* peer_metric of the pod of this component (its label, in kube-system) that nobody deletes,
 * through the API server's proxy. */
double cluster_pod_metric(const char *component, unsigned port, const char *sample);

/* A line for each object of the cluster, without events: kind, namespace/name, UID. Kept. */
char *cluster_everything(void);
/* The lines of a that are not in b, kept. */
const char *cluster_only_in(const char *a, const char *b);
/* Waits until every object is of `before` or begins with one of `stay` (ends with NULL), of each
 * of which there must be one. */
void cluster_wait_gone(const char *before, const char *const *stay);

/* The items of a list: new, and kept. */
json_t *cluster_items(const char *path);
json_t *cluster_list(const char *path);
/* Adds a Node, which kwok runs, and its Scv with cards of these sizes in MiB (ends with 0)
 * and UUIDs "GPU-<name>-<i>". `labels`: of the Node, each preceded by a comma, or "". Waits
 * until the Node is Ready and the extender knows its cards. */
void cluster_add_node(const char *name, const char *labels, const int *mib);
#define CARDS(...) ((const int[]){__VA_ARGS__, 0})

/* The steps of cluster_add_node: the Scv, the Node, and the wait. */
void cluster_create_scv(const char *name, const int *mib);
void cluster_set_health(const char *name, const int *mib,
                        const char *health); /* in the Scv */
void cluster_create_node(const char *name, const char *labels, const int *mib);
void cluster_await_node(const char *name);
bool cluster_node_is_ready(const char *name); /* Ready, and without taints */
/* The label of a node for which a test runs scv-agent or the device plugin. */
#define GPU_NODE ",\"gpushare\":\"true\""

/* Gives a user the rights of manifests/rbac-inspect.yaml. */
void cluster_allow_inspect(const char *user);
/* Creates an object from JSON. */
void cluster_create(const char *path, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Deletes the object with grace period 0. */
void cluster_delete(const char *path);
/* Creates a pod with one container that requests `units` of memory, or this amount of a
 * resource. `metadata` and `spec`: further members, each preceded by a comma, or "". */
void cluster_create_pod(const char *name, int units, const char *metadata,
                        const char *spec);
void cluster_create_asking(const char *name, const char *resource, int amount,
                           const char *metadata, const char *spec);
#define CLUSTER_PODS    "/api/v1/namespaces/default/pods"
#define SCHEDULER(name) ",\"schedulerName\":\"" name "\""
#define ON(node)        ",\"nodeSelector\":{\"kubernetes.io/hostname\":\"" node "\"}"
/* A pod of namespace default, kept. */
json_t *cluster_pod(const char *name);
bool cluster_bound(const char *name);   /* does it have a node? */
bool cluster_is_gone(const char *name); /* has the API server no such pod? */
/* How many Events of namespace default have a message that contains the text? `selector`: a
 * field selector, or "". */
size_t cluster_events(const char *selector, const char *text);
/* Creates a PriorityClass, unless there is one. `more`: further members, each preceded by a
 * comma, or "". */
void cluster_create_priority(const char *name, int value, const char *more);
/* The message of kube-scheduler for the pod; "": none. */
const char *cluster_condition(const json_t *pod);
/* Waits until the pod is Running. */
void cluster_wait_running(const char *name);
/* Has kube-scheduler written the text to the pod's condition and to an event? Fails if the
 * pod has a node. */
bool cluster_is_refused(const char *name, const char *text);
/* Waits until kube-scheduler has written the text to the pod's condition and to an event. */
void cluster_wait_refused(const char *name, const char *text);
/* Deletes all pods and waits until they are removed. */
void cluster_delete_pods(void);
/* Prints a measured time, which scripts/run-tests shows. */
void cluster_report(const char *what, int64_t ms);
/* Waits until annotations and inspect match, for some seconds. */
void cluster_agrees(void);
/* Does the extender know exactly the pending pods? */
bool cluster_knows_pending(void);
/* Fails unless exactly `units` are free on one card of the node. Asks the extender directly,
 * because kube-scheduler also counts node resources. */
void cluster_check_free(const char *node, int units);
/* Checks that the cluster settles: one more pod gets the expected card, and no promise
 * remains after all pods are deleted. */
void cluster_settle(void);
