/* SPDX-License-Identifier: Apache-2.0 */
#include <gnutls/gnutls.h>
#include <unistd.h>

#include "lib/temp.h"
#include "lib/tls.h"
#include "wire/httpd_fixture.h"
#include "wire/tls.h"

/* New connections of a listener with TLS and a thread per connection. */

enum { CLIENTS = 60, NEVER_MS = 10 * 60 * 1000 };

struct server {
    char *dir;
    struct tls *tls;
    struct fixture kit;
};

static void begin(struct server *w, const struct httpd_limits *limits, unsigned connections)
{
    struct err err = {0};
    *w = (struct server){.dir = temp_dir()};
    tls_make_ca(w->dir, "ca");
    tls_make_cert(w->dir, "ca", "server", "IP:127.0.0.1");
    cleanup_free char *cert = temp_path(w->dir, "server.crt"),
                      *key = temp_path(w->dir, "server.key");
    struct tls_config config = {.name = "test", .cert_file = cert, .key_file = key};
    w->tls = tls_new(&config, &err);
    ck_assert_msg(w->tls != NULL, "%s", err.msg);
    fixture_init(&w->kit, limits);
    struct httpd_listener_config listener = fixture_listener(&w->kit, HTTPD_THREADS);
    listener.tls = w->tls;
    listener.connections = connections;
    fixture_listen(&w->kit, &listener);
}

static void end(struct server *w)
{
    fixture_fini(&w->kit);
    tls_free(w->tls);
    temp_dir_remove(w->dir);
    free(w->dir);
}

static struct httpd_stats stats_of(const struct server *w)
{
    struct httpd_stats stats;
    httpd_stats(w->kit.d, &stats);
    return stats;
}

/* A new connection, a request, the whole reply. */
static bool is_answered(struct server *w)
{
    static const char get[] =
        "GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    char reply[1024] = "";
    struct raw c;
    gnutls_session_t session;
    gnutls_certificate_credentials_t none;
    int rc;
    if (!raw_try_open(&c, w->kit.port))
        return false;
    gnutls_certificate_allocate_credentials(&none);
    gnutls_init(&session, GNUTLS_CLIENT);
    gnutls_set_default_priority(session);
    gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, none);
    gnutls_transport_set_int(session, c.fd);
    do
        rc = gnutls_handshake(session);
    while (rc < 0 && !gnutls_error_is_fatal(rc));
    bool ok = rc == 0 && gnutls_record_send(session, get, sizeof get - 1) > 0 &&
              gnutls_record_recv(session, reply, sizeof reply - 1) > 0 &&
              strncmp(reply, "HTTP/1.1 200", 12) == 0;
    gnutls_deinit(session);
    gnutls_certificate_free_credentials(none);
    raw_close(&c);
    return ok;
}

static void *call(void *arg)
{
    return is_answered(arg) ? arg : NULL;
}

static bool all_wait(void *ctx)
{
    return stats_of(ctx).connections == CLIENTS;
}

static bool is_empty(void *ctx)
{
    return stats_of(ctx).connections == 0;
}

START_TEST(a_silent_client_is_closed_in_time)
{
    struct server w;
    struct raw silent[CLIENTS];
    begin(&w, &(struct httpd_limits){.first_request_ms = 500}, 0);
    for (int i = 0; i < CLIENTS; i++) {
        raw_open(&silent[i], w.kit.port);
        if (i % 2)
            raw_send(&silent[i], "\x16\x03\x01\x02\x00\x01\x00\x01", 8);
    }
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert(raw_ended(&silent[i]));
        raw_close(&silent[i]);
    }
    ck_assert(raw_until(is_empty, &w));
    ck_assert_uint_eq(stats_of(&w).timed_out, CLIENTS);
    end(&w);
}
END_TEST

START_TEST(a_client_that_leaves_while_it_waits_is_forgotten)
{
    struct server w;
    struct raw silent[CLIENTS];
    begin(&w, NULL, 0);
    for (int i = 0; i < CLIENTS; i++)
        raw_open(&silent[i], w.kit.port);
    ck_assert(raw_until(all_wait, &w));
    for (int i = 0; i < CLIENTS; i++)
        (i % 2 ? raw_close : raw_reset)(&silent[i]);
    ck_assert(raw_until(is_empty, &w));
    end(&w);
}
END_TEST

/* A record that is complete, with a part of a ClientHello: its handshake never ends. */
START_TEST(an_incomplete_hello_does_not_hold_the_others)
{
    struct server w;
    struct raw half[CLIENTS];
    begin(&w, NULL, 0);
    for (int i = 0; i < CLIENTS; i++) {
        raw_open(&half[i], w.kit.port);
        raw_send(&half[i], "\x16\x03\x01\x00\x06\x01\x00\x02\x00\x03\x03", 11);
    }
    ck_assert(raw_until(all_wait, &w));
    ck_assert(is_answered(&w));
    for (int i = 0; i < CLIENTS; i++)
        raw_close(&half[i]);
    ck_assert(raw_until(is_empty, &w));
    end(&w);
}
END_TEST

START_TEST(clients_that_come_at_once_are_all_answered)
{
    struct server w;
    pthread_t clients[CLIENTS];
    begin(&w, NULL, 2 * CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        ck_assert_int_eq(pthread_create(&clients[i], NULL, call, &w), 0);
    for (int i = 0; i < CLIENTS; i++) {
        void *answered;
        pthread_join(clients[i], &answered);
        ck_assert_ptr_nonnull(answered);
    }
    ck_assert(raw_until(is_empty, &w));
    end(&w);
}
END_TEST

/* Also on a listener that cannot hold them all. */
START_TEST(bytes_that_are_no_tls_are_closed)
{
    struct server w;
    begin(&w, NULL, 16);
    for (int i = 0; i < CLIENTS; i++) {
        struct raw c;
        raw_open(&c, w.kit.port);
        raw_sendf(&c, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
        cleanup_buf struct buf rest = {0};
        raw_read_all(&c, &rest); /* at most an alert */
        ck_assert_uint_lt(rest.n, 16);
        raw_close(&c);
    }
    ck_assert(is_answered(&w));
    end(&w);
}
END_TEST

START_TEST(a_full_listener_closes_the_silent_and_answers)
{
    enum { FULL = 16 };
    struct server w;
    struct raw silent[CLIENTS];
    begin(&w, NULL, FULL);
    for (int i = 0; i < CLIENTS; i++)
        raw_open(&silent[i], w.kit.port);
    ck_assert(is_answered(&w));
    ck_assert_uint_gt(stats_of(&w).evicted, 0);
    for (int i = 0; i < CLIENTS; i++)
        raw_close(&silent[i]);
    ck_assert(raw_until(is_empty, &w));
    end(&w);
}
END_TEST

START_TEST(a_drain_ends_the_wait)
{
    struct server w;
    struct raw silent[CLIENTS];
    begin(&w, NULL, 0);
    for (int i = 0; i < CLIENTS; i++)
        raw_open(&silent[i], w.kit.port);
    ck_assert(raw_until(all_wait, &w));
    ck_assert(httpd_drain(w.kit.d, RAW_WAIT_MS));
    ck_assert(is_empty(&w));
    for (int i = 0; i < CLIENTS; i++) {
        ck_assert(raw_ended(&silent[i]));
        raw_close(&silent[i]);
    }
    end(&w);
}
END_TEST

START_TEST(a_stop_ends_the_wait)
{
    struct server w;
    struct raw silent[CLIENTS];
    begin(&w, NULL, 0);
    for (int i = 0; i < CLIENTS; i++)
        raw_open(&silent[i], w.kit.port);
    ck_assert(raw_until(all_wait, &w));
    end(&w);
    for (int i = 0; i < CLIENTS; i++)
        raw_close(&silent[i]);
}
END_TEST

UNIT_MAIN("httpd_handshake", a_silent_client_is_closed_in_time,
          a_client_that_leaves_while_it_waits_is_forgotten,
          an_incomplete_hello_does_not_hold_the_others,
          clients_that_come_at_once_are_all_answered, bytes_that_are_no_tls_are_closed,
          a_full_listener_closes_the_silent_and_answers, a_drain_ends_the_wait,
          a_stop_ends_the_wait)
