//! Object stores that are reached by http://, to which credentials would go in clear.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::shell::Shell;

/// Takes note of every request, and refuses it.
fn overhears() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let heard = Arc::new(Mutex::new(String::new()));
    let hearing = Arc::clone(&heard);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap_or_default();
            *hearing.lock().unwrap() += &String::from_utf8_lossy(&head[..length]);
            let refusal =
                "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(refusal.as_bytes());
        }
    });
    (address, heard)
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
fn nothing_is_sent_in_clear_unless_it_is_allowed() {
    for (scheme, signed) in [("s3", "AWS4-HMAC-SHA256"), ("az", "SharedKey"), ("gs", "bucket/e")] {
        let (address, heard) = overhears();
        let shell = shell_of(scheme, &address);
        let lock = format!("{scheme}://bucket");
        let info = ["election", "info", "e", "--lock", &lock];
        let line = shell.refuses(&info, "credentials would be sent in clear: use https://", 1);
        assert!(line.contains("allow-http"), "{line}");
        let campaign = ["campaign", "e", "--timeout", "1s", "--lock", &lock];
        let mut candidate = shell.start(&campaign);
        candidate.line_with("would be sent in clear");
        candidate.end_by("TERM");
        assert_eq!(*heard.lock().unwrap(), "", "{scheme}");

        let allowed = format!("{lock}?allow-http");
        shell.refuses(&["election", "info", "e", "--lock", &allowed], "", 5);
        let heard = heard.lock().unwrap().clone();
        assert!(heard.contains(signed), "{scheme}: {heard}");
        let wrong = format!("{lock}?allow-http=perhaps");
        shell.refuses(&["election", "info", "--lock", &wrong], "allow-http is yes or no", 2);
    }
}

/// As object_store's own variables say it.
#[test]
fn the_environment_may_allow_it() {
    for (scheme, variable) in [("s3", "AWS_ALLOW_HTTP"), ("az", "AZURE_ALLOW_HTTP")] {
        let (address, heard) = overhears();
        let shell = shell_of(scheme, &address).with(variable, "true");
        let lock = format!("{scheme}://bucket");
        shell.refuses(&["election", "info", "e", "--lock", &lock], "", 5);
        assert!(!heard.lock().unwrap().is_empty(), "{scheme}");
    }
}
