//! Handshakes in memory: trust, names, what is agreed on, sessions taken up again, bytes through both kinds of stream.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

/// Both ends of a connection after its handshake.
async fn meet(
    server: &ServerTls,
    client: &ClientTls,
    name: &str,
) -> (Result<Stream<DuplexStream>, HandshakeError>, Result<Stream<DuplexStream>, HandshakeError>) {
    let (near, far) = duplex(1 << 16);
    let name = ClientTls::name(name).unwrap();
    tokio::join!(client.connect(near, name), server.accept(far))
}

/// A byte each way, so that tickets arrive too.
async fn talk(client: &mut Stream<DuplexStream>, server: &mut Stream<DuplexStream>) {
    let mut got = [0; 5];
    client.write_all(b"hello").await.unwrap();
    client.flush().await.unwrap();
    server.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"hello");
    server.write_all(b"world").await.unwrap();
    server.flush().await.unwrap();
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"world");
}

fn self_signed(alpn: Alpn) -> ServerTls {
    ServerTls::new(&Identity::for_addresses(&["10.0.0.1".parse().unwrap()]), alpn).unwrap()
}

fn anybody(alpn: Alpn, no_resumption: bool) -> ClientTls {
    ClientTls::new(&ClientOptions { trust: Trust::Anybody, alpn, no_resumption, ..ClientOptions::default() })
        .unwrap()
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("flowlane-tls-{}-{name}", std::process::id()))
}

#[tokio::test]
async fn plain_and_encrypted_streams_carry_the_same() {
    let (near, far) = duplex(64);
    let (mut near, mut far) = (Stream::Plain(near), Stream::Plain(far));
    talk(&mut near, &mut far).await;
    assert_eq!(near.handshake(), None);

    let (client, server) = meet(&self_signed(Alpn::Both), &anybody(Alpn::Both, false), "localhost").await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    talk(&mut client, &mut server).await;
    client.shutdown().await.unwrap();
    assert_eq!(server.read(&mut [0; 9]).await.unwrap(), 0);
}

#[tokio::test]
async fn the_protocol_is_agreed_on() {
    for (ours, theirs, http2, http1) in [
        (Alpn::Both, Alpn::Both, true, false),
        (Alpn::Both, Alpn::Http1, false, true),
        (Alpn::Http1, Alpn::Both, false, true),
        (Alpn::Http2, Alpn::Both, true, false),
    ] {
        let (client, server) = meet(&self_signed(ours), &anybody(theirs, false), "localhost").await;
        for agreed in [client.unwrap().handshake().unwrap(), server.unwrap().handshake().unwrap()] {
            assert_eq!((agreed.http2, agreed.http1), (http2, http1), "{ours:?} and {theirs:?}");
        }
    }
    let (client, server) = meet(&self_signed(Alpn::Http1), &anybody(Alpn::Http2, false), "localhost").await;
    assert!(client.is_err() && server.is_err(), "nothing in common");
}

#[tokio::test]
async fn sessions_are_taken_up_again_unless_told_otherwise() {
    let server = self_signed(Alpn::Both);
    for no_resumption in [false, true] {
        let client = anybody(Alpn::Both, no_resumption);
        for round in 0..3 {
            let (near, far) = meet(&server, &client, "localhost").await;
            let (mut near, mut far) = (near.unwrap(), far.unwrap());
            talk(&mut near, &mut far).await;
            let resumed = far.handshake().unwrap().resumed;
            assert_eq!(resumed, round > 0 && !no_resumption, "round {round}");
            assert_eq!(near.handshake().unwrap().resumed, resumed);
        }
    }
}

#[tokio::test]
async fn a_server_is_checked_against_a_file_and_its_name() {
    let server = self_signed(Alpn::Both);
    let file = scratch("roots.pem");
    std::fs::write(&file, server.certificate_pem()).unwrap();
    let trusting = |path: &PathBuf| ClientOptions { trust: Trust::File(path.clone()), ..Default::default() };
    let client = ClientTls::new(&trusting(&file)).unwrap();
    for (name, good) in [("localhost", true), ("10.0.0.1", true), ("elsewhere.test", false)] {
        let (client, _) = meet(&server, &client, name).await;
        assert_eq!(client.is_ok(), good, "{name}: {:?}", client.err());
    }
    std::fs::write(&file, self_signed(Alpn::Both).certificate_pem()).unwrap();
    let stranger = ClientTls::new(&trusting(&file)).unwrap();
    assert!(meet(&server, &stranger, "localhost").await.0.is_err(), "another certificate");
    std::fs::remove_file(&file).unwrap();
}

/// As `openssl req -x509` makes it: an authority by its own word, with one name or none at all.
#[tokio::test]
async fn a_certificate_that_is_named_itself_is_believed() {
    let (certificates, key) = (scratch("own.pem"), scratch("own-key.pem"));
    for (names, name, good) in
        [(vec!["a.test"], "a.test", true), (vec!["a.test"], "b.test", false), (vec![], "10.0.0.1", true)]
    {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let make = || {
            let mut parameters = rcgen::CertificateParams::new(names.clone()).unwrap();
            parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let key = rcgen::KeyPair::generate().unwrap();
            (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
        };
        let (pem, secret) = make();
        std::fs::write(&certificates, &pem).unwrap();
        std::fs::write(&key, secret).unwrap();
        let identity = Identity::Files { certificates: certificates.clone(), key: key.clone() };
        let server = ServerTls::new(&identity, Alpn::Both).unwrap();
        let trusting = || {
            let trust = Trust::File(certificates.clone());
            ClientTls::new(&ClientOptions { trust, ..Default::default() }).unwrap()
        };
        let (client, _) = meet(&server, &trusting(), name).await;
        assert_eq!(client.is_ok(), good, "{names:?}, {name}: {:?}", client.err());
        // Another with the same names is none of those in the file.
        std::fs::write(&certificates, make().0).unwrap();
        let (client, _) = meet(&server, &trusting(), name).await;
        let refused = client.expect_err("another's");
        assert!(refused.is_untrusted(), "{refused}");
    }
    for file in [certificates, key] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn identities_from_files() {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let (certificates, key) = (scratch("chain.pem"), scratch("key.pem"));
    std::fs::write(&certificates, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = |certificates: &PathBuf, key: &PathBuf| {
        let identity = Identity::Files { certificates: certificates.clone(), key: key.clone() };
        ServerTls::new(&identity, Alpn::Both).map_err(|e| e.to_string())
    };
    let server = files(&certificates, &key).unwrap();
    assert_eq!(server.certificate_pem().replace('\r', ""), made.cert.pem().replace('\r', ""));
    assert!(meet(&server, &anybody(Alpn::Both, false), "a.test").await.0.is_ok());

    let why = files(&key, &key).unwrap_err();
    assert!(why.contains("no certificate in it") && !why.contains('\n'), "{why}");
    let why = files(&certificates, &certificates).unwrap_err();
    assert!(why.contains("private key"), "{why}");
    let why = files(&scratch("nowhere"), &key).unwrap_err();
    assert!(why.contains("nowhere") && why.contains("No such file"), "{why}");
    let other = rcgen::generate_simple_self_signed(vec!["b.test".to_owned()]).unwrap();
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    let why = files(&certificates, &key).unwrap_err();
    assert!(why.contains("cannot be used with this key"), "{why}");
    for file in [certificates, key] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn what_is_not_tls_is_refused() {
    let (mut near, far) = duplex(1 << 16);
    near.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(self_signed(Alpn::Both).accept(far).await.is_err());
    assert!(ClientTls::name("[::1]").is_ok());
    assert!(matches!(ClientTls::name("a b"), Err(HandshakeError::Name(_))));
}

/// A certificate and its key in one file, as curl takes it: an authority by its own word, or signed by one, whose certificate is returned.
fn own(tag: &str, signed: bool) -> (ClientIdentity, String) {
    let mut authority = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let secret = key.serialize_pem();
    let authority = rcgen::CertifiedIssuer::self_signed(authority, key).unwrap();
    let both = if signed {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec!["b.test".to_owned()]).unwrap();
        parameters.signed_by(&key, &authority).unwrap().pem() + &key.serialize_pem()
    } else {
        authority.pem() + &secret
    };
    let file = scratch(&format!("{tag}.pem"));
    std::fs::write(&file, both).unwrap();
    (ClientIdentity { certificates: file.clone(), key: file }, authority.pem())
}

#[tokio::test]
async fn a_server_that_demands_certificates_refuses_who_has_none() {
    let identity = Identity::SelfSigned(vec!["localhost".to_owned()]);
    let ((stranger, _), file) = (own("stranger", false), scratch("authority.pem"));
    for signed in [false, true] {
        let (ours, authority) = own("client", signed);
        std::fs::write(&file, authority).unwrap();
        let server = ServerTls::with_clients(&identity, Alpn::Both, Some(&file)).unwrap();
        for versions in [Versions::default(), Versions { max: Version::Tls12, ..Versions::default() }] {
            for (who, good) in [(Some(&ours), true), (Some(&stranger), false), (None, false)] {
                let trust = Trust::Anybody;
                let options =
                    ClientOptions { trust, identity: who.cloned(), versions, ..ClientOptions::default() };
                let (client, accepted) = meet(&server, &ClientTls::new(&options).unwrap(), "localhost").await;
                assert_eq!(accepted.is_ok(), good, "{who:?}, {versions:?}: {:?}", accepted.err());
                if good {
                    talk(&mut client.unwrap(), &mut accepted.unwrap()).await;
                } else if let Ok(mut client) = client {
                    // With TLS 1.3 the client learns of it when it reads.
                    assert_eq!(versions.max, Version::Tls13);
                    assert!(client.read(&mut [0; 9]).await.is_err());
                }
            }
        }
        std::fs::remove_file(ours.certificates).unwrap();
    }
    for file in [file, stranger.certificates] {
        std::fs::remove_file(file).unwrap();
    }
}

#[tokio::test]
async fn versions_are_those_that_were_asked_for() {
    let tls = |min: &str, max: &str| {
        let versions = Versions { min: min.parse().unwrap(), max: max.parse().unwrap() };
        ClientTls::new(&ClientOptions { trust: Trust::Anybody, versions, ..ClientOptions::default() })
    };
    for (min, max, agreed) in [
        ("1.2", "1.2", rustls::ProtocolVersion::TLSv1_2),
        ("1.2", "1.3", rustls::ProtocolVersion::TLSv1_3),
        ("1.3", "1.3", rustls::ProtocolVersion::TLSv1_3),
    ] {
        let (client, _) = meet(&self_signed(Alpn::Both), &tls(min, max).unwrap(), "localhost").await;
        let Stream::Tls(stream) = client.unwrap() else { panic!("encrypted") };
        assert_eq!(stream.get_ref().1.protocol_version(), Some(agreed));
    }
    assert!(tls("1.3", "1.2").unwrap_err().to_string().contains("no version"));
    for bad in ["1.1", "1.0", "1.4", "tls1.2", ""] {
        assert!(bad.parse::<Version>().unwrap_err().contains("1.2 or 1.3"), "{bad}");
    }
}
