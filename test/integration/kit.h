/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

#include "support/program.h"
#include "support/temp.h"
#include "support/unit.h"
#include "wire/httpc.h"

/*
 * The real programs, started by a test: kube-sim, extenders in front of it, requests to
 * them, and an oracle that works out from the API objects alone what has been promised.
 * Whatever goes wrong here fails the test.
 */

/* -- suites -- */

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { KIT_SLOWER = 4 };
#else
enum { KIT_SLOWER = 1 };
#endif

extern const char *kit_dir; /* a directory of this test's own */

/* Runs the tests; each has so many seconds, more under sanitizers. */
int kit_run(const char *name, const TTest *const *tests, size_t n, double seconds);
#define KIT_MAIN(name, seconds, ...)                                                     \
    int main(void)                                                                       \
    {                                                                                    \
        const TTest *const tests[] = {__VA_ARGS__};                                      \
        return kit_run(name, tests, sizeof tests / sizeof *tests, seconds);              \
    }

/* Runs fn(ctx, 0) ... fn(ctx, n - 1) in n threads and waits for them. */
void kit_threads(size_t n, void (*fn)(void *ctx, size_t i), void *ctx);

/* Evaluates the condition until it holds, for PROGRAM_WAIT_MS at most. */
#define kit_wait(condition)                                                              \
    do {                                                                                 \
        int64_t kit_end_ = kit_now_ms() + PROGRAM_WAIT_MS;                               \
        while (!(condition)) {                                                           \
            ck_assert_msg(kit_now_ms() < kit_end_, "never true: %s", #condition);        \
            kit_pause();                                                                 \
        }                                                                                \
    } while (0)
int64_t kit_now_ms(void);
void kit_pause(void); /* a few milliseconds */

/* -- requests -- */

struct peer {
    unsigned port;
    struct httpc *http;
    const char *authorization; /* or NULL */
};

void peer_init(struct peer *p, unsigned port);
/* With TLS; the server must show a certificate of this authority (a file). */
void peer_init_tls(struct peer *p, unsigned port, const char *ca);
void peer_fini(struct peer *p);
/* Sends and returns the status; 0 when no answer came. The body of the answer replaces
 * what is in *reply. `body` NULL: none. From any thread. */
unsigned peer_call(const struct peer *p, const char *method, const char *path,
                   const char *body, struct buf *reply);
/* The same with an answer of 2xx that is JSON. New. */
json_t *peer_json(const struct peer *p, const char *method, const char *path,
                  const char *body);
unsigned peer_status(const struct peer *p, const char *path); /* of a GET */

static inline void kit_json_free(json_t **j)
{
    json_decref(*j);
}
#define cleanup_json __attribute__((cleanup(kit_json_free)))
/* The value behind a path such as "metadata.name"; borrowed, NULL if there is none. */
json_t *kit_at(const json_t *j, const char *path);
const char *kit_str(const json_t *j, const char *path); /* "" if there is none */

/* -- kube-sim -- */

struct sim {
    struct program program;
    struct peer api;
    char *authorization; /* or NULL */
};

/* With further options, that end with NULL; then a free Lease and nothing else. */
void sim_start(struct sim *s, const char *const *more);
/* With TLS, by a certificate of kit_dir/CA.crt that tls_make_cert made as CERT, and a
 * token. `port` 0 takes a free one. */
struct sim_security {
    const char *ca, *cert, *token;
    unsigned port;
};
void sim_start_secure(struct sim *s, const struct sim_security *how,
                      const char *const *more);
void sim_stop(struct sim *s);

/* A JSON object, or an array of them; the same again replaces it. */
void sim_load(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_add_lease(const struct sim *s); /* the extender's, free */
/* A Node and its Scv: cards of so many units (GiB), with UUIDs "GPU-<name>-<i>". */
void sim_add_node(const struct sim *s, const char *name, int cards, int units);
/* The Scv alone; card `unhealthy` is, -1: none. */
void sim_add_scv(const struct sim *s, const char *name, int cards, int units,
                 int unhealthy);
/* A pod in namespace default, with UID "uid-<name>", that waits for so many units. */
void sim_add_pod(const struct sim *s, const char *name, int units);
/* A pod that somebody else has bound; `annotations` is a JSON object. */
void sim_add_bound_pod(const struct sim *s, const char *name, int units, const char *node,
                       const char *annotations);
void sim_delete_pod(const struct sim *s, const char *name); /* at once */

/* Rules of failing (docs/kube-sim.md), and what became of them. */
void sim_fault(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void sim_no_faults(const struct sim *s);
int sim_fired(const struct sim *s); /* of all rules together */
/* "cut", "end", "stall", "release" to the watches of a resource, NULL: of all. */
void sim_watches(const struct sim *s, const char *action, const char *resource);
/* How many requests of a verb and resource there were. `sub`: subresource, or "". */
int sim_count(const struct sim *s, const char *verb, const char *resource,
              const char *sub);
int sim_watching(const struct sim *s, const char *resource); /* watches that are open */
int sim_bound(const struct sim *s);                          /* pods that have a node */

/* -- extender -- */

struct extender {
    struct program program;
    struct peer verbs, observers;
};

/* Writes kit_dir/NAME: the server, further members of cluster and user as YAML flow
 * ("", or ", token: x"). Returns the path, new. */
char *kit_kubeconfig(const char *name, const char *scheme, unsigned port,
                     const char *cluster, const char *user);
/* Starts it with further options (end with NULL) and waits until it listens. */
void extender_start_at(struct extender *e, const char *kubeconfig,
                       const char *const *more);
/* The same in front of a kube-sim without token and TLS, until it is ready. */
void extender_start(struct extender *e, const struct sim *s, const char *const *more);
void extender_stop(struct extender *e); /* cleanly */
void extender_kill(struct extender *e); /* SIGKILL */
bool extender_ready(const struct extender *e);
void extender_wait_ready(const struct extender *e);

/* The request bodies of kube-scheduler for a pod as sim_add_pod makes it. */
void kit_filter_body(struct buf *out, const char *pod, int units,
                     const char *const *nodes);
void kit_bind_body(struct buf *out, const char *pod, const char *node);

/* True: bound. Otherwise `why` says why not (may be NULL). */
bool extender_bind(const struct extender *e, const char *pod, const char *node,
                   struct buf *why);
enum fit { FITS, NOT_NOW, NEVER, UNANSWERED };
/* Does a new pod of so many units fit on the node? */
enum fit extender_filter(const struct extender *e, int units, const char *node,
                         struct buf *why);
/* What inspect says of a node. New. */
json_t *extender_inspect(const struct extender *e, const char *node);

/* -- oracle -- */

/* Units promised per card by the annotations of pods that hold them:
 * {"<node>/<card>": units}, cards without any left out. New. */
json_t *oracle_promised(const struct sim *s);
/* Fails when a card is promised more than its Scv says it has. */
void oracle_check(const struct sim *s);
/* Waits until inspect says the same as the annotations and no bind is in flight; then
 * checks the sizes. */
void oracle_agrees(const struct sim *s, const struct extender *e);
