//! The switch against its model (`common/model.rs`), which fuzzing shares.
//!
//! Random configurations, changed while frames flow; every frame must leave by exactly the ports of the model, with exactly its bytes. So: never
//! by a port outside the VLAN, never back, never twice, the tag as configured.

use crate::common;

use std::collections::BTreeMap;

use common::Bench;
use common::model::{Bytes, Model, PORTS};
use flowlane_switch::config::{Config, Flags, Group, Mode, PortConfig, file};
use flowlane_switch::{Change, PortSet};
use proptest::prelude::*;

const VIDS: [u16; 4] = [1, 10, 20, 4094];

fn groups(numbers: Vec<u16>, tags: bool) -> impl Strategy<Value = BTreeMap<u16, Group>> {
    let group = (0u64..1 << PORTS, 0u64..1 << PORTS).prop_map(move |(members, tagged)| Group {
        members: PortSet(members),
        tagged: PortSet(if tags { members & tagged } else { 0 }),
    });
    prop::collection::btree_map(prop::sample::select(numbers), group, 0..5)
}

prop_compose! {
    fn vlan_port()(
        pvid in prop::option::of(prop::sample::select(&VIDS[..])),
        flags in prop::collection::vec(prop::sample::select(&Flags::NAMES[..6]), 0..3),
        mtu in prop_oneof![5 => Just(1500u16), 1 => Just(68)],
        priority in 0u8..8,
        priorities in prop::array::uniform8(0u8..8),
    ) -> (u16, Flags, u16, u8, [u8; 8]) {
        let flags = flags.iter().fold(Flags::NONE, |all, (_, flag)| all.or(*flag));
        (pvid.unwrap_or(0), flags, mtu, priority, priorities)
    }
}

fn config() -> impl Strategy<Value = Config> {
    let mode = prop::sample::select(
        &[Mode::Default, Mode::Port, Mode::Dot1q, Mode::Dot1q, Mode::Dot1q, Mode::Qinq][..],
    );
    let vlans = groups(VIDS.to_vec(), true);
    let sides = groups((0..PORTS as u16).collect(), false);
    let ports = prop::collection::vec(vlan_port(), PORTS);
    (mode, vlans, sides, ports, any::<(bool, bool)>()).prop_map(
        |(mode, vlans, sides, ports, (shared, pass))| {
            let mut config = Config::new((0..PORTS).map(|n| PortConfig::new(&format!("p{n}"))).collect());
            config.enter(mode);
            (config.shared, config.pass_reserved, config.moves) = (shared, pass, 1_000_000);
            // A thousand moves without a second between them are no storm here.
            match mode {
                Mode::Default => {}
                Mode::Port => config.groups = sides,
                _ => config.groups = vlans,
            }
            for (port, (pvid, flags, mtu, priority, priorities)) in config.ports.iter_mut().zip(ports) {
                (port.mtu, port.priority, port.priorities) = (mtu, priority, priorities);
                (port.pvid, port.flags) = (0, Flags::NONE);
                if mode.tpid().is_some() {
                    port.pvid = if config.groups.contains_key(&pvid) { pvid } else { 0 };
                    for flag in [
                        Flags::ADDTAG,
                        Flags::STRIPTAG,
                        Flags::DOUBLETAG,
                        Flags::DROPTAGGED,
                        Flags::DROPUNTAGGED,
                        Flags::INGRESS,
                    ] {
                        let with = port.flags.or(flags.and(flag));
                        let clash = |a: Flags, b: Flags| with.has(a.or(b));
                        let bad = clash(Flags::ADDTAG, Flags::STRIPTAG)
                            || clash(Flags::DROPTAGGED, Flags::DROPUNTAGGED)
                            || clash(Flags::DOUBLETAG, Flags::DROPTAGGED)
                            || clash(Flags::DOUBLETAG, Flags::DROPUNTAGGED)
                            || with.has(Flags::DOUBLETAG) && port.pvid == 0;
                        if !bad {
                            port.flags = with;
                        }
                    }
                }
            }
            config
        },
    )
}

prop_compose! {
    fn frame()(
        dst in prop_oneof![
            6 => (0u8..8).prop_map(|n| [2, 0, 0, 0, 0, n]),
            2 => Just([0xff; 6]),
            1 => Just([1, 0, 0x5e, 1, 2, 3]),
            1 => (0u8..18).prop_map(|n| [1, 0x80, 0xc2, 0, 0, n]),
        ],
        src in prop_oneof![9 => (0u8..8).prop_map(|n| [2, 0, 0, 0, 0, n]), 1 => Just([3, 0, 0, 0, 0, 1])],
        tags in prop::collection::vec((
            prop::sample::select(&[0x8100u16, 0x8100, 0x88a8][..]),
            prop::sample::select(&[0u16, 1, 10, 20, 4094, 4095, 30][..]),
            any::<u8>(),
        ), 0..3),
        payload in prop_oneof![4 => 0usize..80, 1 => 1400usize..1510],
    ) -> Bytes {
        let tags: Vec<_> = tags.iter().map(|(tpid, vid, upper)| (*tpid, u16::from(upper >> 4) << 12 | vid)).collect();
        common::frame(dst, src, &tags, payload)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn frames_leave_as_the_model_says(
        configs in prop::collection::vec((config(), prop::collection::vec((0..PORTS, frame(), any::<bool>(), any::<u16>()), 1..40)), 1..4)
    ) {
        let mut model = Model::default();
        let mut bench: Option<Bench> = None;
        for (config, frames) in configs {
            config.check().unwrap();
            match bench.as_mut() {
                None => bench = Some(Bench::new(config.clone())),
                Some(bench) => {
                    model.changed(&bench.switch.config().clone(), &config);
                    bench.switch.configure(config.clone(), bench.now).unwrap();
                }
            }
            let Some(bench) = bench.as_mut() else { unreachable!() };
            for (from, bytes, beside, cut) in frames {
                bench.now += std::time::Duration::from_micros(10);
                let cut = usize::from(cut) % 400;
                let bytes = if cut < 30 { bytes[..cut.min(bytes.len())].to_vec() } else { bytes };
                let expected = model.send(&config, from, &bytes);
                let sent = if beside && bytes.len() >= 18 && bytes[12..14] == [0x81, 0] {
                    let mut frame = bench.frame(&[&bytes[..12], &bytes[16..]].concat());
                    frame.meta_mut().vlan = Some(u16::from_be_bytes([bytes[14], bytes[15]]));
                    bench.forward(from, frame)
                } else if bytes.is_empty() {
                    continue;
                } else {
                    bench.send(from, &bytes)
                };
                prop_assert_eq!(sent, expected, "{:?} on {}: {:02x?}", config, from, bytes);
            }
        }
        if let Some(bench) = bench {
            prop_assert_eq!(bench.pool.free(), 1024);
        }
    }

    #[test]
    fn a_configuration_is_the_file_and_the_words_that_it_is_written_as(config in config(), link in "[ -~]{0,20}") {
        let mut config = config;
        config.ports[0].link = link;
        prop_assert_eq!(&file::read(&file::write(&config)).unwrap(), &config);
        config.ports[0].link.clear();
        let plain = Config::new((0..PORTS).map(|n| PortConfig::new(&format!("p{n}"))).collect());
        prop_assert_eq!(Change::parse(&plain, &config.words()).unwrap().config, config);
    }

    /// Words in any order are a configuration that holds, or one line that says why not.
    #[test]
    fn any_words_are_a_whole_configuration_or_a_line(words in prop::collection::vec(prop::sample::select(&[
        "config", "vlan_mode", "dot1q", "qinq", "port", "default", "vlangroup", "10", "1", "members", "1,2t", "0,1", "none",
        "p1", "pvid", "striptag", "addtag", "-ingress", "doubletag", "mtu", "9000", "mirror", "from", "to", "3", "fdb",
        "static", "02:00:00:00:00:01", "vlan", "flush", "all", "storm", "unknown", "priorities", "0,1,2,3,4,5,6,7", "\u{0}x",
    ][..]), 0..12)) {
        let plain = Config::new((0..PORTS).map(|n| PortConfig::new(&format!("p{n}"))).collect());
        match Change::parse(&plain, &words.join(" ")) {
            Ok(change) => {
                change.config.check().unwrap();
                prop_assert_eq!(file::read(&file::write(&change.config)).unwrap(), change.config);
            }
            Err(e) => prop_assert!(!e.0.is_empty() && !e.0.contains(char::is_control), "{}", e),
        }
    }
}
