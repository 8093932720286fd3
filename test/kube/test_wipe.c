/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>
#include <stdatomic.h>

#include "kube/client.h"
#include "kube/fixture.h"
#include "kube/kubeconfig_priv.h"
#include "kube/secret.h"
#include "wire/tls.h"
#include "wire/x509.h"

/*
 * No memory that this project's code releases or moves contains a private key or a token.
 * The linker leads its calls of malloc, realloc and free here. (Copies inside libcurl, GnuTLS and
 * libyaml are out of reach.)
 */

enum { NEEDLES = 4 };

static struct span needles[NEEDLES];
static atomic_int leaks, released;

static bool contains(const void *p, size_t n, struct span needle)
{
    return needle.n && memmem(p, n, needle.p, needle.n);
}

static void inspect(void *p)
{
    if (!p || !needles[0].n)
        return;
    atomic_fetch_add(&released, 1);
    for (int i = 0; i < NEEDLES; i++)
        if (contains(p, malloc_usable_size(p), needles[i]))
            atomic_fetch_add(&leaks, 1);
}

void *__real_malloc(size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void __wrap_free(void *p);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_reallocarray(void *p, size_t count, size_t size);

/* Without what a library has left in a block that is used again. */
void *__wrap_malloc(size_t n)
{
    void *p = __real_malloc(n);
    if (p)
        memset(p, 0, malloc_usable_size(p));
    return p;
}

void __wrap_free(void *p)
{
    inspect(p);
    __real_free(p);
}

/* Always moves, which leaves the old copy. */
void *__wrap_realloc(void *p, size_t n)
{
    void *to = __wrap_malloc(n);
    size_t old = p ? malloc_usable_size(p) : 0;
    if (!to)
        return NULL;
    if (p)
        memcpy(to, p, old < n ? old : n);
    __wrap_free(p);
    return to;
}

void *__wrap_reallocarray(void *p, size_t count, size_t size)
{
    return __wrap_realloc(p, count * size);
}

static void watch(const char *a, const char *b)
{
    atomic_store(&leaks, 0);
    atomic_store(&released, 0);
    needles[1] = span_of(b);
    needles[0] = span_of(a);
}

static void check_nothing_left(void)
{
    int found = atomic_load(&leaks), all = atomic_load(&released);
    memset(needles, 0, sizeof needles);
    ck_assert_msg(found == 0, "%d of %d released blocks contain a secret", found, all);
    ck_assert_int_gt(all, 0);
}

#define TOKEN "tok3n-of-the-test-that-must-not-remain"
#define BODY  "MHcCAQEEIOneLineOfAPrivateKeyThatMustNotRemainInMemory0123456789"
#define KEY   "-----BEGIN PRIVATE KEY-----\n" BODY "\n-----END PRIVATE KEY-----\n"
#define CERT  "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

TEST(a_watcher_finds_what_is_left)
{
    watch(BODY, TOKEN);
    free(xstrdup(KEY));
    ck_assert_int_eq(atomic_load(&leaks), 1);
    cleanup_buf struct buf b = {0};
    buf_adds(&b, KEY);
    buf_reserve(&b, 1 << 20);
    ck_assert_int_eq(atomic_load(&leaks), 2);
    mem_wipe(xstrdup(KEY));
    ck_assert_int_eq(atomic_load(&leaks), 2);
    buf_reserve_secret(&b, 4 << 20);
    buf_wipe(&b);
    ck_assert_int_eq(atomic_load(&leaks), 2);
    memset(needles, 0, sizeof needles);
}

TEST(kubeconfigs_leave_no_key)
{
    struct httpc_reply reply;
    put("crt", CERT);
    put("key", KEY);
    put("token", TOKEN "\n");
    const char *const users[] = {
        "{token: " TOKEN "}", "{client-certificate: crt, client-key: key}",
        "{tokenFile: token}",
        "{client-certificate-data: "
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
        ", client-key-data: "
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1IY0NBUUVFSU9uZUxpbmVPZkFQcml2YXRlS2V5VG"
        "hhdE11c3ROb3RSZW1haW5Jbk1lbW9yeTAxMjM0NTY3ODkKLS0tLS1FTkQgUFJJVkFURSBLRVktLS0t"
        "LQo=}"};
    array_items(user, users) {
        watch(BODY, TOKEN);
        needles[2] = SPAN("SU9uZUxpbmVPZkFQcml2YXRlS2V5VG");
        ck_assert_done(load_user("{server: \"https://127.0.0.1:1\"}", *user), w.err);
        start();
        kube_call(
            w.c, &(struct kube_request){.method = "GET", .path = "/", .timeout_ms = 2000},
            &reply, &w.err); /* nobody listens there */
        httpc_reply_fini(&reply);
        kube_client_free(steal(&w.c));
        kube_config_fini(&w.config);
        check_nothing_left();
    }
}

TEST(certificates_and_secrets_leave_no_key)
{
    struct x509_pair pair = {{0}, {0}};
    struct err err = {0};
    ck_assert_int_eq(x509_make(&(struct x509_spec){.common_name = "x",
                                                   .server = true,
                                                   .begins_s = 1,
                                                   .expires_s = 4000000000},
                               NULL, &pair, &err),
                     0);
    /* A piece of a line of the key. */
    char *piece = xmemdup0(strchr(pair.key.p, '\n') + 9, 48),
         *copy = xmemdup0(pair.key.p, pair.key.n);
    struct secret a = {.exists = true}, b = {0};
    struct buf body = {0}, cert = {0}, key = {0};
    const struct tls_config config = {
        .name = "x", .cert_pem = buf_span(&pair.cert), .key_pem = span_of(copy)};
    watch(piece, NULL);
    buf_add_span(&a.data[SECRET_CERT], buf_span(&pair.cert));
    buf_reserve(&a.data[SECRET_KEY], pair.key.n);
    buf_add_span(&a.data[SECRET_KEY], buf_span(&pair.key));
    secret_encode(&a, "ns", "name", &body);
    ck_assert_int_eq(secret_decode(buf_span(&body), &b, &err), 0);
    ck_assert(span_eq(buf_span(&b.data[SECRET_KEY]), buf_span(&pair.key)));
    ck_assert_int_eq(x509_read_pair(buf_span(&b.data[SECRET_CERT]),
                                    buf_span(&b.data[SECRET_KEY]), NULL, &err),
                     0);
    struct tls *t = tls_new(&config, &err);
    ck_assert_msg(t, "%s", err.msg);
    ck_assert_int_eq(tls_set(t, config.cert_pem, config.key_pem, (struct span){0}, &err),
                     0);
    tls_copy_pair(t, &cert, &key);
    tls_free(t);
    buf_wipe(&body);
    buf_wipe(&key);
    buf_fini(&cert);
    secret_fini(&a);
    secret_fini(&b);
    x509_pair_fini(&pair);
    check_nothing_left();
    mem_wipe(copy);
    free(piece);
}

UNIT_MAIN_AROUND(fixture_begin, fixture_end)
