/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "setup/facts.h"

/*
 * The settings of k3s and RKE2; pure. Both read config.yaml, then the files of
 * config.yaml.d by name: the last value of a key counts, and a key that ends with '+'
 * appends to the list instead (docs.k3s.io, Configuration Options; k3s 1.34,
 * pkg/configfilearg/parser.go). RKE2 is built on k3s and reads its own files the same way.
 *
 * From these settings both make the arguments of kube-scheduler. k3s runs it in its own
 * process. RKE2 writes a static pod, whenever rke2-server starts, and mounts each file
 * that an argument names and each kube-scheduler-extra-mount (rke2 1.35,
 * pkg/podtemplate/podtemplate.go).
 */

#define RANCHER_ARGS   "kube-scheduler-arg"
#define RANCHER_MOUNTS "kube-scheduler-extra-mount" /* RKE2 only */
/* Our file in config.yaml.d. Few names sort after it. */
#define RANCHER_DROPIN "zz-gpushare.yaml"

/* "k3s", "RKE2", or "" for other platforms. Static, as the next two. */
const char *rancher_name(const struct facts *f);
const char *rancher_config(const struct facts *f); /* "/etc/rancher/k3s/config.yaml" */
const char *rancher_unit(const struct facts *f);   /* "k3s", "rke2-server" */

/* Is it a name that k3s reads in config.yaml.d? */
bool rancher_reads(const char *name);
/* The value of a key as a list of texts. New. */
json_t *rancher_list(const struct facts *f, const char *key);
/* The last text of a key; "": not set. New. */
char *rancher_text(const struct facts *f, const char *key);
char *rancher_data_dir(const struct facts *f); /* "/var/lib/rancher/k3s". New */
/* The pod that the settings describe: command, mounts, and the rest of f->applied. New. */
json_t *rancher_pod(const struct facts *f);
/* facts_newer_file, and for k3s also the files with settings of kube-scheduler, and the
 * files of an installation that --undo left because the process may have read them. */
const struct facts_file *rancher_newer_file(const struct facts *f,
                                            const struct facts_process *p);
/* Has the static pod that RKE2 wrote the settings, and no mount of the certificate without
 * them? True on other platforms. */
bool rancher_is_applied(const struct facts *f);
