//! A proxy to the API server, set by `HTTPS_PROXY` and `NO_PROXY`.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::env::{TestEnv, kubeconfig};
use crate::shell::Shell;

use serde_json::json;

/// "u:s3cret" in a `Proxy-Authorization` header.
const CREDENTIALS: &str = "Basic dTpzM2NyZXQ=";

/// A proxy that requires the password, and reports the requests that it forwards.
fn start_proxy() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, sender) = (client.unwrap(), sender.clone());
            thread::spawn(move || {
                let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                let request = lines.next().unwrap().unwrap();
                let headers: Vec<String> =
                    lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
                let is_authorized = headers.iter().any(|header| header.ends_with(CREDENTIALS));
                if !is_authorized {
                    let _ = client.write_all(b"HTTP/1.1 407 no\r\ncontent-length: 0\r\n\r\n");
                    return;
                }
                let target = request.split(' ').nth(1).unwrap().to_owned();
                let server = TcpStream::connect(&target).unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                let _ = sender.send(request);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pipe(from, to));
                pipe(server, client);
            });
        }
    });
    (port, requests)
}

fn pipe(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn shell(env: &TestEnv, proxy: String) -> Shell {
    let config = env.server.kubeconfig().display().to_string();
    Shell::bare().with("KUBECONFIG", config).with("HTTPS_PROXY", proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_is_reached_through_the_proxy_unless_in_no_proxy() {
    let env = TestEnv::new().await;
    let (port, requests) = start_proxy();
    let url = format!("http://u:s3cret@127.0.0.1:{port}");
    let list = ["election", "list", "--lock", "kubernetes", "--namespace", &env.namespace];
    shell(&env, url.clone()).out(&list);
    assert_eq!(
        requests.try_recv().unwrap(),
        format!("CONNECT 127.0.0.1:{} HTTP/1.1", env.server.port())
    );
    while requests.try_recv().is_ok() {}
    shell(&env, url).with("NO_PROXY", "example.net,127.0.0.1").out(&list);
    assert!(requests.try_recv().is_err(), "the request bypassed the proxy");
}

#[tokio::test(flavor = "multi_thread")]
async fn password_of_a_proxy_is_not_printed() {
    let env = TestEnv::new().await;
    let (port, _requests) = start_proxy();
    let list = ["election", "list", "--lock", "kubernetes", "--namespace", &env.namespace];
    for url in [
        "http://u:s3cret@127.0.0.1:1".to_owned(),
        format!("http://other:s3cret@127.0.0.1:{port}"),
        "socks5://u:s3cret@127.0.0.1:1".to_owned(),
        "https://u:s3cret@127.0.0.1:1".to_owned(),
        "gopher://u:s3cret@127.0.0.1:1".to_owned(),
        "u:s3cret@127.0.0.1:1".to_owned(),
        "http://u:s3cret@ not a proxy".to_owned(),
    ] {
        let (line, _) = shell(&env, url.clone()).refusal(&list);
        assert!(!line.contains("s3cret"), "{url}: {line}");
    }
    // A proxy that the kubeconfig names.
    let shell = Shell::bare();
    let text = kubeconfig("https://127.0.0.1:1", &json!({}));
    let text = text.replace("\"server\":", "\"proxy-url\":\"gopher://u:s3cret@h\",\"server\":");
    assert!(text.contains("proxy-url"), "{text}");
    shell.write("config", &text);
    let (line, _) =
        shell.refusal(&["election", "list", "--lock=kubernetes", "--kubeconfig=config"]);
    assert!(!line.contains("s3cret"), "{line}");
}
