#!/usr/bin/env python3
"""What `flowlane rss check` costs the programs that it checks: rounds with and without it in turn, each pair in random order.

    check_cost.py FLOWLANE [PAIRS]      FLOWLANE: a release build of the program; 20 pairs by default; as root

A web server on the kernel's sockets in one network namespace is loaded from another over a veth, as fast as it answers. In every other round
`rss check` looks at the server's interface meanwhile. Printed: requests a second of each round, their ratio for each pair, its median,
quartiles and a 95 % interval of the mean, and the processor time of the check. Other work on the machine shows in the spread.
"""
import json, os, random, statistics, subprocess, sys

SECONDS = 3
binary, pairs = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
near, far = (f"fl-cost-{end}-{os.getpid()}" for end in ("near", "far"))
random.seed(1)


def run(line, **more):
    return subprocess.run(line.split(), check=True, capture_output=True, text=True, **more).stdout


def inside(namespace, line):
    return f"ip netns exec {namespace} {line}"


def requests():
    """Requests a second, as the generator counts them."""
    line = f"{binary} load http http://10.99.0.1:8080/size/100 --workers 1 -c 32 -d {SECONDS}s --json --quiet --no-pin"
    out = subprocess.run(inside(far, line).split(), capture_output=True, text=True).stdout
    return json.loads(out)["total"]["rates"]["answered"]


def round_of(checked):
    check = None
    if checked:
        line = inside(near, f"{binary} rss check near0 --for {SECONDS}s --json")
        check = subprocess.Popen(line.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    rate = requests()
    if not check:
        return rate, None
    said = json.loads(check.communicate()[0])
    return rate, said


def main():
    serve = None
    try:
        for namespace in (near, far):
            run(f"ip netns add {namespace}")
        run(f"ip -n {near} link add near0 type veth peer name far0 netns {far}")
        for namespace, interface, address in ((near, "near0", "10.99.0.1"), (far, "far0", "10.99.0.2")):
            run(f"ip -n {namespace} addr add {address}/24 dev {interface}")
            run(f"ip -n {namespace} link set {interface} up")
        line = f"{binary} serve http --link kernel --port 8080 --workers 1 --no-pin"
        serve = subprocess.Popen(inside(near, line).split(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while "port 8080" not in (said := serve.stderr.readline()):
            if not said:
                sys.exit("the server did not start")
        requests()
        ratios, own, sampled, rates = [], [], [], []
        for pair in range(pairs):
            rate = {}
            for checked in random.sample([False, True], 2):
                rate[checked], said = round_of(checked)
                if said:
                    own.append(100 * said["own-seconds"] / said["seconds"])
                    sampled.append(said["sampled"] / said["seconds"])
            rates.append(rate[False])
            ratios.append(rate[True] / rate[False])
            print(f"{pair + 1}: {rate[False]:.0f} requests/s without, {rate[True]:.0f} with: {ratios[-1]:.4f}", flush=True)
        quarter = statistics.quantiles(ratios, n=4)
        half = 1.96 * statistics.stdev(ratios) / len(ratios) ** 0.5
        mean = statistics.mean(ratios)
        print(f"rate with the check by rate without: median {quarter[1]:.4f}, quartiles {quarter[0]:.4f} and {quarter[2]:.4f},")
        print(f"  mean {mean:.4f}, 95 % interval {mean - half:.4f} to {mean + half:.4f}; {statistics.median(rates):.0f} requests/s without")
        print(f"the check: {statistics.median(own):.2f} % of a processor (most {max(own):.2f} %), {statistics.median(sampled):.0f} samples/s")
    finally:
        if serve:
            serve.terminate()
            serve.wait()
        for namespace in (near, far):
            subprocess.run(f"ip netns del {namespace}".split(), capture_output=True)


main()
