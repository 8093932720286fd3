/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kit/extender.h"
#include "kit/kit.h"
#include "kit/oracle.h"
#include "kit/peer.h"

/*
 * A suite's cluster: the real control plane with our extender, as scripts/cluster starts
 * it, once for all tests of the suite. It ends with the suite's process, however that
 * ends. When a test fails, the logs of its programs stay in e2e-logs/SUITE of the build
 * folder, and the output says so. Whatever goes wrong here fails the test.
 */

struct cluster {
    const char *dir;          /* keys, kubeconfigs, logs: see scripts/cluster */
    struct peer api;          /* kube-apiserver, as admin */
    struct extender extender; /* its ports; the program is not this process's */
};
extern struct cluster cluster;

/* Runs the tests (those whose name has E2E_TEST in it, if that is set); `up` are further
 * options of `scripts/cluster up`, ending with NULL. Each test begins with every program
 * running, and no pods, nodes and Scvs. */
int cluster_run(const char *name, const TTest *const *tests, size_t n, double seconds,
                const char *const *up);
#define CLUSTER_MAIN(name, seconds, up, ...)                                             \
    int main(void)                                                                       \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        return cluster_run(name, tests, sizeof tests / sizeof *tests, seconds, up);      \
    }

/* Before cluster_run: Nodes and Scvs stay from test to test. */
void cluster_keep_nodes(void);
/* Before cluster_run with `up` of --empty or --bare: no extender is waited for. */
void cluster_bring_no_extender(void);
/* Then, in a test: cluster.extender is what answers on this port, observers as well. */
void cluster_extender_at(unsigned port);

/* `scripts/cluster VERB`: ends one of its programs by a signal ("TERM", "KILL"), or
 * starts it again as it was; it may take a while until it answers. */
void cluster_stop(const char *program, const char *signal);
void cluster_start(const char *program);

/* Starts it anew with further options (end with NULL), for this test. */
void cluster_start_with(const char *program, const char *const *options);
/* With `up` of --extenders N: those are gpushare-extender, gpushare-extender-2, ... Fills
 * in the ports; `verbs` and `observers` are to be released with peer_fini. */
void cluster_extender(const char *program, struct extender *e);
/* One more program; if one of this name runs, it is ended first. It ends with the
 * cluster, is stopped and started as above, and its log is log/NAME.log. */
void cluster_add_program(const char *name, const char *const *command);
/* A certificate of that subject, and DIR/NAME.kubeconfig. */
void cluster_add_user(const char *name, const char *subject);
bool cluster_runs(const char *program);

pid_t cluster_pid(const char *program);
/* What the extender says from cluster_listen on: how often this text? */
void cluster_listen(void);
size_t cluster_heard(const char *text);

/* The path of one of Kubernetes' programs, new. */
char *cluster_program(const char *name);

/* Runs kubectl as admin; the arguments end with NULL. Fails unless its exit status is 0.
 * Returns what it said, new. */
char *cluster_kubectl(const char *const *args);

/* A token of the pod that the DaemonSet of this component (its label, and the name of its
 * account) has on the node. Waits for the pod. New. */
char *cluster_token_of(const char *component, const char *node);

/* Does the pod of this component (its label, in kube-system) that is not about to end
 * answer 200? Asked through the API server; the body replaces what is in *reply. */
bool cluster_pod_says(const char *component, unsigned port, const char *path,
                      struct buf *reply);

/* The items of a list, new. */
json_t *cluster_items(const char *path);
/* A Node that kwok runs and its Scv, with cards of these sizes in MiB (ends with 0) and
 * UUIDs "GPU-<name>-<i>"; `label`: of the Node, or NULL. Waits until it is Ready and the
 * extender knows its cards. */
void cluster_add_node(const char *name, const char *label, const char *value,
                      const int *mib);
#define CARDS(...) ((const int[]){__VA_ARGS__, 0})

/* The same in steps: its Scv, the Node without one, both; and the wait. */
void cluster_create_scv(const char *name, const int *mib);
void cluster_create_bare_node(const char *name, const char *label, const char *value,
                              const int *mib);
void cluster_create_node(const char *name, const char *label, const char *value,
                         const int *mib);
void cluster_await_node(const char *name);

/* Creates an object from JSON of printf. */
void cluster_create(const char *path, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Deletes it at once. */
void cluster_delete(const char *path);
/* Creates a pod of one container that asks for so many units; further members of metadata
 * and spec, each with a comma in front, or "". */
void cluster_create_pod(const char *name, int units, const char *metadata,
                        const char *spec);
#define CLUSTER_PODS    "/api/v1/namespaces/default/pods"
#define SCHEDULER(name) ",\"schedulerName\":\"" name "\""
#define ON(node)        ",\"nodeSelector\":{\"kubernetes.io/hostname\":\"" node "\"}"
/* A pod of namespace default, new. */
json_t *cluster_pod(const char *name);
bool cluster_bound(const char *name); /* has it a node? */
/* Waits until it is Running. */
void cluster_wait_running(const char *name);
/* Waits until kube-scheduler has written this text into the pod's condition and into an
 * event about it. */
void cluster_wait_refused(const char *name, const char *text);
/* Deletes all of them and waits until they are gone. */
void cluster_delete_pods(void);
/* Tells how long something took; scripts/run-tests shows it. */
void cluster_measured(const char *what, int64_t ms);
/* Annotations and inspect say the same within a second. */
void cluster_agrees(void);
/* Does the extender know all pods that wait, and no others? */
bool cluster_knows_who_waits(void);
/* Does the extender give out so many units on one card of the node, and no more? (It is
 * asked itself, because kube-scheduler counts what nodes have, too.) */
void cluster_check_room(const char *node, int units);
/* All is at rest; one more pod gets what it has to get; and when all pods are gone,
 * nothing is promised any more. */
void cluster_settle(void);
