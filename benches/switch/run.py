#!/usr/bin/env python3
"""The switch beside the kernel's bridge, Open vSwitch's userspace datapath and dpdk-testpmd, in turn in every round: frames of 64 bytes a second
that get from one veth pair to another.

    benches/switch/run.py FLOWLANE [--rounds 5] [--seconds 2] [--sources 64] [--only WORD] [--realtime]

FLOWLANE is the program, such as target/release/flowlane. Needs root, iproute2 and two processors: whoever sends is on processor 0, whoever
forwards on processor 1, the bridge by RPS. Frames that the sender offers and nobody forwards are not counted. What cannot be run here is named
with the reason. `two workers` has both processors, which it shares with the sender: on a machine with two it says nothing about scaling.
"""

import argparse
import ctypes
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

GEN, MID, SINK = "flsb-gen", "flsb-mid", "flsb-sink"
SPACES = (GEN, MID, SINK)


def ip(words, check=True):
    return subprocess.run(["ip"] + words.split(), check=check, capture_output=True, text=True)


def enter(space):
    with open(f"/run/netns/{space}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0x40000000) != 0:
            raise OSError(ctypes.get_errno(), space)


def clean():
    for space in SPACES:
        ip(f"netns del {space}", check=False)


def lay():
    """gen:g0 == mid:e1, mid:e2 == sink:s0; nobody has an address, so nothing else is sent."""
    clean()
    for space in SPACES:
        ip(f"netns add {space}")
        subprocess.run(["ip", "netns", "exec", space, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                        "net.ipv6.conf.default.disable_ipv6=1"], check=True)
    ip(f"link add e1 netns {MID} type veth peer name g0 netns {GEN}")
    ip(f"link add e2 netns {MID} type veth peer name s0 netns {SINK}")
    ends = ((GEN, "g0"), (MID, "e1"), (MID, "e2"), (SINK, "s0"))
    for space, name in ends:
        ip(f"-n {space} link set {name} up")
    # The kernel tells of a link up to a second later. A switch under --realtime has the processor of the thread that would hear of it.
    until = time.monotonic() + 30
    while not all("state UP" in ip(f"-n {space} link show {name}").stdout for space, name in ends):
        if time.monotonic() > until:
            raise RuntimeError("the links do not come up")
        time.sleep(0.02)


def received():
    shown = subprocess.run(["ip", "netns", "exec", SINK, "cat", "/proc/net/dev"], capture_output=True, text=True)
    line = next(line for line in shown.stdout.splitlines() if line.strip().startswith("s0:"))
    return int(line.split(":")[1].split()[1])


class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32), ("iov", ctypes.POINTER(iovec)),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", msghdr), ("len", ctypes.c_uint)]


def send(seconds, sources, realtime):
    """Sends as fast as the kernel takes it, from processor 0; 512 frames a call."""
    os.sched_setaffinity(0, {0})
    if realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    enter(GEN)
    libc = ctypes.CDLL(None, use_errno=True)
    here = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    here.bind(("g0", 0))
    here.setsockopt(263, 20, struct.pack("i", 1))  # SOL_PACKET, PACKET_QDISC_BYPASS
    count = 512
    frames, iovecs, messages = [], (iovec * count)(), (mmsghdr * count)()
    for n in range(count):
        source = n % sources
        frame = bytes([2, 0, 0, 0, 9, 9, 2, 0, 0, 1, source >> 8, source & 255, 0x88, 0xb6]) + bytes(46)
        frames.append(ctypes.create_string_buffer(frame, len(frame)))
        iovecs[n].base, iovecs[n].len = ctypes.addressof(frames[-1]), len(frame)
        messages[n].hdr.iov, messages[n].hdr.iovlen = ctypes.pointer(iovecs[n]), 1
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        libc.sendmmsg(here.fileno(), messages, count, 0)


def rate(seconds, sources, realtime):
    """Frames a second that arrive, after half a second of warming up."""
    sender = os.fork()
    if sender == 0:
        try:
            send(seconds + 1, sources, realtime)
        finally:
            os._exit(0)
    time.sleep(0.5)
    before, began = received(), time.monotonic()
    time.sleep(seconds)
    got, took = received() - before, time.monotonic() - began
    os.waitpid(sender, 0)
    return got / took


def defer(*interfaces):
    """Has the kernel leave packets to whoever polls; the interfaces are made anew for each round."""
    for name in interfaces:
        for what, value in (("napi_defer_hard_irqs", 2), ("gro_flush_timeout", 200000)):
            subprocess.run(["ip", "netns", "exec", MID, "sh", "-c", f"echo {value} > /sys/class/net/{name}/{what}"], check=True)


class Bridge:
    name = "Linux bridge"

    def __init__(self, given):
        ip(f"-n {MID} link add br0 type bridge")
        ip(f"-n {MID} link set br0 up")
        for port in ("e1", "e2"):
            ip(f"-n {MID} link set {port} master br0")
        # Processor 1 forwards what processor 0 sends.
        steer = ["ip", "netns", "exec", MID, "sh", "-c", "echo 2 > /sys/class/net/e1/queues/rx-0/rps_cpus"]
        subprocess.run(steer, check=True)

    def end(self):
        ip(f"-n {MID} link del br0")


class Process:
    """A program in the middle that forwards until it is ended."""

    cpus = "1"

    def __init__(self, given):
        first = ["chrt", "-f", "50"] if given.realtime else []
        words = ["ip", "netns", "exec", MID, "taskset", "-c", self.cpus] + first + self.words(given)
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:
            said.append(line)
            if re.search(self.ready, line):
                return
        raise RuntimeError("".join(said[-3:]).strip().replace("\n", " "))

    def end(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def flowlane(link, workers=1, cpus="1", busy=False):
    class Flowlane(Process):
        name = f"flowlane {link}" + ("" if workers == 1 else f", {workers} workers") + (", busy polling" if busy else "")
        ready = "^switch .* runs"

        def words(self, given):
            if busy:
                defer("e1", "e2")
            return [given.flowlane, "switch", "up", "--name", f"bench{os.getpid()}", "--workers", str(workers),
                    "--port", f"p1={link}:e1", "--port", f"p2={link}:e2"] + (["--busy-poll"] if busy else [])

    Flowlane.cpus = cpus
    return Flowlane


class Testpmd(Process):
    name = "dpdk-testpmd io"
    # The main thread is beside the sender: it only waits.
    cpus = "0,1"
    ready = "Press enter to exit|testpmd>"

    def words(self, given):
        if not shutil.which("dpdk-testpmd"):
            raise RuntimeError("there is no dpdk-testpmd: apt-get install dpdk")
        # Memory without huge pages.
        return ["stdbuf", "-oL", "dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--lcores", "0@0,1@1", "--file-prefix", "flsb",
                "--vdev", "net_af_packet0,iface=e1", "--vdev", "net_af_packet1,iface=e2", "--",
                "--forward-mode=io", "--auto-start", "--total-num-mbufs=16384", "--nb-cores=1"]


class Ovs:
    name = "Open vSwitch, userspace"

    def __init__(self, given):
        for program in ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl"):
            if not shutil.which(program):
                raise RuntimeError(f"there is no {program}: apt-get install openvswitch-switch")
        self.dir = tempfile.mkdtemp(prefix="flsb-ovs")
        self.env = {**os.environ, "OVS_RUNDIR": self.dir, "OVS_LOGDIR": self.dir, "OVS_DBDIR": self.dir}
        database = f"{self.dir}/conf.db"
        self.run("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")
        self.processes = [self.spawn("ovsdb-server", database, f"--remote=punix:{self.dir}/db.sock")]
        self.await_file("db.sock")
        first = ("chrt", "-f", "50") if given.realtime else ()
        self.processes.append(self.spawn("taskset", "-c", "1", *first, "ovs-vswitchd", f"unix:{self.dir}/db.sock",
                                         "--disable-system"))
        self.vsctl("add-br", "ovs0", "--", "set", "bridge", "ovs0", "datapath_type=netdev")
        for port in ("e1", "e2"):
            self.vsctl("add-port", "ovs0", port)

    def run(self, *words):
        done = subprocess.run(["ip", "netns", "exec", MID] + list(words), env=self.env, capture_output=True, text=True,
                              timeout=30)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]}: {done.stderr.strip().splitlines()[-1:]}")

    def spawn(self, *words):
        return subprocess.Popen(["ip", "netns", "exec", MID] + list(words), env=self.env, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def await_file(self, name):
        until = time.monotonic() + 20
        while not os.path.exists(f"{self.dir}/{name}"):
            if time.monotonic() > until:
                raise RuntimeError(f"no {name}")
            time.sleep(0.05)

    def vsctl(self, *words):
        self.run("ovs-vsctl", f"--db=unix:{self.dir}/db.sock", "--timeout=20", *words)

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("flowlane")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--seconds", type=float, default=2)
    parse.add_argument("--sources", type=int, default=64)
    parse.add_argument("--realtime", action="store_true", help="sender and forwarder under SCHED_FIFO: on a machine that others load")
    parse.add_argument("--only", default="", help="only those with this in their names, and the bridge")
    given = parse.parse_args()
    filtering = ip("link add flsbtry type bridge vlan_filtering 1", check=False)
    ip("link del flsbtry", check=False)
    if filtering.returncode != 0:
        print(f"bridge with VLAN filtering: skipped, because {filtering.stderr.strip()}; plain bridging instead")
    kinds = [Bridge, flowlane("af-packet"), flowlane("af-xdp"), flowlane("af-xdp", busy=True),
             flowlane("af-xdp", 2, "0,1"), Ovs, Testpmd]
    kinds = [kind for kind in kinds if kind is Bridge or given.only in kind.name]
    rates, skipped = {}, set()
    try:
        for number in range(given.rounds):
            for kind in kinds if number % 2 == 0 else reversed(kinds):
                if kind.name in skipped:
                    continue
                lay()
                try:
                    device = kind(given)
                except (RuntimeError, subprocess.SubprocessError) as e:
                    skipped.add(kind.name)
                    print(f"{kind.name}: skipped, because {e}", flush=True)
                    continue
                one = rate(given.seconds, given.sources, given.realtime)
                device.end()
                if one == 0:
                    skipped.add(kind.name)
                    print(f"{kind.name}: skipped, because no frame arrives", flush=True)
                    continue
                rates.setdefault(kind.name, []).append(one)
                print(f"round {number} {kind.name}: {one / 1e3:.0f} thousand frames a second", flush=True)
        for name, all_of in rates.items():
            line = f"{name}: {statistics.median(all_of) / 1e3:.0f} thousand ({min(all_of) / 1e3:.0f} to {max(all_of) / 1e3:.0f})"
            ratios = [a / b for a, b in zip(all_of, rates.get(Bridge.name, []))]
            if name != Bridge.name and ratios:
                line += f", over the bridge {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(line)
    finally:
        clean()


if __name__ == "__main__":
    main()
