/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <curl/curl.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/opt.h"
#include "base/rng.h"
#include "bench/load.h"
#include "bench/server.h"

/*
 * make soak: the extender under everything at once, for a while. Pods come, are bound and
 * go, cards fall ill, watches are cut and history is compacted, the API server refuses
 * everybody for some seconds, clients send half a request, rubbish, or vanish; and all
 * the time filter is asked. Memory, descriptors and threads must be flat: what the second
 * half ends with is compared with what the first half came to.
 */

enum {
    NODES = 500,
    ALIVE = 300,   /* pods of ours at a time */
    STRANGERS = 8, /* connections of clients that behave badly, at a time */
    SAMPLE_S = 5,
    SAMPLES_MAX = 10000,
};

struct config {
    int64_t ms;
    char *build;
};

#define AT(field) offsetof(struct config, field)
static const struct opt options[] = {
    {.name = "time",
     .arg = "TIME",
     .init = "10m",
     .type = OPT_DURATION,
     .min = 20000,
     .max = 24 * 3600 * 1000,
     .offset = AT(ms),
     .help = "How long."},
    {.name = "build",
     .arg = "DIR",
     .init = "build",
     .type = OPT_STRING,
     .offset = AT(build),
     .help = "Where the programs are."},
    {0},
};
static const struct opt_program program = {
    .name = "soak",
    .summary = "the extender under everything at once",
    .version = GPUSHARE_VERSION,
    .table = options,
};

struct sample {
    double mib;
    unsigned fds, threads;
};

struct soak {
    const struct config *config;
    struct server sim, extender;
    atomic_bool end;
    struct sample samples[SAMPLES_MAX];
    size_t n_samples;
    double *p99; /* of rounds of filter calls, milliseconds */
    size_t n_p99, p99_cap;
    size_t filters, filters_failed;
    size_t created, bound, refused, outages, cuts;
    int strangers[STRANGERS];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* -- what is watched -- */

static unsigned count_fds(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 2 ? n - 2 : 0;
}

static unsigned count_threads(pid_t pid)
{
    char path[64], line[256];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "Threads:", 8) == 0)
            n = (unsigned)strtoul(line + 8, NULL, 10);
    if (f)
        fclose(f);
    return n;
}

static struct sample take_sample(const struct soak *s)
{
    pid_t pid = s->extender.pid;
    return (struct sample){server_mib(&s->extender), count_fds(pid), count_threads(pid)};
}

/* -- filter, all the time -- */

static void *ask_filter(void *arg)
{
    struct soak *s = arg;
    cleanup_buf struct buf body = {0};
    buf_adds(&body,
             "{\"Pod\":{\"metadata\":{\"name\":\"f\",\"namespace\":\"default\","
             "\"uid\":\"f\"},\"spec\":{\"containers\":[{\"resources\":{\"limits\":{"
             "\"aliyun.com/gpu-mem\":\"2\"}}}]}},\"NodeNames\":[");
    for (int i = 0; i < NODES; i++)
        buf_printf(&body, "%s\"node-%05d\"", i ? "," : "", i);
    buf_adds(&body, "]}");
    struct span request = load_request("POST", "/filter", buf_span(&body));
    struct load load = {.port = s->extender.port,
                        .connections = 4,
                        .requests = &request,
                        .n_requests = 1,
                        .calls = 400};
    while (!atomic_load(&s->end)) {
        struct load_result r;
        load_run(&load, &r);
        MEM_GROW(s->p99, s->p99_cap, s->n_p99 + 1);
        s->p99[s->n_p99++] = load_quantile(&r, 0.99);
        s->filters += r.calls;
        s->filters_failed += r.failed;
        load_result_fini(&r);
        pause_ms(50);
    }
    free((char *)request.p);
    return NULL;
}

/* -- the churn -- */

static size_t drop_bytes(char *p, size_t size, size_t n, void *ctx)
{
    (void)p, (void)ctx;
    return size * n;
}

/* The status; 0: no answer. */
static long call(CURL *curl, const char *method, unsigned port, const char *path,
                 const char *type, const char *body)
{
    cleanup_free char *url = xasprintf("http://127.0.0.1:%u%s", port, path);
    cleanup_free char *header = xasprintf("Content-Type: %s", type);
    struct curl_slist *headers = curl_slist_append(NULL, header);
    long status = 0;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop_bytes);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 40L);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    return status;
}

#define JSON  "application/json"
#define MERGE "application/merge-patch+json"

static void pod_comes(struct soak *s, CURL *curl, struct rng *rng)
{
    size_t i = s->created++;
    cleanup_free char *pod = xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"Pod\","
                                       "\"metadata\":{\"name\":\"s%zu\",\"namespace\":"
                                       "\"default\",\"uid\":\"00000000-0000-4000-8000-%"
                                       "012zx\"},\"spec\":{\"containers\":[{"
                                       "\"name\":\"c\",\"image\":\"i\",\"resources\":{"
                                       "\"limits\":{\"aliyun.com/gpu-mem\":"
                                       "\"%d\"}}}]}}",
                                       i, i, (int)rng_below(rng, 30) + 1);
    cleanup_free char *bind = xasprintf("{\"PodName\":\"s%zu\",\"PodNamespace\":"
                                        "\"default\",\"PodUID\":\"00000000-0000-4000-"
                                        "8000-%012zx\",\"Node\":\"node-%05d\"}",
                                        i, i, (int)rng_below(rng, NODES));
    /* Loaded, so that the UID is ours. */
    call(curl, "POST", s->sim.port, "/kube-sim/load", JSON, pod);
    bool good = call(curl, "POST", s->extender.port, "/bind", JSON, bind) == 200;
    *(good ? &s->bound : &s->refused) += 1;
}

static void pod_goes(struct soak *s, CURL *curl)
{
    if (s->created < ALIVE)
        return;
    cleanup_free char *path =
        xasprintf("/api/v1/namespaces/default/pods/s%zu", s->created - ALIVE);
    call(curl, "DELETE", s->sim.port, path, JSON, "{\"gracePeriodSeconds\":0}");
}

static void card_falls_ill(struct soak *s, CURL *curl, struct rng *rng)
{
    cleanup_free char *path = xasprintf("/apis/core.run-linux.com/v1/scvs/node-%05d",
                                        (int)rng_below(rng, NODES));
    cleanup_free char *body =
        xasprintf("{\"metadata\":{\"annotations\":{\"touched\":\"%d\"}}}",
                  (int)rng_below(rng, 1000));
    call(curl, "PATCH", s->sim.port, path, MERGE, body);
}

static void trouble(struct soak *s, CURL *curl, struct rng *rng)
{
    unsigned sim = s->sim.port;
    if (rng_below(rng, 4) == 0) {
        s->outages++;
        call(curl, "POST", sim, "/kube-sim/faults", JSON,
             "{\"action\":\"answer\",\"status\":503}");
        call(curl, "POST", sim, "/kube-sim/watches", JSON, "{\"action\":\"cut\"}");
        pause_ms(1000 + (long)rng_below(rng, 2000));
        call(curl, "DELETE", sim, "/kube-sim/faults", JSON, "");
        return;
    }
    s->cuts++;
    if (rng_below(rng, 2)) /* then the kinds are listed anew */
        call(curl, "POST", sim, "/kube-sim/compact", JSON, "{}");
    call(curl, "POST", sim, "/kube-sim/watches", JSON, "{\"action\":\"cut\"}");
}

/* One client that behaves badly gives its place to the next. */
static void stranger(struct soak *s, struct rng *rng)
{
    static const char *const words[] = {
        "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{\"Pod\":",
        "GET /inspect HTTP/1.1\r\nHost: x\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "POST /bind HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n",
        "",
    };
    int *fd = &s->strangers[rng_below(rng, STRANGERS)];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)s->extender.port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (*fd > 0)
        close(*fd);
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const char *word = words[rng_below(rng, ARRAY_LEN(words))];
    if (connect(*fd, (struct sockaddr *)&to, sizeof to) == 0 &&
        send(*fd, word, strlen(word), MSG_NOSIGNAL) < 0)
        return; /* it has been refused already */
}

static void churn(struct soak *s)
{
    CURL *curl = curl_easy_init();
    struct rng rng;
    rng_init(&rng, 1);
    int64_t start = now_ms(), sampled = start, troubled = start;
    while (now_ms() - start < s->config->ms) {
        pod_comes(s, curl, &rng);
        pod_goes(s, curl);
        if (rng_below(&rng, 4) == 0)
            card_falls_ill(s, curl, &rng);
        if (rng_below(&rng, 4) == 0)
            stranger(s, &rng);
        if (now_ms() - troubled > 4000) {
            troubled = now_ms();
            trouble(s, curl, &rng);
        }
        if (now_ms() - sampled > SAMPLE_S * 1000 && s->n_samples < SAMPLES_MAX) {
            sampled = now_ms();
            s->samples[s->n_samples++] = take_sample(s);
        }
    }
    for (int i = 0; i < STRANGERS; i++)
        if (s->strangers[i] > 0)
            close(s->strangers[i]);
    curl_easy_cleanup(curl);
}

/* -- the end -- */

static struct sample highest(const struct soak *s, size_t from, size_t to)
{
    struct sample high = {0};
    for (size_t i = from; i < to; i++) {
        const struct sample *x = &s->samples[i];
        high.mib = x->mib > high.mib ? x->mib : high.mib;
        high.fds = x->fds > high.fds ? x->fds : high.fds;
        high.threads = x->threads > high.threads ? x->threads : high.threads;
    }
    return high;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int judge(struct soak *s)
{
    size_t half = s->n_samples / 2;
    struct sample a = highest(s, 0, half), b = highest(s, half, s->n_samples);
    struct {
        const char *what;
        bool ok;
    } checks[] = {
        {"memory is flat", b.mib <= a.mib * 1.05 + 2},
        {"descriptors are flat", b.fds <= a.fds + 4},
        {"threads are flat", b.threads <= a.threads + 4},
        {"pods were bound", s->bound > s->refused},
        {"filter was answered", s->filters > s->filters_failed * 10},
    };
    qsort(s->p99, s->n_p99, sizeof *s->p99, by_value);
    printf(
        "pods %zu, bound %zu, not bound %zu; outages %zu, watches cut %zu; filter calls "
        "%zu, %zu of them refused while the lists were old\n",
        s->created, s->bound, s->refused, s->outages, s->cuts, s->filters,
        s->filters_failed);
    printf("                 first half  second half\n"
           "  resident MiB   %10.1f  %11.1f\n  descriptors    %10u  %11u\n"
           "  threads        %10u  %11u\n",
           a.mib, b.mib, a.fds, b.fds, a.threads, b.threads);
    printf("  filter of %d names, p99 of 400 calls: median %.2f ms, worst %.2f ms\n",
           NODES, s->p99[s->n_p99 / 2], s->p99[s->n_p99 - 1]);
    int failed = 0;
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        printf("  %-4s %s\n", checks[i].ok ? "ok" : "FAIL", checks[i].what);
        failed += !checks[i].ok;
    }
    printf("%d passed, %d failed\n", (int)ARRAY_LEN(checks) - failed, failed);
    return failed;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f))
        exit(1);
}

static void start_programs(struct soak *s, const char *dir)
{
    cleanup_free char *sim = xasprintf("%s/kube-sim", s->config->build);
    cleanup_free char *extender = xasprintf("%s/gpushare-extender", s->config->build);
    cleanup_free char *sim_log = xasprintf("%s/kube-sim.log", dir);
    cleanup_free char *log = xasprintf("%s/extender.log", dir);
    cleanup_free char *kubeconfig = xasprintf("%s/kubeconfig", dir);
    cleanup_free char *what = xasprintf("nodes=%d,cards=8,pods=4,full=10,uuid=1", NODES);
    server_start(&s->sim, sim_log,
                 (const char *const[]){sim, "--port", "0", "--run-pods", "--generate",
                                       what, "--history", "20000", NULL});
    cleanup_free char *text =
        xasprintf("{\"apiVersion\":\"v1\",\"kind\":\"Config\",\"current-context\":\"s\","
                  "\"clusters\":[{\"name\":\"s\",\"cluster\":{\"server\":"
                  "\"http://127.0.0.1:%u\"}}],\"users\":[{\"name\":\"s\",\"user\":{}}],"
                  "\"contexts\":[{\"name\":\"s\",\"context\":{\"cluster\":\"s\",\"user\":"
                  "\"s\"}}]}",
                  s->sim.port);
    write_text(kubeconfig, text);
    server_start(&s->extender, log,
                 (const char *const[]){extender, "--kubeconfig", kubeconfig, "--listen",
                                       "127.0.0.1", "--port", "0", "--observe-port", "0",
                                       "--log-level", "error", NULL});
    server_wait(&s->extender, "/readyz");
}

int main(int argc, char **argv)
{
    struct config config = {0};
    struct err err;
    static struct soak s;
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum opt_result r =
        opt_load(&program, &config, argc, argv, (char *[]){NULL}, NULL, stdout, &err);
    if (r == OPT_FAILED)
        fprintf(stderr, "soak: %s\n", err.msg);
    if (r != OPT_RUN)
        return r == OPT_FAILED ? 2 : 0;
    char dir[] = "/tmp/gpushare-soak-XXXXXX";
    if (!mkdtemp(dir)) {
        perror("soak: mkdtemp");
        return 1;
    }
    s.config = &config;
    start_programs(&s, dir);
    pthread_t asker;
    if (pthread_create(&asker, NULL, ask_filter, &s))
        abort();
    churn(&s);
    atomic_store(&s.end, true);
    pthread_join(asker, NULL);
    int failed = judge(&s);
    server_stop(&s.extender);
    server_stop(&s.sim);
    static const char *const files[] = {"kube-sim.log", "extender.log", "kubeconfig"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cleanup_free char *path = xasprintf("%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
    free(s.p99);
    opt_free(&program, &config);
    return failed != 0;
}
