/* SPDX-License-Identifier: MIT */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

enum { SUFFIX_BYTES = 32, MOST_TRIES = 1000, FILE_MODE = 0666 };

static void *fail(file_fault *fault, const char *what, int error)
{
    fault->status = error == ENOMEM ? STRATA_ERR_NO_MEMORY : STRATA_ERR_IO;
    fault->error = error;
    snprintf(fault->text, sizeof fault->text, "%s: %s", what, strerror(error));
    return NULL;
}

/* ------------------------------------------------------------------------------------- reading */

const char *file_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static char *too_large(uint64_t most_bytes, file_fault *fault)
{
    fault->status = STRATA_ERR_INVALID_ARGUMENT;
    fault->error = 0;
    snprintf(fault->text, sizeof fault->text,
             "larger than %s, the most that is read of such a file",
             text_of_bytes(most_bytes).text);
    return NULL;
}

/* What is there up to `most_bytes` and one more, in heap memory; NULL with errno. */
static char *read_stream(FILE *file, uint64_t most_bytes, uint64_t *out_bytes)
{
    size_t used = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    while (text && used <= most_bytes) {
        used += fread(text + used, 1, capacity - used - 1, file);
        if (used + 1 < capacity)
            break;
        char *larger = realloc(text, capacity *= 2);
        if (!larger)
            free(text);
        text = larger;
    }
    if (text && ferror(file)) {
        int error = errno;
        free(text);
        errno = error;
        return NULL;
    }
    if (text)
        text[used] = '\0';
    *out_bytes = used;
    return text;
}

char *file_read(const char *path, uint64_t most_bytes, uint64_t *out_bytes, file_fault *fault)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "rb");
    struct stat info;
    char *text;
    if (!file)
        return fail(fault, "cannot be read", errno);
    if (fstat(fileno(file), &info) == 0 && S_ISREG(info.st_mode) &&
        (uint64_t)info.st_size > most_bytes) {
        if (!standard)
            fclose(file);
        return too_large(most_bytes, fault);
    }
    text = read_stream(file, most_bytes, out_bytes);
    if (!text)
        fail(fault, "cannot be read", errno);
    if (!standard)
        fclose(file);
    if (!text || *out_bytes <= most_bytes)
        return text;
    free(text);
    return too_large(most_bytes, fault);
}

char *file_read_text(const char *path, uint64_t most_bytes, uint64_t *out_bytes, file_fault *fault)
{
    char *text = file_read(path, most_bytes, out_bytes, fault);
    if (!text || strlen(text) == *out_bytes)
        return text;
    free(text);
    fault->status = STRATA_ERR_INVALID_ARGUMENT;
    fault->error = 0;
    snprintf(fault->text, sizeof fault->text, "no text: it has bytes that are zero");
    return NULL;
}

/* ------------------------------------------------------------------------------------- writing */

/* Whether the path is written as it is: what is there is no file, or a link that leads nowhere. */
static bool is_written_in_place(const char *path, bool *out_exists, struct stat *out)
{
    *out_exists = stat(path, out) == 0;
    return *out_exists ? !S_ISREG(out->st_mode) : lstat(path, out) == 0;
}

static int create_temporary(file_writer *writer)
{
    int descriptor = -1;
    uint64_t bytes = strlen(writer->target) + SUFFIX_BYTES;
    writer->temporary = malloc(bytes);
    for (int i = 0; writer->temporary && i < MOST_TRIES && descriptor < 0; i++) {
        snprintf(writer->temporary, bytes, "%s.%ld-%d.tmp", writer->target, (long)getpid(), i);
        descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
        if (descriptor < 0 && errno != EEXIST)
            break;
    }
    return descriptor;
}

static void forget(file_writer *writer)
{
    free(writer->target);
    free(writer->temporary);
    writer->target = writer->temporary = NULL;
    writer->stream = NULL;
}

bool file_create(file_writer *writer, const char *path, file_fault *fault)
{
    struct stat old;
    bool exists, in_place = is_written_in_place(path, &exists, &old);
    int descriptor = -1;
    memset(writer, 0, sizeof *writer);
    if (in_place) {
        descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, FILE_MODE);
    } else {
        /* A link stays a link: what it leads to is replaced. */
        writer->target = exists ? realpath(path, NULL) : strdup(path);
        if (writer->target)
            descriptor = create_temporary(writer);
        /* Who may read the old file may read the new one; where refused, the default holds. */
        if (descriptor >= 0 && exists && fchmod(descriptor, old.st_mode & 07777) != 0)
            errno = 0;
    }
    if (descriptor >= 0)
        writer->stream = fdopen(descriptor, "wb");
    if (writer->stream)
        return true;
    fail(fault, "cannot be written", errno);
    if (descriptor >= 0) {
        close(descriptor);
        if (writer->temporary)
            unlink(writer->temporary);
    }
    forget(writer);
    return false;
}

void file_write(file_writer *writer, const void *data, uint64_t bytes)
{
    errno = 0;
    if (!writer->error && fwrite(data, 1, bytes, writer->stream) != bytes)
        writer->error = errno ? errno : EIO;
}

bool file_finish(file_writer *writer, file_fault *fault)
{
    if (!writer->error && fflush(writer->stream) != 0)
        writer->error = errno;
    if (!writer->error && writer->target && fsync(fileno(writer->stream)) != 0)
        writer->error = errno;
    if (fclose(writer->stream) != 0 && !writer->error)
        writer->error = errno;
    if (!writer->error && writer->target && rename(writer->temporary, writer->target) != 0)
        writer->error = errno;
    if (writer->error) {
        if (writer->temporary)
            unlink(writer->temporary);
        fail(fault, "cannot be written", writer->error);
    }
    forget(writer);
    return !writer->error;
}

bool file_save(const char *path, const void *data, uint64_t bytes, file_fault *fault)
{
    file_writer writer;
    if (!file_create(&writer, path, fault))
        return false;
    file_write(&writer, data, bytes);
    return file_finish(&writer, fault);
}

bool file_can_create(const char *path, file_fault *fault)
{
    struct stat old;
    bool exists;
    file_writer writer;
    if (is_written_in_place(path, &exists, &old)) {
        /* Opening a pipe is seen at its other side. */
        if (!exists || (!S_ISDIR(old.st_mode) && access(path, W_OK) == 0))
            return true;
        fail(fault, "cannot be written", S_ISDIR(old.st_mode) ? EISDIR : errno);
        return false;
    }
    if (!file_create(&writer, path, fault))
        return false;
    fclose(writer.stream);
    unlink(writer.temporary);
    forget(&writer);
    return true;
}
