//! Scenarios that agents make: whoever conducts sends the text, and what of it belongs to a machine is not taken.
//!
//! Each key is named here, so that a new one is not sent before somebody has thought of it.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::file::{Agents as Table, File, Pool, Request};
use super::{BadScenario, Scenario};
use crate::units;

/// By which agents a scenario is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agents {
    /// Their group.
    pub group: String,
    /// How many; all that answer if it is not said.
    pub number: Option<u64>,
    /// Where the NATS server is.
    pub nats: Option<String>,
    /// How long they are waited for.
    pub wait: Option<Duration>,
    /// After how long without a word one is lost.
    pub timeout: Option<Duration>,
    /// What becomes of the run then, in a word.
    pub loss: Option<String>,
}

impl Agents {
    pub(super) fn of(table: &Table, text: &str) -> Result<Self, BadScenario> {
        let time = |time: &Option<Spanned<String>>| {
            let Some(time) = time else { return Ok(None) };
            units::duration(time.get_ref())
                .map(Some)
                .map_err(|e| BadScenario::at(text, &time.span(), e.to_string()))
        };
        let Table { group, number, nats, wait, timeout, loss } = table;
        Ok(Self {
            group: group.clone(),
            number: *number,
            nats: nats.clone(),
            wait: time(wait)?,
            timeout: time(timeout)?,
            loss: loss.clone(),
        })
    }
}

impl Scenario {
    /// Refuses what agents do not take: keys that name files, leave the way to the targets, or have no place in what agents send back.
    ///
    /// # Errors
    /// The first of these keys, by line and column.
    pub fn check_sent(&self) -> Result<(), BadScenario> {
        let File {
            name: _,
            about: _,
            rate: _,
            timeout: _,
            request_timeout: _,
            waiting: _,
            max_body: _,
            phase: _,
            agents: _,
            pool,
        } = &self.file;
        let found = pool.get_ref().iter().find_map(|pool| of_pool(pool.get_ref(), pool.span()));
        let Some((key, span)) = found else { return Ok(()) };
        Err(BadScenario::at(
            &self.text,
            &span,
            format!("{key}: not with agents, which take no files of others and send to targets alone"),
        ))
    }
}

/// The first key of a pool that is not taken, and where it is.
fn of_pool(pool: &Pool, whole: Range<usize>) -> Option<(&'static str, Range<usize>)> {
    let Pool {
        name: _,
        rate: _,
        share: _,
        poisson: _,
        connections: _,
        burst: _,
        keep_alive: _,
        fast_open: _,
        requests: _,
        think: _,
        read_rate: _,
        write_rate: _,
        pipeline: _,
        http2: _,
        http3: _,
        insecure: _,
        ca,
        cert,
        cert_key,
        tls_min: _,
        tls_max: _,
        tls_resume: _,
        early_data: _,
        connect_to: _,
        resolve: _,
        unix_socket,
        user: _,
        // An agent's own credentials are for none to sign with who asks it to.
        aws_sigv4,
        aws_session: _,
        follow: _,
        follow_anywhere,
        proxy,
        clients: _,
        behaviour: _,
        target: _,
        request,
        step,
        data,
        cookies: _,
    } = pool;
    let texts = [
        ("ca", ca),
        ("cert", cert),
        ("cert-key", cert_key),
        ("unix-socket", unix_socket),
        ("proxy", proxy),
        // Guard: `("aws-sigv4", aws_sigv4)` as `("aws-sigv4", &None)` fails
        // scenario::sent::tests::what_belongs
        ("aws-sigv4", aws_sigv4),
    ];
    let text = texts.into_iter().find_map(|(key, text)| Some((key, text.as_ref()?.span())));
    let data = || Some(("data", data.as_ref()?.span()));
    // Guard: `follow_anywhere.then_some(("follow-anywhere", whole))` as `None` fails
    // scenario::sent::tests::what_belongs
    let anywhere = || follow_anywhere.then_some(("follow-anywhere", whole));
    text.or_else(data)
        .or_else(anywhere)
        .or_else(|| request.iter().chain(step).find_map(|r| of_request(r.get_ref())))
}

fn of_request(request: &Request) -> Option<(&'static str, Range<usize>)> {
    let Request {
        name: _,
        method: _,
        path: _,
        headers: _,
        body: _,
        body_size: _,
        body_file,
        form,
        weight: _,
        status: _,
        length: _,
        sha256: _,
        contains: _,
        think: _,
        capture: _,
        events,
        grpc,
    } = request;
    // Guard: `body_file.as_ref().map(|file| ("body-file", file.span()))` as `None::<(&'static str,
    // Range<usize>)>` fails scenario::sent::tests::what_belongs
    let file = body_file.as_ref().map(|file| ("body-file", file.span()));
    let form = || Some(("form", form.first()?.span()));
    let grpc = || Some(("grpc", grpc.as_ref()?.span()));
    file.or_else(form).or_else(grpc).or_else(|| Some(("events", events.as_ref()?.span())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pool: &str) -> Scenario {
        let text = format!("[[pool]]\ntarget = [{{ url = \"http://127.0.0.1/\" }}]\n{pool}\n");
        Scenario::parse(&text).unwrap()
    }

    /// Whoever speaks to an agent opens none of its files, and sends nowhere but to the targets that it has checked.
    #[test]
    fn what_belongs_to_a_machine_is_not_taken() {
        for (pool, key, line) in [
            ("ca = \"/etc/x\"", "ca", 3),
            ("cert = \"/etc/x\"", "cert", 3),
            ("cert = \"x\"\ncert-key = \"/etc/x\"", "cert", 3),
            ("unix-socket = \"/run/x\"", "unix-socket", 3),
            ("proxy = \"http://127.0.0.1:1\"", "proxy", 3),
            ("user = \"a:b\"\naws-sigv4 = \"aws:amz:a:b\"", "aws-sigv4", 4),
            ("data = \"/etc/passwd\"\nrequest = [{ path = \"/{{name}}\" }]", "data", 3),
            ("follow = true\nfollow-anywhere = true", "follow-anywhere", 1),
            ("request = [{ body-file = \"/etc/shadow\" }]", "body-file", 3),
            ("step = [{ path = \"/\" }, { body-file = \"/etc/shadow\" }]", "body-file", 3),
            ("request = [{ events = true }]", "events", 3),
            ("request = [{ form = [\"a=@/etc/shadow\"] }]", "form", 3),
            ("request = [{ path = \"/a.B/C\", grpc = { descriptors = \"/etc/shadow\" } }]", "grpc", 3),
        ] {
            let error = with(pool).check_sent().unwrap_err();
            assert!(error.what.starts_with(&format!("{key}: not with agents")), "{pool}: {error}");
            assert_eq!(error.line, line, "{pool}: {error}");
        }
        let all = "clients = [\"10.0.0.0/8\"]\nstep = [{ path = \"/{{counter}}\", body = \"x\", capture = { a = { regex = \"a(b)\" } } }]";
        assert_eq!(with(all).check_sent(), Ok(()));
        assert_eq!(with("follow = true").check_sent(), Ok(()), "to the same host; and --only refuses it");
    }

    #[test]
    fn a_file_names_its_agents() {
        let text = "pool = [{ target = [{ url = \"http://127.0.0.1/\" }] }]\n[agents]\n";
        let of = |table: &str| Scenario::parse(&format!("{text}{table}"));
        let agents = of(
            "group = \"lab\"\nnumber = 3\nnats = \"nats://a:1\"\nwait = \"9s\"\ntimeout = \"2s\"\nloss = \"go-on\"\n",
        );
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(
            agents.unwrap().agents,
            Some(Agents {
                group: "lab".into(),
                number: Some(3),
                nats: Some("nats://a:1".into()),
                wait: seconds(9),
                timeout: seconds(2),
                loss: Some("go-on".into()),
            })
        );
        assert_eq!(of("group = \"lab\"").unwrap().agents.unwrap().number, None);
        for (table, line) in [
            ("", 2),
            ("group = 3", 3),
            ("group = \"lab\"\ntimeout = \"soon\"", 4),
            ("group = \"lab\"\nwhat = 1", 4),
        ] {
            let error = of(table).unwrap_err();
            assert_eq!(error.line, line, "{table}: {error}");
        }
        assert_eq!(with("").agents, None);
    }
}
