//! What differs from request to request: rows of a file, counters, random values, and what an answer said before.
//!
//! ```text
//!   users.csv ▸ Data ─┐
//!   {{name}}  ▸ Template ─ write(Vars) ▸ bytes of a request          Capture ─ find(answer) ▸ Vars
//! ```
//!
//! Everything here is a value: no clock, no connection; a file is read once, before the run. A template is compiled with the names that
//! there are, so that an unknown one is a mistake of the scenario and none of the run. The same [`Vars`] always make the same bytes: a
//! request that is sent again, or goes on to where a redirect leads, is the same.

mod capture;
mod data;
mod template;

pub use capture::{BadCapture, Capture, From, MOST_CONTENT};
pub use data::{BadData, Data, Order};
pub use template::{BadTemplate, Place, Scope, Template, Vars};
