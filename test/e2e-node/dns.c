/* SPDX-License-Identifier: Apache-2.0 */
#include "e2e-node/dns.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

#include "e2e-node/cell.h"
#include "lib/cluster.h"

/* RFC 1035, section 4. */
enum {
    PORT = 53,
    MESSAGE = 512,
    HEADER = 12,
    NAME_MAX_BYTES = 255,
    QUESTION_END = 4, /* type and class */
    TYPE_A = 1,
    CLASS_IN = 1,
    TTL_S = 5,
    ANSWER = 16,
    NO_NAME = 3,
};

struct query {
    char name[NAME_MAX_BYTES + 1]; /* lower case, with dots, without the last one */
    unsigned type, class;
    size_t end; /* offset behind the question */
};

/* -- the message -- */

static int parse(const unsigned char *m, size_t n, struct query *q)
{
    size_t at = HEADER, k = 0;
    if (n < HEADER || m[4] != 0 || m[5] != 1)
        return -1;
    while (at < n && m[at]) {
        size_t label = m[at++];
        if (label > 63 || at + label > n || k + label + 1 > NAME_MAX_BYTES)
            return -1;
        if (k)
            q->name[k++] = '.';
        for (size_t i = 0; i < label; i++)
            q->name[k++] = (char)tolower(m[at++]);
    }
    q->name[k] = '\0';
    at++;
    if (at + QUESTION_END > n)
        return -1;
    q->type = (unsigned)m[at] << 8 | m[at + 1];
    q->class = (unsigned)m[at + 2] << 8 | m[at + 3];
    q->end = at + QUESTION_END;
    return 0;
}

/* Turns the query into its answer. Returns its length. `address`: NULL for no record. */
static size_t answer(unsigned char *m, size_t end, int code,
                     const struct in_addr *address)
{
    static const unsigned char record[] = {0xc0, HEADER, 0, TYPE_A, 0, CLASS_IN,
                                           0,    0,      0, TTL_S,  0, 4};
    m[2] = (unsigned char)(0x84 | (m[2] & 0x79)); /* an authoritative answer */
    m[3] = (unsigned char)code;
    memset(m + 6, 0, 6); /* no record, also not the EDNS of the query */
    if (!address)
        return end;
    m[7] = 1;
    memcpy(m + end, record, sizeof record);
    memcpy(m + end + sizeof record, address, sizeof *address);
    return end + ANSWER;
}

/* -- Services -- */

/* The Service with this name among all; NULL: there is none. */
static const json_t *find(const json_t *services, const char *name)
{
    json_t *s;
    lib_each(s, services)
        if (strcmp(name, lib_fmt("%s.%s.svc." DNS_DOMAIN, lib_str(s, "metadata.name"),
                                 lib_str(s, "metadata.namespace"))) == 0)
            return s;
    return NULL;
}

/* 0: no answer; the client asks again. */
static size_t reply_to(unsigned char *m, size_t n)
{
    struct query q;
    struct in_addr address;
    cleanup_buf struct buf reply = {0};
    if (parse(m, n, &q) ||
        peer_call(&cluster.api, "GET", "/api/v1/services", NULL, &reply) != 200)
        return 0;
    const json_t *service = find(lib_at(lib_parse(reply.p, reply.n), "items"), q.name);
    bool known = inet_pton(AF_INET, lib_str(service, "spec.clusterIP"), &address) == 1;
    return answer(m, q.end, known ? 0 : NO_NAME,
                  known && q.type == TYPE_A && q.class == CLASS_IN ? &address : NULL);
}

static void *serve(void *arg)
{
    const int fd = *(const int *)arg;
    for (;;) {
        unsigned char message[MESSAGE + ANSWER];
        struct sockaddr_in from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(fd, message, MESSAGE, 0, (struct sockaddr *)&from, &size);
        size_t mark = lib_mark(), k = n > 0 ? reply_to(message, (size_t)n) : 0;
        lib_release(mark);
        if (k)
            sendto(fd, message, k, 0, (struct sockaddr *)&from, size);
    }
    return NULL;
}

void dns_start(void)
{
    static int fd;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    pthread_t thread;
    inet_pton(AF_INET, CELL_ADDRESS, &address.sin_addr);
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_msg(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0,
                  "UDP port 53 of " CELL_ADDRESS ": %s", strerror(errno));
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, &fd), 0);
    pthread_detach(thread);
}
