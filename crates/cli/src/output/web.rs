//! The web page of a run (`load --web`): the page of the runtime, with requests and latencies of the generator.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use flowlane::Handle;
use flowlane::control::{Additions, CountView, ListenError, TimesView, WebListener, WebPage, listen_for_web};
use flowlane_load::report::Live;

/// A page that is open, and served from when there is a runtime.
#[derive(Debug)]
pub(super) struct Web {
    listener: Option<WebListener>,
    page: Option<WebPage>,
    added: Arc<Mutex<Additions>>,
}

impl Web {
    /// Listens at `address`.
    pub(super) fn listen(address: SocketAddr) -> Result<Self, ListenError> {
        let listener = Some(listen_for_web(address)?);
        Ok(Self { listener, page: None, added: Arc::default() })
    }

    /// Serves the page of this runtime. Returns its address.
    pub(super) fn serve(&mut self, handle: Handle, name: &str) -> Result<Option<SocketAddr>, ListenError> {
        let Some(listener) = self.listener.take() else { return Ok(None) };
        let added = self.added.clone();
        let more = move || added.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.page = Some(listener.serve_with(handle, name, more)?);
        Ok(self.page.as_ref().map(WebPage::address))
    }

    /// What the page shows from now on.
    pub(super) fn show(&self, live: &Live) {
        let (total, at) = live.total();
        let count = |text: &str, count| CountView { text: text.to_owned(), count, at_us: Some(at / 1000) };
        let counts = vec![
            count("Answers", total.answered),
            count("Requests", total.sent),
            count("Errors", total.failed),
        ];
        let times = live.latencies().map(|l| TimesView::new("latency", "latency of answers", l));
        let added = Additions { times: times.into_iter().collect(), counts };
        *self.added.lock().unwrap_or_else(PoisonError::into_inner) = added;
    }
}
