/* SPDX-License-Identifier: MIT */
/*
 * Device memory that all users have taken, asked of the driver's management library: unlike the
 * runtime it answers without a context, and so tells what a context takes. It comes with the
 * driver, is opened for the question alone, and may be missing.
 */
#include <dlfcn.h>

#include "device/cuda_device.h"

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shut_down)(void);
    int (*find)(const char *bus_id, void **out_device);
    int (*memory)(void *device, nvml_memory *out);
} nvml;

/* ISO C has no conversion from an object pointer to one of a function. */
static bool find_symbol(void *library, const char *name, void *out_function)
{
    *(void **)out_function = dlsym(library, name);
    return *(void **)out_function != NULL;
}

static bool nvml_open(nvml *n)
{
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return false;
    if (find_symbol(n->library, "nvmlInit_v2", &n->init) &&
        find_symbol(n->library, "nvmlShutdown", &n->shut_down) &&
        find_symbol(n->library, "nvmlDeviceGetHandleByPciBusId_v2", &n->find) &&
        find_symbol(n->library, "nvmlDeviceGetMemoryInfo", &n->memory) && n->init() == 0)
        return true;
    dlclose(n->library);
    return false;
}

bool strata__cuda_used_bytes(int ordinal, uint64_t *out_bytes)
{
    nvml n;
    nvml_memory memory;
    char bus_id[32];
    void *device = NULL;
    bool known;
    if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, ordinal) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    if (!nvml_open(&n))
        return false;
    known = n.find(bus_id, &device) == 0 && n.memory(device, &memory) == 0;
    (void)n.shut_down();
    dlclose(n.library);
    if (known)
        *out_bytes = memory.used;
    return known;
}
