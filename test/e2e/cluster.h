/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/extender.h"
#include "kit/kit.h"
#include "kit/oracle.h"
#include "kit/peer.h"

/*
 * The cluster of a suite: the real control plane with the extender, as scripts/cluster
 * starts it, once for all tests of the suite. It stops when the process of the suite
 * ends, for any reason. When a test fails, the logs of its programs stay in
 * e2e-logs/SUITE of the build folder, and the output names that folder. Every error here
 * fails the test.
 */

struct cluster {
    const char *dir;          /* keys, kubeconfigs, logs: see scripts/cluster */
    struct peer api;          /* kube-apiserver, as admin */
    struct extender extender; /* its ports; scripts/cluster owns the program */
};
extern struct cluster cluster;

/* Runs the tests (with E2E_TEST set, those whose name contains it). `up` lists further
 * options of `scripts/cluster up` and ends with NULL. At the start of each test, every
 * program runs, and there are no pods, nodes and Scvs. */
int cluster_run(const char *name, const TTest *const *tests, size_t n, double seconds,
                const char *const *up);
#define CLUSTER_MAIN(name, seconds, up, ...)                                             \
    int main(void)                                                                       \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        return cluster_run(name, tests, sizeof tests / sizeof *tests, seconds, up);      \
    }

/* Before cluster_run: Nodes and Scvs stay between tests. */
void cluster_keep_nodes(void);
/* Before cluster_run with `up` of --empty or --bare: does not wait for an extender. */
void cluster_bring_no_extender(void);
/* Then, in a test: sets cluster.extender to the program on this port, which is also the
 * observe port. */
void cluster_extender_at(unsigned port);

/* `scripts/cluster VERB`: stops a program with a signal ("TERM", "KILL"), or starts it
 * again with its options. It may need a while to answer. */
void cluster_stop(const char *program, const char *signal);
void cluster_start(const char *program);

/* Restarts it with further options (ends with NULL), for this test. */
void cluster_start_with(const char *program, const char *const *options);
/* With `up` of --extenders N: the programs gpushare-extender, gpushare-extender-2, ...
 * Fills in the ports; release `verbs` and `observers` with peer_fini. */
void cluster_extender(const char *program, struct extender *e);
/* Runs one more program; a running program of this name is stopped first. It stops with
 * the cluster, can be stopped and started as above, and its log is log/NAME.log. */
void cluster_add_program(const char *name, const char *const *command);
/* Creates a certificate of that subject, and DIR/NAME.kubeconfig. */
void cluster_add_user(const char *name, const char *subject);
bool cluster_runs(const char *program);

pid_t cluster_pid(const char *program);
/* The number of lines with this text in the log of the extender since cluster_listen. */
void cluster_listen(void);
size_t cluster_heard(const char *text);

/* The path of one of Kubernetes' programs, new. */
char *cluster_program(const char *name);

/* Runs kubectl as admin; the arguments end with NULL. Fails unless its exit status is 0.
 * Returns its output, new. */
char *cluster_kubectl(const char *const *args);

/* A token of the pod on the node of the DaemonSet with this component label, which is
 * also the name of its ServiceAccount. Waits for the pod. New. */
char *cluster_token_of(const char *component, const char *node);

/* Whether the non-terminating pod with this component label in kube-system answers 200,
 * through the proxy of the API server. The body replaces *reply. */
bool cluster_pod_says(const char *component, unsigned port, const char *path,
                      struct buf *reply);

/* The items of a list, new. */
json_t *cluster_items(const char *path);
/* Adds a Node that kwok runs and its Scv, with cards of these sizes in MiB (ends with 0)
 * and UUIDs "GPU-<name>-<i>"; `label`: of the Node, or NULL. Waits until the Node is
 * Ready and the extender knows its cards. */
void cluster_add_node(const char *name, const char *label, const char *value,
                      const int *mib);
#define CARDS(...) ((const int[]){__VA_ARGS__, 0})

/* The same in steps: its Scv, the Node without an Scv, both; and the wait. */
void cluster_create_scv(const char *name, const int *mib);
void cluster_create_bare_node(const char *name, const char *label, const char *value,
                              const int *mib);
void cluster_create_node(const char *name, const char *label, const char *value,
                         const int *mib);
void cluster_await_node(const char *name);

/* Creates an object from a JSON format string. */
void cluster_create(const char *path, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Deletes the object without a grace period. */
void cluster_delete(const char *path);
/* Creates a pod with one container that requests this many units; further fields of
 * metadata and spec, each with a leading comma, or "". */
void cluster_create_pod(const char *name, int units, const char *metadata,
                        const char *spec);
#define CLUSTER_PODS    "/api/v1/namespaces/default/pods"
#define SCHEDULER(name) ",\"schedulerName\":\"" name "\""
#define ON(node)        ",\"nodeSelector\":{\"kubernetes.io/hostname\":\"" node "\"}"
/* A pod of namespace default, new. */
json_t *cluster_pod(const char *name);
bool cluster_bound(const char *name); /* whether the pod has a node */
/* Waits until it is Running. */
void cluster_wait_running(const char *name);
/* Waits until the condition of the pod and an event about it contain this text of
 * kube-scheduler. */
void cluster_wait_refused(const char *name, const char *text);
/* Deletes all pods and waits until they are gone. */
void cluster_delete_pods(void);
/* Prints a duration; scripts/run-tests shows it. */
void cluster_measured(const char *what, int64_t ms);
/* Annotations and inspect agree within a second. */
void cluster_agrees(void);
/* Whether the extender knows exactly the pending pods. */
bool cluster_knows_who_waits(void);
/* Whether the filter of the extender accepts this many units on one card of the node,
 * and no more. (kube-scheduler also counts the resources of nodes, so the test calls the
 * extender.) */
void cluster_check_room(const char *node, int units);
/* The cluster is idle: one more pod gets the expected cards, and after the deletion of
 * all pods no promise is left. */
void cluster_settle(void);
