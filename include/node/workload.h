/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/str.h"

/*
 * The workload of a pod, from the name of the pod. Pure.
 *
 * The kubelet's node has the names of pods and not their owner references, and reading all
 * Pods for those would need a permission on every namespace. Controllers name their pods by
 * fixed rules:
 *
 *     Deployment   <name>-<pod-template-hash>-<5 characters>
 *     CronJob      <name>-<minutes since 1970>-<5 characters>
 *     StatefulSet  <name>-<ordinal>
 *     others       <name>-<5 characters>       ReplicaSet, DaemonSet, Job: all "Controller"
 *
 * Hash and characters are of the alphabet of k8s.io/apimachinery/pkg/util/rand
 * (SafeEncodeString), which has no vowels, so that words are rarely taken for them. A pod
 * that its author named like one of a controller is grouped like one, within its own
 * namespace.
 */

struct workload {
    const char *kind; /* "Deployment", "CronJob", "StatefulSet", "Controller" or "Pod" */
    struct span name; /* borrowed from the name of the pod */
};

struct workload workload_of(struct span pod);

/* The static name of a kind; NULL: there is no such kind. */
const char *workload_kind(struct span text);
