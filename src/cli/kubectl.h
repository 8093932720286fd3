/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "cli/config.h"

/*
 * kubectl carries the login: `kubectl proxy`, with the user's own connection options, adds it
 * to what is sent to a Unix socket in a folder of mode 0700. So credential plugins, device
 * codes, proxies of the environment and impersonation work as in kubectl.
 *
 * kubectl has our terminal. Its standard error is passed on at once: it can have the code of a
 * login. Without the lines of its log that repeat what the proxy answers, and after
 * kubectl_answered without any line of its log. No kubectl survives this process, even if that is
 * killed.
 */

struct kubectl;

/* Starts the proxy, and waits for its socket until clock_mono_ms is `until_ms`. *k is new, or
 * NULL without an error: the caller connects directly. That is so where there is no program
 * `kubectl` in PATH, where KUBECTL, which names another one, is empty, and in a pod whose
 * service account is used. No other thread may run. */
int kubectl_start(const struct cli_config *config, int64_t until_ms, struct kubectl **k,
                  struct err *err);
/* Ends the proxy, and removes its socket. NULL is accepted. */
void kubectl_free(struct kubectl *k);

const char *kubectl_socket(const struct kubectl *k);
/* The API server has answered. */
void kubectl_answered(struct kubectl *k);
/* -1: the proxy has ended by itself, at the latest in `wait_ms`. */
int kubectl_check(struct kubectl *k, int wait_ms, struct err *err);
/* Has kubectl_check seen that something for the user, such as a code of a new login, was written
 * since kubectl_answered? */
bool kubectl_spoke(const struct kubectl *k);
/* After a lost connection: adds to the error, or replaces it, if the cause is that kubectl has
 * ended, or has no context. */
void kubectl_explain(struct kubectl *k, struct err *err);
/* The namespace of the context; "default": the context has none. New. NULL: kubectl does not
 * tell, as without a context. */
char *kubectl_namespace(struct kubectl *k, struct err *err);
