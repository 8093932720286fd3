/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire/httpd_fixture.h"

extern char **environ;

/* A key and a certificate for 127.0.0.1, made by the openssl program. */
struct pair {
    char dir[32];
    char cert_file[64], key_file[64];
    struct buf cert, key;
};

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "re");
    ck_assert_msg(f, "no %s", path);
    buf_reserve(out, 16384);
    out->n = fread(out->p, 1, 16384, f);
    out->p[out->n] = '\0';
    fclose(f);
}

static void pair_init(struct pair *pair)
{
    *pair = (struct pair){.dir = "/tmp/httpd-tls-XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(pair->dir));
    snprintf(pair->cert_file, sizeof pair->cert_file, "%s/cert.pem", pair->dir);
    snprintf(pair->key_file, sizeof pair->key_file, "%s/key.pem", pair->dir);
    const char *argv[] = {"openssl",
                          "req",
                          "-x509",
                          "-newkey",
                          "ec",
                          "-pkeyopt",
                          "ec_paramgen_curve:P-256",
                          "-nodes",
                          "-days",
                          "2",
                          "-subj",
                          "/CN=localhost",
                          "-addext",
                          "subjectAltName=IP:127.0.0.1",
                          "-keyout",
                          pair->key_file,
                          "-out",
                          pair->cert_file,
                          NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int status = -1;
    ck_assert_int_eq(
        posix_spawnp(&pid, "openssl", &actions, NULL, (char **)argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    read_file(pair->cert_file, &pair->cert);
    read_file(pair->key_file, &pair->key);
}

static void pair_fini(struct pair *pair)
{
    unlink(pair->cert_file);
    unlink(pair->key_file);
    rmdir(pair->dir);
    buf_fini(&pair->cert);
    buf_fini(&pair->key);
}

static void tls_start(struct fixture *kit, struct pair *pair, int mode,
                      const struct httpd_limits *limits)
{
    fixture_init(kit, limits);
    struct httpd_listener_config listener = fixture_listener(kit, mode);
    listener.cert_pem = pair->cert.p;
    listener.key_pem = pair->key.p;
    fixture_listen(kit, &listener);
}

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    buf_add(ctx, p, size * n);
    return size * n;
}

static CURL *client(struct fixture *kit, struct pair *pair, const char *path,
                    struct buf *out)
{
    CURL *curl = curl_easy_init();
    ck_assert_ptr_nonnull(curl);
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u%s", kit->port, path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CAINFO, pair->cert_file);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)RAW_WAIT_MS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    return curl;
}

static long connects(CURL *curl)
{
    long n = -1;
    curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &n);
    return n;
}

START_TEST(https_reuses_the_connection)
{
    struct pair pair;
    pair_init(&pair);
    FOR_BOTH_MODES(mode)
    {
        struct fixture kit;
        tls_start(&kit, &pair, mode, NULL);
        cleanup_buf struct buf out = {0}, body = {0};
        CURL *curl = client(&kit, &pair, "/echo", &out);
        for (int i = 0; i < 300000; i++)
            buf_addc(&body, (char)('a' + i % 26));
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.p);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body.n);
        for (int i = 0; i < 3; i++) {
            buf_clear(&out);
            ck_assert_int_eq(curl_easy_perform(curl), CURLE_OK);
            ck_assert(span_eq(buf_span(&out), buf_span(&body)));
            ck_assert_int_eq(connects(curl), i == 0);
        }
        curl_easy_cleanup(curl);
        ck_assert(raw_until(kit_is_empty, &kit));
        fixture_fini(&kit);
    }
    pair_fini(&pair);
}
END_TEST

static void *get_stream(void *arg)
{
    CURL *curl = arg;
    return (void *)(intptr_t)curl_easy_perform(curl);
}

static bool stream_is_open(void *ctx)
{
    return atomic_load(&((struct fixture *)ctx)->opened) == 1;
}

START_TEST(streams_and_drain_work_over_tls)
{
    struct pair pair;
    pair_init(&pair);
    FOR_BOTH_MODES(mode)
    {
        for (int drained = 0; drained < 2; drained++) {
            struct fixture kit;
            tls_start(&kit, &pair, mode, NULL);
            cleanup_buf struct buf out = {0};
            CURL *curl = client(&kit, &pair, "/stream?a", &out);
            pthread_t thread;
            pthread_create(&thread, NULL, get_stream, curl);
            ck_assert(raw_until(stream_is_open, &kit));
            fixture_say(&kit, "b", drained ? HTTPD_STREAM_WAIT : HTTPD_STREAM_ABORT,
                        true);
            if (drained)
                ck_assert(httpd_drain(kit.d, RAW_WAIT_MS));
            void *rc;
            pthread_join(thread, &rc);
            ck_assert_int_eq((int)(intptr_t)rc, drained ? CURLE_OK : CURLE_PARTIAL_FILE);
            ck_assert(drained ? out.n >= 1 : span_eq(buf_span(&out), SPAN("ab")));
            curl_easy_cleanup(curl);
            ck_assert(raw_until(kit_is_empty, &kit));
            fixture_fini(&kit);
            ck_assert_int_eq(atomic_load(&kit.closed), 1);
        }
    }
    pair_fini(&pair);
}
END_TEST

/* A stream of bytes that depend on their offset. One piece is more than a socket takes. */
enum { LONG_BYTES = 18 << 20, LONG_PIECE = 16 << 20 };

static char long_byte(size_t at)
{
    return (char)('a' + at * 2654435761u / 65536 % 23);
}

static enum httpd_stream_result long_fill(void *ctx, struct buf *out)
{
    size_t *at = ctx;
    buf_reserve(out, LONG_PIECE);
    for (int i = 0; i < LONG_PIECE && *at < LONG_BYTES; i++)
        buf_addc(out, long_byte((*at)++));
    return *at < LONG_BYTES ? HTTPD_STREAM_MORE : HTTPD_STREAM_END;
}

static void long_open(void *ctx, struct httpd_open_stream *stream)
{
    (void)ctx, (void)stream;
}

static void on_long(void *ctx, const struct httpd_request *req, struct httpd_reply *reply)
{
    static const struct httpd_stream stream = {
        .open = long_open, .fill = long_fill, .close = free};
    (void)ctx, (void)req;
    reply->stream = &stream;
    reply->stream_ctx = xcalloc(1, sizeof(size_t));
}

static const struct httpd_route long_routes[] = {{"GET", "/long", on_long}, {0}};

/* Checks the bytes instead of storing them; 0 ends the transfer with an error. */
static size_t on_long_body(char *p, size_t size, size_t n, void *ctx)
{
    size_t *at = ctx;
    for (size_t i = 0; i < size * n; i++)
        if (p[i] != long_byte((*at)++))
            return 0;
    return size * n;
}

/* With a small window the server's socket is full again and again. */
static int small_window(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
    (void)ctx, (void)purpose;
    const int bytes = 16 * 1024;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return CURL_SOCKOPT_OK;
}

START_TEST(a_slow_reader_gets_every_byte_of_a_stream)
{
    struct pair pair;
    pair_init(&pair);
    FOR_BOTH_MODES(mode)
    {
        for (int tls = 0; tls < 2; tls++) {
            struct fixture kit;
            fixture_init(&kit, NULL);
            struct httpd_listener_config listener = fixture_listener(&kit, mode);
            listener.routes = long_routes;
            listener.cert_pem = tls ? pair.cert.p : NULL;
            listener.key_pem = tls ? pair.key.p : NULL;
            fixture_listen(&kit, &listener);
            CURL *curl = client(&kit, &pair, "/long", NULL);
            cleanup_free char *plain = xasprintf("http://127.0.0.1:%u/long", kit.port);
            size_t at = 0;
            if (!tls)
                curl_easy_setopt(curl, CURLOPT_URL, plain);
            curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_long_body);
            curl_easy_setopt(curl, CURLOPT_WRITEDATA, &at);
            curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, small_window);
            CURLcode rc = curl_easy_perform(curl);
            ck_assert_msg(rc == CURLE_OK && at == LONG_BYTES,
                          "mode %d, TLS %d: %s after %zu", mode, tls,
                          curl_easy_strerror(rc), at);
            curl_easy_cleanup(curl);
            fixture_fini(&kit);
        }
    }
    pair_fini(&pair);
}
END_TEST

START_TEST(a_client_without_tls_is_disconnected)
{
    struct pair pair;
    pair_init(&pair);
    FOR_BOTH_MODES(mode)
    {
        struct fixture kit;
        tls_start(&kit, &pair, mode, &(struct httpd_limits){.first_request_ms = 500});
        struct raw plain, silent, half;
        cleanup_buf struct buf out = {0};
        raw_open(&plain, kit.port);
        raw_open(&silent, kit.port);
        raw_open(&half, kit.port);
        raw_sendf(&plain, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_send(&half, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
        ck_assert_int_eq(raw_read_all(&plain, &out), RAW_OK);
        ck_assert(!out.n || out.p[0] != 'H');
        ck_assert(raw_ended(&silent));
        ck_assert_int_eq(raw_read_all(&half, &out), RAW_OK);
        raw_close(&plain);
        raw_close(&silent);
        raw_close(&half);
        ck_assert(raw_until(kit_is_empty, &kit));
        fixture_fini(&kit);
    }
    pair_fini(&pair);
}
END_TEST

START_TEST(a_bad_certificate_is_an_error)
{
    struct pair pair, other;
    struct fixture kit;
    struct err err = {0};
    pair_init(&pair);
    pair_init(&other);
    fixture_init(&kit, NULL);
    unsigned before = raw_count_fds();
    struct httpd_listener_config listener = fixture_listener(&kit, HTTPD_THREADS);
    listener.cert_pem = pair.cert.p;
    ck_assert_int_eq(httpd_listen(kit.d, &listener, NULL, &err), -1);
    ck_assert_str_eq(err.msg,
                     "listen on 127.0.0.1:0: expected both a certificate and its "
                     "key");
    listener.key_pem = other.key.p;
    ck_assert_int_eq(httpd_listen(kit.d, &listener, NULL, &err), -1);
    ck_assert_int_eq(err.code, ERR_INVALID);
    listener.key_pem = "not a key";
    ck_assert_int_eq(httpd_listen(kit.d, &listener, NULL, &err), -1);
    ck_assert_int_eq(strncmp(err.msg, "listen on 127.0.0.1:0: ", 23), 0);
    ck_assert_uint_eq(raw_count_fds(), before);
    fixture_fini(&kit);
    pair_fini(&pair);
    pair_fini(&other);
}
END_TEST

UNIT_MAIN("httpd_tls", https_reuses_the_connection,
          streams_and_drain_work_over_tls, a_slow_reader_gets_every_byte_of_a_stream,
          a_client_without_tls_is_disconnected, a_bad_certificate_is_an_error)
