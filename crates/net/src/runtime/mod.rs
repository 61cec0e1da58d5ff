//! The runtime: workers, their lanes and links, from start to stop.
//!
//! From the top; a module uses those below it, and none above:
//!
//! | | |
//! |---|---|
//! | [`builder`] | from a description to running threads |
//! | [`handle`], [`top`], [`capture`] | what can be asked of a running runtime |
//! | [`worker`] | the loop and the steps of a turn, sleeping, lanes that come and go, the report |
//! | [`card`] | the thread that has cards' tables follow the lanes, and how workers ask it |
//! | [`moving`] | a move of a lane, for its caller |
//! | [`netisr`], [`relay`] | rings between workers: frames and lanes of others; output for links that a worker has no queue of |
//! | [`first_task`] | the first task of each lane, and how these end |
//! | [`host`], [`idle`] | what the application says: hosts; what a worker does when there is nothing to do |
//!
//! What moves between workers ([`crate::lane`]), what all of them share ([`crate::shared`]), and what tasks and sockets have of their
//! worker ([`crate::context`]) is below the runtime.

pub(crate) mod builder;
mod capture;
mod card;
mod first_task;
pub(crate) mod handle;
pub(crate) mod host;
pub(crate) mod idle;
mod leases;
pub(crate) mod moving;
mod netisr;
pub(crate) mod relay;
pub(crate) mod top;
mod worker;
