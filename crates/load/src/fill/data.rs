//! A file of comma-separated values whose rows become requests: RFC 4180, with a head that names the columns.
//!
//! The file is whole in memory, without its quotes: its fields one behind the other, and where each ends. It comes from anywhere, so its
//! size, its columns and its fields are bounded, and a row with too few or too many fields is refused with its line.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Most bytes of a file.
const LARGEST: u64 = 256 << 20;
/// Most columns, and most fields in all.
const COLUMNS: usize = 1000;
const FIELDS: usize = 64 << 20;
/// What a spreadsheet may write at the beginning of a file.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// In which order rows are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// One after the other, again from the first after the last. Lanes take turns.
    #[default]
    InOrder,
    /// Any of them, by the seed of the run.
    Random,
    /// Each at most once; the run ends with the last.
    Once,
    /// Each lane has rows that no other lane uses, one after the other, and again.
    Share,
}

impl Order {
    /// Its name in scenarios.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InOrder => "in-order",
            Self::Random => "random",
            Self::Once => "once",
            Self::Share => "share",
        }
    }
}

impl std::str::FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::InOrder, Self::Random, Self::Once, Self::Share];
        let found = all.into_iter().find(|order| order.name() == text);
        found.ok_or_else(|| format!("'{text}': rows are used in-order, random, once, or share"))
    }
}

/// The rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    columns: Vec<String>,
    /// All fields, one behind the other, and the end of each.
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
    /// In which order they are used.
    pub order: Order,
}

/// Why a file is none of rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadData {
    /// It cannot be read.
    #[error("{0}")]
    Unread(#[from] io::Error),
    /// It is too large, or not written so.
    #[error("{0}")]
    Refused(String),
}

impl Data {
    /// Reads a file or a pipe of at most 256 MiB.
    ///
    /// # Errors
    /// It cannot be read, is too large, or is no table with a head.
    pub fn of_file(path: &Path, order: Order) -> Result<Self, BadData> {
        let kind = std::fs::metadata(path)?;
        if kind.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory).into());
        }
        let (mut content, file) = (Vec::new(), File::open(path)?);
        flowlane::written::note_read(&file).keep();
        // A device that has no end is too large, as a file is.
        file.take(LARGEST + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST {
            return Err(BadData::Refused(
                "larger than 256 MiB, the most that a file of rows may have".into(),
            ));
        }
        Self::parse(&content, order)
    }

    /// Reads rows.
    ///
    /// # Errors
    /// They are too many, or no table with a head.
    pub fn parse(content: &[u8], order: Order) -> Result<Self, BadData> {
        let refused = |what: String| Err(BadData::Refused(what));
        let content = content.strip_prefix(MARK).unwrap_or(content);
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(content);
        let (mut bytes, mut ends, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        let mut row = csv::ByteRecord::new();
        loop {
            let line = reader.position().line();
            match reader.read_byte_record(&mut row) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => return refused(e.to_string()),
            }
            if columns.is_empty() {
                columns = names(&row).map_err(BadData::Refused)?;
                continue;
            }
            // Guard: `row.len() != columns.len()` as `false` fails fill::data
            if row.len() != columns.len() {
                let (fields, wanted) = (row.len(), columns.len());
                return refused(format!("line {line}: {fields} fields, and the head names {wanted} columns"));
            }
            if ends.len() + row.len() > FIELDS {
                return refused("more than 64 Mi fields, the most that a file of rows may have".into());
            }
            for field in &row {
                bytes.extend_from_slice(field);
                // No file has as many bytes as this can count.
                ends.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
            }
        }
        if columns.is_empty() {
            return refused("it is empty: its first line names the columns, as in name,password".into());
        }
        // Guard: `ends.is_empty()` as `false` fails fill::data
        if ends.is_empty() {
            return refused(format!("it has no rows, only its head: {}", columns.join(", ")));
        }
        Ok(Self { columns, bytes: bytes.into(), ends: ends.into(), order })
    }

    /// One row of nothing, in the place of a file that is not read yet.
    pub(crate) fn stand_in(columns: Vec<String>) -> Self {
        let ends = vec![0; columns.len()].into();
        Self { columns, bytes: [].into(), ends, order: Order::InOrder }
    }

    /// The names of its columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Number of rows: one at least.
    #[must_use]
    pub fn rows(&self) -> u64 {
        (self.ends.len() / self.columns.len().max(1)).max(1) as u64
    }

    /// A field; of a row that there is not, nothing.
    #[must_use]
    pub fn field(&self, row: u64, column: u16) -> &[u8] {
        let at = row as usize * self.columns.len() + usize::from(column);
        let Some(end) = self.ends.get(at) else { return &[] };
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin as usize..*end as usize]
    }

    /// The first row of which this field has a byte that no header field may have, as its number from 1 on.
    #[must_use]
    pub fn unfit_for_a_header(&self, column: u16) -> Option<u64> {
        let unfit =
            |row: &u64| self.field(*row, column).iter().any(|b| (*b < b' ' && *b != b'\t') || *b == 0x7f);
        (0..self.rows()).find(unfit).map(|row| row + 1)
    }
}

/// The names in a head.
fn names(row: &csv::ByteRecord) -> Result<Vec<String>, String> {
    // Guard: `row.len() > COLUMNS` as `false` fails fill::data
    if row.len() > COLUMNS {
        return Err(format!("{} columns: {COLUMNS} at most", row.len()));
    }
    let mut names: Vec<String> = Vec::with_capacity(row.len());
    for field in row {
        let name = std::str::from_utf8(field).map_err(|_| "its head is no text in UTF-8".to_owned())?.trim();
        if name.is_empty() {
            return Err("its first line names the columns, and one has no name".into());
        }
        // Guard: `names.iter().any(|other| other == name)` as `false` fails fill::data
        if names.iter().any(|other| other == name) {
            return Err(format!("two columns are called '{name}'"));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(text: &str) -> Result<Data, String> {
        Data::parse(text.as_bytes(), Order::InOrder).map_err(|e| e.to_string())
    }

    #[test]
    fn fields_are_as_they_are_written() {
        let text = "\u{feff}name , pass word\r\nann,\"a,\"\"b\"\"\r\nc\"\nböb,\n\n";
        let data = data(text).unwrap();
        assert_eq!(data.columns(), ["name", "pass word"]);
        assert_eq!(data.rows(), 2);
        assert_eq!(data.field(0, 0), b"ann");
        assert_eq!(data.field(0, 1), b"a,\"b\"\r\nc");
        assert_eq!((data.field(1, 0), data.field(1, 1)), ("böb".as_bytes(), &b""[..]));
        assert_eq!(data.field(2, 0), b"");
        assert_eq!((data.unfit_for_a_header(0), data.unfit_for_a_header(1)), (None, Some(1)));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for (text, what) in [
            ("", "empty"),
            ("\n\n", "empty"),
            ("a,b\n", "no rows, only its head: a, b"),
            ("a,,b\n1,2,3\n", "no name"),
            ("a,b,a\n1,2,3\n", "two columns are called 'a'"),
            ("a,b\n1,2\n3\n", "line 3: 1 fields, and the head names 2"),
            ("a,b\n1,2,3\n", "line 2: 3 fields"),
        ] {
            let refused = data(text).unwrap_err();
            assert!(refused.contains(what), "{text:?}: {refused}");
        }
        assert!(
            data(&format!("{}\n", vec!["x"; COLUMNS + 1].join(","))).unwrap_err().contains("1000 at most")
        );
        assert!(Data::parse(b"a\xff\nb\n", Order::Once).unwrap_err().to_string().contains("UTF-8"));
    }

    /// Anything is refused or read, and what is read has as many fields as it says.
    #[test]
    fn any_bytes() {
        let mut rng = flowlane_stack::rng::Rng::new(4);
        let alphabet = b"ab,\"\r\n \xff;";
        for _ in 0..20_000 {
            let length = rng.below(40);
            let bytes: Vec<u8> =
                (0..length).map(|_| alphabet[rng.below(alphabet.len() as u32) as usize]).collect();
            if let Ok(data) = Data::parse(&bytes, Order::Random) {
                let all: usize = (0..data.rows())
                    .flat_map(|row| (0..data.columns().len()).map(move |column| (row, column)))
                    .map(|(row, column)| data.field(row, column as u16).len())
                    .sum();
                assert_eq!(all, data.bytes.len(), "{bytes:?}");
            }
        }
    }

    #[test]
    fn orders_have_names() {
        for order in [Order::InOrder, Order::Random, Order::Once, Order::Share] {
            assert_eq!(order.name().parse(), Ok(order));
        }
        assert!("sorted".parse::<Order>().unwrap_err().contains("in-order, random, once, or share"));
    }
}
