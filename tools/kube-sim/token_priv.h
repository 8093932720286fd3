/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/*
 * The continue token of a list: version and first key of the next page, in the format of a
 * real server, base64 of {"v":"meta.k8s.io/v1","rv":7,"start":"default/p1\u0000"}.
 */

struct token {
    int64_t rv;       /* -1: the newest version (an inconsistent list) */
    struct buf start; /* first key */
};

/* `last`: the last key of the page. */
void sim_token_write(struct buf *out, int64_t rv, struct span last);
/* False: not a valid token. Release with buf_fini(&t->start) in every case. */
bool sim_token_read(struct span text, struct token *t);
