/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/lib.h"
#include "lib/tools.h"

/*
 * The chart on a node: a real kubelet and kube-proxy, the images of `make images`, and helm.
 * The extender listens on 127.0.0.1:32766, as in policy/. The values are the chart's
 * defaults, except that a volume provides libnvidia-ml.so.1, which NVIDIA's runtime would
 * mount into the containers.
 */

/* Begins a test. False: not possible on this machine; the reason has been printed. */
bool chart_begin(void);
/* Starts helm in kube-system with the arguments `args` (ends with NULL). */
void chart_helm_start(struct program *p, const char *const *args);
/* Runs helm, which must exit with 0. Returns its output, new. */
#define chart_helm(...) tools_run("helm", 0, ARGV("-n", "kube-system", __VA_ARGS__))
#define CHART_RELEASE   "gpushare", CHART, "--values", chart_values()
const char *chart_values(void); /* a file */
/* A file with other values: NVML is in the driver's root, and no
 * runtime adds it. */
const char *chart_host_values(void);
/* What the notes of the chart have people do: the label of a node with GPUs, and, since
 * the node is the control plane as well, that. */
void chart_label_node(void);
/* Waits until every program of the chart runs and works. */
void chart_wait_well(void);
/* chart_begin, and the steps of the installation that are not done yet. */
bool chart_up(void);

/* The state of the running pods that no change of the chart may affect: their containers
 * and promises. New. */
json_t *chart_remember(void);
void chart_check_kept(const json_t *before);
