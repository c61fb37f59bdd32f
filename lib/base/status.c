/* SPDX-License-Identifier: MIT */
#include "base/status.h"

/* One table for name and text of every status. */
#define STATUS_TABLE(X)                                                                            \
    X(STRATA_OK, "success")                                                                        \
    X(STRATA_ERR_INVALID_ARGUMENT, "an argument is not valid")                                     \
    X(STRATA_ERR_NO_MEMORY, "out of host memory")                                                  \
    X(STRATA_ERR_DEVICE_MEMORY, "out of device memory")                                            \
    X(STRATA_ERR_ABI_SIZE, "a structure has a size that this library does not take")               \
    X(STRATA_ERR_ABI_FIELD, "a structure sets a field that this library does not know")            \
    X(STRATA_ERR_IO, "a file could not be opened, read or written")                                \
    X(STRATA_ERR_FORMAT, "a file's content is not valid")                                          \
    X(STRATA_ERR_UNSUPPORTED, "not supported")                                                     \
    X(STRATA_ERR_NO_DEVICE, "no such device")                                                      \
    X(STRATA_ERR_DRIVER, "the device driver reported an error")                                    \
    X(STRATA_ERR_DEVICE_LOST, "the device was lost")                                               \
    X(STRATA_ERR_PLAN_INFEASIBLE, "nothing fits the budget")                                       \
    X(STRATA_ERR_BUFFER_TOO_SMALL, "the given memory is too small")                                \
    X(STRATA_ERR_MISALIGNED, "the given memory is not aligned as needed")                          \
    X(STRATA_ERR_CAPACITY, "more rows or tokens than were planned for")                            \
    X(STRATA_ERR_CANCELLED, "cancelled by the caller")                                             \
    X(STRATA_ERR_BUSY, "the object is in use by another call")                                     \
    X(STRATA_ERR_STATE, "the call does not fit the object's state")                                \
    X(STRATA_ERR_INTERNAL, "internal error")

const char *strata__status_name(strata_status status)
{
    switch (status) {
#define NAME(code, text)                                                                           \
    case code:                                                                                     \
        return #code;
        STATUS_TABLE(NAME)
#undef NAME
    default:
        return "STRATA_ERR_UNKNOWN";
    }
}

const char *strata__status_string(strata_status status)
{
    switch (status) {
#define TEXT(code, text)                                                                           \
    case code:                                                                                     \
        return text;
        STATUS_TABLE(TEXT)
#undef TEXT
    default:
        return "unknown status";
    }
}
