//! Object stores at http:// addresses, to which credentials would be sent unencrypted.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::shell::Shell;

/// A server that records every request and refuses it.
fn start_recorder() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let received = Arc::new(Mutex::new(String::new()));
    let recorded = Arc::clone(&received);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or_default();
            *recorded.lock().unwrap() += &String::from_utf8_lossy(&head[..length]);
            let response =
                "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(response.as_bytes());
        }
    });
    (address, received)
}

fn shell_of(scheme: &str, address: &str) -> Shell {
    let url = format!("http://{address}");
    match scheme {
        "s3" => Shell::bare()
            .with("AWS_ENDPOINT", url)
            .with("AWS_REGION", "us-east-1")
            .with("AWS_ACCESS_KEY_ID", "me")
            .with("AWS_SECRET_ACCESS_KEY", "s3cret"),
        "az" => Shell::bare()
            .with("AZURE_STORAGE_ACCOUNT_NAME", "me")
            .with("AZURE_STORAGE_ENDPOINT", format!("{url}/me"))
            .with("AZURE_STORAGE_ACCOUNT_KEY", "dGhlLXNlY3JldC1vZi10aGUtdGVzdHM="),
        _ => Shell::bare().with(
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            format!(
                r#"{{"gcs_base_url": "{url}", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}}"#
            ),
        ),
    }
}

#[test]
fn credentials_are_not_sent_over_http_unless_allowed() {
    for (scheme, signed) in [("s3", "AWS4-HMAC-SHA256"), ("az", "SharedKey"), ("gs", "bucket/e")] {
        let (address, received) = start_recorder();
        let shell = shell_of(scheme, &address);
        let lock = format!("{scheme}://bucket");
        let info = ["election", "info", "e", "--lock", &lock];
        let line =
            shell.expect_refusal(&info, "credentials would be sent in clear: use https://", 1);
        assert!(line.contains("allow-http"), "{line}");
        let campaign = ["campaign", "e", "--timeout", "1s", "--lock", &lock];
        shell.expect_refusal(&campaign, "would be sent in clear", 1);
        assert_eq!(*received.lock().unwrap(), "", "{scheme}");

        let allowed = format!("{lock}?allow-http");
        shell.expect_refusal(&["election", "info", "e", "--lock", &allowed], "", 5);
        let received = received.lock().unwrap().clone();
        assert!(received.contains(signed), "{scheme}: {received}");
        let wrong = format!("{lock}?allow-http=perhaps");
        shell.expect_refusal(&["election", "info", "--lock", &wrong], "allow-http is yes or no", 2);
    }
}

/// By the variables of the crate object_store.
#[test]
fn environment_may_allow_http() {
    for (scheme, variable) in [("s3", "AWS_ALLOW_HTTP"), ("az", "AZURE_ALLOW_HTTP")] {
        let (address, received) = start_recorder();
        let shell = shell_of(scheme, &address).with(variable, "true");
        let lock = format!("{scheme}://bucket");
        shell.expect_refusal(&["election", "info", "e", "--lock", &lock], "", 5);
        assert!(!received.lock().unwrap().is_empty(), "{scheme}");
    }
}
