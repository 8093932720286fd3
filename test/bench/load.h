/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/*
 * Load for a server on the loopback: keep-alive connections, requests that were put
 * together beforehand, each connection sends its next request when the last is answered.
 */

struct load {
    unsigned port;
    unsigned connections;
    const struct span *requests; /* borrowed: head and body */
    size_t n_requests;           /* used in turn, from `first` on */
    size_t first;
    size_t calls; /* how many in all */
};

struct load_result {
    double *ms; /* of each call, from its first byte sent to its last byte read; sorted */
    size_t calls;
    double seconds;
    size_t failed; /* not answered with 2xx, or by a verb with an Error */
    size_t bytes;  /* of all bodies that came back */
};

/* Runs to the end. Ends the program with a message when the server does not answer. */
void load_run(const struct load *load, struct load_result *result);
void load_result_fini(struct load_result *r);
/* The value below which a share of the calls lies; 0.5 is the median. */
double load_quantile(const struct load_result *r, double share);

/* One call on a connection of its own. Returns the status. */
unsigned load_once(unsigned port, struct span request);

/* A request: `method` "POST", its body (may be empty). New. */
struct span load_request(const char *method, const char *path, struct span body);
