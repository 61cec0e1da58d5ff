//! What workers tell each other: a bounded ring for each two of them and direction.

use std::sync::Arc;

use flowlane_switch::News;
use flowlane_sys::ring::spsc::{self, Receiver, Sender};

use crate::wake::Wake;

/// News in a ring. What finds no room is lost: addresses are told again.
const CAPACITY: usize = 4096;

/// The rings of one worker.
#[derive(Debug)]
pub(super) struct Rings {
    to: Vec<(Sender<News>, Arc<Wake>)>,
    from: Vec<Receiver<News>>,
    pub(super) lost: u64,
}

/// The rings of all workers.
pub(super) fn mesh(workers: usize, wakes: &[Arc<Wake>]) -> Vec<Rings> {
    let mut all: Vec<Rings> =
        (0..workers).map(|_| Rings { to: Vec::new(), from: Vec::new(), lost: 0 }).collect();
    for from in 0..workers {
        for to in (0..workers).filter(|to| *to != from) {
            let (sender, receiver) = spsc::ring(CAPACITY);
            all[from].to.push((sender, wakes[to].clone()));
            all[to].from.push(receiver);
        }
    }
    all
}

impl Rings {
    /// Tells the others, and leaves `news` empty.
    pub(super) fn tell(&mut self, news: &mut Vec<News>) {
        if news.is_empty() {
            return;
        }
        for (ring, wake) in &mut self.to {
            self.lost += news.iter().filter(|news| ring.push(**news).is_err()).count() as u64;
            ring.publish();
            wake.ring();
        }
        news.clear();
    }

    /// What the others have told. `true` if anything.
    pub(super) fn hear(&mut self, mut f: impl FnMut(News)) -> bool {
        let mut some = false;
        for ring in &mut self.from {
            let ready = ring.ready();
            for news in (0..ready).map_while(|_| ring.pop()) {
                f(news);
            }
            if ready > 0 {
                ring.release();
                some = true;
            }
        }
        some
    }

    /// Whether anything waits.
    pub(super) fn ready(&mut self) -> bool {
        self.from.iter_mut().any(|ring| ring.ready() > 0)
    }
}
