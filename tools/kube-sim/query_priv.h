/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* The query of a URL, decoded. */

enum { QUERY_MAX = 32 };

struct query {
    char *text;
    struct {
        struct span key, value;
    } pairs[QUERY_MAX]; /* further pairs are ignored */
    size_t n;
};

void sim_query_init(struct query *q, const char *raw); /* NULL is an empty query */
void sim_query_fini(struct query *q);
#define cleanup_query __attribute__((cleanup(sim_query_fini)))

/* The first value of the key; {NULL, 0} if it is absent or empty. */
struct span sim_query_get(const struct query *q, const char *key);
bool sim_query_has(const struct query *q, const char *key);
/* As in the API server: absent, "false" and "0" are false; any other value is true. */
bool sim_query_bool(const struct query *q, const char *key);
/* Reads a whole number; `otherwise` if absent. ERR_INVALID: not a whole number. */
int sim_query_int(const struct query *q, const char *key, int64_t otherwise, int64_t *out,
                  struct err *err);
/* Reads ?timeout= in Go's format: "3s", "500ms", "1m30s". Sets 0, which means no limit, if
 * it is absent or not positive. */
int sim_query_timeout_ns(const struct query *q, int64_t *ns, struct err *err);
