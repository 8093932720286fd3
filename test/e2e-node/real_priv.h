/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "e2e-node/real.h"

/* real.c: containerd and the kubelet; proxy.c: kube-proxy. */

/* Waits until is_true. False: the program has ended, or a minute has passed. */
bool real_soon(bool (*is_true)(void), const char *program);
/* The end of a program's log, for an error. New. */
char *real_last_words(const char *program);
