//! What a run does when the interface of its link goes down or disappears.
//!
//! A thread reads the kernel's notifications about the interface. It prints a line when the interface goes down or comes up; the run
//! continues, since every link recovers by itself. If the interface is removed, the run ends as with ^C, with the report so far; the
//! last line says why, and the exit code is 1.

use std::sync::{OnceLock, mpsc};

use flowlane::link::{Life, LinkInfo, LinkState};
use flowlane::{Builder, Handle, Runtime, StartError};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

use crate::say::say;

/// The first link whose interface was removed, as a message.
static LOST: OnceLock<String> = OnceLock::new();
/// The runtime whose hosts are notified when a link is up again.
static RUNTIME: OnceLock<Handle> = OnceLock::new();

/// Starts the runtime of a run. When its link comes up again, the hosts, whose first interface it is, announce their addresses anew.
pub(crate) fn start(builder: Builder) -> Result<Runtime, StartError> {
    let runtime = builder.start()?;
    // A run has one runtime.
    let _ = RUNTIME.set(runtime.handle());
    Ok(runtime)
}

/// Starts to watch the interface of a link. Does nothing for a link whose interface cannot be watched.
pub(crate) fn watch(link: &LinkInfo) {
    let Some(Ok(mut news)) = link.life.as_ref().map(Life::watch) else { return };
    let name = link.name.clone();
    let (say, heard) = mpsc::channel();
    let listen = move || {
        // The thread starts with the privileges that opening links needs; it needs none itself.
        let given_up = flowlane_sys::privilege::drop_all().is_ok();
        let _ = say.send(());
        if !given_up {
            return;
        }
        while let Some(state) = news.wait() {
            if state == LinkState::Gone {
                let what = if name.starts_with("switch:") { "switch, or its port," } else { "interface" };
                let _ = LOST.set(format!("{name}: the {what} is gone"));
                // Every command ends in order on SIGTERM.
                let _ = raise(SIGTERM);
            } else if let LinkState::Mtu(bytes) = state {
                let sent = news.mtu();
                let rest = if u32::from(sent) < bytes.min(65_535) {
                    format!("; packets of up to {sent} are sent, as at the start")
                } else {
                    String::new()
                };
                say!("flowlane: {name}: the interface {state}{rest}");
            } else {
                say!("flowlane: {name}: the interface {state}");
                if let (LinkState::Up, Some(runtime)) = (state, RUNTIME.get()) {
                    (0..runtime.hosts().len()).for_each(|host| runtime.link_up(host, 0));
                }
            }
        }
    };
    if std::thread::Builder::new().name("flowlane-link".into()).spawn(listen).is_ok() {
        let _ = heard.recv();
    }
}

/// Why the run ended, if an interface was removed.
pub(crate) fn link() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}
