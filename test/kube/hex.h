/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

#include "base/mem.h"
#include "lib/unit.h"

/* Bytes of messages as text, for tests. */

static inline void hex_read(struct buf *out, const char *hex)
{
    unsigned byte;
    for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
        buf_addc(out, (char)byte);
    ck_assert_int_eq(*hex, '\0');
}

static inline char *hex_write(struct span s)
{
    struct buf out = {0};
    for (size_t i = 0; i < s.n; i++)
        buf_printf(&out, "%02x", (unsigned char)s.p[i]);
    return buf_take(&out);
}

static inline void hex_expect(struct span s, const char *want)
{
    cleanup_free char *got = hex_write(s);
    ck_assert_str_eq(got, want);
}
