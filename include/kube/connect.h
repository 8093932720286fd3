/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"

/* The API client of a program, configured from its options --kubeconfig and --context
 * (NULL or "": not given) and its environment. Logs the server and the source of its
 * configuration. New. Errors as for kube_config_load. */
struct kube_client *kube_connect(const char *kubeconfig, const char *context,
                                 struct err *err);
/* Like kube_connect; *ns is set to the namespace of the context, a new string. */
struct kube_client *kube_connect_in(const char *kubeconfig, const char *context,
                                    char **ns, struct err *err);
