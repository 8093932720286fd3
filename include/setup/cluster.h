/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kube/client.h"
#include "setup/facts.h"

/*
 * Reads the objects of the checks from the API server into f->lists. Sets f->cluster_why
 * if the API server does not answer.
 */

void cluster_read(struct kube_client *client, struct facts *f);
/* Reads only the Secret with kube-scheduler's client certificate into f->secret. */
void cluster_read_secret(struct kube_client *client, struct facts *f);
