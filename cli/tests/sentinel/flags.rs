//! Wrong usage, and programs that cannot be started.

use std::fs;
use std::path::PathBuf;

use crate::env::incumbent;

/// Runs `incumbent sentinel`, which must fail. Returns standard error and the exit code.
fn refusal(args: &[&str]) -> (String, Option<i32>) {
    let output = incumbent().arg("sentinel").args(args).output().expect("it starts");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.stdout, b"", "{text}");
    (text.trim_end().to_owned(), output.status.code())
}

#[test]
fn either_a_program_or_a_socket_is_required() {
    for (args, expected) in [
        (&[][..], "required arguments were not provided"),
        (&["--listen", "/tmp/x", "--", "true"], "cannot be used with"),
        (&["my-daemon"], "unexpected argument"),
    ] {
        let (text, code) = refusal(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn program_that_cannot_be_started_is_reported_as_by_a_shell() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken: PathBuf = folder.path().join("broken");
    fs::write(&broken, "#!/no/such/interpreter\n").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&broken, mode).expect("rights");
    for (program, message, code) in [
        ("no-such-program", "incumbent: no command no-such-program on PATH", 127),
        ("/no/such/program", "incumbent: no command /no/such/program", 127),
        ("/etc/passwd", "incumbent: /etc/passwd is not executable", 126),
        (broken.to_str().expect("text"), "incumbent: cannot run ", 127),
    ] {
        let (text, found) = refusal(&["--", program]);
        assert!(text.starts_with(message), "{text}");
        assert_eq!((text.lines().count(), found), (1, Some(code)), "{text}");
    }
}
