/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/tls_secret.h"

#include "base/jread.h"
#include "base/mem.h"
#include "domain/keys.h"
#include "kube/base64_priv.h"
#include "wire/tls.h"

static const char *const keys[KUBE_TLS_KEYS] = {"tls.crt", "tls.key", "ca.crt",
                                                "next.crt", "next.key"};
/* Of cert-manager, on every Secret that it writes. */
#define CONTROLLER "cert-manager.io/certificate-name"

void kube_tls_secret_fini(struct kube_tls_secret *s)
{
    buf_fini(&s->version);
    buf_fini(&s->mark);
    for (int i = 0; i < KUBE_TLS_KEYS; i++)
        tls_wipe(&s->data[i]);
    *s = (struct kube_tls_secret){0};
}

static void copy(struct buf *to, const struct buf *from)
{
    buf_reserve(to, from->n); /* a later realloc would leave a copy of a key */
    buf_add_span(to, buf_span(from));
}

void kube_tls_secret_copy(struct kube_tls_secret *to, const struct kube_tls_secret *from)
{
    *to = (struct kube_tls_secret){.exists = from->exists,
                                   .has_controller = from->has_controller};
    copy(&to->version, &from->version);
    copy(&to->mark, &from->mark);
    for (int i = 0; i < KUBE_TLS_KEYS; i++)
        copy(&to->data[i], &from->data[i]);
}

static void read_text(struct jread *j, const char *where, struct arena *a,
                      struct buf *out)
{
    struct span text;
    buf_clear(out);
    if (jread_text(j, where, a, &text))
        buf_add_span(out, text);
}

static void read_annotations(struct jread *j, struct arena *a, struct kube_tls_secret *s)
{
    struct jread_str key;
    jread_object(j, "metadata.annotations");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, KEY_CERTIFICATE_HASH)) {
            read_text(j, "metadata.annotations", a, &s->mark);
        } else {
            s->has_controller |= jread_key_is(key, CONTROLLER);
            jread_skip(j);
        }
    }
}

static void read_metadata(struct jread *j, struct arena *a, struct kube_tls_secret *s)
{
    struct jread_str key;
    jread_object(j, "metadata");
    while (jread_member(j, &key)) {
        if (jread_key_is(key, "resourceVersion"))
            read_text(j, "metadata.resourceVersion", a, &s->version);
        else if (jread_key_is(key, "annotations"))
            read_annotations(j, a, s);
        else
            jread_skip(j);
    }
}

static void read_data(struct jread *j, struct kube_tls_secret *s)
{
    struct jread_str key, value;
    jread_object(j, "data");
    while (jread_member(j, &key)) {
        struct buf *to = NULL;
        for (int i = 0; i < KUBE_TLS_KEYS; i++)
            if (jread_str_eq(key, span_of(keys[i])))
                to = &s->data[i];
        if (!to)
            jread_skip(j);
        else if (jread_string(j, "data", &value) && !value.escaped && value.n) {
            tls_wipe(to);
            base64_decode((struct span){value.p, value.n}, to);
        }
    }
}

int kube_tls_secret_decode(struct span json, struct kube_tls_secret *s, struct err *err)
{
    cleanup_arena struct arena a = {0};
    struct jread j;
    struct jread_str key;
    jread_init(&j, json.p, json.n);
    jread_object(&j, "Secret");
    while (jread_member(&j, &key)) {
        if (jread_key_is(key, "metadata"))
            read_metadata(&j, &a, s);
        else if (jread_key_is(key, "data"))
            read_data(&j, s);
        else
            jread_skip(&j);
    }
    s->exists = true;
    if (jread_finish(&j, err) == 0)
        return 0;
    kube_tls_secret_fini(s);
    return -1;
}

static void encode_data(const struct kube_tls_secret *s, bool create, struct buf *out)
{
    const char *comma = "";
    for (int i = 0; i < KUBE_TLS_KEYS; i++) {
        struct span bytes = buf_span(&s->data[i]);
        if (create && !bytes.n)
            continue;
        buf_printf(out, "%s\"%s\":", comma, keys[i]);
        comma = ",";
        if (bytes.n) {
            buf_addc(out, '"');
            base64_encode(bytes, out);
            buf_addc(out, '"');
        } else {
            buf_adds(out, "null"); /* removes the key */
        }
    }
}

void kube_tls_secret_encode(const struct kube_tls_secret *s, const char *ns,
                            const char *name, bool create, struct buf *out)
{
    size_t bytes = 1024 + strlen(ns) + strlen(name);
    for (int i = 0; i < KUBE_TLS_KEYS; i++)
        bytes += s->data[i].n * 2;
    buf_reserve(out, bytes); /* a later realloc would leave a copy of a key */
    buf_adds(out, "{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{\"name\":");
    buf_add_json(out, span_of(name));
    buf_adds(out, ",\"namespace\":");
    buf_add_json(out, span_of(ns));
    if (!create) {
        buf_adds(out, ",\"resourceVersion\":");
        buf_add_json(out, buf_span(&s->version));
    }
    buf_adds(out, ",\"annotations\":{\"" KEY_CERTIFICATE_HASH "\":");
    buf_add_json(out, buf_span(&s->mark));
    buf_printf(out, "}},%s\"data\":{", create ? "\"type\":\"kubernetes.io/tls\"," : "");
    encode_data(s, create, out);
    buf_adds(out, "}}");
}
