/* Settings that depend on the machine: vector width, register tiles and block sizes.
 *
 * A register tile of the matrix product is TILE_ROWS rows by TILE_VECTORS vectors of LANES numbers:
 * as many accumulators as there are registers, minus those for the operands. Blocks are sized so
 * that data that is read repeatedly stays in the L1 or L2 cache. L2_BYTES is a thread's share of
 * L2. GRADIENT_BYTES limits the tiles of a weight gradient. More tiles mean that their sums are
 * transformed less often, so on machines with an L3 cache the tiles may be in L3.
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

#elif defined(__aarch64__) /* Cortex-A72: 32 registers, 1 MB of L2 for four cores; others similar */
#ifdef EDGEDDL_CORTEX_A72
#define BUILD "cortex_a72"
#else
#define BUILD "generic"
#endif
#define LANES 4
#define TILE_ROWS 5 /* with 6, the compiler spills operands */
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

/* Output channels that Winograd's algorithm computes at a time, one to four register tiles. The
 * transformed inputs are larger than the caches, and wide panels read them less often. */
#define PANEL_COLUMNS 64

#endif
