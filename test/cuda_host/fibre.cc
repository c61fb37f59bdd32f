/* SPDX-License-Identifier: MIT */
#include "fibre.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

namespace
{

constexpr size_t STACK_BYTES = (SANITIZED ? 256 : 64) * 1024;

cuda_host::fibre own; /* the program's stack */
#if SANITIZED
const void *own_bottom;
size_t own_bytes;
#endif

} /* namespace */

#if defined(__x86_64__)
/* Registers that a call keeps, on the stack that is left; then the same from the other. */
extern "C" void cuda_host_switch(void **from_top, void *to_top);
asm(".text\n"
    ".globl cuda_host_switch\n"
    ".type cuda_host_switch, @function\n"
    "cuda_host_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size cuda_host_switch, . - cuda_host_switch\n");
#endif

namespace cuda_host
{

void fibre_create(fibre *f, void (*entry)())
{
    f->stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED)
        abort();
    f->fake = nullptr;
#if defined(__x86_64__)
    /* Six registers, where to go on, and a place that keeps the stack aligned as after a call. */
    void **top = reinterpret_cast<void **>(static_cast<uint8_t *>(f->stack) + STACK_BYTES) - 8;
    for (int i = 0; i < 8; i++)
        top[i] = nullptr;
    top[6] = reinterpret_cast<void *>(entry);
    f->top = top;
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = nullptr;
    makecontext(&f->context, entry, 0);
#endif
}

static void change(fibre *from, fibre *to)
{
#if defined(__x86_64__)
    cuda_host_switch(&from->top, to->top);
#else
    swapcontext(&from->context, &to->context);
#endif
}

void fibre_enter(fibre *f)
{
#if SANITIZED
    __sanitizer_start_switch_fiber(&own.fake, f->stack, STACK_BYTES);
#endif
    change(&own, f);
#if SANITIZED
    __sanitizer_finish_switch_fiber(own.fake, nullptr, nullptr);
#endif
}

void fibre_leave(fibre *f)
{
#if SANITIZED
    __sanitizer_start_switch_fiber(&f->fake, own_bottom, own_bytes);
#endif
    change(f, &own);
#if SANITIZED
    __sanitizer_finish_switch_fiber(f->fake, &own_bottom, &own_bytes);
#endif
}

void fibre_entered()
{
#if SANITIZED
    __sanitizer_finish_switch_fiber(nullptr, &own_bottom, &own_bytes);
#endif
}

} /* namespace cuda_host */
