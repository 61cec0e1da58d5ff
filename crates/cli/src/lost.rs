//! What happens to a run when the interface under its link goes away.
//!
//! A thread listens to the kernel's news of the interface. That it is down, and that it is up again, is said in a line, and
//! the run goes on: every link recovers by itself. An interface that is gone does not come back, so the run is ended as ^C
//! would end it, with the report so far; the last line says why, and the exit code is 1.

use std::sync::{OnceLock, mpsc};

use flowlane::link::{Life, LinkInfo, LinkState};
use flowlane::{Builder, Handle, Runtime, StartError};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

use crate::say::say;

/// The first link that was lost.
static LOST: OnceLock<String> = OnceLock::new();
/// Who is to know that a link is back.
static RUNTIME: OnceLock<Handle> = OnceLock::new();

/// Starts the runtime of a run. A link that is back after it was lost is told to its hosts, which have it as their first
/// interface: they announce their addresses on it again.
pub(crate) fn start(builder: Builder) -> Result<Runtime, StartError> {
    let runtime = builder.start()?;
    // One runtime a run.
    let _ = RUNTIME.set(runtime.handle());
    Ok(runtime)
}

/// Listens to news of a link's interface from now on. Where the kernel gives none, a run is as it would be without this.
pub(crate) fn watch(link: &LinkInfo) {
    let Some(Ok(mut news)) = link.life.as_ref().map(Life::watch) else { return };
    let name = link.name.clone();
    let (say, heard) = mpsc::channel();
    let listen = move || {
        // It began while links are opened, with all the privileges that takes, and needs none.
        let given_up = flowlane_sys::privilege::drop_all().is_ok();
        let _ = say.send(());
        if !given_up {
            return;
        }
        while let Some(state) = news.wait() {
            if state == LinkState::Gone {
                let _ = LOST.set(format!("{name}: the interface is gone"));
                // The way in which every command ends well.
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

/// What was lost, if anything.
pub(crate) fn link() -> Option<&'static str> {
    LOST.get().map(String::as_str)
}
