/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "e2e/tools.h"
#include "kit/kit.h"

/*
 * The chart on a node: a real kubelet and kube-proxy, the images that `make images` has
 * made, and helm. The extender is reached where policy/ says, 127.0.0.1:32766. Its values
 * are the chart's defaults, but for what stands for a driver: NVIDIA's runtime would put
 * libnvidia-ml.so.1 into the containers, and here a volume does.
 */

/* Begins a test. False: not on this machine, which has been said. */
bool chart_begin(void);
/* Starts helm with these arguments, in kube-system; they end with NULL. */
void chart_helm_start(struct program *p, const char *const *args);
/* The same to its end, which must be a good one. Returns what it said, new. */
#define chart_helm(...) tools_run("helm", 0, ARGV("-n", "kube-system", __VA_ARGS__))
#define CHART_RELEASE   "gpushare", CHART, "--values", chart_values()
const char *chart_values(void); /* a file */
/* What the notes of the chart have people do: the label of a node with GPUs, and, since
 * the node is the control plane as well, that. */
void chart_label_node(void);
/* As at the end of an installation: all runs and does its work. */
void chart_wait_well(void);
/* chart_begin, and whatever of this is not done yet. */
bool chart_up(void);

/* What must not change of the pods that run, whatever becomes of the chart: their
 * containers, and what was promised to them. New. */
json_t *chart_remember(void);
void chart_check_kept(const json_t *before);
