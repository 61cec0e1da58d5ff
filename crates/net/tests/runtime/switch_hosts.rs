//! Hosts of a switch's own: they live as long as their ports do, and no port is left of one that cannot be started.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flowlane::link::LinkSpec;
use flowlane::switch::{Around, Handle, PortLink, RunningHost, StartHost};
use flowlane::{Host, Interface, Key, Prefix, Runtime, UdpFields};

use crate::switched::Switched;
use crate::traffic::rss;

/// A host that does nothing.
fn host(switch: &str, port: &str, addresses: &[Prefix]) -> Result<Runtime, String> {
    let rss = rss(Key::MICROSOFT, 2, 1, UdpFields::Two);
    let mut builder = Runtime::builder().workers(1).pin(false);
    let interface = Interface { addresses: addresses.to_vec(), ..Interface::default() };
    let at = builder.host(Host::new(port, rss.clone(), std::future::pending::<()>).interface(interface));
    LinkSpec::Switch(switch.to_owned(), port.to_owned()).join(&mut builder, at, &[], None, &rss);
    builder.start().map_err(|e| e.to_string())
}

/// Starts hosts on a switch, and counts those that run.
fn starter(switch: &str, running: &Arc<()>) -> StartHost {
    let (switch, running) = (switch.to_owned(), running.clone());
    Arc::new(move |port, addresses| {
        let runtime = host(&switch, port, addresses)?;
        Ok(Box::new((runtime, running.clone())) as RunningHost)
    })
}

fn started(
    links: &[&str],
    hosts: impl FnOnce(&str) -> Option<StartHost>,
) -> Result<Switched, flowlane::switch::SwitchError> {
    let names = ["a", "b", "c"];
    let links: Vec<PortLink> = links.iter().map(|link| link.parse().unwrap()).collect();
    Switched::start_with(&names[..links.len()], links, 2, hosts, Around::default())
}

#[test]
fn a_host_lives_as_long_as_its_port() {
    let running = Arc::new(());
    let net =
        started(&["plug", "host:10.0.0.1/24"], |switch| Some(starter(switch, &running.clone()))).unwrap();
    let handle = net.switch.handle();
    // One more holds it: what starts hosts.
    let hosts = || Arc::strong_count(&running) - 2;
    assert_eq!((hosts(), net.state(1)), (1, "up".to_owned()), "at the start");
    handle.add_port("cpu", "host:10.0.0.9/24,fd00::9/64").unwrap();
    assert_eq!((hosts(), net.state(2)), (2, "up".to_owned()));
    handle.remove_port("b").unwrap();
    assert_eq!((hosts(), net.state(1)), (1, "up".to_owned()), "the other one's is there");
    handle.remove_port("cpu").unwrap();
    assert_eq!(hosts(), 0);
    handle.add_port("again", "host:10.0.0.9/24").unwrap();
    assert_eq!(hosts(), 1);
    drop(net);
    // The handle is there still.
    assert_eq!(hosts(), 0);
    drop(handle);
}

#[test]
fn nothing_is_left_of_a_port_whose_host_cannot_be_started() {
    let net = started(&["plug"], |_| Some(Arc::new(|_, _| Err("no room".to_owned())))).unwrap();
    let handle = net.switch.handle();
    let before = handle.file();
    let said = handle.add_port("cpu", "host:10.0.0.9/24").unwrap_err().to_string();
    assert_eq!(said, "port cpu: its host: no room");
    assert_eq!(handle.file(), before);
    drop(net);
    let error = |hosts: Option<StartHost>| started(&["plug", "host:10.0.0.9/24"], |_| hosts).err().unwrap();
    assert_eq!(
        error(Some(Arc::new(|_, _| Err("no room".to_owned())))).to_string(),
        "port b: its host: no room"
    );
    let none = "port b: this switch has no hosts of its own: give 'plug'";
    assert_eq!(error(None).to_string(), none);
    let net = Switched::start(&["a"], 1);
    let said = net.switch.handle().add_port("b", "host:10.0.0.9/24").unwrap_err().to_string();
    assert_eq!(said, none);
    assert_eq!(net.switch.handle().config().ports.len(), 1);
}

/// While its host is being started a port is removed, and another one gets its number: the host is not that one's.
#[test]
fn a_port_that_is_removed_while_its_host_starts_has_none() {
    let handle: Arc<Mutex<Option<Handle>>> = Arc::default();
    let (running, of_switch) = (Arc::new(()), handle.clone());
    let net = started(&["plug"], |switch| {
        let start = starter(switch, &running);
        Some(Arc::new(move |port, addresses| {
            let host = start(port, addresses)?;
            let handle = of_switch.lock().unwrap().clone().unwrap();
            handle.remove_port(port).unwrap();
            handle.add_port("next", "plug").unwrap();
            Ok(host)
        }))
    })
    .unwrap();
    *handle.lock().unwrap() = Some(net.switch.handle());
    let said = net.switch.handle().add_port("cpu", "host:10.0.0.9/24").unwrap_err().to_string();
    assert_eq!(said, "port cpu: its host: the port has just been removed");
    assert_eq!(Arc::strong_count(&running), 2, "the host has ended");
    let config = net.switch.handle().config();
    assert_eq!(config.all().map(|port| config.name(port).to_owned()).collect::<Vec<_>>(), ["a", "next"]);
}

/// Whoever starts the switch is told of each link before it is opened and, while the switch runs, when it is no more.
#[test]
fn what_is_done_around_a_link_is_done_when_it_cannot_be_opened_too() {
    static BEFORE: AtomicUsize = AtomicUsize::new(0);
    static AFTER: AtomicUsize = AtomicUsize::new(0);
    let around = Around {
        before: |_| {
            BEFORE.fetch_add(1, Ordering::SeqCst);
        },
        after: |_| {
            AFTER.fetch_add(1, Ordering::SeqCst);
        },
    };
    let count = || [&BEFORE, &AFTER].map(|n| n.load(Ordering::SeqCst));
    let net = Switched::start_with(&["a"], vec![PortLink::Plug], 1, |_| None, around).unwrap();
    let handle = net.switch.handle();
    assert_eq!(count(), [1, 0]);
    let said = handle.add_port("b", "af-packet:no-such0").unwrap_err().to_string();
    assert!(said.contains("no-such0"), "{said}");
    assert_eq!(count(), [2, 1]);
    handle.add_port("c", "plug").unwrap();
    assert_eq!(count(), [3, 1]);
    handle.remove_port("a").unwrap();
    assert_eq!(count(), [3, 2]);
}
