//! Requests with placeholders, compiled before the run: for HTTP/1 their head and body as templates, which one pass writes; for HTTP/2 and
//! for redirects their parts.

use std::sync::Arc;

use super::head::{head, proxy_of};
use super::plan::{BadPlan, Behaviour, Body, Pool, Request, Version};
use super::url::Url;
use crate::fill::{Data, Order, Place, Scope, Template, Vars};

/// The names of what a pool's steps capture, in the order of the steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    all: Vec<String>,
    /// How many of them are captured before each step.
    before: Vec<usize>,
}

impl Names {
    pub(super) fn of(pool: &Pool) -> Self {
        let mut names = Self::default();
        for request in &pool.requests {
            names.before.push(names.all.len());
            for capture in &request.captures {
                if !names.all.contains(&capture.name) {
                    names.all.push(capture.name.clone());
                }
            }
        }
        names
    }

    /// The places of what a request captures.
    pub(super) fn slots(&self, request: &Request) -> Vec<u16> {
        let place = |name: &String| self.all.iter().position(|n| n == name).unwrap_or(usize::MAX);
        request.captures.iter().map(|c| u16::try_from(place(&c.name)).unwrap_or(u16::MAX)).collect()
    }

    pub(super) fn all(&self) -> &[String] {
        &self.all
    }

    /// What the request at this place may use.
    fn scope<'a>(&'a self, pool: &'a Pool, place: usize) -> Scope<'a> {
        Scope {
            columns: pool.data.as_ref().map_or(&[], |data| data.columns()),
            // Guard: `&self.all[..self.before[place]]` as `&self.all[..]` fails
            // load/http::flows::what_is_no_flow_is_refused
            captures: &self.all[..self.before[place]],
        }
    }
}

/// A request of one target with placeholders.
#[derive(Debug, Clone)]
pub(super) struct Filled {
    path: Template,
    headers: Vec<(String, Template)>,
    body: Option<Template>,
    /// The first line, and the rest of the head.
    head: [Template; 2],
    /// The same with `Connection: close`.
    last: [Template; 2],
    data: Option<Arc<Data>>,
}

impl Filled {
    /// The request at this place of a pool to a target; `None` if it has no placeholder.
    pub(super) fn of(pool: &Pool, names: &Names, url: &Url, place: usize) -> Result<Option<Self>, BadPlan> {
        let (request, scope) = (&pool.requests[place], names.scope(pool, place));
        let parse = |text: &str| Template::parse(text, &scope).map_err(|e| BadPlan(e.to_string()));
        let path_text = request.path.as_deref().unwrap_or(&url.path);
        let path = parse(path_text)?;
        let headers = request.headers.iter().map(|(name, value)| Ok((name.clone(), parse(value)?)));
        let headers = headers.collect::<Result<Vec<_>, BadPlan>>()?;
        let body = match &request.body {
            Body::Text(text) => Some(parse(text)?).filter(|text| text.literal().is_none()),
            _ => None,
        };
        let fields = headers.iter().map(|(_, value)| value);
        if !pool.cookies && body.is_none() && fields.chain([&path]).all(|text| text.literal().is_some()) {
            return Ok(None);
        }
        if let Some(data) = &pool.data {
            for (name, value) in &headers {
                for column in value.columns() {
                    // Guard: `data.unfit_for_a_header(column)` as `None` fails
                    // load/http::data::what_cannot_be_filled_in
                    if let Some(row) = data.unfit_for_a_header(column) {
                        let column = &data.columns()[usize::from(column)];
                        let why = format!(
                            "row {row} of the file has a '{column}' of several lines, or with a control character"
                        );
                        return Err(BadPlan(format!("{why}, which no header field such as {name} may have")));
                    }
                }
            }
        }
        let lines = |close: bool| {
            let length = match &body {
                Some(_) => Template::LENGTH.to_owned(),
                None => literal_body(request).len().to_string(),
            };
            let text = head(url, request, path_text, proxy_of(pool, url), &length, close);
            let text = match text.strip_suffix("\r\n") {
                Some(fields) if pool.cookies => format!("{fields}{}\r\n", Template::COOKIES),
                _ => text,
            };
            let (first, rest) = text.split_at(text.find("\r\n").unwrap_or(0));
            Ok::<_, BadPlan>([parse(first)?, parse(rest)?])
        };
        let (head, last) = (lines(false)?, lines(true)?);
        Ok(Some(Self { path, headers, body, head, last, data: pool.data.clone() }))
    }

    /// Whether a row of the file decides anything in it.
    pub(super) fn uses_rows(&self) -> bool {
        let fields = self.headers.iter().map(|(_, value)| value);
        fields.chain([&self.path]).chain(&self.body).any(Template::uses_rows)
    }

    /// The path as it is with these values.
    pub(super) fn path(&self, vars: &Vars) -> Vec<u8> {
        self.path.fill(self.data.as_deref(), vars, Place::Path)
    }

    /// Writes head and body; what is too large to be filled in follows them. `scratch` is for the body meanwhile.
    pub(super) fn write(&self, vars: &Vars, close: bool, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        let data = self.data.as_deref();
        scratch.clear();
        if let Some(body) = &self.body {
            body.write(data, vars, Place::Body, 0, scratch);
        }
        out.clear();
        let [first, rest] = if close { &self.last } else { &self.head };
        first.write(data, vars, Place::Path, 0, out);
        rest.write(data, vars, Place::Field, scratch.len(), out);
        out.extend_from_slice(scratch);
    }

    /// The request as it is with these values.
    pub(super) fn request(&self, of: &Request, vars: &Vars) -> Request {
        let data = self.data.as_deref();
        let text = |template: &Template, place| {
            String::from_utf8_lossy(&template.fill(data, vars, place)).into_owned()
        };
        let mut headers: Vec<(String, String)> =
            self.headers.iter().map(|(name, value)| (name.clone(), text(value, Place::Field))).collect();
        if !vars.cookies.is_empty() {
            headers.push(("Cookie".into(), String::from_utf8_lossy(&vars.cookies).into_owned()));
        }
        Request {
            path: Some(text(&self.path, Place::Path)),
            headers,
            body: match &self.body {
                Some(body) => Body::Bytes(body.fill(data, vars, Place::Body).into()),
                None => literal_body(of),
            },
            ..of.clone()
        }
    }
}

/// A body without placeholders: `{{{{` in it stands for two braces.
fn literal_body(request: &Request) -> Body {
    let Body::Text(text) = &request.body else { return request.body.clone() };
    let literal = Template::parse(text, &Scope::default()).ok();
    Body::Bytes(
        literal.and_then(|text| text.literal().map(Arc::from)).unwrap_or_else(|| text.as_bytes().into()),
    )
}

/// The body behind what [`Filled::write`] writes.
pub(super) fn behind(filled: &Filled, request: &Request) -> Body {
    if filled.body.is_some() { Body::None } else { literal_body(request) }
}

/// A pool whose requests without placeholders are as they are sent.
pub(super) fn literal(pool: &Pool) -> Result<Pool, BadPlan> {
    let names = Names::of(pool);
    let text = |text: &str| {
        let parsed = Template::parse(text, &Scope::default()).ok();
        let literal = parsed.and_then(|text| text.literal().map(<[u8]>::to_vec));
        literal.and_then(|bytes| String::from_utf8(bytes).ok())
    };
    let mut made = pool.clone();
    for (place, request) in made.requests.iter_mut().enumerate() {
        let mut filled = false;
        for target in &pool.targets {
            filled |= Filled::of(pool, &names, &target.url, place)?.is_some();
        }
        if filled {
            continue;
        }
        request.path = request.path.as_deref().and_then(text);
        for (_, value) in &mut request.headers {
            *value = text(value).unwrap_or_default();
        }
        request.body = literal_body(request);
    }
    for target in &mut made.targets {
        // With placeholders it stays as it is, for the requests that have no path of their own.
        if let Some(path) = text(&target.url.path) {
            target.url.path = path;
        }
    }
    Ok(made)
}

impl Pool {
    /// Refuses placeholders that nothing fills in, and steps and captures where they are none.
    pub(super) fn check_fill(&self) -> Result<(), BadPlan> {
        let bad = |what: String| Err(BadPlan(format!("pool '{}': {what}", self.name)));
        let names = Names::of(self);
        if !self.steps && self.requests.iter().any(|r| !r.captures.is_empty() || !r.pause.is_none()) {
            return bad("captures and a think time between requests are for steps (step = [...])".into());
        }
        if let Some(data) = &self.data
            && let Some(name) = names.all().iter().find(|name| data.columns().contains(name))
        {
            return bad(format!("'{name}' is a column of the file of rows, and is captured as well"));
        }
        let own = |r: &Request| r.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("cookie"));
        if self.cookies && self.requests.iter().any(own) {
            return bad(
                "cookies are kept, and a request has a Cookie header of its own: one or the other".into()
            );
        }
        let (mut fills, mut uses_rows) = (false, false);
        for target in &self.targets {
            for (place, request) in self.requests.iter().enumerate() {
                let filled = Filled::of(self, &names, &target.url, place);
                let filled = filled
                    .map_err(|e| BadPlan(format!("pool '{}': '{}': {e}", self.name, request.title())))?;
                fills |= filled.is_some();
                uses_rows |= filled.is_some_and(|filled| filled.uses_rows());
            }
        }
        if let Some(data) = self.data.as_ref().filter(|_| !uses_rows) {
            let columns = data.columns().join(", ");
            return bad(format!("no request uses a column of the file of rows, as {{{{name}}}}: {columns}"));
        }
        if let Some(data) = self.data.as_ref().filter(|data| data.order == Order::Share)
            && data.rows() < self.connections as u64
        {
            let (rows, connections) = (data.rows(), self.connections);
            return bad(format!(
                "{rows} rows for {connections} connections: a share has a row for each at least"
            ));
        }
        let what = if self.steps { "a flow of steps" } else { "a request that is filled in" };
        if !fills && !self.steps {
            return Ok(());
        }
        if matches!(self.version, Version::Http1 { pipeline: 2.. }) {
            return bad(format!("{what} is one at a time on its connection: not with pipelining"));
        }
        if self.fast_open {
            return bad(format!("{what} is made when it is sent: not with Fast Open"));
        }
        if self.steps && self.behaviour != Behaviour::Normal {
            return bad(format!("{what} is for clients that send requests"));
        }
        Ok(())
    }
}
