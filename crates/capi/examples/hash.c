/*
 * Steering without a network: hash FLOW... prints hash, type, bucket and worker of each flow under Microsoft's key.
 *
 * A flow is SOURCE:PORT,DESTINATION:PORT,tcp|udp|ip. Without arguments the published vectors are verified instead.
 */
#include <flowlane.h>

#include <stdio.h>
#include <string.h>

/* "Verifying the RSS hash calculation": source, destination, hash of the addresses, hash of addresses and ports. */
static const struct {
    const char *source, *destination;
    uint32_t addresses, ports;
} vectors[] = {
    {"66.9.149.187:2794", "161.142.100.80:1766", 0x323e8fc2, 0x51ccc178},
    {"199.92.111.2:14230", "65.69.140.83:4739", 0xd718262a, 0xc626b0ea},
    {"24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0a5de, 0x5c2b394a},
    {"38.27.205.30:48228", "209.142.163.6:2217", 0x82989176, 0xafc7327f},
    {"153.39.163.191:44251", "202.188.127.2:1303", 0x5d1809c5, 0x10e828a2},
    {"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc18cd5, 0x40207d3d},
    {"[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c461c, 0xdde51bbf},
    {"[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", "[fe80::200:f8ff:fe21:67cf]:38024", 0x4b61e985, 0x02d1feef},
};

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, flowlane_last_error());
    return 2;
}

static int steer(const flowlane_rss *rss, const char *source, const char *destination, uint8_t protocol,
                 flowlane_rss_steered *steered)
{
    flowlane_rss_flow flow = {.protocol = protocol};
    int code = flowlane_address_parse(source, &flow.source);
    if (!code)
        code = flowlane_address_parse(destination, &flow.destination);
    return code ? code : flowlane_rss_steer(rss, &flow, steered);
}

/* All published vectors, with the protocol that hashes ports and with one that has none. */
static int verify(const flowlane_rss *rss)
{
    size_t right = 0, count = sizeof vectors / sizeof *vectors;
    for (size_t i = 0; i < count; i++) {
        flowlane_rss_steered ip, tcp;
        if (steer(rss, vectors[i].source, vectors[i].destination, 1, &ip) ||
            steer(rss, vectors[i].source, vectors[i].destination, 6, &tcp))
            return failed(vectors[i].source);
        if (ip.hash == vectors[i].addresses && tcp.hash == vectors[i].ports && tcp.slot == (tcp.hash & 127))
            right++;
        else
            fprintf(stderr, "%s: %08x %08x\n", vectors[i].source, ip.hash, tcp.hash);
    }
    printf("%zu of %zu vectors\n", right, count);
    return right == count ? 0 : 1;
}

int main(int argc, char **argv)
{
    flowlane_rss *rss;
    int code = 0;
    if (flowlane_rss_new(NULL, 0, 4, 0, true, &rss))
        return failed("steering");
    if (argc == 1)
        code = verify(rss);
    for (int i = 1; i < argc && !code; i++) {
        flowlane_rss_steered steered;
        const char *source = strtok(argv[i], ","), *destination = strtok(NULL, ","), *name = strtok(NULL, ",");
        uint8_t protocol = name && !strcmp(name, "tcp") ? 6 : name && !strcmp(name, "udp") ? 17 : 1;
        if (!source || !destination || steer(rss, source, destination, protocol, &steered)) {
            code = failed(argv[i]);
            break;
        }
        printf("%08x type %02x bucket %u worker %u\n", steered.hash, steered.hash_type, steered.bucket, steered.worker);
    }
    flowlane_rss_free(rss);
    return code;
}
