/* SPDX-License-Identifier: MIT */
/* Stacks of their own to run a function on, and the ways there and back. */
#ifndef STRATA_CUDA_HOST_FIBRE_H
#define STRATA_CUDA_HOST_FIBRE_H

#include <stddef.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cuda_host
{

struct fibre {
    void *stack; /* memory of STACK_BYTES */
    void *fake;  /* of the address sanitizer */
#if defined(__x86_64__)
    void *top;
#else
    ucontext_t context;
#endif
};

/* A fibre that runs `entry`, which must not return. */
void fibre_create(fibre *f, void (*entry)());

/* From the program's own stack to the fibre's, until it calls fibre_leave. */
void fibre_enter(fibre *f);
void fibre_leave(fibre *f);

/* The first thing that `entry` does. */
void fibre_entered();

} /* namespace cuda_host */

#endif
