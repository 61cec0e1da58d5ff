//! Settings that we change on a card, restored in every case.
//!
//! ```text
//!   Held::set     note how the card is (state file), then change it
//!   Held::restore                        an orderly end, with privileges
//!   put_back(EndOf(us))                  the second process of `flowlane`, after an orderly end without privileges, or none
//!   put_back(Stale)                      the next start, or `flowlane rss restore`, when all of them were killed
//! ```
//!
//! All of these do the same with the same file, under a lock: they restore what the run changed, if it is still as the run set it, and
//! remove the file. Settings that another program has changed since are left alone and reported; then the file stays.

use super::place::{Place, StateError};
use super::state::{Owner, Plan, State};
use super::{Card, CardRss, Change, Control, FlowKind, SetError, Table, Told, forgets_after_xdp};
use flowlane_sys::error::Error;
use flowlane_sys::netdev::Interface;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Who asks for a card to be put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The run that changed it has ended, whichever it was.
    Stale,
    /// As `Stale`, and whatever was changed since goes.
    Force,
    /// The run of this process ends now.
    EndOf(u32),
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// No run has left anything.
    Nothing,
    /// The card is as it was before the run of this process.
    Restored(u32),
    /// It was already.
    AsItWas(u32),
    /// The process of this number still uses it: nothing was done.
    InUse(u32),
    /// There is no such interface any more; with `Force` the file is removed.
    Gone,
    /// It is another card now; with `Force` the file is removed.
    AnotherCard,
    /// These parts were changed by another program since the run of this process, and stay; the others are as they were before it.
    Changed(u32, Vec<String>),
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing to put back"),
            Self::Restored(pid) => write!(f, "RSS is as it was before process {pid} changed it"),
            Self::AsItWas(pid) => {
                write!(f, "RSS is already as it was before process {pid} changed it")
            }
            Self::InUse(pid) => write!(f, "process {pid} has set its RSS and still runs: stop that first"),
            Self::Gone => f.write_str(
                "the interface whose RSS was changed is gone (or in another network namespace): '--force' forgets it",
            ),
            Self::AnotherCard => f.write_str(
                "it is another card than the one whose RSS was changed: nothing is put back; '--force' forgets it",
            ),
            Self::Changed(pid, parts) => write!(
                f,
                "somebody changed {} since process {pid} did: left alone; 'flowlane rss restore --force' puts back what was before",
                parts.join(", ")
            ),
        }
    }
}

/// Why a card's settings could not be changed, or not be put back.
#[derive(Debug)]
#[non_exhaustive]
pub enum HoldError {
    /// The interface.
    Device(Error),
    /// How the card is cannot be noted, or what was noted not be read: nothing was changed.
    State(String, StateError),
    /// The driver does not do it.
    Set(SetError),
    /// Settings left by an earlier run could not be restored first.
    InTheWay(String, Outcome),
    /// Another program changed the table of this interface during the run.
    Changed(String),
}

impl std::fmt::Display for HoldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(e) => write!(f, "{e}"),
            Self::State(interface, StateError::Place { path: None, why }) => {
                write!(f, "{interface}: how it is set up cannot be noted: {why}")
            }
            Self::State(interface, e) => {
                write!(f, "{interface}: how it is set up cannot be noted or read: {e}")
            }
            Self::Set(e) => write!(f, "{e}"),
            Self::InTheWay(interface, outcome) => write!(f, "{interface}: {outcome}"),
            Self::Changed(interface) => write!(f, "{interface}: somebody else changed its table"),
        }
    }
}

impl std::error::Error for HoldError {}

impl From<Error> for HoldError {
    fn from(e: Error) -> Self {
        Self::Device(e)
    }
}

/// A card that we have changed. Its settings are restored on drop if the thread has the privilege; otherwise the state file stays for a
/// process that has it.
#[derive(Debug)]
pub struct Held {
    place: Place,
    interface: String,
    namespace: u64,
    owner: Owner,
    control: Control,
    /// What an earlier run had left, if anything.
    found: Outcome,
    done: bool,
}

impl Held {
    /// Makes a change for the run of `owner`, after saving the card's settings in `place`.
    ///
    /// Settings left by an earlier run are restored first; [`Held::found`] returns the result.
    ///
    /// # Errors
    /// [`HoldError`]; then the card is unchanged.
    pub fn set(place: &Place, interface: &str, change: &Change, owner: Owner) -> Result<Self, HoldError> {
        let found = Interface::find(interface)?;
        let state = |e| HoldError::State(interface.to_owned(), e);
        let (namespace, boot) = here().map_err(|e| state(no_proc(&e)))?;
        place.make().map_err(state)?;
        let _lock = place.lock().map_err(state)?;
        let before = match place.read(namespace, interface).map_err(state)? {
            // The same run has noted the card, and changed nothing yet.
            Some(noted) if noted.owner == owner && noted.set == Change::default() => Outcome::Nothing,
            _ => put_back_locked(place, namespace, &boot, interface, Why::Stale)?,
        };
        if !matches!(before, Outcome::Nothing | Outcome::Restored(_) | Outcome::AsItWas(_)) {
            return Err(HoldError::InTheWay(interface.to_owned(), before));
        }
        let card = Card::read(&found)?;
        let control = Control::open(&found)?;
        let was = rss(&card)?.clone();
        let noted = State {
            interface: interface.to_owned(),
            namespace,
            boot,
            bus: bus(&card),
            mac: mac(&card),
            owner,
            was_default: card.rings.is_ok_and(|rings| was.is_default_table(rings)),
            was,
            set: change.clone(),
            earlier: None,
        };
        place.write(&noted).map_err(state)?;
        let held = Self {
            place: place.clone(),
            interface: interface.to_owned(),
            namespace,
            owner,
            control,
            found: before,
            done: false,
        };
        if let Err(e) = held.control.set(change) {
            // What was taken of it goes again, whatever it is now: nobody else had the time to change it.
            if let Ok(now) = held.control.rss()
                && let Plan::Change(back) = noted.plan(&now, true)
            {
                let _ = held.control.set(&back);
            }
            let _ = place.remove(namespace, interface);
            let mut held = held;
            held.done = true;
            return Err(HoldError::Set(e));
        }
        Ok(held)
    }

    /// Settings that an earlier run had left on this card, and the result of restoring them.
    #[must_use]
    pub fn found(&self) -> &Outcome {
        &self.found
    }

    /// Goes on with what another process has changed for the run of `owner`; begins with nothing changed where it has not.
    ///
    /// # Errors
    /// As [`Held::set`].
    pub fn resume(place: &Place, interface: &str, owner: Owner) -> Result<Self, HoldError> {
        let state = |e| HoldError::State(interface.to_owned(), e);
        let (namespace, _) = here().map_err(|e| state(no_proc(&e)))?;
        let noted = place.read(namespace, interface).map_err(state)?;
        if noted.is_none_or(|noted| noted.owner != owner) {
            return Self::set(place, interface, &Change::default(), owner);
        }
        let control = Control::open(&Interface::find(interface)?)?;
        let place = place.clone();
        Ok(Self {
            place,
            interface: interface.to_owned(),
            namespace,
            owner,
            control,
            found: Outcome::Nothing,
            done: false,
        })
    }

    /// Lets slots of the table, by number, name other queues, all in one command. That is noted before the card is changed.
    ///
    /// # Errors
    /// [`HoldError::Changed`]: the table is another than the one that this run found or set, and stays. Else as [`Held::set`].
    pub fn set_slots(&mut self, slots: &[(usize, u32)]) -> Result<(), HoldError> {
        let wrong = |e| HoldError::State(self.interface.clone(), e);
        let unfit = |why: String| HoldError::Set(SetError::Unfit { interface: self.interface.clone(), why });
        let _lock = self.place.lock().map_err(wrong)?;
        let noted = self.place.read(self.namespace, &self.interface).map_err(wrong)?;
        let Some(mut noted) = noted.filter(|noted| noted.owner == self.owner) else {
            return Err(unfit("how it was set up is noted no more".to_owned()));
        };
        let now = self.control.rss().map_err(|why| unfit(format!("its RSS cannot be read: {why}")))?;
        if now.table != noted.was.table && !noted.has_set_table(&now) {
            return Err(HoldError::Changed(self.interface.clone()));
        }
        let mut table = now.table.clone();
        let len = table.len();
        for &(slot, queue) in slots {
            let place = table.get_mut(slot);
            *place.ok_or_else(|| unfit(format!("has no slot {slot}: its table has {len}")))? = queue;
        }
        noted.earlier = Some(now.table);
        noted.set.table = Some(Table::Slots(table.clone()));
        self.place.write(&noted).map_err(wrong)?;
        let change = Change { table: Some(Table::Slots(table)), ..Change::default() };
        self.control.set(&change).map_err(HoldError::Set)
    }

    /// Sets the card again as the run found it or has set it: key, function, transform, table and fields. For a card that has forgotten
    /// them, whatever its driver shows.
    ///
    /// # Errors
    /// As [`Held::set_slots`].
    pub fn set_again(&mut self) -> Result<(), HoldError> {
        let wrong = |e| HoldError::State(self.interface.clone(), e);
        let noted = self.place.read(self.namespace, &self.interface).map_err(wrong)?;
        let Some(State { was, set, .. }) = noted.filter(|noted| noted.owner == self.owner) else {
            let why = "how it was set up is noted no more".to_owned();
            return Err(HoldError::Set(SetError::Unfit { interface: self.interface.clone(), why }));
        };
        let of = |kind: FlowKind| set.fields.iter().find(|f| f.0 == kind).map(|f| f.1);
        let fields = was.fields.iter();
        let fields = fields.filter_map(|(kind, was)| Some((*kind, of(*kind).or(was.ok())?))).collect();
        let change = Change {
            key: Some(set.key.unwrap_or(was.key)).filter(|key| !key.0.is_empty()),
            function: set.function,
            transform: set.transform,
            table: Some(set.table.unwrap_or(Table::Slots(was.table))),
            fields,
        };
        self.control.set(&change).map_err(HoldError::Set)
    }

    /// The spreading as the driver shows it now.
    ///
    /// # Errors
    /// It does not tell.
    pub fn rss(&self) -> Told<CardRss> {
        self.control.rss()
    }

    /// Puts the card back.
    ///
    /// # Errors
    /// As [`put_back`]; the state file stays.
    pub fn restore(mut self) -> Result<Outcome, HoldError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<Outcome, HoldError> {
        self.done = true;
        let state = |e| HoldError::State(self.interface.clone(), e);
        let (_, boot) = here().map_err(|e| state(no_proc(&e)))?;
        let _lock = self.place.lock().map_err(state)?;
        let ours = Why::EndOf(self.owner.pid);
        put_back_locked(&self.place, self.namespace, &boot, &self.interface, ours)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.done {
            // Without privileges this fails, and the file stays for who has them.
            let _ = self.put_back();
        }
    }
}

/// Puts back what a run has left on a card of the calling thread's network namespace.
///
/// # Errors
/// [`HoldError::State`]: the file cannot be read; [`HoldError::Set`]: the driver refuses, or the right is missing. The file stays.
pub fn put_back(place: &Place, interface: &str, why: Why) -> Result<Outcome, HoldError> {
    let state = |e| HoldError::State(interface.to_owned(), e);
    let (namespace, boot) = here().map_err(|e| state(no_proc(&e)))?;
    // Where nothing is noted nothing is made, not even the lock.
    if place.read(namespace, interface).map_err(state)?.is_none() {
        return Ok(Outcome::Nothing);
    }
    let _lock = place.lock().map_err(state)?;
    put_back_locked(place, namespace, &boot, interface, why)
}

fn put_back_locked(
    place: &Place,
    namespace: u64,
    boot: &str,
    interface: &str,
    why: Why,
) -> Result<Outcome, HoldError> {
    let wrong = |e| HoldError::State(interface.to_owned(), e);
    let Some(state) = place.read(namespace, interface).map_err(wrong)? else { return Ok(Outcome::Nothing) };
    let pid = state.owner.pid;
    let remove = || place.remove(namespace, interface).map_err(wrong);
    match why {
        Why::EndOf(ours) if ours != pid => return Ok(Outcome::Nothing),
        Why::EndOf(_) => {}
        Why::Stale | Why::Force => {
            if state.boot == boot && state.owner.is_alive() {
                return Ok(Outcome::InUse(pid));
            }
        }
    }
    if state.boot != boot {
        remove()?;
        return Ok(Outcome::Nothing);
    }
    let forget = |outcome: Outcome| {
        if why == Why::Force {
            remove()?;
        }
        Ok(outcome)
    };
    let found = match Interface::find(interface) {
        Err(Error::NoSuchInterface { .. }) => return forget(Outcome::Gone),
        found => found?,
    };
    let card = Card::read(&found)?;
    if bus(&card) != state.bus || mac(&card) != state.mac {
        return forget(Outcome::AnotherCard);
    }
    let now = rss(&card)?;
    match state.plan(now, why == Why::Force) {
        Plan::Nothing => {
            // Its driver may show settings that the card has forgotten since the run ended.
            let forgets = matches!(why, Why::Stale | Why::Force) && forgets_after_xdp(card.driver_name());
            let again = Change { key: Some(now.key.clone()), ..Change::default() };
            if forgets && !now.key.0.is_empty() {
                Control::open(&found)?.set(&again).map_err(HoldError::Set)?;
            }
            remove()?;
            // What a run had changed and is as it was has been put back by somebody; one that changed nothing has left it forgotten.
            let forgotten = forgets && state.set == Change::default();
            Ok(if forgotten { Outcome::Restored(pid) } else { Outcome::AsItWas(pid) })
        }
        Plan::Changed(change, parts) => {
            // The file stays: `Why::Force` takes the rest back, too.
            if change != Change::default() {
                Control::open(&found)?.set(&change).map_err(HoldError::Set)?;
            }
            Ok(Outcome::Changed(pid, parts))
        }
        Plan::Change(mut change) => {
            // The queues that the table names may be gone.
            let fits = |slots: &[u32]| card.rings.is_ok_and(|n| slots.iter().all(|&queue| queue < n));
            if why == Why::Force && matches!(&change.table, Some(Table::Slots(slots)) if !fits(slots)) {
                change.table = Some(Table::Default);
            }
            Control::open(&found)?.set(&change).map_err(HoldError::Set)?;
            remove()?;
            Ok(Outcome::Restored(pid))
        }
    }
}

fn rss(card: &Card) -> Result<&CardRss, HoldError> {
    card.rss.as_ref().map_err(|why| {
        HoldError::Set(SetError::Unfit {
            interface: card.interface.name().to_owned(),
            why: format!("has no RSS to set: {why}"),
        })
    })
}

/// This thread's network namespace, and this run of the machine.
pub(super) fn here() -> std::io::Result<(u64, String)> {
    let namespace = namespace()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok((namespace, boot.trim().to_owned()))
}

/// The number of this thread's network namespace.
///
/// # Errors
/// `/proc` cannot be read.
pub fn namespace() -> std::io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

pub(super) fn no_proc(e: &std::io::Error) -> StateError {
    StateError::Place { path: Some("/proc".into()), why: e.to_string() }
}

pub(super) fn bus(card: &Card) -> String {
    let bus = card.driver.as_ref().map_or("", |driver| &driver.bus);
    if bus.is_empty() { "-".to_owned() } else { bus.to_owned() }
}

pub(super) fn mac(card: &Card) -> String {
    let Ok(mac) = card.permanent_mac else { return "-".to_owned() };
    mac.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_rss_is_not_touched() {
        let us = Owner::us().unwrap();
        let dir = std::env::temp_dir().join(format!("flowlane-held-{}", std::process::id()));
        let place = Place::at(&dir);
        let said = Held::set(&place, "lo", &Change::default(), us).unwrap_err().to_string();
        assert_eq!(said, "lo: has no RSS to set: the driver does not tell");
        assert_eq!(place.interfaces(namespace().unwrap()), (vec![], 0));
        assert_eq!(put_back(&place, "lo", Why::Stale).unwrap(), Outcome::Nothing);
        assert!(matches!(
            Held::set(&place, "no-such-if0", &Change::default(), us),
            Err(HoldError::Device(_))
        ));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn without_a_place_nothing_is_changed() {
        let us = Owner::us().unwrap();
        let place = Place::at(std::path::Path::new("/proc/none"));
        let said = Held::set(&place, "lo", &Change::default(), us).unwrap_err().to_string();
        assert!(
            said.starts_with("lo: how it is set up cannot be noted") && said.contains("/proc/none"),
            "{said}"
        );
    }
}
