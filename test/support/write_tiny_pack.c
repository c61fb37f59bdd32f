/* SPDX-License-Identifier: MIT */
/* Writes a small random pack without a vocabulary to a file: write_tiny_pack OUT.gguf */
#include <stdio.h>
#include <stdlib.h>

#include "support/tiny_pack.h"

int main(int argc, char **argv)
{
    tiny_spec spec = tiny_spec_default();
    uint64_t bytes = 0;
    uint8_t *image;
    FILE *file;
    if (argc != 2)
        return 2;
    spec.vocabulary = 96;
    spec.context_tokens = 4096;
    image = tiny_pack_make(&spec, &bytes);
    file = fopen(argv[1], "wb");
    if (!file || fwrite(image, 1, bytes, file) != bytes || fclose(file) != 0)
        return 1;
    free(image);
    return 0;
}
