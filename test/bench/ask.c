/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/ask.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { LIMIT_S = 40 };

struct ask {
    CURL *curl;
    struct buf reply;
};

struct ask *ask_new(void)
{
    struct ask *a = xcalloc(1, sizeof *a);
    a->curl = curl_easy_init();
    if (!a->curl)
        abort();
    return a;
}

void ask_free(struct ask *a)
{
    curl_easy_cleanup(a->curl);
    buf_fini(&a->reply);
    free(a);
}

static size_t take(char *p, size_t size, size_t n, void *reply)
{
    buf_add(reply, p, size * n);
    return size * n;
}

long ask_call(struct ask *a, const char *method, unsigned port, const char *path,
              const char *body, json_t **answer)
{
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u%s", port, path);
    bool patch = strcmp(method, "PATCH") == 0;
    struct curl_slist *headers =
        curl_slist_append(NULL, patch ? "Content-Type: application/merge-patch+json"
                                      : "Content-Type: application/json");
    long status = 0;
    buf_clear(&a->reply);
    curl_easy_reset(a->curl);
    curl_easy_setopt(a->curl, CURLOPT_URL, url);
    curl_easy_setopt(a->curl, CURLOPT_CUSTOMREQUEST, method);
    if (body)
        curl_easy_setopt(a->curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(a->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(a->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(a->curl, CURLOPT_WRITEDATA, &a->reply);
    curl_easy_setopt(a->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(a->curl, CURLOPT_TIMEOUT, (long)LIMIT_S);
    if (curl_easy_perform(a->curl) == CURLE_OK)
        curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    if (answer)
        *answer = status / 100 == 2 ? json_loadb(a->reply.p, a->reply.n, 0, NULL) : NULL;
    return status;
}

long ask_send(struct ask *a, const char *method, unsigned port, const char *path,
              json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);
    long status = ask_call(a, method, port, path, text, NULL);
    free(text);
    json_decref(body);
    return status;
}
