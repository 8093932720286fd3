/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/agent.h"
#include "lib/plugin.h"

/*
 * The frame of a suite with kube-sim: it runs from the begin of each test. What the test has
 * started of the other programs is stopped after the test, with exit status 0.
 */

extern struct sim sim;
extern struct extender extender; /* suite_extender starts it */
extern struct agent agent;
extern struct plugin plugin;
extern struct kubelet kubelet;

/* Runs the tests; `options` of kube-sim end with NULL, or are NULL. */
int suite_run(double seconds, const char *const *options);
#define SUITE_MAIN(seconds, options)                                                     \
    int main(void)                                                                       \
    {                                                                                    \
        return suite_run(seconds, options);                                              \
    }

/* Starts the extender and waits until it is ready. */
void suite_extender(const char *const *more);
/* The same after the stop of the one that runs. */
void suite_restart(const char *const *more);
