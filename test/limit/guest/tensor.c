/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An inference server that spreads a model over processes, call by call: weights loaded by
 * threads, buffers of a custom all-reduce shared by CUDA IPC, buffers of a communication library
 * whose handles are passed as descriptors, a multicast object, a graph captured while the server
 * measures itself, and a key-value cache of what cuMemGetInfo says is left. Each call has the
 * result that it has without a limit, and at every step the driver's books, cuMemGetInfo and
 * NVML say the same.
 */

#include "limit/guest/guest.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 8, WEIGHTS_MIB = 3, REDUCE_MIB = 1, BUFFER_MIB = 2 };

static struct {
    pthread_barrier_t barrier;
    struct ipc_handle reduce[RANKS];
} * all;
static int sockets[RANKS][RANKS]
                  [2]; /* [from][to]: what `from` writes into, `to` reads from */
static int n, rank;

static void together(void)
{
    pthread_barrier_wait(&all->barrier);
}

/* -- what everybody says about the card -- */

static unsigned long long books(void)
{
    static const struct fake_books *b;
    unsigned long long sum = 0;
    if (!b) {
        int fd = open(getenv("FAKE_CUDA_BOOKS"), O_RDONLY);
        b = mmap(NULL, sizeof *b, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    for (int i = 0; i < FAKE_PROCESSES;
         i++) /* of ended processes until they are missed */
        if (b->entries[i].pid && kill(b->entries[i].pid, 0) == 0)
            sum += b->entries[i].used;
    return sum;
}

static unsigned long long nvml_used(void)
{
    unsigned long long memory[3] = {0}; /* total, free, used */
    void *card, *so = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!so)
        return books(); /* musl */
    ((int (*)(void))dlsym(so, "nvmlInit_v2"))();
    ((int (*)(unsigned, void **))dlsym(so, "nvmlDeviceGetHandleByIndex_v2"))(0, &card);
    ((int (*)(void *, void *))dlsym(so, "nvmlDeviceGetMemoryInfo"))(card, memory);
    return memory[2];
}

static void agree(const char *when)
{
    size_t total = 0;
    dptr p;
    together();
    /* What others gave up is noticed at the next call. */
    CHECK(when, linear(MIB, &p), 0);
    CHECK(when, linear_free(p), 0);
    available();
    together();
    CHECK(when, CALL(cuDeviceTotalMem_v2, &total, 0), 0);
    CHECK(when, total - available(), books());
    CHECK(when, nvml_used(), books());
    together();
}

/* -- descriptors -- */

static void send_fd(int to, int fd)
{
    char room[CMSG_SPACE(sizeof fd)] = "", byte = 0;
    struct iovec text = {&byte, 1};
    struct msghdr m = {.msg_iov = &text,
                       .msg_iovlen = 1,
                       .msg_control = room,
                       .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    CHECK("send", (unsigned long long)sendmsg(sockets[rank][to][0], &m, 0), 1);
}

static int receive_fd(int from)
{
    int fd = -1;
    char room[CMSG_SPACE(sizeof fd)] = "", byte = 0;
    struct iovec text = {&byte, 1};
    struct msghdr m = {.msg_iov = &text,
                       .msg_iovlen = 1,
                       .msg_control = room,
                       .msg_controllen = sizeof room};
    CHECK("receive", (unsigned long long)recvmsg(sockets[from][rank][1], &m, 0), 1);
    if (CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    return fd;
}

static void share(dptr handle, int to)
{
    int fd = -1;
    CHECK("export", CALL(cuMemExportToShareableHandle, &fd, handle, 1, 0ull), 0);
    send_fd(to, fd);
    close(fd);
}

static dptr receive(int from)
{
    dptr handle = 0;
    int fd = receive_fd(from);
    CHECK("import", CALL(cuMemImportFromShareableHandle, &handle, (void *)(size_t)fd, 1),
          0);
    close(fd);
    return handle;
}

/* -- steps -- */

static dptr weights[WEIGHTS_MIB], reduce, opened[RANKS], buffer, object;

/* Where the buffer of a process is mapped; n: the multicast object. */
static dptr place(int of)
{
    return (1ull << 40) + (dptr)of * MAPPED;
}

static void *load(void *part)
{
    CHECK("current", CALL(cuCtxSetCurrent, context), 0);
    CHECK("weights", linear(MIB, (dptr *)part), 0);
    return NULL;
}

static void load_weights(void)
{
    pthread_t threads[WEIGHTS_MIB];
    for (int i = 0; i < WEIGHTS_MIB; i++)
        pthread_create(&threads[i], NULL, load, &weights[i]);
    for (int i = 0; i < WEIGHTS_MIB; i++)
        pthread_join(threads[i], NULL);
}

static void share_reduce(void)
{
    CHECK("reduce", linear(REDUCE_MIB * MIB, &reduce), 0);
    CHECK("handle", CALL(cuIpcGetMemHandle, &all->reduce[rank], reduce), 0);
    together();
    for (int i = 0; i < n; i++)
        if (i != rank)
            CHECK("open", CALL(cuIpcOpenMemHandle_v2, &opened[i], all->reduce[i], 1u), 0);
    together();
}

static void share_buffers(void)
{
    CHECK("buffer", physical(BUFFER_MIB * MIB, &buffer), 0);
    CHECK("map", map_memory(place(rank), BUFFER_MIB * MIB, buffer), 0);
    for (int i = 0; i < n; i++)
        if (i != rank)
            share(buffer, i);
    for (int i = 0; i < n; i++)
        if (i != rank) {
            dptr theirs = receive(i);
            CHECK("map", map_memory(place(i), BUFFER_MIB * MIB, theirs), 0);
            CHECK("release", physical_free(theirs), 0);
        }
    together();
    if (rank == 0) {
        CHECK("object", CALL(cuMulticastCreate, &object, NULL), 0);
        for (int i = 1; i < n; i++)
            share(object, i);
    } else {
        object = receive(0);
    }
    CHECK("device", CALL(cuMulticastAddDevice, object, 0), 0);
    CHECK("bind",
          CALL(cuMulticastBindMem, object, (size_t)rank * BUFFER_MIB * MIB, buffer,
               (size_t)0, (size_t)(BUFFER_MIB * MIB), 0ull),
          0);
    CHECK("map", map_memory(place(n), (unsigned)n * BUFFER_MIB * MIB, object), 0);
}

static void profile(void)
{
    void *graph = NULL, *s = (void *)1;
    dptr p = 0, exec = 0;
    CHECK("capture", CALL(cuStreamBeginCapture, s, 0), 0);
    for (int i = 0; i < 20; i++) {
        CHECK("captured", CALL(cuMemAllocAsync, &p, (size_t)MIB, s), 0);
        CHECK("captured", CALL(cuMemFreeAsync, p, s), 0);
    }
    CHECK("capture", CALL(cuStreamEndCapture, s, &graph), 0);
    CHECK("launch", launch(0, graph, 1, &exec), 0);
    together();
    CHECK("end", node_trim(exec), 0);
}

/* The first process gives its buffers up while the others use them. */
static void leave(bool first)
{
    if (first == (rank == 0)) {
        CHECK("unbind",
              CALL(cuMulticastUnbind, object, 0, (size_t)rank * BUFFER_MIB * MIB,
                   (size_t)(BUFFER_MIB * MIB)),
              0);
        CHECK("unmap", unmap_memory(place(rank), BUFFER_MIB * MIB), 0);
        CHECK("release", physical_free(buffer), 0);
        CHECK("free", linear_free(reduce), 0);
    }
    if (!first) {
        for (int i = 0; i < n; i++)
            if (i != rank) {
                CHECK("unmap", unmap_memory(place(i), BUFFER_MIB * MIB), 0);
                CHECK("close", CALL(cuIpcCloseMemHandle, opened[i]), 0);
            }
        CHECK("unmap", unmap_memory(place(n), (unsigned)n * BUFFER_MIB * MIB), 0);
        CHECK("release", physical_free(object), 0);
    }
}

static void run(void)
{
    dptr cache = 0;
    begin();
    load_weights();
    agree("weights");
    share_reduce();
    share_buffers();
    agree("shared");
    profile();
    agree("profiled");
    unsigned long long left = available(), each = left / (unsigned)n & -MIB;
    together();
    CHECK("cache", linear(each - MIB, &cache), 0);
    together();
    CHECK("cache", available(), left - (each - MIB) * (unsigned)n);
    agree("cache");
    leave(true);
    agree("left");
    leave(false);
    agree("all left");
    CHECK("cache", linear_free(cache), 0);
    agree("end");
}

void tensor(int ranks)
{
    pthread_barrierattr_t attributes;
    int status;
    n = ranks;
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
               0);
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&all->barrier, &attributes, (unsigned)n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            CHECK("socket", (unsigned)socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets[i][j]),
                  0);
    for (rank = 0; rank < n; rank++)
        if (fork() == 0) {
            run();
            fflush(stdout);
            _exit(failures ? 1 : 0);
        }
    for (int i = 0; i < n; i++) {
        wait(&status);
        failures += status != 0;
    }
}
