/* SPDX-License-Identifier: MIT */
/* What check_kernels is linked with on a device and cannot do on the CPU: times and graphs. */
#include <stdio.h>

#include "check.h"

int check_graph()
{
    return 0;
}

void bench_kernels(const suite &)
{
    printf("no times of kernels on the CPU\n");
}

void bench_decode(const suite &)
{
    printf("no times of kernels on the CPU\n");
}
