//! NATS servers that want to know who asks, over TLS.

use std::fs;

use flowlane_testnet::Scratch;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::kit::{Nats, refused, report, server};

/// The pair of an NKey: whoever has the seed is the user.
const USER: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";

/// An authority, and a certificate that it has signed, in files.
fn certificates(scratch: &Scratch) {
    let authority = KeyPair::generate().unwrap();
    let mut of_authority = CertificateParams::new(Vec::new()).unwrap();
    of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = of_authority.self_signed(&authority).unwrap();
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let signed = parameters.signed_by(&key, &Issuer::new(of_authority, authority)).unwrap();
    fs::write(scratch.path("ca.pem"), root.pem()).unwrap();
    fs::write(scratch.path("cert.pem"), signed.pem()).unwrap();
    fs::write(scratch.path("key.pem"), key.serialize_pem()).unwrap();
}

/// Certificates on both sides, and an NKey: with all of them a run is made, and without one of them nobody gets in.
#[test]
fn certificates_and_keys_let_agents_in() {
    let scratch = Scratch::new("agents-login");
    certificates(&scratch);
    let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|file| scratch.path(file));
    let (config, seed) = (scratch.path("nats.conf"), scratch.path("user.nk"));
    let tls = format!("tls {{ cert_file: '{cert}', key_file: '{key}', ca_file: '{ca}', verify: true }}");
    fs::write(&config, format!("{tls}\nauthorization {{ users: [{{ nkey: {USER} }}] }}\n")).unwrap();
    fs::write(&seed, format!("# of a test\n{SEED}\n")).unwrap();
    let Some(nats) = Nats::start(&["-c", &config]) else { return };
    let all = ["--nats-ca", &ca, "--nats-cert", &cert, "--nats-key", &key, "--nats-nkey", &seed];
    let (address, _) = server();
    let url = format!("http://{address}/");
    let arguments = [&url, "--agents", "lab:1", "-c", "4", "-n", "40", "--json"];
    for missing in [0..2, 2..6, 6..8] {
        let mut rest = all.to_vec();
        rest.drain(missing);
        refused(nats.load(&[&arguments[..], &rest].concat()), 2, "--nats");
    }
    let _agent = nats.agent("a", &[&all[..], &["--", "--workers", "1"]].concat());
    let report = report(&nats.load(&[&arguments[..], &all].concat()).output().unwrap());
    assert_eq!(report["total"]["counts"]["answered"], 40);
}
