/* What differs from machine to machine: vector width, register tiles and block sizes.
 *
 * A register tile of the matrix product is TILE_ROWS rows by TILE_VECTORS vectors of LANES numbers:
 * as many accumulators as there are registers, less those for the operands. Blocks are chosen so
 * that what is read again and again stays in the first- or second-level cache: within L2_BYTES of
 * it, a thread's share. GRADIENT_BYTES is what the tiles of a weight gradient may take: the more of
 * them there are, the less often their sums are transformed, so where there is a third-level cache
 * they may lie there.
 */
#ifndef EDGEDDL_MACHINE_H
#define EDGEDDL_MACHINE_H

#if defined(__AVX512F__) /* Skylake-X, Ice Lake, Zen 4 and later: 32 registers, 1 MB of L2 */
#define BUILD "avx512"
#define LANES 16
#define TILE_ROWS 6
#define TILE_VECTORS 4
#define L2_BYTES (1 << 20)
#define GRADIENT_BYTES (2 << 20)

#elif defined(__AVX2__) /* Haswell, Zen: 16 registers, 256 to 512 KB of L2 */
#define BUILD "avx2"
#define LANES 8
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define L2_BYTES (512 << 10)
#define GRADIENT_BYTES (2 << 20)

#elif defined(__aarch64__) /* Cortex-A72: 32 registers, 1 MB of L2 for four cores; others alike */
#ifdef EDGEDDL_CORTEX_A72
#define BUILD "cortex_a72"
#else
#define BUILD "generic"
#endif
#define LANES 4
#define TILE_ROWS 5 /* with 6, operands are spilled */
#define TILE_VECTORS 4
#define L2_BYTES (256 << 10)
#define GRADIENT_BYTES (128 << 10)

#else /* any x86-64: SSE2, 16 registers, no fused multiply-add */
#define BUILD "generic"
#define LANES 4
#define TILE_ROWS 6
#define TILE_VECTORS 2
#define L2_BYTES (256 << 10)
#define GRADIENT_BYTES (128 << 10)
#endif

#define TILE_COLUMNS (TILE_VECTORS * LANES)

/* Output channels that Winograd's algorithm computes at a time, one to four tiles: transformed
 * inputs, which are larger than caches, are read so much less often. */
#define PANEL_COLUMNS 64

#endif
