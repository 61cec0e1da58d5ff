//! Who asks: a login of a name and a password, or a key with which requests are signed for AWS.

use anyhow::{anyhow, ensure};
use clap::Args;
use flowlane_load::http::curl::{Curl, basic};
use flowlane_load::http::{Aws, AwsScope, Plan};

/// Options of who asks.
#[derive(Debug, Args)]
pub(super) struct LoginOptions {
    /// Log in with a name and a password, NAME:PASSWORD; with --aws-sigv4 it is the key and its secret. Whoever lists processes sees it.
    #[arg(long, short = 'u', value_name = "NAME:PASSWORD", conflicts_with_all = ["scenario", "curl"])]
    user: Option<String>,
    /// Sign requests for AWS, or what speaks as it does (Signature Version 4): aws:amz:REGION:SERVICE; what is left out is taken from the host,
    /// SERVICE.REGION.... The credentials are those of --user, or AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the environment.
    #[arg(long, value_name = "SCOPE", conflicts_with_all = ["scenario", "pipeline", "fast_open", "follow", "half_open", "syn_only"])]
    aws_sigv4: Option<AwsScope>,
    /// Token of the session that the key of --aws-sigv4 is of.
    #[arg(long, value_name = "TOKEN", conflicts_with = "scenario")]
    aws_session: Option<String>,
}

impl LoginOptions {
    /// The header field of a login, if there is one.
    pub(super) fn field(&self) -> anyhow::Result<Option<(String, String)>> {
        let Some(user) = self.user.as_deref().filter(|_| self.aws_sigv4.is_none()) else { return Ok(None) };
        // Not by the parser of arguments, whose errors would repeat the password.
        ensure!(user.contains(':') && !user.contains(char::is_control), "--user: a login is NAME:PASSWORD");
        Ok(Some(basic(user)))
    }

    /// How requests are signed, if they are.
    pub(super) fn aws(&self, curl: Option<&Curl>) -> anyhow::Result<Option<Aws>> {
        let of_curl = curl.and_then(|curl| curl.aws.as_deref()).map(str::parse::<AwsScope>).transpose();
        let of_curl = of_curl.map_err(|e| anyhow!("--curl: --aws-sigv4 {e}"))?;
        let Some(scope) = self.aws_sigv4.clone().or(of_curl) else {
            ensure!(
                self.aws_session.is_none(),
                "--aws-session: is for requests that are signed: --aws-sigv4"
            );
            return Ok(None);
        };
        let user = self.user.as_deref().or_else(|| curl?.user.as_deref());
        let aws = Aws::new(scope, user, self.aws_session.as_deref());
        aws.map(Some).map_err(|why| anyhow!("--aws-sigv4: {why}"))
    }
}

/// For whom requests are signed, for the report.
pub(super) fn shown(plan: &Plan) -> impl Iterator<Item = (String, String)> {
    let mut all: Vec<String> = Vec::new();
    for pool in &plan.pools {
        let scopes = pool.targets.iter().filter_map(|target| pool.aws.as_ref()?.shown(&target.url));
        all.extend(scopes);
    }
    all.dedup();
    (!all.is_empty()).then(|| ("signed-for".to_owned(), all.join(", "))).into_iter()
}
