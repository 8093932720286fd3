/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"

/* The client of a program: for the API server that its options name (NULL or "": they do
 * not), or its environment. Logs which one that is, and how it was found. New. */
struct kube_client *kube_connect(const char *kubeconfig, const char *context,
                                 struct err *err);
/* The same, and the namespace of the context, a new string. */
struct kube_client *kube_connect_in(const char *kubeconfig, const char *context,
                                    char **ns, struct err *err);
