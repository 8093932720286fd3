/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "e2e-node/real.h"

/* real.c: containerd and the kubelet; proxy.c: kube-proxy. */

/* Waits until it is true; false when the program ends, or after a minute. */
bool real_soon(bool (*is_true)(void), const char *program);
/* The end of a program's log, for an error. New. */
char *real_last_words(const char *program);
