//! Loads whose addresses others give (`--addr dhcp`, `--addr slaac`): the host is there before its addresses are, and its lanes wait.
//!
//! ```text
//!   a plan with an address in their place ▸ checks ▸ the host asks ▸ the addresses are there ▸ sources are chosen anew ▸ lanes begin
//! ```
//!
//! What the addresses cannot change is refused before a link is opened, as of every load. A run that ends before, for whatever reason, gives back
//! what it has: the host does so when it ends.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use anyhow::bail;
use flowlane::Handle;
use flowlane::dhcp::HostAddress;
use signal_hook::consts::SIGINT;

use crate::asking::Asked;
use crate::exit::EndedBy;
use crate::interrupt::Interrupt;
use crate::output::Watch;

/// What a lane does.
type Doing = Pin<Box<dyn Future<Output = ()> + Send>>;
type Main = dyn Fn() -> Doing + Send + Sync;

/// What lanes do, once that is known.
#[derive(Clone, Default)]
pub(super) struct Later(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    main: Option<Arc<Main>>,
    wakers: Vec<Waker>,
}

impl Later {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main function of lanes that wait.
    pub(super) fn main(&self) -> impl Fn() -> Doing + Send + Sync + 'static {
        let later = self.clone();
        move || {
            let later = later.clone();
            Box::pin(async move {
                let main = later.there().await;
                main().await;
            })
        }
    }

    async fn there(&self) -> Arc<Main> {
        poll_fn(|cx| {
            let mut waiting = self.lock();
            match &waiting.main {
                Some(main) => Poll::Ready(main.clone()),
                None => {
                    if !waiting.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                        waiting.wakers.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// What they do, from now on.
    pub(super) fn begin(&self, main: impl Fn() -> Doing + Send + Sync + 'static) {
        let mut waiting = self.lock();
        waiting.main = Some(Arc::new(main));
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Waits for the addresses of a host that others give. `stop`, which is called again and again, ends the wait by an error.
///
/// # Errors
/// They are not there in time; or that of `stop`.
pub(super) fn wait(
    asked: &Asked,
    handle: &Handle,
    host: usize,
    mut stop: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<HostAddress>> {
    asked.wait(handle, |time| {
        std::thread::sleep(time);
        stop().map(|()| false)
    })?;
    Ok(handle.addresses().into_iter().filter(|a| a.host == host && a.ready).collect())
}

/// Whether the user lets a run go on that has not begun.
///
/// # Errors
/// It is to end.
pub(super) fn goes_on(watch: Option<&mut Watch>, interrupt: &Interrupt) -> anyhow::Result<()> {
    let left = watch.is_some_and(|watch| !watch.tick(Duration::ZERO));
    if left || interrupt.came() {
        let signal = interrupt.signal().unwrap_or(SIGINT as u8);
        bail!(EndedBy(signal, "the run was ended before it had an address".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn lanes_wait_for_what_they_do() {
        let (later, done) = (Later::default(), Arc::new(AtomicUsize::new(0)));
        let main = later.main();
        let mut lanes: Vec<_> = (0..3).map(|_| (main(), Arc::new(Woken::default()))).collect();
        let poll = |lane: &mut Doing, woken: &Arc<Woken>| {
            let waker = Waker::from(woken.clone());
            lane.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        };
        for (lane, woken) in &mut lanes {
            // Twice: a task may be polled for other reasons.
            assert!(!poll(lane, woken) && !poll(lane, woken));
        }
        let count = done.clone();
        later.begin(move || {
            let count = count.clone();
            Box::pin(async move { _ = count.fetch_add(1, Ordering::Relaxed) })
        });
        for (lane, woken) in &mut lanes {
            assert_eq!(woken.0.load(Ordering::Relaxed), 1);
            assert!(poll(lane, woken));
        }
        // One that comes late, too.
        assert!(poll(&mut main(), &Arc::default()));
        assert_eq!(done.load(Ordering::Relaxed), 4);
    }
}
