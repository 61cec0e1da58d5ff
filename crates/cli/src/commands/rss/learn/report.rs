//! What was learned of a card, as a page and as a document.

use super::super::documents;
use crate::wrap::{WIDTH, wrapped};
use flowlane_rss::learn::{Finding, Gaps, LearnError, Learned};
use flowlane_rss::{Arrangement, General, PacketKind};
use std::fmt::Write as _;
use std::path::Path;

/// One card learned, or not.
#[derive(Debug)]
pub(super) struct Report<'a> {
    /// Which card, in words.
    pub(super) card: &'a str,
    /// `hashes`, `queues`.
    pub(super) from: &'a str,
    pub(super) learned: Result<&'a Learned, &'a LearnError>,
    /// What packets that came by themselves leave open.
    pub(super) gaps: Option<&'a Gaps>,
    /// Probes, or flows that came by themselves.
    pub(super) probes: usize,
    pub(super) milliseconds: f64,
    /// Other packets that were compared with an emulated card, and those of them that were not predicted.
    pub(super) unseen: usize,
    pub(super) wrong: usize,
    /// The file that was written.
    pub(super) written: Option<&'a Path>,
}

impl Report<'_> {
    /// For people, in 80 columns.
    pub(super) fn page(&self, learned: &Learned) -> String {
        let mut page = String::new();
        let mut line = |name: &str, text: &str| {
            for (i, part) in wrapped(text, WIDTH - 10).iter().enumerate() {
                // Writing to a string succeeds.
                let _ = writeln!(page, "{:<10}{part}", if i == 0 { name } else { "" });
            }
        };
        let rule = &learned.rule;
        line("card", self.card);
        let hash = match (learned.hashes, one_key(rule), rule.arrangement().name()) {
            (true, true, _) => "Toeplitz under one key".to_owned(),
            (true, false, "plain") => "affine, not Toeplitz under one key".to_owned(),
            (true, false, arrangement) => format!("affine once fields are arranged: {arrangement}"),
            (false, _, arrangement) => format!("not reported; affine bits found, fields {arrangement}"),
        };
        line("hash", &hash);
        let has_table = self.gaps.is_none_or(|gaps| gaps.unseen.is_some());
        if has_table {
            let queues = learned.table.slots().iter().map(|queue| queue.0).max().unwrap_or(0) + 1;
            line("table", &format!("{} slots, {queues} queues", learned.table.len()));
        } else {
            line("table", "not known: no packet has a queue");
        }
        match self.gaps {
            None => {
                let time = format!("{:.1} ms", self.milliseconds);
                line("probes", &format!("{} in {time}, {} lost", self.probes, learned.lost));
                line("confirmed", &format!("{} fresh packets", learned.verified));
            }
            Some(gaps) => {
                line("flows", &format!("{} different ones", self.probes));
                line("confirmed", &format!("{} flows that were kept aside", learned.verified));
                for extent in &gaps.extents {
                    line(extent.span.kind().name(), &extent_in_words(extent));
                }
                let kinds =
                    PacketKind::ALL.into_iter().filter(|k| !gaps.extents.iter().any(|e| e.span.kind() == *k));
                let names: Vec<&str> = kinds.map(PacketKind::name).collect();
                if !names.is_empty() {
                    line("not seen", &names.join(", "));
                }
            }
        }
        if self.unseen > 0 {
            line("compared", &format!("{} other packets: {} wrong", self.unseen, self.wrong));
        }
        // What the lines of the kinds have said.
        let said = |finding: &&Finding| !matches!(finding, Finding::Undetermined { .. });
        for (i, finding) in learned.findings.iter().filter(said).enumerate() {
            line(if i == 0 { "found" } else { "" }, &finding.to_string());
        }
        if let Some(path) = self.written {
            let _ = writeln!(page, "written   {}", path.display());
        }
        page
    }

    /// For programs.
    pub(super) fn document(&self) -> documents::Learn {
        let learned = self.learned.ok();
        let kind = |extent: &flowlane_rss::learn::Extent| documents::Kind {
            kind: extent.span.kind().name(),
            flows: extent.flows,
            determined: extent.span.rank(),
            dimensions: extent.span.whole(),
        };
        let unseen = self.gaps.and_then(|gaps| gaps.unseen.as_ref());
        let has_table = self.gaps.is_none_or(|gaps| gaps.unseen.is_some());
        documents::Learn {
            version: 1,
            card: self.card.to_owned(),
            from: self.from.to_owned(),
            learned: learned.is_some(),
            verdict: verdict(self.learned).to_owned(),
            why: self.learned.err().map(ToString::to_string),
            findings: learned.map_or(Vec::new(), |l| l.findings.iter().map(ToString::to_string).collect()),
            toeplitz: learned.is_some_and(|l| l.hashes && one_key(&l.rule)),
            arrangement: learned.map(|l| l.rule.arrangement().name()),
            slots: learned.filter(|_| has_table).map(|l| l.table.len()),
            slots_not_seen: unseen.map(|slots| slots.iter().collect()).unwrap_or_default(),
            kinds: self.gaps.map_or(&[][..], |gaps| &gaps.extents).iter().map(kind).collect(),
            probes: self.probes,
            milliseconds: self.milliseconds,
            confirmed: learned.map_or(0, |l| l.verified),
            unseen: self.unseen,
            wrong: self.wrong,
        }
    }
}

fn extent_in_words(extent: &flowlane_rss::learn::Extent) -> String {
    let (span, flows) = (&extent.span, extent.flows);
    if span.is_whole() {
        return format!("{flows} flows: every flow is predicted");
    }
    format!(
        "{flows} flows: {} of {} dimensions determined; flows outside of these are not predicted",
        span.rank(),
        span.whole()
    )
}

/// Whether all kinds that are known are hashed by Toeplitz under one key: each column is the one before it, moved by one bit.
fn one_key(rule: &General) -> bool {
    let hashed = |kind: PacketKind| {
        let map = rule.map(kind)?;
        let (addresses, ports) = map.columns().split_at(kind.bits() - 32);
        let used = if ports.iter().all(|column| *column == 0) { addresses } else { map.columns() };
        Some((used, map.constant()))
    };
    let maps: Vec<(&[u32], u32)> = PacketKind::ALL.into_iter().filter_map(hashed).collect();
    let Some((longest, _)) = maps.iter().max_by_key(|(columns, _)| columns.len()) else { return false };
    rule.arrangement() == Arrangement::Plain
        && longest.windows(2).all(|pair| pair[0] << 1 == pair[1] & !1)
        && maps.iter().all(|(columns, constant)| *constant == 0 && longest.starts_with(columns))
}

/// The outcome in a word or two.
pub(super) fn verdict(learned: Result<&Learned, &LearnError>) -> &'static str {
    use Finding::{Misdirects, OneQueue};
    match learned {
        Ok(l) if l.findings.iter().any(|f| matches!(f, OneQueue(_))) => "learned, table ignored",
        Ok(l) if l.findings.iter().any(|f| matches!(f, Misdirects { .. })) => "learned, misdirects",
        Ok(l) if l.findings.iter().any(|f| matches!(f, Finding::Undetermined { .. })) => "learned in part",
        Ok(_) => "learned",
        Err(LearnError::NotAffine { .. } | LearnError::NotAffineQueues { .. }) => "not affine",
        Err(LearnError::NoTable { .. }) => "one queue",
        Err(LearnError::Off { .. }) => "RSS off",
        Err(LearnError::TooFew { .. }) => "too few flows",
        Err(_) => "not learned",
    }
}
