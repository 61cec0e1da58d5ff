//! Redirects of HTTP/2: a request goes on to where its answer leads, within the time of one request.
//!
//! A lane has one connection for each other origin, which the streams of all its connections share; it is opened by the first that wants to
//! go there, and opened again when it has ended.

use std::sync::{Arc, OnceLock};

use hyper::client::conn::http2::SendRequest;

use super::{Answer, Body, Broken, Ended, With, again, exchange, handshake};
use crate::http::beside::{Shared, within};
use crate::http::hop::Course;
use crate::http::origins::{Origin, Origins, open_origin};
use crate::http::plan::Request;
use crate::http::prepared::Prepared;
use crate::http::stream::Stream;
use crate::http::url::Url;
use crate::report::ErrorKind;
use crate::run::clock;

/// Follows an answer that is a redirect to the last answer.
pub(super) async fn follow(
    shared: &Arc<Shared>,
    (url, request): (&Url, &Request),
    intended: u64,
    sender: &mut SendRequest<Body>,
    mut client: Option<With<'_>>,
    mut answer: Answer,
) -> Result<Answer, Broken> {
    let pool = &shared.plan.pool;
    let mut course = Course::begins(url.clone(), request.clone());
    let home = course.url.clone();
    while let Some(location) = answer.location.take() {
        course.goes(pool, answer.code, &location).map_err(stopped)?;
        shared.lock().book.named(intended, "redirects");
        if let Some(With { client, .. }) = client.as_ref().filter(|_| pool.cookies) {
            client.jar.apply(&mut course.request, &course.url, url);
        }
        let local = |e: String| stopped((ErrorKind::Malformed, e));
        let prepared = Prepared::of(pool, &course.url, &course.request).map_err(|e| local(e.to_string()))?;
        let asked = prepared.http2(&course.url, &course.request).map_err(local)?;
        let hop = if course.url.is_of_one_origin_with(&home) {
            exchange(shared, sender, asked, &course.request, intended, again(&mut client)).await
        } else {
            let mut elsewhere = sender_to(shared, &course).await?;
            let client = again(&mut client).map(|with| With { host: None, ..with });
            exchange(shared, &mut elsewhere, asked, &course.request, intended, client).await
        };
        // The first request was processed, so this is none that the server has not seen.
        answer = hop.map_err(|e| Broken { unprocessed: false, ..e })?;
    }
    Ok(answer)
}

fn stopped((kind, why): (ErrorKind, String)) -> Broken {
    Broken::new(kind, why)
}

/// A way to send requests to the origin of a URL.
async fn sender_to(shared: &Arc<Shared>, course: &Course) -> Result<SendRequest<Body>, Broken> {
    let (origin, place) = {
        let mut inner = shared.lock();
        let origin = inner.origins.of(&course.url).ok_or_else(|| stopped(Origins::full()))?;
        let place = inner.elsewhere.entry(Arc::as_ptr(&origin) as usize).or_default().clone();
        (origin, place)
    };
    let mut sender = place.lock().await;
    if let Some(open) = sender.as_ref().filter(|sender| !sender.is_closed()) {
        return Ok(open.clone());
    }
    if sender.take().is_some() {
        shared.lock().book.closed(clock());
    }
    let new = open(shared, origin).await?;
    Ok(sender.insert(new).clone())
}

async fn open(shared: &Arc<Shared>, origin: Arc<Origin>) -> Result<SendRequest<Body>, Broken> {
    let begun = clock();
    let Some(finder) = shared.plan.finder.clone() else {
        return Err(stopped((ErrorKind::RedirectAway, "redirects are not followed".to_owned())));
    };
    let from = shared.lock().routes.towards_anywhere();
    let opened = within(shared.common.plan.timeout, open_origin(origin, finder, from)).await;
    let opened = match opened {
        Some(opened) => opened.map_err(|e| stopped((e.kind, e.why)))?,
        None => return Err(stopped((ErrorKind::ConnectTimeout, "no connection in time".to_owned()))),
    };
    let tls = matches!(opened.stream, Stream::Tls(_)).then(|| opened.secured - opened.connected);
    {
        let mut inner = shared.lock();
        inner.book.connected(clock(), opened.connected - begun, tls);
        inner.book.handshake(clock(), opened.resumed);
    }
    let ended: Ended = Arc::new(OnceLock::new());
    let streams = shared.streams();
    let made = match opened.stream {
        Stream::Plain(tcp) => handshake(tcp, streams, ended).await,
        Stream::Tls(tls) => handshake(*tls, streams, ended).await,
        Stream::None | Stream::Opening(_) => Err("no connection".to_owned()),
    };
    made.map_err(|why| stopped((ErrorKind::Http2, why)))
}
