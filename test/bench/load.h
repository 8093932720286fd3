/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Generates load for a server on the loopback: keep-alive connections with prepared
 * requests. A connection sends its next request after the reply to the last one.
 */

struct load {
    unsigned port;
    unsigned connections;
    const struct span *requests; /* borrowed: head and body */
    size_t n_requests;           /* used in rotation, starting at `first` */
    size_t first;
    size_t calls; /* total number */
};

struct load_result {
    double *ms; /* of each call, from the first byte sent to the last byte read; sorted */
    size_t calls;
    double seconds;
    size_t failed; /* status other than 2xx, or a verb's Error */
    size_t bytes;  /* of all reply bodies */
};

/* Runs all calls. Ends the program with a message if the server does not answer. */
void load_run(const struct load *load, struct load_result *result);
void load_result_fini(struct load_result *r);
/* The quantile of a share of the calls; 0.5 is the median. */
double load_quantile(const struct load_result *r, double share);

/* One call on a connection of its own. Returns the status. */
unsigned load_once(unsigned port, struct span request);

/* Builds a request; the body may be empty. New. */
struct span load_request(const char *method, const char *path, struct span body);
