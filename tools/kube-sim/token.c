/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/token_priv.h"

#include "kube-sim/jsonx_priv.h"

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void encode(struct buf *out, struct span s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n; i += 3) {
        size_t left = s.n - i;
        unsigned v = (unsigned)p[i] << 16 | (left > 1 ? (unsigned)p[i + 1] << 8 : 0) |
                     (left > 2 ? p[i + 2] : 0);
        buf_addc(out, digits[v >> 18]);
        buf_addc(out, digits[v >> 12 & 63]);
        if (left > 1)
            buf_addc(out, digits[v >> 6 & 63]);
        if (left > 2)
            buf_addc(out, digits[v & 63]);
    }
}

static bool decode(struct buf *out, struct span s)
{
    unsigned v = 0, bits = 0;
    for (size_t i = 0; i < s.n; i++) {
        const char *digit = s.p[i] ? strchr(digits, s.p[i]) : NULL;
        if (!digit)
            return false;
        v = v << 6 | (unsigned)(digit - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            buf_addc(out, (char)(v >> bits & 0xff));
        }
    }
    return true;
}

void sim_token_write(struct buf *out, int64_t rv, struct span last)
{
    cleanup_buf struct buf text = {0};
    buf_printf(&text, "{\"v\":\"meta.k8s.io/v1\",\"rv\":%lld,\"start\":", (long long)rv);
    buf_add_json(&text, last); /* a key needs no escapes */
    text.n--;                  /* the closing quote */
    buf_adds(&text, "\\u0000\"}");
    encode(out, buf_span(&text));
}

bool sim_token_read(struct span text, struct token *t)
{
    *t = (struct token){0};
    cleanup_buf struct buf plain = {0};
    if (!decode(&plain, text))
        return false;
    cleanup_json json_t *j =
        json_loadb(plain.p ? plain.p : "", plain.n, JSON_ALLOW_NUL, NULL);
    json_t *rv = json_object_get(j, "rv");
    struct span start = sim_jsonx_span(j, "start");
    if (strcmp(sim_jsonx_str(j, "v"), "meta.k8s.io/v1") != 0 || !json_is_integer(rv) ||
        !start.n)
        return false;
    t->rv = json_integer_value(rv);
    buf_add_span(&t->start, start);
    return t->rv == -1 || t->rv > 0;
}
