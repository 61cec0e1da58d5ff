//! Figures of one worker.

use flowlane_stack::stats::{Figure, Figures};
use flowlane_sys::figures;
use serde::{Deserialize, Serialize};

use super::{LaneReport, LongTasks, Misdirected, PerfReport, QueueArrivals, SteeringStats};
use crate::link::pair::QuirkCounts;
use crate::link::{Outstanding, QueueStats};

figures! {
    /// Counters of one worker's loop.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct Turns {
        #[serde(rename = "turns")]
        all as "turns": count "turns of its loop";
        #[serde(rename = "busy-turns")]
        busy as "busy-turns": count "turns that found something to do";
        sleeps: count "times it slept";
    }
}

figures! {
    /// Where the time of one worker went, nanoseconds since it began: each of them is in exactly one of these.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct StepTimes {
        /// With news of the kernel's sockets.
        receive as "receive-nanos": count "nanoseconds spent taking frames from links";
        /// Frames that came in, timers, and what lanes put out.
        stack as "stack-nanos": count "nanoseconds spent in lanes";
        /// With the calls that tasks make.
        tasks as "tasks-nanos": count "nanoseconds spent in tasks";
        /// With messages.
        netisr as "netisr-nanos": count "nanoseconds spent on what other workers sent";
        transmit as "transmit-nanos": count "nanoseconds spent handing frames to links";
        looking as "looking-nanos": count "nanoseconds in turns that found nothing to do";
        /// With the calls that sleep and wake.
        asleep as "asleep-nanos": count "nanoseconds asleep";
    }
}

impl StepTimes {
    /// All of the worker's time.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }
}

figures! {
    /// Where one worker met others: doorbells, rings without room, frames that went home.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct Meeting {
        rung: count "times it rang another worker's doorbell";
        /// Each at the cost of a system call.
        woke: count "of them, those that woke a sleeping worker";
        woken: count "sleeps that another thread ended";
        /// It must not be lost.
        waited: count "what waited because a ring to another worker was full";
        held_back: count "bursts cut short because a ring to another worker had no room";
        room_waits: count "times a lane began to wait for room on a link or for a free frame";
        frames_sent_home: count "frames of other workers sent back to their pools";
        frames_came_home: count "frames that came back from other threads";
    }
}

figures! {
    /// A worker's frames, and what it lost.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub struct PoolCounts {
        #[serde(default)]
        frames: gauge "frames of its pool, wherever they are";
        frames_free: gauge "frames free in its pool";
        frames_exhausted: count "requests for a frame that found none";
        frames_allocated: count "frames handed out";
        /// By applications, whose panics are caught when it is dropped.
        #[serde(skip)]
        panics: count "panics of what was given away to be sent";
        move_overflow: count "frames dropped while a lane moved";
    }
}

figures! {
    /// Counters of one worker's netisr, named as `netstat -Q` names them.
    pub struct NetisrStats {
        sent as "netisr-sent": count "frames sent to other workers";
        dropped as "netisr-dropped": count "frames for others that found the ring full";
        no_lane as "netisr-no-lane": count "frames for a lane that is at no worker";
        queued as "netisr-queued": count "frames that came from other workers";
        watermark as "netisr-watermark": peak "most frames that waited in one ring";
        dispatched as "netisr-dispatched": count "frames handled where they arrived";
        handled as "netisr-handled": count "frames handled in all";
    }
}

/// One queue of a link as its worker reports it.
#[derive(Debug, Clone)]
pub struct QueueReport {
    /// Host, by order of configuration: the first that has an interface on the link.
    pub host: usize,
    /// Interface of the host.
    pub interface: u8,
    /// Number of the queue within the link. `None` at a worker without a queue of it, for drops because the link is dead.
    pub queue: Option<u16>,
    /// The queue's counters.
    pub stats: QueueStats,
    /// Frames in the hands of kernel and card, for links that hand them over.
    pub outstanding: Option<Outstanding>,
    /// Faults made on purpose.
    pub quirks: Option<QuirkCounts>,
}

/// Counters of one worker.
#[derive(Debug, Clone)]
pub struct WorkerReport {
    /// Number of the worker.
    pub worker: usize,
    /// Its lanes.
    pub lanes: Vec<LaneReport>,
    /// Its queues.
    pub queues: Vec<QueueReport>,
    /// Its netisr.
    pub netisr: NetisrStats,
    /// How frames of each host arrived.
    pub steering: Vec<SteeringStats>,
    /// The same for each of its queues.
    pub arrivals: Vec<QueueArrivals>,
    /// The first few frames that arrived on a wrong queue.
    pub misdirected: Vec<Misdirected>,
    /// Its loop.
    pub turns: Turns,
    /// Where its time went.
    pub time: StepTimes,
    /// Lanes, at this worker or another, whose frames come on its queues, and which need it awake for that.
    pub needed_by: u64,
    /// Tasks that held it for longer than they may.
    pub long_tasks: LongTasks,
    /// What processor and kernel counted for its thread, if that was asked for.
    pub perf: Option<Box<PerfReport>>,
    /// Where it met other workers.
    pub meeting: Meeting,
    /// Its frames, and what it lost.
    pub pool: PoolCounts,
}

impl WorkerReport {
    /// Calls `f` with what the worker counts of itself and of its netisr.
    pub fn each(&self, f: &mut dyn FnMut(Figure)) {
        self.turns.each(f);
        f(Figure::gauge("needed-by", "lanes whose frames come on its queues", self.needed_by));
        self.time.each(f);
        self.meeting.each(f);
        self.long_tasks.each(f);
        if let Some(perf) = &self.perf {
            perf.each(f);
        }
        self.pool.each(f);
        self.netisr.each(f);
    }
}
