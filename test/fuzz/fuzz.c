/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* What every target uses, with driver.c and with libFuzzer (`make fuzz`), whose entry point
 * this is. libFuzzer catches an abort, saves the input and prints its path. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input((struct span){(const char *)data, size});
    return 0;
}

void fuzz_fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

void fuzz_check_error(const struct err *err)
{
    fuzz_fail_if(err->code == ERR_NONE || !err->msg[0], "an error without text");
}

bool fuzz_is_unsupported(const json_error_t *error)
{
    enum json_error_code code = json_error_code(error);
    return code == json_error_numeric_overflow || code == json_error_null_byte_in_key;
}

const char *fuzz_file(struct span bytes)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_fail_if(ftruncate(fd, 0) || pwrite(fd, bytes.p, bytes.n, 0) != (ssize_t)bytes.n,
                 "no file in memory");
    return path;
}

void fuzz_stream(fuzz_read_fn read, struct span in, size_t piece, struct span first)
{
    const size_t pieces[] = {in.n + 1, piece, 7};
    struct fuzz_result whole = {0};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        struct fuzz_result other = {0};
        read(in, pieces[i], false, &other);
        if (i)
            fuzz_check_same(&whole.text, &other.text,
                            "the size of the pieces changes the result");
        buf_fini(&whole.text);
        whole = other;
    }
    struct fuzz_result part = {0};
    read(first, piece, true, &part);
    fuzz_fail_if(
        part.before_end > whole.before_end ||
            (part.before_end && memcmp(part.text.p, whole.text.p, part.before_end) != 0),
        "the result of a truncated stream is no prefix");
    buf_fini(&part.text);
    buf_fini(&whole.text);
}
