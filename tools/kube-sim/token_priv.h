/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * The token that says where the next page of a list starts, and at which version: base64
 * of {"v":"meta.k8s.io/v1","rv":7,"start":"default/p1\u0000"}, as a real server makes it.
 */

struct token {
    int64_t rv;       /* -1: at the newest version (the list is not consistent then) */
    struct buf start; /* keys from here on */
};

/* `last` is the last key that was sent. */
void sim_token_write(struct buf *out, int64_t rv, struct span last);
/* False when the text is no token. Release with buf_fini(&t->start) in every case. */
bool sim_token_read(struct span text, struct token *t);
