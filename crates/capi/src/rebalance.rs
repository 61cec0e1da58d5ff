//! Moving lanes by load: a policy of the library, or the program's own.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use flowlane::rebalance::{Observation, Policy, Rebalancer, Step, policy};

use crate::error::{Error, FLOWLANE_ERR_SYSTEM, guarded};
use crate::pointer::{User, borrowed, give, text};
use crate::runtime::Runtime;

/// What a lane cost its worker during one period.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RebalanceLane {
    /// Its host.
    pub host: u32,
    /// Its bucket.
    pub bucket: u32,
    /// The worker that has it.
    pub worker: u32,
    /// Where it is to be: at first the same worker. The program writes another one to move the lane.
    pub wanted: u32,
    /// Share of a processor, 0 to 1.
    pub load: f64,
}

/// Decides which lanes move: called once a period, on a thread of the library's, with all lanes.
pub type RebalanceDecide =
    Option<unsafe extern "C" fn(lanes: *mut RebalanceLane, count: usize, workers: u32, user: *mut c_void)>;

/// Lanes are being moved by load.
#[derive(Debug)]
pub struct Rebalance(Rebalancer);

/// The program's policy.
#[derive(Debug)]
struct Programs {
    decide: unsafe extern "C" fn(*mut RebalanceLane, usize, u32, *mut c_void),
    user: User,
    /// Kept from one period to the next.
    lanes: Vec<RebalanceLane>,
}

impl Policy for Programs {
    fn name(&self) -> &'static str {
        "program"
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Step> {
        self.lanes.clear();
        self.lanes.extend(seen.lanes.iter().map(|lane| RebalanceLane {
            host: lane.host as u32,
            bucket: u32::from(lane.bucket.0),
            worker: lane.worker as u32,
            wanted: lane.worker as u32,
            load: lane.load,
        }));
        // SAFETY: the program's callback, with as many lanes as it is told, which are its to change until it returns.
        unsafe {
            (self.decide)(self.lanes.as_mut_ptr(), self.lanes.len(), seen.workers as u32, self.user.get());
        }
        let wanted = self.lanes.iter().map(|lane| lane.wanted as usize);
        steps(seen, wanted)
    }
}

/// The lanes that are to be elsewhere. What names no worker is no step.
fn steps(seen: &Observation, wanted: impl Iterator<Item = usize>) -> Vec<Step> {
    let moved = |(lane, worker): (usize, usize)| {
        // Guard: `worker != seen.lanes[lane].worker` as `true` fails capi/every_function
        (worker < seen.workers && worker != seen.lanes[lane].worker).then_some(Step { lane, worker })
    };
    wanted.enumerate().filter_map(moved).collect()
}

fn start(
    runtime: &Runtime,
    policy: Box<dyn Policy>,
    period_nanos: u64,
    to: *mut *mut Rebalance,
) -> Result<(), Error> {
    if period_nanos == 0 || to.is_null() {
        return Err(Error::invalid("a period of 0, or a null pointer as the place for the result"));
    }
    let period = Duration::from_nanos(period_nanos);
    let started = Rebalancer::start(runtime.handle().clone(), policy, period);
    let started = started.map_err(|e| Error::new(FLOWLANE_ERR_SYSTEM, e))?;
    // SAFETY: the program's place for a result.
    unsafe { give(to, Box::into_raw(Box::new(Rebalance(started))), "the result") }
}

/// Moves lanes as the program decides once a period; 100 ms is a good one. Stop it before the runtime is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rebalance_start(
    runtime: *const Runtime,
    period_nanos: u64,
    decide: RebalanceDecide,
    user: *mut c_void,
    rebalance: *mut *mut Rebalance,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle.
        let runtime = unsafe { borrowed(runtime, "the runtime") }?;
        let decide = decide.ok_or_else(|| Error::invalid("the function that decides is a null pointer"))?;
        let policy = Programs { decide, user: User::new(user), lanes: Vec::new() };
        start(runtime, Box::new(policy), period_nanos, rebalance)
    })
}

/// Moves lanes as a policy of the library's decides: "even" or "pack".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rebalance_by(
    runtime: *const Runtime,
    period_nanos: u64,
    name: *const c_char,
    rebalance: *mut *mut Rebalance,
) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and text.
        let (runtime, name) = unsafe { (borrowed(runtime, "the runtime")?, text(name, "the policy")?) };
        let policy =
            policy(name).ok_or_else(|| Error::invalid(format!("'{name}' is no policy: even, pack")))?;
        start(runtime, policy, period_nanos, rebalance)
    })
}

/// How many lanes have been moved so far.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rebalance_moves(rebalance: *const Rebalance, moves: *mut u64) -> i32 {
    guarded(|| {
        // SAFETY: the program's handle and place for a result.
        unsafe { give(moves, borrowed(rebalance, "the rebalancer")?.0.counts().moves, "the number") }
    })
}

/// Ends the moving of lanes, which stay where they are; the callback is not called any more. A null pointer is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flowlane_rebalance_stop(rebalance: *mut Rebalance) {
    guarded(|| {
        if !rebalance.is_null() {
            // SAFETY: made by flowlane_rebalance_start, and freed once.
            drop(unsafe { Box::from_raw(rebalance) });
        }
        Ok(())
    });
}
