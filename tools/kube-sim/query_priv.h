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
    } pairs[QUERY_MAX]; /* further ones are left out */
    size_t n;
};

void sim_query_init(struct query *q, const char *raw); /* NULL is an empty query */
void sim_query_fini(struct query *q);
#define cleanup_query __attribute__((cleanup(sim_query_fini)))

/* The first value under the key; {NULL, 0} when there is none or it is empty. */
struct span sim_query_get(const struct query *q, const char *key);
bool sim_query_has(const struct query *q, const char *key);
/* As the API server reads it: absent, "false" and "0" are false, all else is true. */
bool sim_query_bool(const struct query *q, const char *key);
/* A whole number, `otherwise` when absent; ERR_INVALID when it is something else. */
int sim_query_int(const struct query *q, const char *key, int64_t otherwise, int64_t *out,
                  struct err *err);
/* ?timeout=, as Go writes times: "3s", "500ms", "1m30s"; 0 when absent, or not above
 * zero, which is no limit either. */
int sim_query_timeout_ns(const struct query *q, int64_t *ns, struct err *err);
