/* SPDX-License-Identifier: Apache-2.0 */
#include "kube-sim/cases_http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <time.h>

#include "lib/lib.h"

enum { CALL_MS = 60 * 1000, NEXT_MS = 60 * 1000, QUIET_MS = 50 };

struct cases_http {
    struct cases_http_config config;
    CURL *curl; /* of sequential calls */
};

struct watch {
    CURLM *multi;
    CURL *curl;
    struct curl_slist *headers;
    struct cases_reply reply; /* body: unread bytes */
    bool ended;
};

/* -- a request -- */

static size_t on_body(char *p, size_t size, size_t n, void *ctx)
{
    buf_add(ctx, p, size * n);
    return size * n;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx)
{
    struct cases_reply *reply = ctx;
    char text[4096], *colon;
    snprintf(text, sizeof text, "%.*s", (int)(size * n), p);
    text[strcspn(text, "\r\n")] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        json_decref(reply->headers);
        reply->headers = json_object();
    } else if ((colon = strchr(text, ':'))) {
        *colon++ = '\0';
        for (char *c = text; *c; c++)
            *c = (char)tolower((unsigned char)*c);
        json_object_set_new(reply->headers, text,
                            json_string(colon + strspn(colon, " ")));
    }
    return size * n;
}

static void add_header(struct curl_slist **list, const char *name, const char *value)
{
    *list = curl_slist_append(*list, lib_fmt("%s: %s", name, value));
}

static struct curl_slist *headers_of(CURL *c, const struct cases_request *req)
{
    struct curl_slist *list = curl_slist_append(NULL, "Expect:");
    const char *name;
    json_t *value;
    add_header(&list, "Accept", req->accept ? req->accept : "application/json");
    if (req->body.n)
        add_header(&list, "Content-Type", req->type ? req->type : "application/json");
    json_object_foreach((json_t *)req->headers, name, value)
    {
        if (strcmp(name, "accept-encoding") == 0) /* makes libcurl decode the body */
            curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "gzip");
        add_header(&list, name, json_string_value(value));
    }
    return list;
}

static struct curl_slist *prepare(const struct cases_http *h, CURL *c,
                                  const struct cases_request *req,
                                  struct cases_reply *reply)
{
    struct curl_slist *list = NULL;
    *reply = (struct cases_reply){0};
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, lib_fmt("%s%s", h->config.url, req->path));
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, req->method);
    if (req->body.n) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)req->body.n);
        curl_easy_setopt(c, CURLOPT_COPYPOSTFIELDS, req->body.p);
    } else if (strcmp(req->method, "GET") != 0) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, "");
    }
    list = headers_of(c, req);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &reply->body);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, reply);
    curl_easy_setopt(c, CURLOPT_CAINFO, h->config.ca);
    curl_easy_setopt(c, CURLOPT_SSLCERT, h->config.cert);
    curl_easy_setopt(c, CURLOPT_SSLKEY, h->config.key);
    return list;
}

static unsigned status_of(CURL *c)
{
    long status = 0;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    return (unsigned)status;
}

static bool try_call(struct cases_http *h, const struct cases_request *req,
                     struct cases_reply *reply)
{
    struct curl_slist *list = prepare(h, h->curl, req, reply);
    curl_easy_setopt(h->curl, CURLOPT_TIMEOUT_MS, (long)CALL_MS);
    CURLcode rc = curl_easy_perform(h->curl);
    curl_slist_free_all(list);
    reply->status = status_of(h->curl);
    if (rc)
        buf_adds(&reply->body, curl_easy_strerror(rc));
    return rc == CURLE_OK;
}

static void call(void *ctx, const struct cases_request *req, struct cases_reply *reply)
{
    if (!try_call(ctx, req, reply))
        ck_abort_msg("%s %s: %.*s", req->method, req->path, (int)reply->body.n,
                     reply->body.p);
}

unsigned cases_http_ask(struct cases_http *h, const char *method, const char *path,
                        const char *body)
{
    struct cases_reply reply;
    struct cases_request req = {
        .method = method, .path = path, .body = span_of(body ? body : "")};
    bool answered = try_call(h, &req, &reply);
    unsigned status = answered ? reply.status : 0;
    json_decref(reply.headers);
    buf_fini(&reply.body);
    return status;
}

/* -- watches -- */

/* Runs the transfer until something may have changed, for at most this time. */
static void move(struct watch *w, int64_t ms)
{
    int running = 0;
    curl_multi_perform(w->multi, &running);
    if (running && ms > 0 && !w->reply.body.n) {
        curl_multi_poll(w->multi, NULL, 0, (int)ms, NULL);
        curl_multi_perform(w->multi, &running);
    }
    w->ended = !running;
}

static void watch_close(void *ctx, void *watch)
{
    struct watch *w = watch;
    (void)ctx;
    curl_multi_remove_handle(w->multi, w->curl);
    curl_easy_cleanup(w->curl);
    curl_multi_cleanup(w->multi);
    curl_slist_free_all(w->headers);
    json_decref(w->reply.headers);
    buf_fini(&w->reply.body);
    free(w);
}

/* Waits for the status; if it is not that of a watch, for the complete body. */
static void watch_open(void *ctx, const struct cases_request *req, void **watch,
                       struct cases_reply *reply)
{
    int64_t end = lib_now_ms() + CALL_MS;
    struct watch *w = xcalloc(1, sizeof *w);
    w->multi = curl_multi_init();
    w->curl = curl_easy_init();
    w->headers = prepare(ctx, w->curl, req, &w->reply);
    curl_multi_add_handle(w->multi, w->curl);
    while (!w->ended && lib_now_ms() < end && status_of(w->curl) != 200)
        move(w, 100);
    *reply = (struct cases_reply){.status = status_of(w->curl)};
    ck_assert_msg(reply->status, "%s: no reply", req->path);
    reply->headers = json_incref(w->reply.headers);
    *watch = NULL;
    if (reply->status == 200) {
        *watch = w;
        return;
    }
    buf_add_span(&reply->body, buf_span(&w->reply.body));
    watch_close(ctx, w);
}

static bool take_line(struct watch *w, struct buf *line)
{
    struct span rest = buf_span(&w->reply.body);
    const char *end = rest.n ? memchr(rest.p, '\n', rest.n) : NULL;
    if (!end)
        return false;
    size_t n = (size_t)(end + 1 - rest.p);
    buf_add(line, rest.p, n);
    memmove(w->reply.body.p, end + 1, rest.n - n);
    w->reply.body.n -= n;
    return true;
}

static int next_within(struct watch *w, int64_t ms, struct buf *line)
{
    int64_t end = lib_now_ms() + ms, now;
    while (!take_line(w, line)) {
        if (w->ended)
            return -1;
        if ((now = lib_now_ms()) >= end)
            return 0;
        move(w, end - now);
    }
    return 1;
}

static int next(void *ctx, void *watch, struct buf *line)
{
    (void)ctx;
    return next_within(watch, NEXT_MS, line);
}

static bool quiet(void *ctx, void *watch)
{
    cleanup_buf struct buf line = {0};
    (void)ctx;
    return next_within(watch, QUIET_MS, &line) == 0;
}

void cases_http_wait(void *ctx, int64_t ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)ctx;
    nanosleep(&t, NULL);
}

/* -- the server -- */

struct cases_http *cases_http_new(const struct cases_http_config *config)
{
    struct cases_http *h = xcalloc(1, sizeof *h);
    curl_global_init(CURL_GLOBAL_ALL);
    h->curl = curl_easy_init();
    h->config = *config;
    return h;
}

void cases_http_free(struct cases_http *h)
{
    curl_easy_cleanup(h->curl);
    free(h);
}

void cases_http_server(struct cases_http *h, struct cases_server *server)
{
    server->call = call;
    server->watch = watch_open;
    server->next = next;
    server->quiet = quiet;
    server->close = watch_close;
    server->wait = cases_http_wait;
    server->ctx = h;
}
