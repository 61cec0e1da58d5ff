//! Records of flows, to an IPFIX collector and to Parquet files: the options of `serve` and every `load`, and what becomes of the records.
//!
//! ```text
//!   options ─ open ▸ Recorders (the socket is open) ─ of ▸ Host ... start, after the runtime ▸ Recording ─ end, after it ▸ Recorded
//! ```

use anyhow::anyhow;
use clap::Args;
use flowlane::stats::Report;
use flowlane::{FlowRecords, Handle, Host};

use crate::flow_log::{FlowLog, Logged, Target};
use crate::ipfix::{Collector, Exported, Exporter, Opened};
use crate::say::say;
use flowlane_sys::words::counted;

/// The options.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecordOptions {
    /// Send records of TCP connections and UDP flows to this collector, as IPFIX over UDP: one at their end (UDP: after 15 s of silence, or
    /// ,idle=TIME), and while they stand one each minute, or what ,active=TIME says, or none with ,active=off.
    #[arg(long, value_name = "HOST:PORT")]
    ipfix: Option<Collector>,
    /// Write a record of each TCP connection and UDP flow that has ended to Parquet files: FILE.parquet makes FILE-0001.parquet and so on (FILE.parquet, if one is enough), each finished
    /// after every=5m or size=64Mi, at most max=1Gi in all (FILE.parquet,every=1m).
    #[arg(long, value_name = "FILE.parquet")]
    flow_log: Option<Target>,
}

impl RecordOptions {
    /// The option that asks for records, if one does.
    pub(crate) fn given(&self) -> Option<String> {
        let ipfix = self.ipfix.as_ref().map(|to| format!("--ipfix {to}"));
        ipfix.or_else(|| self.flow_log.as_ref().map(|to| format!("--flow-log {to}")))
    }

    /// Opens the exporter's socket.
    pub(crate) fn open(&self) -> anyhow::Result<Recorders> {
        let open = |to: &Collector| Opened::new(to).map_err(|e| anyhow!("--ipfix {to}: {e}"));
        let exporter = self.ipfix.as_ref().map(open).transpose()?;
        let log = self.flow_log.as_ref().map(|target| (target.clone(), FlowLog::queue()));
        Ok(Recorders { exporter, log })
    }
}

/// Where records will go.
#[derive(Debug)]
pub(crate) struct Recorders {
    exporter: Option<Opened>,
    log: Option<(Target, FlowRecords)>,
}

impl Recorders {
    /// The host, whose records go to the exporter, to the log, or to both.
    pub(crate) fn of(&self, host: Host) -> Host {
        match (self.exporter.as_ref().map(Opened::records), self.log.as_ref().map(|(_, queue)| queue)) {
            (Some(exported), Some(logged)) => host.flows(&exported.clone().and(logged)),
            (Some(records), None) | (None, Some(records)) => host.flows(records),
            (None, None) => host,
        }
    }

    /// Starts the threads. The log's first file is made after privileges were given up: what can be written now can be written later.
    pub(crate) fn start(self, handle: &Handle) -> anyhow::Result<Recording> {
        let exporter = self.exporter.map(|exporter| exporter.start(handle.now())).transpose();
        let exporter = exporter.map_err(|e| anyhow!("starting a thread: {e}"))?;
        let log = self.log.map(|(target, queue)| {
            let log = FlowLog::start(queue, &target, handle.now());
            log.map_err(|e| anyhow!("--flow-log {target}: {e}"))
        });
        Ok(Recording { exporter, log: log.transpose()? })
    }
}

/// Records that are being made.
#[derive(Debug)]
pub(crate) struct Recording {
    exporter: Option<Exporter>,
    log: Option<FlowLog>,
}

impl Recording {
    /// Sends and writes what is left, after the runtime has stopped.
    pub(crate) fn end(self, report: &Report, host: usize) -> Recorded {
        let total = report.total(host);
        let in_lanes = total.tcp.flow_records_lost + total.udp.flow_records_lost;
        Recorded {
            exported: self.exporter.map(|exporter| exporter.end(in_lanes)),
            logged: self.log.map(|log| log.end(in_lanes)),
        }
    }
}

/// What became of records.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recorded {
    pub(crate) exported: Option<Exported>,
    pub(crate) logged: Option<Logged>,
}

impl Recorded {
    /// In a line for each of the two.
    pub(crate) fn lines(&self) -> Vec<String> {
        let more = |counts: [(u64, &str); 2]| -> String {
            let counts = counts.iter().filter(|(count, _)| *count > 0);
            counts.map(|(count, why)| format!(", {count} {why}")).collect()
        };
        let lost = "lost for lack of room";
        let exported = self.exported.map(|exported| {
            let more = more([(exported.refused, "refused by the system"), (exported.lost, lost)]);
            format!("ipfix: {} records of flows sent{more}", exported.sent)
        });
        let logged = self.logged.map(|logged| {
            let more = more([(logged.failed, "could not be written"), (logged.lost, lost)]);
            let files = counted(logged.files as usize, "file");
            format!("flow log: {} records of flows in {files}{more}", logged.written)
        });
        exported.into_iter().chain(logged).collect()
    }

    /// Says it beside a report.
    pub(crate) fn say(&self) {
        for line in self.lines() {
            say!("flowlane: {line}");
        }
    }
}
