/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/client_secret.h"

#include "kube/tls_secret.h"
#include "wire/tls.h"
#include "wire/x509.h"

#define SECRET "Secret " CLIENT_SECRET_NAME

static const struct {
    enum kube_tls_key key;
    const char *name, *member, *path;
} files[CLIENT_SECRET_FILES] = {
    [CLIENT_SECRET_CA] = {KUBE_TLS_CA, "ca.crt", "caFile", CLIENT_SECRET_DIR "/ca.crt"},
    [CLIENT_SECRET_CERT] = {KUBE_TLS_CERT, "tls.crt", "certFile",
                            CLIENT_SECRET_DIR "/client.crt"},
    [CLIENT_SECRET_KEY] = {KUBE_TLS_KEY, "tls.key", "keyFile",
                           CLIENT_SECRET_DIR "/client.key"},
};

const char *client_secret_member(enum client_secret_file file)
{
    return files[file].member;
}

const char *client_secret_path(enum client_secret_file file)
{
    return files[file].path;
}

static int verify(const struct client_secret *s, struct err *err)
{
    struct span cert = buf_span(&s->pem[CLIENT_SECRET_CERT]);
    if (x509_read_pair(cert, buf_span(&s->pem[CLIENT_SECRET_KEY]), NULL, err))
        return err_wrap(err, SECRET);
    if (!x509_is_issued_by(cert, buf_span(&s->pem[CLIENT_SECRET_CA])))
        return err_set(err, ERR_INVALID, SECRET ": tls.crt is not signed by ca.crt");
    return 0;
}

int client_secret_read(struct span json, struct client_secret *out, struct err *err)
{
    struct kube_tls_secret secret = {0};
    *out = (struct client_secret){0};
    int rc = kube_tls_secret_decode(json, &secret, err);
    for (int i = 0; rc == 0 && i < CLIENT_SECRET_FILES; i++) {
        struct buf *from = &secret.data[files[i].key];
        if (!from->n)
            rc = err_set(err, ERR_INVALID, SECRET " has no %s", files[i].name);
        out->pem[i] = *from;
        *from = (struct buf){0};
    }
    kube_tls_secret_fini(&secret);
    if (rc == 0)
        rc = verify(out, err);
    if (rc)
        client_secret_fini(out);
    return rc;
}

void client_secret_fini(struct client_secret *s)
{
    for (int i = 0; i < CLIENT_SECRET_FILES; i++)
        tls_wipe(&s->pem[i]);
}
