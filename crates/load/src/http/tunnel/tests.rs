//! Dialogues with proxies, byte by byte as the RFCs have them.

use tokio::io::duplex;

use super::*;
use crate::http::plan::Target;

fn tunnel(proxy: &str, url: &str) -> Tunnel {
    let (proxy, url): (Proxy, Url) = (proxy.parse().unwrap(), url.parse().unwrap());
    let target = Target { url: url.clone(), addresses: vec!["10.0.0.1:80".parse().unwrap()], weight: 1.0 };
    Tunnel::new(&proxy, &url, &Pool::new("p", target)).unwrap()
}

/// Digs while the proxy hears and says these, in turn, and then closes. What is left to read is returned.
async fn dialogue(tunnel: &Tunnel, turns: &[(&[u8], &[u8])]) -> Result<Vec<u8>, String> {
    let (mut near, mut far) = duplex(1 << 16);
    let proxy = async {
        for (heard, said) in turns {
            let mut bytes = vec![0; heard.len()];
            if far.read_exact(&mut bytes).await.is_err() {
                break;
            }
            assert_eq!(bytes, *heard, "{:?}", String::from_utf8_lossy(&bytes));
            far.write_all(said).await.unwrap();
        }
        drop(far);
    };
    let client = async {
        let dug = tunnel.dig(&mut near).await.map_err(|e| format!("{}: {}", e.kind.name(), e.why));
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        dug.map(|()| rest)
    };
    tokio::join!(client, proxy).0
}

#[tokio::test]
async fn connect_asks_for_a_host_and_its_port() {
    let asked = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nUser-Agent: flowlane\r\n\r\n";
    let https = tunnel("http://p:1", "https://a.example/x");
    assert_eq!(dialogue(&https, &[(asked, b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n")]).await.unwrap(), b"");
    // Framing of an answer to CONNECT means nothing (RFC 9110 §9.3.6); interim answers come before it.
    let odd = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 X\r\nContent-Length: 7\r\n\r\n";
    assert_eq!(dialogue(&https, &[(asked, odd)]).await.unwrap(), b"");
    let login = tunnel("http://u:p@p:1", "https://[fd00::1]/");
    let asked_so = b"CONNECT [fd00::1]:443 HTTP/1.1\r\nHost: [fd00::1]:443\r\nUser-Agent: flowlane\r\nProxy-Authorization: Basic dTpw\r\n\r\n";
    assert!(dialogue(&login, &[(asked_so, b"HTTP/1.1 200 OK\r\n\r\n")]).await.is_ok());
    for (answer, why) in [
        (
            &b"HTTP/1.1 407 X\r\nProxy-Authenticate: Basic\r\n\r\n"[..],
            "proxy: http://p:1: the proxy answers CONNECT with 407",
        ),
        (b"HTTP/1.1 502 X\r\n\r\n", "answers CONNECT with 502"),
        (b"HTTP/1.1 200 OK\r\n\r\nsurplus", "nobody asked for"),
        (b"nonsense\r\n\r\n", "proxy: "),
        (b"HTTP/1.1 200 O", "closed: http://p:1: the proxy closed before"),
        (b"", "closed: "),
    ] {
        let refused = dialogue(&https, &[(asked, answer)]).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let endless = [&b"HTTP/1.1 200 OK\r\nA: "[..], &vec![b'a'; 20 << 10]].concat();
    assert!(dialogue(&https, &[(asked, &endless)]).await.is_err());
    let interim = b"HTTP/1.1 103 X\r\n\r\n".repeat(65);
    assert!(dialogue(&https, &[(asked, &interim)]).await.unwrap_err().contains("interim"));
}

/// The target of HTTP/2 without TLS sends its settings at once: they are left for who reads next.
#[tokio::test]
async fn what_a_target_says_first_is_left_to_it() {
    let asked = b"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\nUser-Agent: flowlane\r\n\r\n";
    let plain = tunnel("http://p:1", "http://a.example/");
    let rest = dialogue(&plain, &[(asked, b"HTTP/1.1 200 OK\r\n\r\nsettings")]).await.unwrap();
    assert_eq!(rest, b"settings");
}

#[tokio::test]
async fn socks_names_an_address_or_a_name() {
    let ok: &[u8] = &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
    let numbers = tunnel("socks5://p", "http://10.1.2.3:8080/");
    let asked: &[u8] = &[5, 1, 0, 1, 10, 1, 2, 3, 31, 144];
    let rest = dialogue(&numbers, &[(&[5, 1, 0], &[5, 0]), (asked, &[ok, b"hello"].concat())]).await;
    assert_eq!(rest.unwrap(), b"hello");
    let names = tunnel("socks5h://u:pw@p", "https://a.example/");
    let asked = [&[5, 1, 0, 3, 9][..], b"a.example", &[1, 187]].concat();
    // The proxy's end may have a name, too.
    let named = [&[5, 0, 0, 3, 2][..], b"ab", &[0, 1], b"x"].concat();
    let login: &[u8] = &[1, 1, b'u', 2, b'p', b'w'];
    let turns: &[(&[u8], &[u8])] = &[(&[5, 2, 0, 2], &[5, 2]), (login, &[1, 0]), (&asked, &named)];
    assert_eq!(dialogue(&names, turns).await.unwrap(), b"x");
    let six = [&[5, 1, 0, 4][..], &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], &[0, 80]].concat();
    let end = [&[5, 0, 0, 4][..], &[0; 18], b"y"].concat();
    let v6 = tunnel("socks5h://p", "http://[fd00::1]/");
    assert_eq!(dialogue(&v6, &[(&[5, 1, 0], &[5, 0]), (&six, &end)]).await.unwrap(), b"y");
    let wrong: &[(&[u8], &[u8])] = &[(&[5, 2, 0, 2], &[5, 2]), (login, &[1, 1])];
    assert!(dialogue(&names, wrong).await.unwrap_err().contains("this login"));
    for (said, why) in [
        (&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0][..], "connection refused"),
        (&[5, 2, 0, 1, 0, 0, 0, 0, 0, 0], "its rules"),
        (&[5, 99, 0, 1], "unknown reason"),
        (&[4, 0, 0, 1], "does not speak SOCKS 5"),
        (&[5, 0, 0, 9], "unknown kind"),
        (&[5, 0], "closed: "),
    ] {
        let asked: &[u8] = &[5, 1, 0, 1, 10, 1, 2, 3, 31, 144];
        let refused = dialogue(&numbers, &[(&[5, 1, 0], &[5, 0]), (asked, said)]).await.unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    for (method, why) in
        [([5, 255], "wants a login"), ([5, 2], "wants a login"), ([72, 84], "does not speak")]
    {
        let refused = dialogue(&numbers, &[(&[5, 1, 0], &method)]).await.unwrap_err();
        assert!(refused.starts_with("proxy: ") && refused.contains(why), "{refused}");
    }
}
