/*
 * DPDK's ip_frag library, timed cell by cell; the peer of crates/stack/examples/reassembly_cells.rs.
 *
 * Prints "CELL NANOSECONDS" per fragment, the median of the samples. Both programs give the same datagrams in the same
 * batches and time the same part of the work: from the IP header to the finished chain. The library does not verify
 * header checksums, so neither program does. Every batch is checked to give as many datagrams as it holds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_ip.h>
#include <rte_ip_frag.h>
#include <rte_mbuf.h>

#define BATCH 256
#define PAYLOAD 64
#define SAMPLES 9
#define BATCHES 1500
#define FRAMES 110000

static struct rte_mempool *pool;
static struct rte_ip_frag_death_row row;

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Fragment `half` of datagram `id` from network `net`. */
static struct rte_mbuf *fill(int v6, uint32_t net, uint32_t id, int half)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(pool);

	if (m == NULL) {
		fprintf(stderr, "too few mbufs\n");
		exit(2);
	}
	m->l2_len = 0;
	if (v6) {
		struct rte_ipv6_hdr *h = (void *)rte_pktmbuf_append(m, 48 + PAYLOAD);
		struct rte_ipv6_fragment_ext *f = (void *)(h + 1);

		memset(h, 0, 48);
		h->vtc_flow = rte_cpu_to_be_32(6u << 28);
		h->payload_len = rte_cpu_to_be_16(8 + PAYLOAD);
		h->proto = 44;
		h->hop_limits = 64;
		h->src_addr[0] = 0xfd;
		h->src_addr[4] = net >> 24;
		h->src_addr[5] = net >> 16;
		h->src_addr[6] = net >> 8;
		h->src_addr[7] = net;
		h->src_addr[15] = 1;
		h->dst_addr[15] = 1;
		f->next_header = 17;
		f->frag_data = rte_cpu_to_be_16(half ? PAYLOAD : 1);
		f->id = rte_cpu_to_be_32(id);
		m->l3_len = 48;
	} else {
		struct rte_ipv4_hdr *h = (void *)rte_pktmbuf_append(m, 20 + PAYLOAD);

		memset(h, 0, 20);
		h->version_ihl = 0x45;
		h->total_length = rte_cpu_to_be_16(20 + PAYLOAD);
		h->packet_id = rte_cpu_to_be_16(id);
		h->fragment_offset = rte_cpu_to_be_16(half ? PAYLOAD / 8 : RTE_IPV4_HDR_MF_FLAG);
		h->time_to_live = 64;
		h->next_proto_id = 17;
		h->src_addr = rte_cpu_to_be_32(net << 8 | 1);
		h->dst_addr = rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, 2));
		h->hdr_checksum = rte_ipv4_cksum(h);
		m->l3_len = 20;
	}
	return m;
}

static inline struct rte_mbuf *take(struct rte_ip_frag_tbl *table, uint64_t now, int v6, struct rte_mbuf *m)
{
	if (v6) {
		struct rte_ipv6_hdr *h = rte_pktmbuf_mtod(m, struct rte_ipv6_hdr *);
		struct rte_ipv6_fragment_ext *f = rte_ipv6_frag_get_ipv6_fragment_header(h);

		return f == NULL ? NULL : rte_ipv6_frag_reassemble_packet(table, &row, m, now, h, f);
	}
	struct rte_ipv4_hdr *h = rte_pktmbuf_mtod(m, struct rte_ipv4_hdr *);

	return rte_ipv4_frag_pkt_is_fragmented(h) ? rte_ipv4_frag_reassemble_packet(table, &row, m, now, h) : NULL;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void cell(const char *name, int v6, int mixed, uint32_t pending)
{
	/* As small as holds everything, so that the table is as warm as it can be; nothing expires. */
	uint32_t most = pending < 1000 ? 1024 : 131072;
	struct rte_ip_frag_tbl *table = rte_ip_frag_table_create(most / 16, 16, most, UINT64_MAX / 4, SOCKET_ID_ANY);
	static struct rte_mbuf *batch[BATCH], *whole[BATCH];
	double samples[SAMPLES];
	uint32_t next = 0;

	if (table == NULL) {
		fprintf(stderr, "no table\n");
		exit(2);
	}
	for (uint32_t i = 0; i < pending; i++)
		if (take(table, 1, v6, fill(v6, 0x0b0000 + i % 10000, i / 10000, 0)) != NULL)
			exit(2);
	for (int s = -2; s < SAMPLES; s++) {
		double spent = 0;

		for (int b = 0; b < BATCHES; b++) {
			uint32_t n = 0;

			for (int i = 0; i < BATCH; i++) {
				uint32_t datagram = next + (mixed ? i % (BATCH / 2) : i / 2);

				batch[i] = fill(v6, 0xac1000 + datagram % 256, datagram / 256,
						mixed ? i / (BATCH / 2) : i % 2);
			}
			next += BATCH / 2;
			double start = now_ns();
			for (int i = 0; i < BATCH; i++) {
				struct rte_mbuf *m = take(table, 1, v6, batch[i]);

				if (m != NULL)
					whole[n++] = m;
			}
			spent += now_ns() - start;
			rte_ip_frag_free_death_row(&row, 0);
			if (n != BATCH / 2) {
				fprintf(stderr, "%s: %u datagrams of %u\n", name, n, BATCH / 2);
				exit(2);
			}
			for (uint32_t i = 0; i < n; i++)
				rte_pktmbuf_free(whole[i]);
		}
		if (s >= 0)
			samples[s] = spent / ((double)BATCHES * BATCH);
	}
	qsort(samples, SAMPLES, sizeof(samples[0]), compare);
	printf("%s/%u %.4f\n", name, pending, samples[SAMPLES / 2]);
	/* Destroying a table does not free what is pending in it: let it expire first. */
	for (uint32_t i = 0; i <= FRAMES && rte_mempool_in_use_count(pool) > 0; i++) {
		rte_ip_frag_table_del_expired_entries(table, &row, UINT64_MAX / 2);
		rte_ip_frag_free_death_row(&row, 0);
	}
	rte_ip_frag_table_destroy(table);
}

int main(int argc, char **argv)
{
	static const uint32_t pendings[] = {10, 100000};

	if (rte_eal_init(argc, argv) < 0)
		return 2;
	pool = rte_pktmbuf_pool_create("frames", FRAMES, 256, 0, RTE_PKTMBUF_HEADROOM + 2048, SOCKET_ID_ANY);
	if (pool == NULL) {
		fprintf(stderr, "no memory for the pool\n");
		return 2;
	}
	for (int p = 0; p < 2; p++) {
		cell("v4-pairs", 0, 0, pendings[p]);
		cell("v4-mixed", 0, 1, pendings[p]);
		cell("v6-pairs", 1, 0, pendings[p]);
		cell("v6-mixed", 1, 1, pendings[p]);
	}
	return 0;
}
