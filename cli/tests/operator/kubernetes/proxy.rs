//! A proxy in front of the API server, as `HTTPS_PROXY` and `NO_PROXY` name it.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::scene::{Scene, kubeconfig};
use crate::shell::Shell;

use serde_json::json;

/// "u:s3cret" as a proxy is told it.
const CREDENTIALS: &str = "Basic dTpzM2NyZXQ=";

/// A proxy that lets through who knows the password, and tells where to.
fn proxy() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, tell) = (client.unwrap(), tell.clone());
            thread::spawn(move || {
                let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
                let asked = lines.next().unwrap().unwrap();
                let headers: Vec<String> =
                    lines.map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
                let knows = headers.iter().any(|header| header.ends_with(CREDENTIALS));
                if !knows {
                    let _ = client.write_all(b"HTTP/1.1 407 no\r\ncontent-length: 0\r\n\r\n");
                    return;
                }
                let target = asked.split(' ').nth(1).unwrap().to_owned();
                let server = TcpStream::connect(&target).unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                let _ = tell.send(asked);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pipe(from, to));
                pipe(server, client);
            });
        }
    });
    (port, told)
}

fn pipe(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn shell(scene: &Scene, proxy: String) -> Shell {
    let config = scene.server.kubeconfig().display().to_string();
    Shell::bare().with("KUBECONFIG", config).with("HTTPS_PROXY", proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_reached_through_the_proxy_unless_no_proxy_names_it() {
    let scene = Scene::new().await;
    let (port, told) = proxy();
    let url = format!("http://u:s3cret@127.0.0.1:{port}");
    let list = ["election", "list", "--lock", "kubernetes", "--namespace", &scene.namespace];
    shell(&scene, url.clone()).out(&list);
    assert_eq!(
        told.try_recv().unwrap(),
        format!("CONNECT 127.0.0.1:{} HTTP/1.1", scene.server.port())
    );
    while told.try_recv().is_ok() {}
    shell(&scene, url).with("NO_PROXY", "example.net,127.0.0.1").out(&list);
    assert!(told.try_recv().is_err(), "it went past the proxy");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_a_proxy_is_not_told() {
    let scene = Scene::new().await;
    let (port, _told) = proxy();
    let list = ["election", "list", "--lock", "kubernetes", "--namespace", &scene.namespace];
    for url in [
        "http://u:s3cret@127.0.0.1:1".to_owned(),
        format!("http://other:s3cret@127.0.0.1:{port}"),
        "socks5://u:s3cret@127.0.0.1:1".to_owned(),
        "https://u:s3cret@127.0.0.1:1".to_owned(),
        "gopher://u:s3cret@127.0.0.1:1".to_owned(),
        "u:s3cret@127.0.0.1:1".to_owned(),
        "http://u:s3cret@ not a proxy".to_owned(),
    ] {
        let (line, _) = shell(&scene, url.clone()).refusal(&list);
        assert!(!line.contains("s3cret"), "{url}: {line}");
    }
    // The same where the kubeconfig names it.
    let shell = Shell::bare();
    let text = kubeconfig("https://127.0.0.1:1", &json!({}));
    let text = text.replace("\"server\":", "\"proxy-url\":\"gopher://u:s3cret@h\",\"server\":");
    assert!(text.contains("proxy-url"), "{text}");
    shell.write("config", &text);
    let (line, _) =
        shell.refusal(&["election", "list", "--lock=kubernetes", "--kubeconfig=config"]);
    assert!(!line.contains("s3cret"), "{line}");
}
