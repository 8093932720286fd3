/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jread_priv.h"

#include <endian.h>
#include <string.h>

/* kube-scheduler sends thousands of names of nodes per call, so they are scanned sixteen
 * bytes at a time. */

typedef unsigned char bytes16 __attribute__((vector_size(16)));
typedef uint64_t words2 __attribute__((vector_size(16)));

/* Index of the first of sixteen bytes that is not 0; 16 if there is none. */
static inline unsigned first_of(words2 v)
{
    uint64_t low = le64toh(v[0]), high = le64toh(v[1]);
    if (low)
        return (unsigned)__builtin_ctzll(low) / 8;
    return high ? 8 + (unsigned)__builtin_ctzll(high) / 8 : 16;
}

/* The length of the plain string at p, or `left` if it is not plain, or too close to the end
 * of the input to be read in blocks. The next string begins where this one ends, so the
 * search for its end is what takes the time; the other bytes are compared meanwhile. */
static inline size_t plain_length(const char *p, size_t left)
{
    for (size_t i = 0; left - i >= 16; i += 16) {
        bytes16 v;
        memcpy(&v, p + i, sizeof v);
        unsigned quote = first_of((words2)(v == '"'));
        if (first_of((words2)((v <= ' ') | (v > '~') | (v == '/') | (v == '\\'))) < quote)
            return left;
        if (quote < 16)
            return i + quote;
    }
    return left;
}

size_t jread_strings(struct jread *j, struct jread_str *out, size_t max)
{
    size_t n = 0;
    if (j->state != JREAD_OK || j->is_null || j->depth == 0 || jread_in_object(j))
        return 0;
    while (n < max) {
        size_t quote = j->pos + !j->at_first;
        if (quote >= j->n || j->data[quote] != '"' || (!j->at_first && !jread_at(j, ',')))
            break;
        const char *p = j->data + quote + 1;
        size_t left = j->n - quote - 1, plain = plain_length(p, left);
        j->at_first = false;
        if (plain < left) {
            out[n++] = (struct jread_str){.p = p, .n = plain, .plain = true};
            j->pos = quote + 1 + plain + 1;
            continue;
        }
        j->pos = quote;
        if (!jread_pass_string(j, &out[n]))
            break;
        n++;
    }
    return n;
}
