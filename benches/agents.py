#!/usr/bin/env python3
"""How the rate of a run grows from one agent to two, each on a processor of its own.

    benches/agents.py [--program target/release/flowlane] [--rounds 7] [--seconds 4]

Each agent has a server of its own, over a pair link in the same process, so no third processor is needed: the NATS server and the command that
conducts do next to nothing. Rounds of one and two agents alternate. Two ratios are printed: of the rates, which means something on a machine that has
nothing else to do, and of the rates that the agents' processor time would give, which is what is left to say of one that has. The load of the
machine is printed beside them.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

URL = "http://10.11.2.1/"


def start_nats(directory):
    """A NATS server at a port of its choice, and its URL."""
    ports = pathlib.Path(directory)
    nats = subprocess.Popen(
        ["nats-server", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", directory],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        for found in ports.glob("*.ports"):
            text = found.read_text()
            if text.strip():
                return nats, json.loads(text)["nats"][0]
        time.sleep(0.05)
    nats.kill()
    raise SystemExit("the NATS server does not start")


def measure(program, nats, agents, cpus, seconds, connections):
    """One run: its requests a second, those a second of processor time, and the share of time in which agents waited for a processor."""
    started = []
    try:
        for i in range(agents):
            agent = [program, "load", "agent", "--nats", nats, "--group", "bench", "--name", f"a{i}", "--once",
                     "--", "--link", "pair", "--workers", "1", "--no-pin"]
            started.append(subprocess.Popen(["taskset", "-c", str(cpus[i]), *agent], stderr=subprocess.PIPE, text=True))
        for agent in started:
            agent.stderr.readline()
        load = [program, "load", "http", URL, "--nats", nats, "--agents", f"bench:{agents}", "--agent-wait", "30s",
                "--agent-timeout", "30s", "-c", str(connections * agents), "-d", f"{seconds}s", "--json", "-q"]
        done = subprocess.run(load, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            raise SystemExit(done.stderr)
        report = json.loads(done.stdout)
    finally:
        for agent in started:
            agent.communicate(timeout=60)
    answered = report["total"]["counts"]["answered"]
    of = [agent["generator"] for agent in report["agents"]]
    waited = sum(one["waited-seconds"] for one in of) / sum(one["seconds"] for one in of)
    # What each would answer if its processor were its own: the sum over agents.
    own = sum(1e9 / one["cpu-ns-per-answer"] for one in of)
    return answered / report["seconds"], own, waited


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--program", default="target/release/flowlane")
    parse.add_argument("--rounds", type=int, default=7)
    parse.add_argument("--seconds", type=int, default=4)
    parse.add_argument("--connections", type=int, default=64, help="of each agent")
    options = parse.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("two processors are needed")
    ratios, own = [], []
    print(f"{options.program}, {options.rounds} rounds of {options.seconds} s, {options.connections} connections an agent")
    with tempfile.TemporaryDirectory() as directory:
        nats, url = start_nats(directory)
        try:
            for number in range(options.rounds):
                runs = {}
                # The order changes, so that neither is always the later one.
                for agents in ([1, 2], [2, 1])[number % 2]:
                    runs[agents] = measure(
                        options.program, url, agents, cpus, options.seconds, options.connections)
                ratios.append(runs[2][0] / runs[1][0])
                own.append(runs[2][1] / runs[1][1])
                print(f"one {runs[1][0]:9.0f}/s (waited {runs[1][2]:4.0%})   two {runs[2][0]:9.0f}/s "
                      f"(waited {runs[2][2]:4.0%})   ratio {ratios[-1]:.2f}, by processor time {own[-1]:.2f}   "
                      f"load {os.getloadavg()[0]:.1f}", flush=True)
        finally:
            nats.terminate()
            nats.wait()
    for name, values in (("rates", ratios), ("processor time", own)):
        print(f"ratio by {name}: median {statistics.median(values):.2f}, {min(values):.2f} to {max(values):.2f}")


if __name__ == "__main__":
    main()
