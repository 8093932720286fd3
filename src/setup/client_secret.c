/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/client_secret.h"

#include <gnutls/gnutls.h>

#include "setup/certificate.h"
#include "wire/tls.h"

static const struct {
    const char *key, *member, *path;
} files[CLIENT_SECRET_FILES] = {
    [CLIENT_SECRET_CA] = {"ca.crt", "caFile", CLIENT_SECRET_DIR "/ca.crt"},
    [CLIENT_SECRET_CERT] = {"tls.crt", "certFile", CLIENT_SECRET_DIR "/client.crt"},
    [CLIENT_SECRET_KEY] = {"tls.key", "keyFile", CLIENT_SECRET_DIR "/client.key"},
};

const char *client_secret_member(enum client_secret_file file)
{
    return files[file].member;
}

const char *client_secret_path(enum client_secret_file file)
{
    return files[file].path;
}

static int decode(const json_t *data, const char *key, struct buf *out, struct err *err)
{
    const char *text = json_string_value(json_object_get(data, key));
    if (!text || !*text)
        return err_set(err, ERR_INVALID, "Secret kube-system/%s has no %s",
                       CLIENT_SECRET_NAME, key);
    const gnutls_datum_t in = {(unsigned char *)text, (unsigned)strlen(text)};
    gnutls_datum_t bytes;
    if (gnutls_base64_decode2(&in, &bytes) < 0)
        return err_set(err, ERR_INVALID, "Secret kube-system/%s: %s is not base64",
                       CLIENT_SECRET_NAME, key);
    buf_add(out, bytes.data, bytes.size);
    gnutls_memset(bytes.data, 0, bytes.size);
    gnutls_free(bytes.data);
    return 0;
}

static int verify(const struct client_secret *s, struct err *err)
{
    struct span cert = buf_span(&s->pem[CLIENT_SECRET_CERT]);
    if (!certificate_has_key(cert, buf_span(&s->pem[CLIENT_SECRET_KEY])))
        return err_set(err, ERR_INVALID,
                       "Secret kube-system/%s: tls.key is not the key of tls.crt",
                       CLIENT_SECRET_NAME);
    if (!certificate_is_signed_by(cert, buf_span(&s->pem[CLIENT_SECRET_CA])))
        return err_set(err, ERR_INVALID,
                       "Secret kube-system/%s: tls.crt is not signed by ca.crt",
                       CLIENT_SECRET_NAME);
    return 0;
}

int client_secret_read(const json_t *secret, struct client_secret *out, struct err *err)
{
    const json_t *data = json_object_get(secret, "data");
    *out = (struct client_secret){0};
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        if (decode(data, files[i].key, &out->pem[i], err)) {
            client_secret_fini(out);
            return -1;
        }
    if (verify(out, err)) {
        client_secret_fini(out);
        return -1;
    }
    return 0;
}

void client_secret_fini(struct client_secret *s)
{
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        tls_wipe(&s->pem[i]);
}
