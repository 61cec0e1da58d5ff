/*
 * DPDK's Toeplitz hashes, timed cell by cell; the peer of crates/rss/examples/toeplitz_cells.rs.
 *
 * Prints "CELL NANOSECONDS" per hash, the median of the samples. Both programs use the same cells, the same packed
 * tuples and the same way of timing; run.sh runs them in turn. Lengths are compile-time constants, which is the peer's
 * quickest form. Each hash is first compared with rte_softrss, since without GFNI the peer answers 0.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_thash.h>

#define MAX 1024
#define SAMPLES 9

static const uint8_t key[40] = {
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
	0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
	0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};
static uint64_t matrix[40];
static uint8_t v4[MAX][12], v6[MAX][36];
static uint8_t *v4_at[MAX], *v6_at[MAX];
static uint32_t out[MAX];

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static __attribute__((noinline)) void v4_single(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = rte_thash_gfni(matrix, v4[i], 12);
}

static __attribute__((noinline)) void v6_single(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = rte_thash_gfni(matrix, v6[i], 36);
}

static __attribute__((noinline)) void v4_batch(uint32_t n)
{
	rte_thash_gfni_bulk(matrix, 12, v4_at, out, n);
}

static __attribute__((noinline)) void v6_batch(uint32_t n)
{
	rte_thash_gfni_bulk(matrix, 36, v6_at, out, n);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void cell(const char *name, void (*volatile run)(uint32_t), uint32_t n)
{
	double samples[SAMPLES];
	uint32_t repeats = 400000 / n;

	for (int s = -2; s < SAMPLES; s++) {
		double start = now_ns();
		for (uint32_t r = 0; r < repeats; r++) {
			run(n);
			__asm__ volatile("" : : "r"(out) : "memory");
		}
		if (s >= 0)
			samples[s] = (now_ns() - start) / ((double)repeats * n);
	}
	qsort(samples, SAMPLES, sizeof(samples[0]), compare);
	printf("%s/%u %.4f\n", name, n, samples[SAMPLES / 2]);
}

/* The sum by the library's portable function, which wants the tuple as host-order words. */
static uint32_t soft(const uint8_t *tuple, uint32_t len)
{
	uint32_t words[9];

	for (uint32_t i = 0; i < len / 4; i++)
		words[i] = (uint32_t)tuple[4 * i] << 24 | tuple[4 * i + 1] << 16 | tuple[4 * i + 2] << 8 |
			   tuple[4 * i + 3];
	return rte_softrss(words, len / 4, key);
}

int main(void)
{
	static const uint32_t counts[] = {1, 32, 1024};
	uint64_t x = 1;

	rte_thash_complete_matrix(matrix, key, sizeof(key));
	for (uint32_t i = 0; i < MAX; i++) {
		for (uint32_t b = 0; b < 36; b++) {
			x = x * 6364136223846793005u + 1442695040888963407u;
			v6[i][b] = x >> 56;
		}
		memcpy(v4[i], v6[i], 12);
		v4_at[i] = v4[i];
		v6_at[i] = v6[i];
		if (rte_thash_gfni(matrix, v4[i], 12) != soft(v4[i], 12) ||
		    rte_thash_gfni(matrix, v6[i], 36) != soft(v6[i], 36)) {
			fprintf(stderr, "rte_thash_gfni disagrees with rte_softrss: built without GFNI?\n");
			return 2;
		}
	}
	for (int c = 0; c < 3; c++) {
		cell("v4-single", v4_single, counts[c]);
		cell("v6-single", v6_single, counts[c]);
		cell("v4-batch", v4_batch, counts[c]);
		cell("v6-batch", v6_batch, counts[c]);
	}
	return 0;
}
