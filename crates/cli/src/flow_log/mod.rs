//! `--flow-log`: records of ended TCP connections in Parquet files, for pyarrow, DuckDB, Spark and the like.
//!
//! ```text
//!   lanes ── FlowRecord ──▶ FlowRecords (a queue, in memory) ──▶ logger: a thread ── rows ──▶ FILE-0001.parquet
//! ```
//!
//! The thread takes what is in the queue ten times a second. The lanes do not wait for it, and it alone waits for the disk: what finds no
//! room meanwhile is lost and counted. [`table`] turns records into columns, [`files`] makes files, [`logger`] is the thread.

mod files;
mod logger;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use files::Target;
pub(crate) use logger::{FlowLog, Logged};
