//! Trees of files as the kernel shows them for cards of several makes.

use super::*;

/// A directory of files, removed with it.
pub(crate) struct Tree(pub(crate) PathBuf);

impl Tree {
    pub(crate) fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("flowlane-tree-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("proc")).unwrap();
        Self(root)
    }

    pub(crate) fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn queues(&self, interface: &str, count: u32) {
        for n in 0..count {
            let at = format!("sys/class/net/{interface}/queues");
            self.file(&format!("{at}/rx-{n}/rps_cpus"), "00000000,00000000\n");
            self.file(&format!("{at}/rx-{n}/rps_flow_cnt"), "0\n");
            self.file(&format!("{at}/tx-{n}/xps_cpus"), &format!("{:x}\n", 1 << n));
        }
    }

    fn affinity(&self, interrupt: u32, allowed: &str, effective: &str) {
        self.file(&format!("proc/irq/{interrupt}/smp_affinity_list"), allowed);
        self.file(&format!("proc/irq/{interrupt}/effective_affinity_list"), effective);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// virtio: the interrupts belong to the device above, and sending has its own.
fn virtio() -> Tree {
    let tree = Tree::new("virtio");
    tree.queues("eth0", 4);
    let mut interrupts = "            CPU0       CPU1       CPU2       CPU3\n".to_owned();
    interrupts += " 24:   0   0   0   0   PCI-MSIX-0000:00:03.0   0-edge      virtio0-config\n";
    for n in 0..4 {
        let (rx, tx) = (25 + 2 * n, 26 + 2 * n);
        interrupts += &format!(
            " {rx}:   1   2   3   4   PCI-MSIX-0000:00:03.0   {}-edge      virtio0-input.{n}\n",
            rx - 24
        );
        interrupts += &format!(
            " {tx}:   1   2   3   4   PCI-MSIX-0000:00:03.0   {}-edge      virtio0-output.{n}\n",
            tx - 24
        );
        tree.affinity(rx, "0-3\n", &format!("{n}\n"));
        tree.affinity(tx, "0-3\n", "0\n");
    }
    interrupts += "NMI:   0   0   0   0   Non-maskable interrupts\n 90: 1 1 1 1 PCI eth01-rx-0\n";
    tree.file("proc/interrupts", &interrupts);
    for irq in 24..=32 {
        tree.file(&format!("sys/devices/pci/msi_irqs/{irq}"), "msix\n");
    }
    tree.file("sys/devices/pci/numa_node", "-1\n").file("sys/devices/pci/virtio0/status", "");
    std::os::unix::fs::symlink("../../../devices/pci/virtio0", tree.0.join("sys/class/net/eth0/device"))
        .unwrap();
    tree.file("sys/devices/system/cpu/online", "0-3\n");
    tree.file("proc/sys/net/core/rps_sock_flow_entries", "0\n");
    tree
}

#[test]
fn virtio_has_an_interrupt_for_each_direction() {
    let tree = virtio();
    let seen = Surroundings::read(&tree.0, "eth0");
    let cpus: Vec<_> =
        seen.receive.iter().map(|queue| (queue.number, queue.cpu(), queue.interrupts.len())).collect();
    assert_eq!(cpus, [(0, Some(0), 1), (1, Some(1), 1), (2, Some(2), 1), (3, Some(3), 1)]);
    assert_eq!(seen.receive[2].interrupts[0].name, "virtio0-input.2");
    assert_eq!(seen.others.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["virtio0-config"]);
    assert_eq!((seen.node, seen.flow_entries, seen.irqbalance), (None, Some(0), false));
    assert_eq!(seen.online.unwrap().to_string(), "0-3");
    assert_eq!(seen.transmit[3].xps_cpus.as_ref().unwrap().to_string(), "3");
    assert!(seen.receive[0].rps.as_ref().unwrap().is_empty() && seen.unseen.is_empty());
}

#[test]
fn ixgbe_has_one_interrupt_a_queue_pair_and_a_node() {
    let tree = Tree::new("ixgbe");
    tree.queues("ens1", 2);
    tree.file(
        "proc/interrupts",
        "  CPU0 CPU1\n 60: 9 9 IR-PCI-MSI 1-edge ens1-TxRx-0\n 61: 9 9 IR-PCI-MSI 2-edge ens1-TxRx-1\n 62: 0 0 IR-PCI-MSI 3-edge ens1\n",
    );
    for (interrupt, cpu) in [(60, "8\n"), (61, "8\n"), (62, "0\n")] {
        tree.affinity(interrupt, cpu, cpu);
        tree.file(&format!("sys/class/net/ens1/device/msi_irqs/{interrupt}"), "msix\n");
    }
    tree.file("sys/class/net/ens1/device/numa_node", "1\n");
    tree.file("sys/devices/system/node/node1/cpulist", "8-15\n");
    tree.file("sys/class/net/ens1/queues/rx-1/rps_cpus", "00000001,80000003\n");
    tree.file("proc/4711/comm", "irqbalance\n");
    let seen = Surroundings::read(&tree.0, "ens1");
    assert_eq!(seen.receive.iter().map(ReceiveQueue::cpu).collect::<Vec<_>>(), [Some(8), Some(8)]);
    assert_eq!((seen.node, seen.near.unwrap().to_string()), (Some(1), "8-15".to_owned()));
    assert_eq!(seen.receive[1].rps.as_ref().unwrap().to_string(), "0-1,31-32");
    assert!(seen.irqbalance);
    assert_eq!(seen.others.len(), 1, "the link's own interrupt is no queue's");
}

#[test]
fn veth_has_queues_and_no_interrupts_and_nothing_is_nothing() {
    let tree = Tree::new("veth");
    tree.queues("veth0", 2);
    let seen = Surroundings::read(&tree.0, "veth0");
    assert_eq!((seen.receive.len(), seen.receive[0].cpu(), seen.others.len()), (2, None, 0));
    let nothing = Surroundings::read(&tree.0, "none");
    assert_eq!(nothing, Surroundings::default());
}

#[test]
fn one_queue_takes_the_only_interrupt() {
    let tree = Tree::new("e1000e");
    tree.queues("eth2", 1);
    tree.file("proc/interrupts", "  CPU0\n 29: 9 PCI-MSI 1-edge eth2\n");
    tree.affinity(29, "0\n", "0\n");
    let seen = Surroundings::read(&tree.0, "eth2");
    assert_eq!((seen.receive[0].cpu(), seen.others.len()), (Some(0), 0));
}

#[test]
fn an_interrupt_that_is_about_to_move_is_where_it_may_be() {
    let interrupt = |allowed: &str, effective: &str| Interrupt {
        number: 1,
        name: "eth0-rx-0".into(),
        allowed: Cpus::of_list(allowed),
        effective: Cpus::of_list(effective),
    };
    let cpus = |allowed, effective| interrupt(allowed, effective).cpus().map(ToString::to_string);
    assert_eq!(cpus("0-3", "2"), Some("2".into()));
    assert_eq!(cpus("1", "2"), Some("1".into()));
    assert_eq!(cpus("1-2", ""), Some("1-2".into()));
    assert_eq!(cpus("x", "2"), Some("2".into()));
    assert_eq!(cpus("x", "x"), None);
    let from = |allowed, effective| interrupt(allowed, effective).moves_from().map(ToString::to_string);
    assert_eq!(from("1", "2"), Some("2".into()));
    assert_eq!((from("0-3", "2"), from("1", ""), from("x", "2")), (None, None, None));
}

#[test]
fn names_of_interrupts() {
    let of = |name| queue_of(name, "eth0");
    assert_eq!(of("virtio2-input.11"), Some((Direction::Receive, 11)));
    assert_eq!(of("virtio2-output.1"), Some((Direction::Transmit, 1)));
    assert_eq!(of("eth0-TxRx-7"), Some((Direction::Both, 7)));
    assert_eq!(of("i40e-eth0-TxRx-3"), Some((Direction::Both, 3)));
    assert_eq!(of("eth0-rxtx-2"), Some((Direction::Both, 2)));
    assert_eq!(of("eth0-Tx-Rx-5"), Some((Direction::Both, 5)));
    assert_eq!(of("mlx5_comp4@pci:0000:03:00.0"), Some((Direction::Both, 4)));
    assert_eq!(of("mlx5_async0@pci:0000:03:00.0"), None);
    assert_eq!(of("ena-mgmnt@pci:0000:00:05.0"), None);
    assert_eq!(of("eth0"), None);
    assert!(names("eth0-rx-1", "eth0") && !names("eth01-rx-1", "eth0") && !names("veth0", "eth0"));
}

#[test]
fn lists_and_masks() {
    let list = |text| Cpus::of_list(text).map(|cpus| cpus.to_string());
    assert_eq!(list("0-3,8\n"), Some("0-3,8".into()));
    assert_eq!(list("\n"), Some("-".into()));
    assert_eq!((list("x"), list("0-99999999")), (None, None));
    let mask = |text| Cpus::of_mask(text).map(|cpus| cpus.to_string());
    assert_eq!(mask("f"), Some("0-3".into()));
    assert_eq!(mask("00000002,00000000"), Some("33".into()));
    assert_eq!(mask("nonsense"), None);
}

/// What the driver tells stands above names, also where names say nothing or something else.
#[test]
fn interrupts_are_the_queues_that_the_driver_tells() {
    let tree = virtio();
    // 25 and 27 are called input.0 and input.1; the driver says that it is the other way round, and nothing of the others.
    let seen = Surroundings::read_with(&tree.0, "eth0", &[(0, 27), (1, 25)]);
    let of = |queue: usize| seen.receive[queue].interrupts.iter().map(|i| i.number).collect::<Vec<_>>();
    assert_eq!((of(0), of(1), of(2), of(3)), (vec![27], vec![25], vec![29], vec![31]));
    assert!(seen.told);
    // An interrupt with a name that tells nothing, shared by all queues.
    let shared = Surroundings::read_with(&tree.0, "eth0", &[(0, 24), (1, 24), (2, 24), (3, 24)]);
    assert!(shared.receive.iter().all(|queue| queue.interrupts.iter().any(|i| i.number == 24)), "{shared:?}");
    assert!(shared.receive.iter().all(|queue| queue.interrupts.len() == 1), "{shared:?}");
    assert!(!Surroundings::read(&tree.0, "eth0").told);
}
