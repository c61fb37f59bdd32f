/* SPDX-License-Identifier: MIT */
/*
 * The int8 product without an image: the shape of a tile, and how its operands come to shared
 * memory. A tile is 64 or 128 activation rows of an expert by ROWS weight rows. Weights are copied
 * as they are, a stage of values ahead, activations a panel ahead.
 *
 * Addresses are found before the wait for earlier copies, and rows of whole lines are read by
 * neighbouring lanes: what copies cost is the time between the wait and the last of them.
 */
#ifndef STRATA_KERNELS_CUDA_INT8_INLINE_COPY_CUH
#define STRATA_KERNELS_CUDA_INT8_INLINE_COPY_CUH

#include "kernels/cuda/int8_inline_out.cuh"
#include "kernels/cuda/int8_units.cuh"

namespace
{

constexpr uint32_t PANEL = STRATA__INT8_K, STEPS_OF_PANEL = PANEL / 32;

constexpr uint32_t greatest_divisor(uint32_t a, uint32_t b)
{
    return b ? greatest_divisor(b, a % b) : a;
}

constexpr uint32_t power_of_two_from(uint32_t n)
{
    return n <= 1 ? 1 : 2 * power_of_two_from((n + 1) / 2);
}

/*
 * ROW_WARPS warps share weight rows and have 64 activation rows each.
 *
 * How weights of a format come: STAGE values of a row at a time, in granules that are aligned in
 * the matrix, of which a row's may begin in the midst of one.
 */
template <int FORMAT, uint32_t ROW_WARPS_> struct inline_shape {
    static constexpr uint32_t ROW_WARPS = ROW_WARPS_, WEIGHT_WARPS = WARPS / ROW_WARPS;
    static constexpr uint32_t TILE_ROWS = ROW_WARPS * WARP_TILE_ROWS;

    static constexpr uint32_t VALUES = block_shape<FORMAT>::VALUES;
    static constexpr uint32_t STAGE = VALUES == 256 ? 256 : 128;
    static constexpr uint32_t PIECE = STAGE / VALUES * block_shape<FORMAT>::BYTES;
    /* Rows eight apart are to be misplaced alike. */
    static constexpr uint32_t GRANULE = block_shape<FORMAT>::BYTES % 2 ? 8 : 16;
    static constexpr uint32_t MOST_MISPLACED =
        GRANULE - greatest_divisor(block_shape<FORMAT>::BYTES, GRANULE);
    static constexpr bool PLACED = block_shape<FORMAT>::BYTES % GRANULE == 0;
    static constexpr uint32_t GRANULES = (PIECE + MOST_MISPLACED + GRANULE - 1) / GRANULE;
    /* 128 rows of Q6_K, not 256: two blocks are to share a multiprocessor's memory on sm_90. */
    static constexpr int MTILES = FORMAT == STRATA__Q6_K && ROW_WARPS == 1 ? 1 : 2;
    /* Rows begin in other banks; where their heads are read whole, those eight apart as well. */
    static constexpr uint32_t PITCH = GRANULE * (GRANULES | 1);
    static constexpr uint32_t EIGHT_ROWS = 8 * PITCH + (VALUES == 256 && PLACED ? 2 * GRANULE : 0);
    static constexpr uint32_t GROUP_BYTES = (2 * MTILES - 1) * EIGHT_ROWS + 8 * PITCH;
    static constexpr uint32_t WARP_ROWS = MTILES * 16, ROWS = WEIGHT_WARPS * WARP_ROWS;
    static constexpr uint32_t OUTPUTS = ROWS / 2; /* of a paired tile */
    /* Eights of weight rows that a warp copies, and the lanes that copy a row side by side. */
    static constexpr uint32_t COPY_EIGHTS = 2 * MTILES / ROW_WARPS;
    static constexpr uint32_t COPY_LANES = GRANULES >= 8 ? 8 : 4;
    static constexpr uint32_t REST = GRANULES % COPY_LANES, REST_LANES = power_of_two_from(REST);

    static constexpr int DOT_STEPS = int8_sum_of<FORMAT>::D == 64 ? 2 : 1; /* of 32 values */
    /* Whether places are kept: dots of 16 values and over two steps want the registers; else as
       measured. */
    static constexpr bool KEEPS = int8_sum_of<FORMAT>::D == 32 && FORMAT != STRATA__Q4_1 &&
                                  FORMAT != STRATA__Q2_K && FORMAT != STRATA__IQ3_S;

    /* Of a row and 32 values: its scale, and sums where there are offsets. */
    static constexpr uint32_t SUMS = int8_sum_of<FORMAT>::OFFSETS;
    static constexpr bool JOINED = SUMS == 1; /* the sum lies beside the scale */
    static constexpr uint32_t TERM_PLANES = JOINED ? 1 : 1 + SUMS;
    static constexpr uint32_t TERM_PITCH = JOINED ? 8 : 4; /* of rows */
    static constexpr uint32_t STEP_BYTES = TILE_ROWS * TERM_PITCH;
    static constexpr uint32_t PLANE_BYTES = STEPS_OF_PANEL * STEP_BYTES;

    /* A panel's fragments of a group of weight rows, and scales and offsets of 16 of them. */
    static constexpr uint32_t FRAGMENT_BYTES = 512, /* of 16 rows by 32 values */
        GROUP_FRAGMENTS = STEPS_OF_PANEL * MTILES * FRAGMENT_BYTES;
    static constexpr uint32_t WEIGHT_TERMS = power_of_two_from(int8_sum_of<FORMAT>::PARTS + SUMS);
    static constexpr uint32_t WEIGHT_TERM_BYTES = 16 * 4 * WEIGHT_TERMS;

    /*
     * First what the next tile's first copies fill, then what is free when a tile has been
     * multiplied. There are two buffers of activations and their terms; all else is used up before
     * it comes anew.
     */
    static constexpr uint32_t CODE_BYTES = TILE_ROWS * PANEL;
    static constexpr uint32_t TERM_BYTES = TERM_PLANES * PLANE_BYTES;
    static constexpr uint32_t RAW_BYTES = TILE_ROWS * 16; /* of scales or of sums */
    static constexpr uint32_t WEIGHT_BYTES = WEIGHT_WARPS * GROUP_BYTES;
    static constexpr uint32_t SLACK = 16; /* words are read in pairs, behind the last as well */
    static constexpr uint32_t RAW_TERMS = 0, WEIGHTS = (SUMS ? 2 : 1) * RAW_BYTES;
    static constexpr uint32_t CODES = (WEIGHTS + WEIGHT_BYTES + SLACK + 127) / 128 * 128;
    static constexpr uint32_t TERMS = CODES + 2 * CODE_BYTES;
    static constexpr uint32_t FRAGMENTS = TERMS + 2 * TERM_BYTES;
    static constexpr uint32_t TERMS_OF_WEIGHTS = FRAGMENTS + WEIGHT_WARPS * GROUP_FRAGMENTS;
    static constexpr uint32_t BYTES =
        TERMS_OF_WEIGHTS + WEIGHT_WARPS * STEPS_OF_PANEL * MTILES * WEIGHT_TERM_BYTES;
    static constexpr uint32_t GATHERED = CODES + CODE_BYTES, GATHER_PITCH = OUTPUTS + 4;
    static_assert(TILE_ROWS * GATHER_PITCH * 4 <= BYTES - GATHERED,
                  "hidden values take the place of what has been multiplied");
};

/*
 * Where the operands of a tile begin: in shared memory, since registers are scarce, and in the
 * order in which they are read together.
 */
struct __align__(16) inline_tile
{
    const uint8_t *weights[2]; /* of gate and up, or of rows 0 ... and rows 8 ... */
    const uint8_t *rows;
    uint32_t row_bytes, codes; /* of an activation row, and of its codes */
    uint32_t weight_bytes;     /* of a weight row */
    uint32_t step;             /* between rows of a lane in a matrix */
    uint32_t outputs;          /* from the first on */
    uint32_t aligned;          /* weights lie in whole granules */
    work_tile work;
};

/* By one thread. */
template <int FORMAT, class shape>
__device__ __forceinline__ void place_tile(const strata__int8_inline_args &args,
                                           const work_tile &work, inline_tile *tile)
{
    const strata__int8_product_args &product = args.product;
    uint32_t expert = product.range.first_expert + work.expert;
    uint32_t first = work.column * (shape::ROWS / args.matrices);
    uint32_t weight_bytes = product.inputs / shape::VALUES * block_shape<FORMAT>::BYTES;
    tile->codes = codes_bytes(product.inputs);
    tile->row_bytes = tile->codes + 2 * scales_bytes(product.inputs);
    tile->weight_bytes = weight_bytes;
    tile->work = work;
    if (work.rows == 0)
        return;
    const uint8_t *gate = static_cast<const uint8_t *>(args.matrix[0].blobs[expert]);
    const uint8_t *up = gate + 8 * (uint64_t)weight_bytes;
    if (args.matrices == 2)
        up = static_cast<const uint8_t *>(args.matrix[1].blobs[expert]);
    tile->rows = product.rows + (uint64_t)work.first_row * tile->row_bytes;
    tile->weights[0] = gate + (uint64_t)first * weight_bytes;
    tile->weights[1] = up + (uint64_t)first * weight_bytes;
    tile->step = 16 / args.matrices;
    tile->outputs = product.outputs - first;
    tile->aligned =
        (reinterpret_cast<uintptr_t>(gate) | reinterpret_cast<uintptr_t>(up)) % shape::GRANULE == 0;
}

/*
 * A value, hidden from the compiler: what is derived from it is found anew, where it would be kept
 * in registers that spill, and it is found once, where the compiler would do so in every branch.
 */
__device__ __forceinline__ uint32_t hidden(uint32_t value)
{
    asm volatile("" : "+r"(value));
    return value;
}

__device__ __forceinline__ const uint8_t *hidden(const uint8_t *value)
{
    asm volatile("" : "+l"(value));
    return value;
}

/*
 * A value that the compiler has to keep, in memory if need be: it would find what depends on the
 * thread alone anew in every panel, which mostly takes longer than reading it.
 */
template <class shape> __device__ __forceinline__ uint32_t kept(uint32_t value)
{
    return shape::KEEPS ? __shfl_sync(0xffffffffu, value, threadIdx.x % 32) : value;
}

/* What a thread copies of a panel of activations; `left`: values from its first on. */
struct row_copies {
    const uint8_t *codes, *terms;
    uint32_t rows, row_bytes;
    bool codes_wanted, terms_wanted;
};

/* The row and the plane, of scales or of sums, of which a lane copies 16 bytes. */
template <class shape> struct term_place {
    static constexpr uint32_t WARP_ROWS = 8 * shape::ROW_WARPS;
    uint32_t row = threadIdx.x / 32 * WARP_ROWS + threadIdx.x % WARP_ROWS;
    uint32_t plane = threadIdx.x % 32 / WARP_ROWS;
};

template <class shape>
__device__ __forceinline__ row_copies find_rows(const inline_tile &tile, uint32_t first,
                                                uint32_t left)
{
    uint32_t chunk = threadIdx.x % 8 * 16;
    term_place<shape> term;
    row_copies copies;
    copies.rows = tile.work.rows;
    copies.row_bytes = tile.row_bytes;
    copies.codes = hidden(tile.rows + (threadIdx.x / 8 * tile.row_bytes + first + chunk));
    copies.terms = hidden(tile.rows + (term.row * tile.row_bytes + tile.codes + first / 8 +
                                       term.plane * ((tile.row_bytes - tile.codes) / 2)));
    copies.codes_wanted = chunk < left;
    copies.terms_wanted = term.row < copies.rows && term.plane <= (shape::SUMS ? 1 : 0);
    return copies;
}

/* Where a thread's copies of activations go: codes to the first buffer, terms. */
template <class shape> struct row_places {
    uint32_t codes, terms;

    __device__ __forceinline__ explicit row_places(const uint8_t *memory)
    {
        uint32_t r = threadIdx.x / 8, chunk = threadIdx.x % 8;
        const term_place<shape> term;
        codes = kept<shape>(shared_address(memory) + shape::CODES + r * PANEL +
                            ((chunk ^ ((r & 3) * 2 + (r >> 2 & 1))) << 4));
        terms = kept<shape>(shared_address(memory) + shape::RAW_TERMS +
                            term.plane * shape::RAW_BYTES + term.row * 16);
    }
};

template <class shape>
__device__ __forceinline__ void copy_rows(const row_copies &copies, uint32_t buffer,
                                          const row_places<shape> &places)
{
    constexpr uint32_t STEP = THREADS / 8;
    uint32_t r = threadIdx.x / 8, to = places.codes + buffer * shape::CODE_BYTES;
    uint32_t rows = copies.codes_wanted ? copies.rows : 0;
#pragma unroll
    for (uint32_t i = 0; i < shape::TILE_ROWS / STEP; i++)
        if (r + i * STEP < rows)
            copy_async<16>(to + i * STEP * PANEL, copies.codes + i * STEP * copies.row_bytes, 16);
    if (copies.terms_wanted)
        copy_async<16>(places.terms, copies.terms, 16);
}

/* Where a lane finds terms as they come, of the first of its rows, and where it puts them. */
template <class shape> struct convert_places {
    uint32_t raw, to;

    __device__ __forceinline__ convert_places()
    {
        uint32_t lane = threadIdx.x % 32, step = lane / 8;
        uint32_t row = threadIdx.x / 32 * shape::ROW_WARPS * 8 + lane % 8;
        raw = kept<shape>(shape::RAW_TERMS + row * 16 + step * 4);
        to = kept<shape>(shape::TERMS + step * shape::STEP_BYTES + row * shape::TERM_PITCH);
    }
};

/*
 * Terms that the warp has copied, in the order in which they are read: by values, then rows, sums
 * as floats. Raw ones may be overwritten when all lanes are behind this.
 */
template <class shape>
__device__ __forceinline__ void convert_terms(uint32_t buffer, const convert_places<shape> &places,
                                              uint8_t *memory)
{
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < shape::ROW_WARPS; i++) {
        const uint8_t *raw = memory + places.raw + i * 8 * 16;
        float *to = reinterpret_cast<float *>(memory + places.to + buffer * shape::TERM_BYTES +
                                              i * 8 * shape::TERM_PITCH);
        float scale = *reinterpret_cast<const float *>(raw);
        if constexpr (shape::SUMS == 0) {
            *to = scale;
        } else {
            int halves = *reinterpret_cast<const int *>(raw + shape::RAW_BYTES);
            if constexpr (shape::JOINED) {
                *reinterpret_cast<float2 *>(to) = {scale, (float)__dp2a_lo(halves, 0x0101, 0)};
            } else {
                to[0] = scale;
                to[shape::PLANE_BYTES / 4] = (float)(short)halves;
                to[2 * shape::PLANE_BYTES / 4] = (float)(halves >> 16);
            }
        }
    }
}

/* Bytes by which row `r` of eight is misplaced in a stage that begins at byte `at` of its rows. */
template <class shape>
__device__ __forceinline__ uint32_t misplaced_by(uint32_t weight_bytes, uint32_t r, uint32_t at)
{
    return shape::PLACED ? 0 : (r * weight_bytes + at) % shape::GRANULE;
}

/*
 * Where one of eight rows lies. Half a warp reads the first four at once: with another row between
 * them, 32 bytes of each are in other banks.
 */
template <class shape> __device__ __forceinline__ uint32_t place_of_row(uint32_t r)
{
    return (r % 4 * 2 + r / 4) * shape::PITCH;
}

/* What a warp copies of a stage of weights: rows `first` ... of a tile's, in eights. */
struct weight_copies {
    const uint8_t *from[2];           /* the stage's first byte in row `first` of both matrices */
    uint32_t weight_bytes, at, bytes; /* `bytes` of a row are wanted, the first is byte `at` */
    uint32_t first, step, outputs;
    uint32_t to; /* place of the first row */
    bool aligned;
};

template <class shape>
__device__ __forceinline__ weight_copies find_weights(const inline_tile &tile, uint32_t stage)
{
    uint32_t warp = hidden(threadIdx.x) / 32;
    uint32_t group = warp % shape::WEIGHT_WARPS, eights = warp / shape::WEIGHT_WARPS;
    weight_copies copies;
    copies.weight_bytes = tile.weight_bytes;
    copies.at = stage * shape::PIECE;
    copies.bytes = shape::PIECE;
    if (shape::VALUES < 256) /* stages of 256 values are whole */
        copies.bytes = min(shape::PIECE, copies.weight_bytes - copies.at);
    copies.step = tile.step;
    copies.outputs = tile.outputs;
    copies.first = (group * shape::MTILES + eights * shape::COPY_EIGHTS / 2) * copies.step;
    uint64_t skip = (uint64_t)copies.first * copies.weight_bytes + copies.at;
    copies.from[0] = tile.weights[0] + skip;
    copies.from[1] = tile.weights[1] + skip;
    copies.to = shape::WEIGHTS + group * shape::GROUP_BYTES +
                eights * shape::COPY_EIGHTS * shape::EIGHT_ROWS;
    copies.aligned = tile.aligned;
    return copies;
}

/* Whether row r of eight `eight` exists. */
__device__ __forceinline__ bool row_exists(const weight_copies &copies, uint32_t eight, uint32_t r)
{
    uint32_t row = copies.first + eight / 2 * copies.step + r;
    return row + eight % 2 * (copies.step - 8) < copies.outputs;
}

/* Row r of eight `eight`, byte by byte: of matrices that begin at odd addresses. */
template <class shape>
__device__ __forceinline__ void copy_bytes(const weight_copies &copies, uint32_t eight, uint32_t r,
                                           uint8_t *memory)
{
    uint8_t *to = memory + copies.to + eight * shape::EIGHT_ROWS + place_of_row<shape>(r) +
                  misplaced_by<shape>(copies.weight_bytes, r, copies.at);
    const uint8_t *from = (eight % 2 ? copies.from[1] : copies.from[0]) +
                          (eight / 2 * copies.step + r) * copies.weight_bytes;
#pragma unroll 1
    for (uint32_t i = 0; i < copies.bytes; i++)
        to[i] = from[i];
}

/*
 * A granule of row r of eight `eight`, where some of its bytes are wanted. Those before and behind
 * them that are read as well are of the same 16 bytes of memory. With MAYBE there may be none.
 */
template <class shape, bool MAYBE>
__device__ __forceinline__ void copy_granule(const weight_copies &copies, uint32_t to,
                                             const uint8_t *from, uint32_t r, uint32_t granule)
{
    constexpr uint32_t G = shape::GRANULE;
    if (!shape::PLACED)
        from -= reinterpret_cast<uintptr_t>(from) % G;
    bool wanted = true;
    if (MAYBE)
        wanted =
            granule * G < misplaced_by<shape>(copies.weight_bytes, r, copies.at) + copies.bytes;
    if (wanted)
        copy_async<G>(to, from, G);
}

/* The rows of a warp that all exist: COPY_LANES lanes a row, then what is left of all rows. */
template <class shape>
__device__ __forceinline__ void copy_whole(const weight_copies &copies, uint8_t *memory)
{
    constexpr uint32_t G = shape::GRANULE, LANES = shape::COPY_LANES, ROWS = 32 / LANES;
    constexpr uint32_t PASSES = shape::GRANULES / LANES, REST_LANES = shape::REST_LANES;
    constexpr bool MAYBE = shape::VALUES < 256 || PASSES * LANES * G > shape::PIECE;
    uint32_t lane = hidden(threadIdx.x) % 32, r = lane / LANES, column = lane % LANES;
    uint32_t to = hidden(shared_address(memory) + copies.to), own = to + column * G;
    const uint8_t *gate = hidden(copies.from[0] + r * copies.weight_bytes);
    const uint8_t *up = hidden(copies.from[1] + r * copies.weight_bytes);
#pragma unroll
    for (uint32_t n = 0; n < 8 * shape::COPY_EIGHTS; n += ROWS)
#pragma unroll
        for (uint32_t pass = 0; pass < PASSES; pass++) {
            uint32_t eight = n / 8, skip = eight / 2 * copies.step + n % 8;
            const uint8_t *from = (eight % 2 ? up : gate) + skip * copies.weight_bytes;
            copy_granule<shape, MAYBE>(
                copies,
                own + eight * shape::EIGHT_ROWS + place_of_row<shape>(r + n % 8) + pass * LANES * G,
                from + (pass * LANES + column) * G, r + n % 8, pass * LANES + column);
        }
#pragma unroll
    for (uint32_t n = 0; shape::REST && n < 8 * shape::COPY_EIGHTS; n += 32 / REST_LANES) {
        uint32_t row = n + lane / REST_LANES, eight = row / 8;
        uint32_t granule = PASSES * LANES + lane % REST_LANES;
        const uint8_t *from = (eight % 2 ? copies.from[1] : copies.from[0]) +
                              (eight / 2 * copies.step + row % 8) * copies.weight_bytes;
        if (row < 8 * shape::COPY_EIGHTS && granule < shape::GRANULES)
            copy_granule<shape, !shape::PLACED>(
                copies, to + eight * shape::EIGHT_ROWS + place_of_row<shape>(row % 8) + granule * G,
                from + granule * G, row % 8, granule);
    }
}

template <class shape>
__device__ __forceinline__ void copy_weights(const weight_copies &copies, uint8_t *memory)
{
    constexpr uint32_t EIGHTS = shape::COPY_EIGHTS, G = shape::GRANULE;
    if (copies.aligned && row_exists(copies, EIGHTS - 1, 7)) {
        copy_whole<shape>(copies, memory);
        return;
    }
#pragma unroll 1
    for (uint32_t n = threadIdx.x % 32; n < 8 * EIGHTS * shape::GRANULES; n += 32) {
        uint32_t row = n / shape::GRANULES, granule = n % shape::GRANULES, eight = row / 8;
        if (!row_exists(copies, eight, row % 8))
            continue;
        const uint8_t *from = (eight % 2 ? copies.from[1] : copies.from[0]) +
                              (eight / 2 * copies.step + row % 8) * copies.weight_bytes;
        if (copies.aligned)
            copy_granule<shape, true>(copies,
                                      shared_address(memory) + copies.to +
                                          eight * shape::EIGHT_ROWS + place_of_row<shape>(row % 8) +
                                          granule * G,
                                      from + granule * G, row % 8, granule);
        else if (granule == 0)
            copy_bytes<shape>(copies, eight, row % 8, memory);
    }
}

} /* namespace */

#endif
