//! The switch's own hosts: `--port cpu=host:10.9.0.9/24`.
//!
//! Each is a host of Flowlane in a runtime of its own, plugged into its port as any other is. It answers ARP and neighbour discovery, echo
//! requests, and what else a host without services answers. `flowlane stat` finds one host for each process: the oldest that is there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowlane::control::{self, Control};
use flowlane::link::LinkSpec;
use flowlane::switch::{RunningHost, StartHost};
use flowlane::{Host, Interface, Key, Prefix, Rss, Runtime};

use crate::say::say;

/// The hosts that run.
#[derive(Default)]
struct All {
    /// The oldest first. A number names each.
    runtimes: Vec<(u64, Runtime)>,
    /// Of one of them.
    control: Option<(u64, Control)>,
    next: u64,
}

/// One of them. It ends when this is dropped.
struct One {
    all: Arc<Mutex<All>>,
    number: u64,
}

/// What starts hosts on the ports of the switch of this name.
pub(super) fn starter(switch: String) -> StartHost {
    let all = Arc::<Mutex<All>>::default();
    Arc::new(move |port, addresses| {
        let runtime = plugged_in(&switch, port, addresses)?;
        let mut hosts = locked(&all);
        let number = hosts.next;
        hosts.next += 1;
        hosts.runtimes.push((number, runtime));
        // From here on it ends with what stands for it.
        let one: RunningHost = Box::new(One { all: all.clone(), number });
        let shown = hosts.show();
        drop(hosts);
        shown.map(|()| one)
    })
}

/// A host on a port. It has its port when this returns.
fn plugged_in(switch: &str, port: &str, addresses: &[Prefix]) -> Result<Runtime, String> {
    let rss = Arc::new(Rss::new(Key::MICROSOFT, 1));
    let mut builder = Runtime::builder().workers(1).pin(false);
    let interface = Interface { addresses: addresses.to_vec(), ..Interface::default() };
    let host = Host::new(port, rss.clone(), std::future::pending::<()>).interface(interface);
    let host = builder.host(host);
    let link = LinkSpec::Switch(switch.to_owned(), port.to_owned());
    link.join(&mut builder, host, addresses, None, &rss);
    builder.start().map_err(|e| e.to_string())
}

fn locked(all: &Mutex<All>) -> MutexGuard<'_, All> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

impl All {
    /// Has `flowlane stat` find the oldest, unless it finds one already.
    fn show(&mut self) -> Result<(), String> {
        if let (None, Some((number, runtime))) = (&self.control, self.runtimes.first()) {
            let control = control::serve(None, runtime.handle(), "switch").map_err(|e| e.to_string())?;
            self.control = Some((*number, control));
        }
        Ok(())
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let mut all = locked(&self.all);
        let ended: Vec<_> = all.runtimes.extract_if(.., |(number, _)| *number == self.number).collect();
        // Its socket has the name that the next one gets.
        drop(all.control.take_if(|(number, _)| *number == self.number));
        if let Err(e) = all.show() {
            say!("flowlane: 'flowlane stat' does not find the hosts of this switch any more: {e}");
        }
        drop(all);
        drop(ended);
    }
}
