//! Opening the link of a run. The library opens it ([`LinkSpec`]); this module prints how it was opened, watches its interface, has the
//! card's settings restored at the end, and gives up privileges.

use flowlane::link::{LinkSpec, OpenError};
use flowlane::{Builder, OpenLink, Prefix, Rss, StartError};
use flowlane_sys::privilege;
use std::sync::{Mutex, PoisonError};

use crate::asking::Asked;
use crate::discovery::Discovery;
use crate::keeper::Changes;
use crate::say::say;
use crate::{keeper, lost, trace};

/// Messages about interfaces, printed once their links are open, so that a start that fails prints its error alone.
static NOTES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Prints a message about an interface once its link is open.
pub(crate) fn say_when_open(interface: &str, what: String) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push((interface.to_owned(), what));
}

fn say_notes(interface: &str) {
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, what) in notes.extract_if(.., |(of, _)| of == interface) {
        say!("flowlane: {interface}: {what}");
    }
}

/// As [`LinkSpec::join`], with router advertisements as `discovery` says, and answers to what is `asked`.
pub(crate) fn join(
    link: &LinkSpec,
    builder: &mut Builder,
    host: usize,
    ours: &[Prefix],
    vlan: Option<u16>,
    rss: &Rss,
    (discovery, asked): (&Discovery, &Asked),
) {
    link.fit_frames(builder);
    if !link.is_kernel() {
        let opened = asked.on(discovery.on(open(link.clone(), ours, vlan, rss)));
        put_on(builder, host, link, opened);
    }
}

/// Adds the first interface of a host, on this link. If the link's card steers, its table is changed when lanes move.
pub(crate) fn put_on(builder: &mut Builder, host: usize, link: &LinkSpec, open: OpenLink) {
    let opened = builder.open(open);
    builder.attach(opened, host, 0);
    if let LinkSpec::AfXdp(interface, ..) = link
        && let Some(access) = keeper::access(interface)
    {
        builder.steer_card(opened, access);
    }
}

/// As [`LinkSpec::open`].
pub(crate) fn open(link: LinkSpec, ours: &[Prefix], vlan: Option<u16>, rss: &Rss) -> OpenLink {
    let card = match &link {
        LinkSpec::AfXdp(name, ..) => Some(name.clone()),
        _ => None,
    };
    let interface = match &link {
        LinkSpec::AfXdp(name, ..) | LinkSpec::AfPacket(name, ..) => Some(name.clone()),
        _ => None,
    };
    let tagged = vlan.is_some();
    let open = link.open(ours, vlan, rss);
    Box::new(move |memory, workers| {
        if let Some(interface) = &interface {
            keeper::put_back_what_was_left(interface);
        }
        if let Some(card) = card {
            keeper::watch_over(&card, if tagged { Changes::Tags } else { Changes::Nothing });
        }
        let opened = open(memory, workers)?;
        if opened.0.mode.starts_with("generic") {
            say!("flowlane: {}: {}", opened.0.name, opened.0.mode);
        }
        for note in &opened.0.notes {
            say!("flowlane: {}: {note}", opened.0.name);
        }
        if opened.0.lost_carrier {
            say!(
                "flowlane: {}: waiting for the link, which the driver takes down for an XDP program",
                opened.0.name
            );
            if !opened.0.wait_for_carrier() {
                say!(
                    "flowlane: {}: has no carrier yet: what is sent until it has one is lost",
                    opened.0.name
                );
            }
        }
        if let Some(interface) = &interface {
            say_notes(interface);
        }
        lost::watch(&opened.0);
        Ok(opened)
    })
}

/// Gives up all privileges: for [`flowlane::Builder::before_start`], which runs when links are open and before the first packet.
pub(crate) fn give_up_privileges() -> Result<(), StartError> {
    given_up(privilege::drop_all())
}

/// As [`give_up_privileges`], but keeps the privilege to bind ports below 1024, which lanes need when they start.
pub(crate) fn give_up_all_but_ports() -> Result<(), StartError> {
    given_up(privilege::drop_all_but(privilege::CAP_NET_BIND_SERVICE))
}

fn given_up(done: std::io::Result<privilege::Report>) -> Result<(), StartError> {
    match done {
        Ok(report) => {
            let (before, after) = (report.before.count_ones(), report.after.count_ones());
            tracing::info!(target: trace::PRIVILEGE, before, after, no_new = report.no_new_privileges, "privileges given up");
            Ok(())
        }
        Err(e) => {
            let what = format!("giving up privileges: {e}");
            Err(StartError::Link(OpenError::Option { link: "before the start".into(), what }))
        }
    }
}
