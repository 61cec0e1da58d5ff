//! What is said to a person whose configuration is wrong, and what a wrong line leaves: nothing.

use crate::common;

use common::config;
use flowlane_switch::Change;
use flowlane_switch::config::{Flush, file};

const VLANS: &str = "config vlan_mode dot1q vlangroup 10 members 0,1t port 0 pvid 10";

#[test]
fn a_wrong_line_changes_nothing_and_says_in_one_line_what_is_wrong() {
    let before = config(3, VLANS);
    for (words, says) in [
        ("bridge up", "'bridge' is no command"),
        ("port", "a word is missing"),
        ("port 1 mtu 1500 foo", "'foo' is nothing of port: pvid, mtu, addresses"),
        ("config ageing 7 foo", "'foo' is nothing of config: vlan_mode"),
        ("vlangroup 10 members 0,1t foo", "'foo' is a word too many"),
        ("port 9 pvid 1", "'9' is no port: it is a number from 0 to 2 or one of p0, p1, p2"),
        ("port 1 pvid 11", "'flowlane switch vlan 11 members p1' makes it"),
        ("port 1 pvid x", "pvid x: not a number"),
        ("port 1 addtag striptag", "port p1: addtag and striptag contradict"),
        ("port 1 flags ingress,blue", "'blue' is no flag: addtag, striptag"),
        ("port 1 droptagged dropuntagged", "contradict"),
        ("port 1 pvid 0 doubletag", "set pvid"),
        ("port 1 mtu 9217", "from 68 to 9216"),
        ("port 1 priorities 0,1,2", "eight numbers"),
        ("port 1 storm fast 10", "one of unknown, broadcast, multicast"),
        ("vlangroup 10 members 1,1t", "named twice"),
        ("vlangroup 10 members 1,7", "'7' is no port"),
        ("vlangroup 4095 members 1", "VLANs are from 1 to 4094"),
        ("vlangroup 0 members 1", "VLANs are from 1 to 4094"),
        ("vlangroup 10 members none", "there is no VLAN 10 for its pvid"),
        ("config vlan_mode isl", "one of default, port, dot1q, qinq"),
        ("config vlan_mode port vlangroup 1 members 0t", "there are no tags"),
        ("config vlan_mode port vlangroup 3 members 0", "numbered like ports, from 0 to 2"),
        ("config vlan_mode default vlangroup 1 members 0", "mode default has no groups"),
        ("config vlan_mode default port 1 pvid 10", "needs 'flowlane switch config vlan_mode dot1q'"),
        ("config addresses 0", "addresses 0: from 1 to"),
        ("config querier on", "it asks for what snooping needs: 'flowlane switch config snooping on'"),
        ("config snooping on querier maybe", "querier maybe: on, off, or an address of IPv4"),
        ("config snooping on querier 239.1.1.1", "querier 239.1.1.1: no address of a host"),
        ("config query_interval 0", "query_interval 0: from 1 to 3600"),
        ("config igmp 1", "igmp 1: one of 2, 3"),
        ("config mld 3", "mld 3: one of 1, 2"),
        ("fdb static 01:00:5e:00:00:01 vlan 10 port 1", "not the address of a station"),
        ("fdb static 02:00:00:00:00:01 vlan 11 port 1", "there is no VLAN 11"),
        ("fdb static 02:00:00:00:00:01 vlan 10 none", "no static address"),
        ("fdb flush port 7", "'7' is no port"),
        ("mirror from 1 to 1", "cannot be a mirror of itself"),
        ("mirror to 1", "name ports or a VLAN"),
        ("mirror vlan 77 to 1", "there is no VLAN 77"),
        // The first half is right.
        ("port 1 pvid 10 vlangroup 5000 members 1", "VLANs are from 1 to 4094"),
    ] {
        let error = Change::parse(&before, words).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{words}: {error}");
    }
}

#[test]
fn words_as_etherswitchcfg_has_them() {
    let before = config(3, "");
    let one = Change::parse(
        &before,
        "config vlan_mode dot1q vlangroup10 members p0,1,2t port1 pvid 10 flags striptag,-ingress",
    )
    .unwrap();
    let other = Change::parse(
        &before,
        "config vlan_mode dot1q\nport p1 striptag -ingress pvid 10\nvlangroup 10 members 0,p1,p2t",
    )
    .unwrap();
    assert_eq!(one, other);
    assert_eq!(one.config.member_words(one.config.groups[&10]), "p0,p1,p2t");
    let flush = Change::parse(&before, "fdb flush port 1 fdb flush all").unwrap().flush;
    assert_eq!(flush, [Flush::Port(common::port(1)), Flush::All]);
}

#[test]
fn a_file_is_read_and_a_wrong_one_refused_with_its_line() {
    let text = "mode = \"dot1q\"\n[[port]]\nname = \"p1\"\nlink = \"tap:a\"\npvid = 10\n[[port]]\nname = \"cpu\"\n\n[[vlan]]\nid = 10\nmembers = \"p1,cput\"\n";
    let config = file::read(text).unwrap();
    assert_eq!((config.ports[0].pvid, config.ports[1].pvid, config.ports[0].link.as_str()), (10, 0, "tap:a"));
    assert_eq!(config.member_words(config.groups[&10]), "p1,cput");
    let usual = file::read("mode = \"qinq\"\n[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n").unwrap();
    assert_eq!((usual.ports[1].pvid, usual.member_words(usual.groups[&1])), (1, "a,b".to_owned()));
    for (text, says) in [
        ("mode = ", "line 1: "),
        ("\n\ncolour = 1", "line 3: there is no key 'colour' here: mode, addresses"),
        ("mode = \"dot1q\"", "0 ports: a switch has from 1 to 64"),
        ("[[port]]\nname = \"1\"", "port '1': a name is a letter"),
        ("[[port]]\nname = \"a\"\n[[port]]\nname = \"a\"", "two ports are named 'a'"),
        ("[[port]]\nname = \"a\"\n[[port]]\nname = \"at\"", "'at' means 'a, tagged'"),
        ("[[port]]\nname = \"a\"\nflags = [\"x\"]", "flag 'x'"),
        ("mode = \"dot1q\"\nvlan = []\n[[port]]\nname = \"a\"\npvid = 1", "there is no VLAN 1"),
        (
            "mode = \"dot1q\"\n[[port]]\nname = \"a\"\npvid = 7",
            "a [[vlan]] with 'id = 7' and 'members = \"a\"' makes it",
        ),
        ("[[port]]\nname = \"a\"\npvid = 5000", "pvid 5000 needs 'mode = \"dot1q\"' or qinq"),
        ("querier = \"on\"\n[[port]]\nname = \"a\"", "what snooping needs: 'snooping = true'"),
        ("igmp = 7\n[[port]]\nname = \"a\"", "igmp 7: from 2 to 3"),
        ("querier = \"x\"\n[[port]]\nname = \"a\"", "querier x: on, off, or an address"),
        ("learning = \"both\"\n[[port]]\nname = \"a\"", "learning 'both': independent or shared"),
    ] {
        let error = file::read(text).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{text}: {error}");
    }
}

#[test]
fn a_running_switch_keeps_its_ports_and_its_table() {
    let mut b = common::Bench::words(3, "");
    let now = b.now;
    let mut renamed = config(3, "");
    renamed.ports[1].name = "other".to_owned();
    for config in [config(2, ""), renamed, config(3, "config addresses 7"), config(3, "config ageing 7")] {
        let before = b.switch.config().clone();
        assert!(b.switch.configure(config, now).is_err());
        assert_eq!(*b.switch.config(), before);
    }
}

/// A port that is removed takes along what was its own and nothing else; one that is added takes the vacant number, belongs to no VLAN, and finds
/// nothing of the one before.
#[test]
fn ports_come_and_go_while_the_switch_runs() {
    use common::{ALL, frame, mac, port};
    let words = "config vlan_mode dot1q vlangroup 10 members 0,1,2t port 0 pvid 10 port 1 pvid 10 \
                 fdb static 02:00:00:00:00:41 vlan 10 port 1 fdb static 02:00:00:00:00:42 vlan 10 port 0";
    let mut b = common::Bench::words(3, words);
    for n in 0..3 {
        b.send(n, &frame(ALL, mac(n as u8 + 1), &[(0x8100, 10)], 46));
    }
    let now = b.now;
    let without = b.switch.config().without_port(port(1)).unwrap();
    assert_eq!(without.member_words(without.groups[&10]), "p0,p2t");
    assert!(without.port("p1").is_none() && without.port("1").is_none() && without.port("2").is_some());
    b.switch.configure(without.clone(), now).unwrap();
    assert_eq!([0, 1, 2].map(|n| b.switch.known(Some(port(n)))), [1, 0, 1]);
    assert_eq!((without.statics.len(), b.switch.addresses().filter(|entry| entry.is_static).count()), (1, 1));
    assert_eq!(b.switch.counters(port(1)).received, 0);
    // Its address is unknown now, and nothing leaves by its number, whatever somebody who does not know yet says of its link.
    b.switch.set_link(port(1), true);
    let sent = b.send(0, &frame(mac(2), mac(1), &[], 46));
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [2]);
    assert!(b.send(1, &frame(ALL, mac(2), &[(0x8100, 10)], 46)).is_empty());
    // The file has no hole.
    let again = file::read(&file::write(&without)).unwrap();
    assert_eq!(again.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["p0", "p2"]);
    assert_eq!(again.member_words(again.groups[&10]), "p0,p2t");
    let (with, id) = without.with_port("new", "tap:x", 1500).unwrap();
    assert_eq!(id, port(1));
    b.switch.configure(with, now).unwrap();
    b.switch.set_link(id, true);
    assert!(b.send(0, &frame(ALL, mac(1), &[], 46)).iter().all(|(to, _)| *to == 2), "in no VLAN");
    assert!(b.send(1, &frame(ALL, mac(9), &[(0x8100, 10)], 46)).is_empty());
    b.change("vlangroup 10 members 0,new,2t port new pvid 10");
    assert_eq!(b.send(1, &frame(ALL, mac(9), &[], 46)).len(), 2);
    // One more, for which there is no vacant number.
    let (more, id) = b.switch.config().with_port("more", "plug", 1500).unwrap();
    b.switch.configure(more, now).unwrap();
    b.output.grow(4, 256);
    b.switch.set_link(id, true);
    b.change("vlangroup 10 members 0,new,2t,more port more pvid 10");
    assert_eq!((id, b.send(3, &frame(ALL, mac(7), &[], 46)).len()), (port(3), 3));
}

#[test]
fn ports_that_cannot_come_or_go_are_refused() {
    let full = config(64, "");
    let watched = config(3, "mirror from 0 to 1");
    let group = config(3, "config vlan_mode port vlangroup 2 members 0");
    for (got, says) in [
        (full.with_port("x", "", 1500).map(|_| ()), "65 ports: a switch has from 1 to 64"),
        (group.with_port("p1", "", 1500).map(|_| ()), "two ports are named 'p1'"),
        (group.with_port("add", "", 1500).map(|_| ()), "the word means something else"),
        (watched.without_port(common::port(0)).map(|_| ()), "part of the mirror"),
        (watched.without_port(common::port(1)).map(|_| ()), "part of the mirror"),
        (config(1, "").without_port(common::port(0)).map(|_| ()), "is the last one"),
    ] {
        let error = got.unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
    }
    // Groups of ports are numbered like ports: in the file those behind a vacant number move up.
    let without = group.without_port(common::port(1)).unwrap();
    let again = file::read(&file::write(&without)).unwrap();
    assert_eq!(again.groups.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(again.member_words(again.groups[&1]), "p0");
    assert!(full.without_port(common::port(7)).unwrap().with_port("x", "", 1500).is_ok());
}
