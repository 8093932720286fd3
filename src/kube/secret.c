/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/secret.h"

#include "base/jread.h"
#include "wire/base64.h"

static const char *const keys[SECRET_KEYS] = {"tls.crt", "tls.key", "ca.crt"};

void secret_fini(struct secret *s)
{
    for (int i = 0; i < SECRET_KEYS; i++)
        buf_wipe(&s->data[i]);
    *s = (struct secret){0};
}

static void read_data(struct jread *j, struct secret *s)
{
    struct jread_str key, value;
    jread_object(j, "data");
    while (jread_member(j, &key)) {
        struct buf *to = NULL;
        for (int i = 0; i < SECRET_KEYS; i++)
            if (jread_str_eq(key, span_of(keys[i])))
                to = &s->data[i];
        if (!to)
            jread_skip(j);
        else if (jread_string(j, "data", &value) && !value.escaped && value.n) {
            buf_wipe(to);
            base64_decode((struct span){value.p, value.n}, to);
        }
    }
}

int secret_decode(struct span json, struct secret *s, struct err *err)
{
    struct jread j;
    struct jread_str key;
    jread_init(&j, json.p, json.n);
    jread_object(&j, "Secret");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "data"))
            read_data(&j, s);
        else
            jread_skip(&j);
    }
    s->exists = true;
    if (jread_finish(&j, err) == 0)
        return 0;
    secret_fini(s);
    return -1;
}

void secret_encode(const struct secret *s, const char *ns, const char *name,
                   struct buf *out)
{
    size_t bytes = 1024 + strlen(ns) + strlen(name);
    const char *comma = "";
    for (int i = 0; i < SECRET_KEYS; i++)
        bytes += s->data[i].n * 2;
    buf_reserve(out, bytes); /* a later realloc would leave a copy of a key */
    buf_adds(out, "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":");
    buf_add_json(out, span_of(name));
    buf_adds(out, ",\"namespace\":");
    buf_add_json(out, span_of(ns));
    buf_adds(out, "},\"type\":\"kubernetes.io/tls\",\"data\":{");
    for (int i = 0; i < SECRET_KEYS; i++) {
        if (!s->data[i].n)
            continue;
        buf_printf(out, "%s\"%s\":\"", comma, keys[i]);
        base64_encode(buf_span(&s->data[i]), out);
        buf_addc(out, '"');
        comma = ",";
    }
    buf_adds(out, "}}");
}
