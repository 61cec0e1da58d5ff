//! Records as columns of Parquet: rows wait here until there are enough for a row group.
//!
//! All columns are plain: no nesting, and what is not known is null. The *source* is the end that opened the connection, as in the IPFIX
//! records. Times are nanoseconds since 1970, UTC. Addresses are text, as people and programs compare them; a dictionary keeps them small.

use std::fs::File;
use std::io;
use std::sync::Arc;

use flowlane::{FlowRecord, FlowTotals};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

/// The columns, in the order in which they are written.
const SCHEMA: &str = "message connection {
    required int64 start (TIMESTAMP(NANOS, true));
    required int64 end (TIMESTAMP(NANOS, true));
    required binary source_address (UTF8);
    required int32 source_port (INTEGER(16, false));
    required binary destination_address (UTF8);
    required int32 destination_port (INTEGER(16, false));
    required int32 protocol (INTEGER(8, false));
    required boolean opened_by_us;
    optional int32 vlan (INTEGER(16, false));
    required binary ended (UTF8);
    required int64 source_packets (INTEGER(64, false));
    optional int64 source_octets (INTEGER(64, false));
    required int64 source_bytes (INTEGER(64, false));
    required int64 destination_packets (INTEGER(64, false));
    optional int64 destination_octets (INTEGER(64, false));
    required int64 destination_bytes (INTEGER(64, false));
    required int64 retransmitted_by_us (INTEGER(64, false));
    optional int64 rtt_ns (INTEGER(64, false));
    required int32 lane (INTEGER(16, false));
}";

/// Bytes of a row at most: its values, two addresses as text, and as much again in dictionaries.
const ROW: u64 = 256;
/// Bytes of a row group at most, without its rows: headers of pages, and its part of the footer.
const GROUP: u64 = 5 << 10;
/// Bytes of a file without rows at most: mostly the schema.
const EMPTY: u64 = 2 << 10;

/// Rows with their times, nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) record: FlowRecord,
    pub(super) began: i64,
    pub(super) ended: i64,
}

/// A Parquet file under construction.
pub(super) struct Table {
    writer: SerializedFileWriter<File>,
    /// Rows in finished row groups.
    written: u64,
    /// Those groups.
    groups: u64,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("written", &self.written).finish_non_exhaustive()
    }
}

fn schema() -> Result<TypePtr, ParquetError> {
    parse_message_type(SCHEMA).map(Arc::new)
}

/// What went wrong with the file below it, if that is it.
fn system(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

impl Table {
    /// Begins a file.
    pub(super) fn begin(file: File) -> io::Result<Self> {
        let properties = WriterProperties::builder()
            .set_created_by(concat!("flowlane ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_writer_version(WriterVersion::PARQUET_1_0)
            .build();
        let schema = schema().map_err(system)?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(system)?;
        Ok(Self { writer, written: 0, groups: 0 })
    }

    /// Writes rows as one row group.
    pub(super) fn write(&mut self, rows: &[Row]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(system)?;
        columns(&mut group, rows).map_err(system)?;
        group.close().map_err(system)?;
        self.written += rows.len() as u64;
        self.groups += 1;
        Ok(())
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Bytes of the whole file at most, its footer included, with one more group of so many rows.
    pub(super) fn at_most(&self, rows: u64) -> u64 {
        self.bytes() + EMPTY + (self.groups + 1) * GROUP + rows * ROW
    }

    /// The same of a file that is not begun.
    pub(super) const fn new_at_most(rows: u64) -> u64 {
        EMPTY + GROUP + rows * ROW
    }

    /// Rows written so far.
    pub(super) fn rows(&self) -> u64 {
        self.written
    }

    /// Writes the footer, without which nobody can read the file. Bytes of the file.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.writer.finish().map_err(system)?;
        Ok(self.bytes())
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    there: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".into()));
    };
    column.typed::<T>().write_batch(values, there, None)?;
    column.close()
}

/// The columns of [`SCHEMA`], in its order.
fn columns(group: &mut SerializedRowGroupWriter<'_, File>, rows: &[Row]) -> Result<(), ParquetError> {
    // The initiator's first.
    let ends = |row: &Row| initiator_first(row.record.active, row.record.local, row.record.remote);
    let numbers = |f: &dyn Fn(&Row) -> i64| rows.iter().map(f).collect::<Vec<_>>();
    let small = |f: &dyn Fn(&Row) -> i32| rows.iter().map(f).collect::<Vec<_>>();
    let texts = |f: &dyn Fn(&Row) -> String| {
        rows.iter().map(|row| ByteArray::from(f(row).into_bytes())).collect::<Vec<_>>()
    };
    column::<Int64Type>(group, &numbers(&|row| row.began), None)?;
    column::<Int64Type>(group, &numbers(&|row| row.ended), None)?;
    column::<ByteArrayType>(group, &texts(&|row| ends(row).0.ip().to_string()), None)?;
    column::<Int32Type>(group, &small(&|row| ends(row).0.port().into()), None)?;
    column::<ByteArrayType>(group, &texts(&|row| ends(row).1.ip().to_string()), None)?;
    column::<Int32Type>(group, &small(&|row| ends(row).1.port().into()), None)?;
    column::<Int32Type>(group, &small(&|row| row.record.protocol.0.into()), None)?;
    column::<BoolType>(group, &rows.iter().map(|row| row.record.active).collect::<Vec<_>>(), None)?;
    let vlans: Vec<i32> = rows.iter().filter_map(|row| row.record.vlan.map(i32::from)).collect();
    let tagged: Vec<i16> = rows.iter().map(|row| i16::from(row.record.vlan.is_some())).collect();
    column::<Int32Type>(group, &vlans, Some(&tagged))?;
    column::<ByteArrayType>(group, &texts(&|row| row.record.end.name().to_owned()), None)?;
    // A socket of the kernel tells no headers, and so no octets of IP.
    let told: Vec<i16> = rows.iter().map(|row| i16::from(!row.record.by_kernel)).collect();
    let ends: [fn(&Row) -> FlowTotals; 2] = [|row| totals(row).0, |row| totals(row).1];
    for end in ends {
        column::<Int64Type>(group, &numbers(&|row| end(row).segments as i64), None)?;
        let ours = rows.iter().filter(|row| !row.record.by_kernel);
        let octets: Vec<i64> = ours.map(|row| end(row).octets as i64).collect();
        column::<Int64Type>(group, &octets, Some(&told))?;
        column::<Int64Type>(group, &numbers(&|row| end(row).bytes as i64), None)?;
    }
    column::<Int64Type>(group, &numbers(&|row| row.record.retransmitted.into()), None)?;
    let times: Vec<i64> =
        rows.iter().filter_map(|row| row.record.rtt.map(|rtt| rtt.as_nanos() as i64)).collect();
    let measured: Vec<i16> = rows.iter().map(|row| i16::from(row.record.rtt.is_some())).collect();
    column::<Int64Type>(group, &times, Some(&measured))?;
    column::<Int32Type>(group, &small(&|row| row.record.bucket.into()), None)
}

/// What the initiator sent, and what was sent to it.
fn totals(row: &Row) -> (FlowTotals, FlowTotals) {
    initiator_first(row.record.active, row.record.sent, row.record.received)
}

/// `active`: we opened the connection.
fn initiator_first<T>(active: bool, ours: T, peers: T) -> (T, T) {
    if active { (ours, peers) } else { (peers, ours) }
}
