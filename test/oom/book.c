/* SPDX-License-Identifier: MIT */
#include "oom/book.h"

#include <stdlib.h>

void *book_alloc(void *user_data, uint64_t bytes, uint64_t alignment)
{
    book *b = user_data;
    void *pointer = NULL;
    if (++b->count == b->fail_at)
        return NULL;
    if (posix_memalign(&pointer, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                       bytes ? bytes : 1) != 0)
        return NULL;
    b->live_bytes += bytes;
    b->live_count++;
    return pointer;
}

void book_free(void *user_data, void *pointer, uint64_t bytes)
{
    book *b = user_data;
    b->live_bytes -= bytes;
    b->live_count--;
    free(pointer);
}
