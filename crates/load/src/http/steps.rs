//! The accounts of flows, whichever version of HTTP their steps are asked over: what was begun, what was whole, and what was not asked.

use super::book::Book;
use super::client::Client;
use super::plan::Pool;

/// The answer to a step is as it should be: the next one is next, or the flow is whole.
pub(super) fn done(book: &mut Book, pool: &Pool, client: &mut Client, moment: u64) {
    client.step += 1;
    if usize::from(client.step) == pool.requests.len() {
        (client.step, client.begun) = (0, false);
        book.named(moment, WHOLE);
    }
}

/// A flow ends before its last step; `asked`: the step that it is at was asked, or tried.
pub(super) fn ends(
    book: &mut Book,
    pool: &Pool,
    client: &mut Client,
    moment: u64,
    asked: bool,
    how: &'static str,
) {
    if !pool.steps || (!asked && client.step == 0) {
        return;
    }
    let left = pool.requests.len() as u64 - u64::from(client.step) - u64::from(asked);
    if !std::mem::take(&mut client.begun) {
        book.named(moment, "flows");
    }
    client.step = 0;
    book.named(moment, how);
    book.count(moment, NOT_ASKED, left);
}

/// How a flow ended that was not whole.
pub(super) const CUT: &str = "flows-cut";
pub(super) const UNFINISHED: &str = "flows-unfinished";
/// Flows that were whole, and steps of the others.
pub(super) const WHOLE: &str = "flows-whole";
pub(super) const NOT_ASKED: &str = "steps-not-asked";

/// What is left of a connection when its request is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// It can be used further.
    Usable,
    /// It stands, and is to be closed.
    Standing,
    /// Nothing.
    Nothing,
}
