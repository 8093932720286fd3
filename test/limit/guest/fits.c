/* SPDX-License-Identifier: Apache-2.0 */

/* What a driver grants and the limit has room for: nothing of it is refused. See guest.c. */

#include "limit/guest/guest.h"

#include <pthread.h>
#include <unistd.h>

enum { TIMES = 20, EACH_MIB = 20 };
#define ALL (LIMIT_MIB * MIB - FAKE_CONTEXT)

/* As programs of CUDA before 4.0 end a context. */
static void detach(void)
{
    dptr p;
    void *c = NULL, *again = NULL;
    unsigned long long before = available();
    for (int i = 0; i < TIMES; i++) {
        CHECK("create", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
        CHECK("in it", linear(EACH_MIB * MIB, &p), 0);
        CHECK("attach", CALL(cuCtxAttach, &again, 0u), 0);
        CHECK("detach", CALL(cuCtxDetach, again), 0);
        CHECK("still there", available(), before - EACH_MIB * MIB - FAKE_CONTEXT);
        CHECK("detach", CALL(cuCtxDetach, c), 0);
        CALL(cuCtxSetCurrent, context);
        CHECK("gone", available(), before);
    }
}

/* Contexts of OpenGL and VDPAU are contexts. */
static void graphics(void)
{
    static const char *const ways[] = {"cuGLCtxCreate", "cuGLCtxCreate_v2",
                                       "cuVDPAUCtxCreate", "cuVDPAUCtxCreate_v2"};
    unsigned long long before = available();
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        void *c = NULL;
        CHECK(ways[i], get(ways[i])(&c, 0u, 0, NULL), 0);
        CHECK(ways[i], available(), before - FAKE_CONTEXT);
        CHECK(ways[i], CALL(cuCtxDestroy_v2, c), 0);
        CALL(cuCtxSetCurrent, context);
        CHECK(ways[i], available(), before);
    }
}

static int add_alloc(void *graph, void **last, dptr *p)
{
    struct alloc_node a = {.pool = {.type = 1, .location = 1}, .bytes = EACH_MIB * MIB};
    int rc = CALL(cuGraphAddMemAllocNode, last, graph, last, (size_t)(*last != NULL), &a);
    *p = a.pointer;
    return rc;
}

/* A graph that frees what it allocates, if asked to. */
static void *new_body(bool frees)
{
    void *graph = new_graph(), *last = NULL;
    dptr p = 0;
    CHECK("alloc", add_alloc(graph, &last, &p), 0);
    if (frees)
        CHECK("free",
              CALL(cuGraphAddMemFreeNode, &last, graph, &last, (size_t)(last != NULL), p),
              0);
    return graph;
}

/* A graph that moves into another one ends with that, also as an executable one. */
static void child(void)
{
    unsigned long long before = available();
    dptr p = 0, exec = 0;
    for (int i = 0; i < TIMES; i++) {
        void *parent = new_graph(), *node = NULL;
        if (i % 2) /* a parent with memory of its own */
            CHECK("own", add_alloc(parent, &node, &p), 0);
        struct node_params move = {.type = 4, .child = {new_body(i % 4 < 2), 1}};
        CHECK("move",
              CALL(cuGraphAddNode_v2, &node, parent, NULL, NULL, (size_t)0, &move), 0);
        CHECK("counted", available(), before - (1 + i % 2) * EACH_MIB * MIB);
        CHECK("launch", launch(0, parent, i % 3, &exec), 0);
        CHECK("executable", available(), before - (1 + i % 2) * EACH_MIB * MIB);
        CHECK("end", node_trim(exec), 0);
        CHECK("all", linear(ALL, &p), 0);
        CHECK("all", linear_free(p), 0);
        CHECK("left", available(), before);
    }
}

/* Graphs that run one after the other use the same memory. Those that leave some need more. */
static void graphs(void)
{
    dptr exec[TIMES], p = 0;
    unsigned long long before = available();
    for (int i = 0; i < TIMES; i++)
        CHECK("launch", launch(0, new_body(true), i % 3, &exec[i]), 0);
    CHECK("counted", available() <= before - EACH_MIB * MIB, 1);
    CHECK("beside", linear(ALL - EACH_MIB * MIB, &p), 0);
    CHECK("more", linear(1, &p), OUT_OF_MEMORY);
    CHECK("free", linear_free(p), 0);
    /* Each change of a graph counts from the next synchronization on, though the driver holds the
     * same: one that keeps memory, that frees it, that is gone, and that moves. */
    for (int frees = 0; frees < 2; frees++) {
        void *graph = new_graph(), *last = NULL, *s = (void *)1;
        before = available();
        CHECK("alloc", add_alloc(graph, &last, &p), 0);
        CHECK("synchronize", CALL(cuStreamSynchronize, s), 0);
        CHECK("keeps", available(), before - EACH_MIB * MIB);
        if (frees) {
            CHECK("free", CALL(cuGraphAddMemFreeNode, &last, graph, &last, (size_t)1, p),
                  0);
            CHECK("synchronize", CALL(cuStreamSynchronize, s), 0);
            CHECK("frees", available(), before);
        }
        CHECK("destroy", CALL(cuGraphDestroy, graph), 0);
        CHECK("synchronize", CALL(cuStreamSynchronize, s), 0);
        CHECK("gone", available(), before);
    }
    struct node_params move = {.type = 4, .child = {new_body(true), 1}};
    void *parent = new_body(true), *node = NULL;
    CHECK("synchronize", CALL(cuStreamSynchronize, (void *)1), 0);
    CHECK("two", available(), before);
    CHECK("move", CALL(cuGraphAddNode_v2, &node, parent, NULL, NULL, (size_t)0, &move),
          0);
    CHECK("synchronize", CALL(cuStreamSynchronize, (void *)1), 0);
    CHECK("one", available(), before - EACH_MIB * MIB);
    CHECK("destroy", CALL(cuGraphDestroy, parent), 0);
    CHECK("synchronize", CALL(cuStreamSynchronize, (void *)1), 0);
    CHECK("gone", available(), before);
    /* In other streams they can run at the same time: that is seen when one is synchronized. */
    before = available();
    CHECK("stream", CALL(cuGraphLaunch, (void *)(size_t)exec[0], (void *)1), 0);
    CHECK("stream", CALL(cuGraphLaunch, (void *)(size_t)exec[1], (void *)2), 0);
    CHECK("synchronize", CALL(cuStreamSynchronize, (void *)1), 0);
    CHECK("streams", available(), before - EACH_MIB * MIB); /* 2 of them */
    /* What the driver holds is enough for one more. */
    parent = new_graph(), node = NULL;
    CHECK("alloc", add_alloc(parent, &node, &p), 0);
    CHECK("synchronize", CALL(cuStreamSynchronize, (void *)1), 0);
    CHECK("enough", available(), before - EACH_MIB * MIB);
    CHECK("destroy", CALL(cuGraphDestroy, parent), 0);
    for (int i = 0; i < TIMES; i++)
        CHECK("end", node_trim(exec[i]), 0);
    CHECK("all", linear(ALL, &p), 0);
    CHECK("all", linear_free(p), 0);
}

/* These hold what they took. */
static void graphs_leave(void)
{
    dptr exec = 0, p = 0;
    for (int i = 0; i < LIMIT_MIB / EACH_MIB; i++)
        CHECK("launch", launch(0, new_body(false), 0, &exec), 0);
    void *graph = new_graph(), *last = NULL;
    CHECK("one more", add_alloc(graph, &last, &p), OUT_OF_MEMORY);
    CHECK("memory", linear(EACH_MIB * MIB, &p), OUT_OF_MEMORY);
}

static void captured(int kernels, const char *kernel)
{
    dptr p = 0, exec = 0;
    void *graph = NULL, *s = (void *)1;
    unsigned long long before = available();
    struct {
        unsigned grid[3], block[3], shared;
        void *stream, *attributes;
        unsigned n;
    } config = {.stream = s};
    bool early = strcmp(kernel, "cuLaunchKernelEx") == 0;
    CALL(cuStreamBeginCapture, s, 0);
    for (int i = 0; i < TIMES; i++) {
        CHECK(kernel, CALL(cuMemAllocAsync, &p, (size_t)(EACH_MIB * MIB), s), 0);
        for (int k = 0; k < 1 + kernels; k++) {
            if (early)
                CALL(cuLaunchKernelEx, &config, NULL, NULL, NULL);
            else
                CALL(cuLaunchKernel, NULL, 1u, 1u, 1u, 1u, 1u, 1u, 0u, s, NULL, NULL);
            if (k == 0)
                CHECK(kernel, CALL(cuMemFreeAsync, p, s), 0);
        }
    }
    CALL(cuStreamEndCapture, s, &graph);
    CHECK(kernel, available(), before - EACH_MIB * MIB);
    CHECK(kernel, launch(0, graph, 0, &exec), 0);
    CHECK(kernel, node_trim(exec), 0);
}

static void captures(void)
{
    captured(300, "cuLaunchKernel");
    captured(1, "cuLaunchKernelEx");
}

/* Captured allocations of a pool are where the pool is. Device 1 has a limit of its own. */
static void capture_pools(void)
{
    unsigned long long before = available(), before_one;
    struct pool_props props = {.type = 1, .location = 2};
    void *pool = NULL, *one = NULL, *graph = NULL, *s = (void *)1;
    dptr p = 0;
    CHECK("retain", CALL(cuDevicePrimaryCtxRetain, &one, 1), 0);
    CALL(cuCtxSetCurrent, one);
    before_one = available();
    CALL(cuCtxSetCurrent, context);
    CHECK("host pool", CALL(cuMemPoolCreate, &pool, &props), 0);
    CALL(cuStreamBeginCapture, s, 0);
    CHECK("host", CALL(cuMemAllocFromPoolAsync, &p, (size_t)(200 * MIB), pool, s), 0);
    CHECK("host", available(), before);
    CHECK("host", CALL(cuMemFreeAsync, p, s), 0);
    props.location = 1;
    props.id = 1;
    CHECK("pool", CALL(cuMemPoolCreate, &pool, &props), 0);
    CHECK("pool", CALL(cuMemAllocFromPoolAsync, &p, (size_t)(FITS_MIB * MIB), pool, s),
          0);
    CHECK("pool", available(), before);
    CALL(cuCtxSetCurrent, one);
    CHECK("pool", available(), before_one - FITS_MIB * MIB);
    CALL(cuCtxSetCurrent, context);
    CHECK("more", CALL(cuMemAllocFromPoolAsync, &p, (size_t)(FITS_MIB * MIB), pool, s),
          OUT_OF_MEMORY);
    CALL(cuStreamEndCapture, s, &graph);
    CHECK("destroy", CALL(cuGraphDestroy, graph), 0);
}

/* A second context, and a module, beside what another process takes at that moment. */
static void beside(void)
{
    unsigned long long before = available();
    void *m = NULL, *c = NULL;
    dptr p = 0;
    CHECK("module", CALL(cuModuleLoadData, &m, "globals 1048576"), 0);
    CHECK("module", available(), before - MIB);
    CHECK("unload", CALL(cuModuleUnload, m), 0);
    CHECK("context", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
    CHECK("context", available() >= before - FAKE_CONTEXT, 1);
    CHECK("destroy", CALL(cuCtxDestroy_v2, c), 0);
    CALL(cuCtxSetCurrent, context);
    CHECK("all", linear(before, &p), 0);
}

static void second_context(void)
{
    unsigned long long before = available();
    void *c = NULL;
    CHECK("second", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
    CHECK("second", available(), before - FAKE_CONTEXT);
    CHECK("third", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
    CHECK("third", available(), before - 2 * FAKE_CONTEXT);
}

static void *allocate(void *p)
{
    CALL(cuCtxSetCurrent, context);
    CHECK("slow", linear(EACH_MIB * MIB, p), 0);
    return NULL;
}

/* A context is made while another thread is inside cuMemAlloc. */
static void in_flight(void)
{
    pthread_t thread;
    unsigned long long before = available();
    dptr p = 0;
    void *c = NULL;
    pthread_create(&thread, NULL, allocate, &p);
    while (available() == before)
        usleep(100);
    CHECK("context", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
    pthread_join(thread, NULL);
    CHECK("both", available(), before - EACH_MIB * MIB - FAKE_CONTEXT);
    CALL(cuCtxSetCurrent, context);
    CHECK("free", linear_free(p), 0);
    CHECK("one", available(), before - FAKE_CONTEXT);
}

static void *destroy(void *c)
{
    CHECK("destroy", CALL(cuCtxDestroy_v2, c), 0);
    __atomic_store_n((int *)stream, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* A context ends only after this thread has allocated. */
static void destroy_waits(void)
{
    pthread_t thread;
    unsigned long long before = available();
    int done = 0;
    dptr p;
    void *c = NULL;
    CHECK("context", CALL(cuCtxCreate_v2, &c, 0u, 0), 0);
    CHECK("in it", linear(MIB, &p), 0);
    CALL(cuCtxSetCurrent, context);
    stream = &done;
    pthread_create(&thread, NULL, destroy, c);
    while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) {
        CHECK("allocate", linear(MIB, &p), 0);
        CHECK("free", linear_free(p), 0);
        usleep(100);
    }
    pthread_join(thread, NULL);
    CHECK("left", available(), before);
}

static void *free_slowly(void *p)
{
    CALL(cuCtxSetCurrent, context);
    CHECK("free", linear_free(*(dptr *)p), 0);
    __atomic_store_n((int *)stream, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* As after a kernel, cuMemFree ends only after this thread has loaded a module. */
static void free_waits(void)
{
    unsigned long long before = available();
    void *m = NULL;
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        int done = 0;
        dptr p;
        CHECK("allocate", linear(EACH_MIB * MIB, &p), 0);
        stream = &done;
        pthread_create(&thread, NULL, free_slowly, &p);
        while (!__atomic_load_n(&done, __ATOMIC_SEQ_CST)) {
            CHECK("module", CALL(cuModuleLoadData, &m, "globals 1048576"), 0);
            CHECK("measured", available() >= before - MIB - EACH_MIB * MIB, 1);
            CHECK("unload", CALL(cuModuleUnload, m), 0);
            usleep(100);
        }
        pthread_join(thread, NULL);
        CHECK("left", available(), before);
    }
}

int fits(const char *what)
{
    static const struct {
        const char *what;
        void (*run)(void);
    } all[] = {{"detach", detach},
               {"graphics", graphics},
               {"child", child},
               {"graphs", graphs},
               {"graphs-leave", graphs_leave},
               {"captures", captures},
               {"capture-pools", capture_pools},
               {"beside", beside},
               {"second-context", second_context},
               {"in-flight", in_flight},
               {"destroy-waits", destroy_waits},
               {"free-waits", free_waits}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].what, what) == 0)
            return all[i].run(), 0;
    return -1;
}
