//! `completions`, `man`, and the reference in `docs/cli.md`.

use incumbent_test_support::checkout;

use crate::shell::Shell;

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Shell::bare().out(&["completions", shell]);
        assert!(script.contains("incumbent") && script.contains("evict"), "{shell}");
    }
    assert_eq!(Shell::bare().run(&["completions", "csh"]).code, Some(2));
    let shell = Shell::bare();
    shell.write("script", &shell.out(&["completions", "bash"]));
    let script = shell.home().join("script");
    let parsed = std::process::Command::new("bash").arg("-n").arg(script).output().expect("bash");
    assert!(parsed.status.success(), "{parsed:?}");
}

#[test]
fn every_command_has_a_manual_page() {
    let shell = Shell::bare();
    let page = shell.out(&["man"]);
    assert!(page.contains(".TH incumbent 1") && page.contains("128+n"), "{page}");
    shell.out(&["man", "pages/man1"]);
    for name in ["incumbent", "incumbent-campaign", "incumbent-kv-get", "incumbent-election-evict"]
    {
        let page = std::fs::read_to_string(shell.home().join(format!("pages/man1/{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(&format!(".TH {name} 1")), "{page}");
    }
    shell.write("file", "");
    shell.expect_refusal(&["man", "file"], "cannot write manual pages in file", 1);
}

#[test]
fn reference_is_up_to_date() {
    let written = checkout().join("docs/cli.md");
    let written = std::fs::read_to_string(written).expect("docs/cli.md");
    assert!(written == Shell::bare().out(&["reference"]), "run `make cli-doc`");
}
