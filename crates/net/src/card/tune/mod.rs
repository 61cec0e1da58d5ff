//! Queues, RSS, interrupts, XPS, RPS and RFS of a card that fit together, and back.
//!
//! ```text
//!   plan       what would change: nothing is touched                        (plan.rs)
//!   apply      note how the card is (state.rs), then change it
//!   take_back  everything that was changed of it: all, or what a killed `apply` came to
//! ```
//!
//! The number of queues comes first, since drivers make tables, interrupts and XPS anew with it. Then the rest is read and planned again. A setting
//! that the driver refuses is reported, and the others are made.

mod plan;
mod settings;
mod state;

pub use plan::{Plan, Step, TuneOptions, plan};
pub use settings::{Setting, Value};

use super::held::{bus, here, mac, no_proc};
use super::place::{Place, StateError, remove};
use super::surroundings::Surroundings;
use super::{Card, Change, Control, HoldError, SetError, Table};
use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;
use flowlane_sys::privilege;
use state::Tuned;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

/// A change that was made, or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The change.
    pub step: Step,
    /// Why it was refused; `None`: it was made.
    pub refused: Option<String>,
}

/// Result of taking back what was tuned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakenBack {
    /// Nothing was tuned.
    Nothing,
    /// Settings are as they were before.
    Restored,
    /// They were already.
    AsItWas,
    /// There is no such interface any more; with force the file is removed.
    Gone,
    /// It is another interface of the same name now; with force the file is removed.
    AnotherCard,
    /// These were changed by another program since: nothing was restored.
    Changed(Vec<String>),
    /// These the driver did not take; the rest is as it was, and the file stays.
    Refused(Vec<String>),
}

impl std::fmt::Display for TakenBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing to put back"),
            Self::Restored => f.write_str("is as it was before 'rss tune'"),
            Self::AsItWas => f.write_str("is already as it was before 'rss tune'"),
            Self::Gone => f.write_str(
                "the interface that was tuned is gone (or in another network namespace): '--force' forgets it",
            ),
            Self::AnotherCard => f.write_str(
                "it is another interface than the one that was tuned: nothing is put back; '--force' forgets it",
            ),
            Self::Changed(parts) => write!(
                f,
                "somebody changed {} since 'rss tune': left alone; 'flowlane rss restore --force' puts back what was before",
                parts.join(", ")
            ),
            Self::Refused(parts) => write!(f, "not put back: {}; everything else is as it was", parts.join("; ")),
        }
    }
}

/// Reads a card and the kernel's settings around it.
///
/// # Errors
/// There is no such interface, or what is mounted at `/sys` shows another one of that name.
pub fn read(interface: &str) -> Result<(Card, Surroundings), HoldError> {
    let found = Interface::find(interface)?;
    let index = fs::read_to_string(Path::new("/sys/class/net").join(interface).join("ifindex"));
    if index.ok().and_then(|text| text.trim().parse().ok()) != Some(found.index()) {
        return Err(HoldError::Set(SetError::Unfit {
            interface: interface.to_owned(),
            why: "/sys is of another network namespace: 'ip netns exec' mounts the right one".to_owned(),
        }));
    }
    Ok((Card::read(&found)?, Surroundings::read(Path::new("/"), interface)))
}

/// Makes everything fit together, after noting in `place` how it is. Returns what was done, and refused, of the plan.
///
/// # Errors
/// [`HoldError`]: nothing was changed. A wish that cannot be, as [`plan`] says, is [`SetError::Unfit`].
pub fn apply(place: &Place, interface: &str, wish: &TuneOptions) -> Result<(Plan, Vec<Done>), HoldError> {
    let state = |e| HoldError::State(interface.to_owned(), e);
    let unfit = |why| HoldError::Set(SetError::Unfit { interface: interface.to_owned(), why });
    let (namespace, boot) = here().map_err(|e| state(no_proc(&e)))?;
    let (card, around) = read(interface)?;
    let first = plan(&card, &around, wish).map_err(unfit)?;
    if first.steps.is_empty() {
        return Ok((first, Vec::new()));
    }
    permitted(interface, &first, &around)?;
    place.make().map_err(state)?;
    let _lock = place.lock().map_err(state)?;
    if let Some(run) = place.read(namespace, interface).map_err(state)?
        && run.boot == boot
        && run.owner.is_alive()
    {
        return Err(HoldError::InTheWay(interface.to_owned(), super::Outcome::InUse(run.owner.pid)));
    }
    let file = place.tuned_file(namespace, interface);
    let now = Tuned {
        interface: interface.to_owned(),
        index: card.interface.index(),
        namespace,
        bus: bus(&card),
        mac: mac(&card),
        boot,
        was: settings::of(&card, &around),
        set: Vec::new(),
    };
    // What was before the first tuning stays what is put back.
    let mut noted = match kept(place, namespace, interface)? {
        Some(kept) if same(&kept, &now) => kept,
        _ => now,
    };
    let write = |noted: &Tuned| place.write_text(&file, &noted.text()).map_err(state);
    let control = Control::open(&card.interface)?;
    let mut done = Vec::new();
    let Some(step) = first.steps.iter().find(|step| step.setting == Setting::Queues) else {
        noted.note(first.steps.iter().map(|step| (step.setting, step.to.clone())));
        write(&noted)?;
        done.extend(first.steps.iter().map(|step| make(&control, &around, step)));
        return Ok((first, done));
    };
    noted.note(std::iter::once((step.setting, step.to.clone())));
    write(&noted)?;
    let queues = make(&control, &around, step);
    let refused = queues.refused.is_some();
    done.push(queues);
    // Everything else as it is now, with the number of queues that there is.
    let (card, around) = read(interface)?;
    let wish = TuneOptions { queues: Some(around.receive.len() as u32).filter(|_| refused), ..wish.clone() };
    let second = plan(&card, &around, &wish).map_err(unfit)?;
    let rest = second.steps.iter().filter(|step| step.setting != Setting::Queues);
    noted.note(rest.clone().map(|step| (step.setting, step.to.clone())));
    write(&noted)?;
    done.extend(rest.map(|step| make(&control, &around, step)));
    Ok((second, done))
}

/// What is noted of an interface.
fn kept(place: &Place, namespace: u64, interface: &str) -> Result<Option<Tuned>, HoldError> {
    let file = place.tuned_file(namespace, interface);
    let state = |e| HoldError::State(interface.to_owned(), e);
    let Some(text) = place.text(&file).map_err(state)? else { return Ok(None) };
    let wrong = |why: String| {
        let why = format!("{why}: nothing is put back; remove the file");
        state(StateError::File { path: file.clone(), why })
    };
    let tuned = Tuned::parse(&text).map_err(wrong)?;
    if tuned.namespace != namespace || tuned.interface != interface {
        return Err(wrong("is of another interface".to_owned()));
    }
    Ok(Some(tuned))
}

/// Whether both are of the same card in the same run of the machine.
fn same(a: &Tuned, b: &Tuned) -> bool {
    (&a.boot, a.index, &a.bus, &a.mac) == (&b.boot, b.index, &b.bus, &b.mac)
}

/// Whether this process may change what a plan changes.
fn permitted(interface: &str, plan: &Plan, around: &Surroundings) -> Result<(), HoldError> {
    let denied = |file: &Path| {
        let open = OpenOptions::new().write(true).open(file);
        open.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    };
    let files = plan.steps.iter().filter_map(|step| step.setting.file(Path::new("/"), interface, around));
    match privilege::has(privilege::CAP_NET_ADMIN) && !files.into_iter().any(|file| denied(&file)) {
        true => Ok(()),
        false => Err(HoldError::Set(SetError::Unfit {
            interface: interface.to_owned(),
            why: "changing queues, interrupts and XPS is not permitted: run as root".to_owned(),
        })),
    }
}

/// Makes one change.
fn make(control: &Control, around: &Surroundings, step: &Step) -> Done {
    Done { step: step.clone(), refused: set(control, around, step.setting, &step.to).err() }
}

/// Sets one setting, or says why it is refused.
fn set(control: &Control, around: &Surroundings, setting: Setting, to: &Value) -> Result<(), String> {
    let by_driver = |e: SetError| match e {
        SetError::NotTaken { mut refused, .. } if refused.len() == 1 => match refused.remove(0).why {
            Some(why) => why.to_string(),
            None => "the driver takes it and shows another value".to_owned(),
        },
        e => e.to_string(),
    };
    let change = |change: Change| control.set(&change).map_err(by_driver);
    let text = match (setting, to) {
        (_, Value::Queues(counts)) => {
            // While a table set by hand names queues that go, the kernel refuses to take them.
            let reset = || control.set(&Change { table: Some(Table::Default), ..Change::default() });
            let set = control.set_channels(*counts);
            return set
                .or_else(|e| reset().map_err(|_| e).and_then(|()| control.set_channels(*counts)))
                .map_err(by_driver);
        }
        (Setting::Fields(kind), Value::Fields(fields)) => {
            return change(Change { fields: vec![(kind, *fields)], ..Change::default() });
        }
        (_, Value::DefaultTable) => {
            return change(Change { table: Some(Table::Default), ..Change::default() });
        }
        (_, Value::Table(slots)) => {
            return change(Change { table: Some(Table::Slots(slots.clone())), ..Change::default() });
        }
        (Setting::Interrupt(_) | Setting::SendInterrupt(_), Value::Cpus(cpus)) => cpus.to_string(),
        (_, Value::Cpus(cpus)) => cpus.mask(),
        (_, Value::Flows(flows)) => flows.to_string(),
        (_, Value::Fields(_)) => return Err("no such setting".to_owned()),
    };
    let file = setting.file(Path::new("/"), control.interface(), around);
    let file = file.ok_or("it has no interrupt any more")?;
    fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Takes back what was tuned of an interface of the calling thread's network namespace. With `force` also what was changed since.
///
/// # Errors
/// [`HoldError`]: the file cannot be read, or permission is missing.
pub fn take_back(place: &Place, interface: &str, force: bool) -> Result<TakenBack, HoldError> {
    let wrong = |e| HoldError::State(interface.to_owned(), e);
    let (namespace, boot) = here().map_err(|e| wrong(no_proc(&e)))?;
    let file = place.tuned_file(namespace, interface);
    if kept(place, namespace, interface)?.is_none() {
        return Ok(TakenBack::Nothing);
    }
    let _lock = place.lock().map_err(wrong)?;
    let Some(tuned) = kept(place, namespace, interface)? else { return Ok(TakenBack::Nothing) };
    let forget = |outcome: TakenBack, forget: bool| {
        if forget {
            remove(&file).map_err(wrong)?;
        }
        Ok(outcome)
    };
    if tuned.boot != boot {
        return forget(TakenBack::Nothing, true);
    }
    let (card, around) = match read(interface) {
        Err(HoldError::Device(Error::NoSuchInterface { .. })) => return forget(TakenBack::Gone, force),
        found => found?,
    };
    if (tuned.index, &tuned.bus, &tuned.mac) != (card.interface.index(), &bus(&card), &mac(&card)) {
        return forget(TakenBack::AnotherCard, force);
    }
    let now = settings::of(&card, &around);
    let foreign = tuned.foreign(&now);
    if !foreign.is_empty() && !force {
        return Ok(TakenBack::Changed(foreign.into_iter().map(Setting::words).collect()));
    }
    let back = tuned.back(&now);
    if back.is_empty() {
        return forget(TakenBack::AsItWas, true);
    }
    let step =
        |(setting, to): &(Setting, Value)| Step { setting: *setting, was: None, to: to.clone(), why: "" };
    let plan = Plan { steps: back.iter().map(step).collect(), ..Plan::default() };
    permitted(interface, &plan, &around)?;
    let refused = put_back(&Control::open(&card.interface)?, &tuned, back, around)?;
    match refused.is_empty() {
        true => forget(TakenBack::Restored, true),
        false => Ok(TakenBack::Refused(refused)),
    }
}

/// Sets a list, the number of queues first, and the rest as is needed after that. Returns what was refused.
fn put_back(
    control: &Control,
    tuned: &Tuned,
    mut back: Vec<(Setting, Value)>,
    mut around: Surroundings,
) -> Result<Vec<String>, HoldError> {
    let mut refused = Vec::new();
    let mut put = |around: &Surroundings, (setting, to): &(Setting, Value)| {
        if let Err(why) = set(control, around, *setting, to) {
            refused.push(format!("{} ({why})", setting.words()));
        }
    };
    if back.first().is_some_and(|first| first.0 == Setting::Queues) {
        put(&around, &back.remove(0));
        let (card, now) = read(&tuned.interface)?;
        back = tuned.back(&settings::of(&card, &now));
        back.retain(|(setting, _)| *setting != Setting::Queues);
        around = now;
    }
    back.iter().for_each(|one| put(&around, one));
    Ok(refused)
}
