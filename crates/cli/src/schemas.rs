//! The schemas of documents whose structs are in libraries: each file of `docs/schema` is what its struct says. Those of structs of a command
//! have their test beside them, `schema_of_NAME`, too.

use flowlane::control::{AddressesView, FlowsView, LiveView, MetricsView, MoveRequest, MoveView, ReportView};
use flowlane::epair::EpairReport;
use flowlane::switch::SwitchView;
use flowlane_load::find::Found;
use flowlane_load::find::burst::FoundBursts;
use flowlane_load::report::Run;
use flowlane_load::report::requests::Written;
use flowlane_schema::Made;

#[test]
fn schema_of_load_run() {
    let about = "Written by flowlane load http, load udp, load tcp, load memcached and load ws with --json. The version grows when a \
                 field changes its meaning or goes away; fields may be added.";
    Made::new("load-run", "The report of a load run", about).form::<Run>().closed().keep();
}

#[test]
fn schema_of_load_find() {
    let about = "Also of load udp, load tcp, load memcached and load ws, with --json or --save.";
    Made::new("load-find-v1", "Document of flowlane load http --find-rate, version 1", about)
        .form::<Found>()
        .closed()
        .keep();
}

#[test]
fn schema_of_load_bursts() {
    let about = "With --json or --save.";
    Made::new("load-bursts-v1", "Document of flowlane load udp --find-burst, version 1", about)
        .form::<FoundBursts>()
        .closed()
        .keep();
}

#[test]
fn schema_of_load_request() {
    let about =
        "Times are nanoseconds. A request without an answer has no status and, but for latency-ns, no times.";
    Made::new("load-request-v1", "A line of flowlane load http --log-requests", about)
        .form::<Written<'_>>()
        .closed()
        .keep();
}

#[test]
fn schema_of_control() {
    let about = "GET /v1/report answers with ReportView; /v1/stats, /v1/netisr, /v1/sockets, /v1/rss and /v1/workers with the member of \
                 that name alone. GET /v1/metrics answers with MetricsView. GET /v1/live, which the web page of serve --web has, too, \
                 answers with LiveView. GET /v1/flows answers with the document of flows-v1.json (?n=20: so many by packets, and by \
                 bytes); POST /v1/flows with {\"watch\": true, \"flows\": 256} switches the watching on, with {\"watch\": false} off. \
                 POST /v1/capture starts ({\"do\": \"start\", \"path\": ..}), tells of ({\"do\": \"status\", \"number\": 0}) and ends \
                 ({\"do\": \"stop\", ..}) a capture. POST /v1/load ({\"rate\": 40000}, \"pause\" or \"resume\") changes a load while it \
                 runs, and answers with at-seconds, rate, paused and words. POST /v1/move takes MoveRequest and answers with MoveView. \
                 Within a version no field is renamed or changes its meaning; new ones may be added.";
    Made::new("control-v1", "Documents of Flowlane's control socket, version 1", about)
        .form::<ReportView>()
        .part::<MetricsView>()
        .part::<LiveView>()
        .request::<MoveRequest>()
        .part::<MoveView>()
        .keep();
}

#[test]
fn schema_of_flows() {
    let about = "The flows of an instance with most packets and bytes. New members may be added.";
    let title = "flowlane flows --json, and GET /v1/flows of the control socket, version 1";
    Made::new("flows-v1", title, about).form::<FlowsView>().keep();
}

#[test]
fn schema_of_switch() {
    let about = "Of switch show, port, vlan and mirror the whole switch; of switch fdb its addresses. New members may be added.";
    Made::new("switch-v1", "flowlane switch show --json and switch fdb --json, version 1", about)
        .form::<SwitchView>()
        .form::<AddressesView>()
        .keep();
}

#[test]
fn schema_of_epair() {
    let about = "Two interfaces joined back to back. New members may be added.";
    Made::new("epair-v1", "flowlane epair up --json and epair show --json, version 1", about)
        .form::<EpairReport>()
        .keep();
}
